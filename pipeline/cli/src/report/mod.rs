//! What commands print: progress while they run, and a report at the end, for people or as one JSON document.

pub mod backfill;
pub mod dead_letters;
pub mod progress;

use std::io::{ErrorKind, Write};

use crate::failure::Failure;

/// Prints a report. A reader that has gone away, such as `head`, is no error.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::storage(error)),
        _ => Ok(()),
    }
}
