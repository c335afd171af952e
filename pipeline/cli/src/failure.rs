//! What went wrong, as one sentence and one exit code. Never a stack trace.

use std::fmt;
use std::process::ExitCode;

use prorata_worker::error::WorkerError;

/// Some input was dead-lettered.
pub const DEAD_LETTERED: u8 = 3;

const INTERNAL: u8 = 1;
const USAGE: u8 = 2;
const STORAGE: u8 = 4;

/// A sentence with its exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    sentence: String,
}

impl Failure {
    /// Arguments or configuration are wrong.
    pub fn usage(sentence: impl fmt::Display) -> Self {
        Self { code: USAGE, sentence: sentence.to_string() }
    }

    /// Storage is unavailable.
    pub fn storage(sentence: impl fmt::Display) -> Self {
        Self { code: STORAGE, sentence: sentence.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

/// Says what went wrong, and gives its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let worker = error.downcast_ref::<WorkerError>();
    match worker.and_then(WorkerError::remedy) {
        Some(remedy) => eprintln!("prorata: {error}; {remedy}"),
        None => eprintln!("prorata: {error}"),
    }
    let code = match (error.downcast_ref::<Failure>(), worker) {
        (Some(failure), _) => failure.code,
        (None, Some(worker)) => worker.exit_code(),
        (None, None) => INTERNAL,
    };
    ExitCode::from(code)
}
