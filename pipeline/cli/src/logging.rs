//! Logs to standard error, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};
use crate::failure::Failure;

/// Libraries whose logs are off. Most of them log errors that the worker handles itself, such as a lost
/// commit race. The Avro library repeats whole schemas.
const QUIET: &str = "deltalake_core=off,buoyant_kernel=off,delta_kernel=off,kube_client=off,apache_avro=off";

/// Starts logging.
///
/// # Errors
/// If the level is invalid.
pub fn start(log: &LogConfig) -> Result<(), Failure> {
    let directives = format!("{QUIET},{}", log.level);
    let filter = EnvFilter::try_new(&directives).map_err(|error| {
        let level = &log.level;
        Failure::usage(format!("log.level '{level}': {error}; use error, warn, info, debug or trace"))
    })?;
    // Colours are for terminals only. In files and container logs they are noise.
    let colours = std::io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(std::io::stderr)
        // A line that cannot be written, for example on a full disk, is lost. A report on standard error
        // would fail too, and would panic in the code that logs the line.
        .log_internal_errors(false);
    let started = match log.format {
        LogFormat::Text => logs.try_init(),
        LogFormat::Json => logs.json().try_init(),
    };
    started.map_err(|error| Failure::usage(format!("logging cannot start: {error}")))
}
