//! Sections of the configuration, except Kafka and the registry.

use std::time::Duration;

use prorata_schemas::Text;
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::root::SHARDS_DEFAULT;
use prorata_worker::stream::WorkerOptions;
use serde::{Deserialize, Serialize};

use super::duration;

/// The root, and the settings that are fixed for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RootConfig {
    /// Folder or URL of the root. If empty, there is none.
    pub url: String,
    /// Number of shards.
    pub shards: u16,
    /// Format to raise the root to. If 0, the format stays as it is.
    pub format: u32,
}

/// Settings of a backfill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackfillConfig {
    /// Threads for reading, folding and encoding. If 0, one per core.
    pub threads: usize,
    /// Bytes of new events to buffer before they are archived.
    pub buffer_bytes: u64,
    /// Bytes of memory that folding should not exceed.
    pub memory_limit: u64,
    /// Maximum rows of `cost_allocation` in memory.
    pub rows_in_flight: u64,
    /// Minimum time between two checkpoints.
    #[serde(with = "duration")]
    pub checkpoint_interval: Duration,
    /// Maximum hours of one shard in one run.
    pub max_hours: i64,
}

/// Settings of the stream worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkConfig {
    /// Largest disorder of events of one topic partition before an hour closes.
    #[serde(with = "duration")]
    pub out_of_orderness: Duration,
    /// Longest time for which a topic partition, read to its end, may bring nothing newer and still hold the
    /// watermark.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// Largest distance behind the wall clock at which a topic partition, read to its end, may hold the
    /// watermark.
    #[serde(with = "duration")]
    pub max_watermark_hold: Duration,
    /// Largest distance of an event in the future.
    #[serde(with = "duration")]
    pub max_clock_skew: Duration,
    /// Largest number of hours before the wall clock at which a shard without closed hours may start.
    pub max_history_hours: i64,
    /// Maximum time between two checkpoints of a shard.
    #[serde(with = "duration")]
    pub checkpoint_interval: Duration,
    /// Bytes of new events of a shard that trigger a checkpoint.
    pub checkpoint_bytes: u64,
    /// Maximum time for which closed hours wait to be rewritten while late events keep arriving.
    #[serde(with = "duration")]
    pub max_restate_delay: Duration,
    /// Bytes of memory that the worker should not exceed.
    pub memory_limit: u64,
    /// Maximum rows of `cost_allocation` in memory, as far as hours can be divided.
    pub rows_in_flight: u64,
    /// Maximum time for the last checkpoint of a clean stop or of a revoked shard.
    #[serde(with = "duration")]
    pub drain_timeout: Duration,
    /// Threads for folding and encoding. If 0, one per core.
    pub threads: usize,
}

/// Address at which the stream worker serves probes, metrics and status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Address and port. If empty, nothing is served.
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
