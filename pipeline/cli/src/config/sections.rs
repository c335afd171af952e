//! Sections of the configuration, except Kafka and the registry.

use std::time::Duration;

use prorata_schemas::Text;
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::root::SHARDS_DEFAULT;
use prorata_worker::stream::WorkerOptions;
use serde::{Deserialize, Serialize};

use super::duration;

/// The root, and what is fixed for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RootConfig {
    /// Folder or URL of the root. Empty: none.
    pub url: String,
    /// Number of shards.
    pub shards: u16,
    /// Format to raise the root to. 0: as it is.
    pub format: u32,
}

/// How a backfill runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackfillConfig {
    /// Threads for reading, folding and encoding. 0: one per core.
    pub threads: usize,
    /// Bytes of new events to buffer before they are archived.
    pub buffer_bytes: u64,
    /// Bytes of memory that folding should stay within.
    pub memory_limit: u64,
    /// Most rows of `cost_allocation` in memory.
    pub rows_in_flight: u64,
    /// Least time between two checkpoints.
    #[serde(with = "duration")]
    pub checkpoint_interval: Duration,
    /// Most hours of one shard in one run.
    pub max_hours: i64,
}

/// How the stream worker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkConfig {
    /// How far events of one topic partition may be out of order before an hour closes.
    #[serde(with = "duration")]
    pub out_of_orderness: Duration,
    /// How long a topic partition at its end may bring nothing newer and still hold the watermark.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// How far a topic partition at its end may hold the watermark behind the wall clock.
    #[serde(with = "duration")]
    pub max_watermark_hold: Duration,
    /// How far in the future an event may be.
    #[serde(with = "duration")]
    pub max_clock_skew: Duration,
    /// How many hours before the wall clock a shard without closed hours may start.
    pub max_history_hours: i64,
    /// Most time between two checkpoints of a shard.
    #[serde(with = "duration")]
    pub checkpoint_interval: Duration,
    /// Bytes of new events of a shard that trigger a checkpoint.
    pub checkpoint_bytes: u64,
    /// Most time that closed hours wait to be written again while late events never end.
    #[serde(with = "duration")]
    pub max_restate_delay: Duration,
    /// Bytes of memory that the worker should stay within.
    pub memory_limit: u64,
    /// Most rows of `cost_allocation` in memory, as far as hours can be divided.
    pub rows_in_flight: u64,
    /// Most time for the last checkpoint of a clean stop or of a revoked shard.
    #[serde(with = "duration")]
    pub drain_timeout: Duration,
    /// Threads for folding and encoding. 0: one per core.
    pub threads: usize,
}

/// Where the stream worker serves probes, metrics and status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Address and port. Empty: none.
    pub listen: String,
}

/// Logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Lowest level, or levels by module.
    pub level: String,
    /// Form of a line.
    pub format: LogFormat,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for RootConfig {
    fn default() -> Self {
        Self { url: String::new(), shards: SHARDS_DEFAULT, format: 0 }
    }
}

impl Default for BackfillConfig {
    fn default() -> Self {
        let options = BackfillOptions::new(Text::default());
        Self {
            threads: 0,
            buffer_bytes: options.buffer_bytes,
            memory_limit: options.memory_limit,
            rows_in_flight: options.rows_in_flight,
            checkpoint_interval: options.checkpoint_interval,
            max_hours: options.max_hours,
        }
    }
}

impl Default for WorkConfig {
    fn default() -> Self {
        let options = WorkerOptions::new(Text::default());
        Self {
            out_of_orderness: options.watermark.out_of_orderness,
            idle_timeout: options.watermark.idle_timeout,
            max_watermark_hold: options.watermark.max_watermark_hold,
            max_clock_skew: options.max_clock_skew,
            max_history_hours: options.max_history_hours,
            checkpoint_interval: options.checkpoint_interval,
            checkpoint_bytes: options.checkpoint_bytes,
            max_restate_delay: options.max_restate_delay,
            memory_limit: options.memory_limit,
            rows_in_flight: options.rows_in_flight,
            drain_timeout: options.drain_timeout,
            threads: 0,
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { listen: "127.0.0.1:8080".into() }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "warn".into(), format: LogFormat::Text }
    }
}
