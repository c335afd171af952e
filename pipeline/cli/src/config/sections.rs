//! Small sections of the configuration. The options of the stream worker and of a backfill are sections, too.

use prorata_worker::checkpoint::retention::Retention;
use prorata_worker::root::SHARDS_DEFAULT;
use serde::{Deserialize, Serialize};

use crate::operations::Limits;

/// The root, and settings that are the same for everything that uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RootConfig {
    /// Folder or URL of the root. If empty, there is none.
    pub url: String,
    /// Number of shards.
    pub shards: u16,
    /// The time that hours stay in checkpoints.
    pub horizon: Retention,
    /// Format to raise the root to. If 0, the format stays as it is.
    pub format: u32,
}

/// Address at which the stream worker serves probes, metrics and status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Address and port. If empty, nothing is served.
    pub listen: String,
    /// Maximum number of series of each metric of costs and budgets. If 0, there are no such metrics.
    pub cost_series: usize,
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
        Self { url: String::new(), shards: SHARDS_DEFAULT, horizon: Retention::default(), format: 0 }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { listen: "127.0.0.1:8080".into(), cost_series: Limits::default().cost_series }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "warn".into(), format: LogFormat::Text }
    }
}
