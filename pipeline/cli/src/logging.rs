//! Logs to standard error, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};
use crate::failure::Failure;

/// What libraries report by themselves although the worker deals with it: a lost commit race is no error.
const QUIET: &str = "deltalake_core=off,buoyant_kernel=off,delta_kernel=off";

/// Starts logging.
///
/// # Errors
/// When the level is none.
pub fn start(log: &Log) -> Result<(), Failure> {
    let directives = format!("{QUIET},{}", log.level);
    let filter = EnvFilter::try_new(&directives).map_err(|error| {
        let level = &log.level;
        Failure::usage(format!("log.level '{level}': {error}; use error, warn, info, debug or trace"))
    })?;
    // Colours are for terminals: in a file or a container's log they are noise.
    let colours = std::io::stderr().is_terminal();
    let logs =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Text => logs.try_init(),
        LogFormat::Json => logs.json().try_init(),
    };
    started.map_err(|error| Failure::usage(format!("logging cannot start: {error}")))
}
