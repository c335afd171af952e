//! Failures: each has one message and one exit code, and never a stack trace.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use prorata_inspect::text::plain;
use prorata_worker::WorkerError;

/// Exit code if some input was dead-lettered.
pub const DEAD_LETTERED: u8 = 3;

/// Exit code if something was left out until a person fixes the cause.
pub const LEFT_OUT: u8 = 1;

const INTERNAL: u8 = 1;
const USAGE: u8 = 2;
const STORAGE: u8 = 4;

/// A message with its exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Creates the failure for wrong arguments or configuration.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { code: USAGE, message: message.to_string() }
    }

    /// Creates the failure for a worker or backfill that stopped.
    pub fn from_worker(error: &WorkerError) -> Self {
        Self { code: error.exit_code(), message: error.to_string() }
    }

    /// Returns the exit code.
    pub const fn code(&self) -> u8 {
        self.code
    }

    /// Creates the failure for unavailable storage.
    pub fn storage(message: impl fmt::Display) -> Self {
        Self { code: STORAGE, message: message.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Prints the error and returns its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let worker = error.downcast_ref::<WorkerError>();
    let remedy = worker.and_then(WorkerError::remedy).map(|remedy| format!("; {remedy}"));
    let message = format!("{error}{}", remedy.unwrap_or_default());
    // If the message cannot be written, the exit code still reports the failure.
    let _ = writeln!(io::stderr(), "prorata: {}", plain(&message));
    let code = match (error.downcast_ref::<Failure>(), worker) {
        (Some(failure), _) => failure.code,
        (None, Some(worker)) => worker.exit_code(),
        (None, None) => INTERNAL,
    };
    ExitCode::from(code)
}
