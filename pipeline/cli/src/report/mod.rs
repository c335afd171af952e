//! Output of commands: progress while they run, and a report at the end, for people or as one JSON document.

pub mod backfill;
pub mod bills;
pub mod dead_letters;
pub mod progress;

use std::io::{ErrorKind, Write};

use prorata_inspect::text::is_unsafe;
use serde::Serialize;

use crate::failure::Failure;

/// Prints a report. Characters that a terminal would interpret are printed as JSON escapes, so that a
/// document keeps its values. It is not an error if the reader, such as `head`, has closed the output.
///
/// # Errors
/// If standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    print_some(text).map(|_wants_more| ())
}

/// Prints a part of a report as [`print()`] does. Returns `false` if the reader has closed the output.
///
/// # Errors
/// If standard output cannot be written.
pub fn print_some(text: &str) -> Result<bool, Failure> {
    match writeln!(std::io::stdout(), "{}", escaped(text)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::storage(error)),
    }
}

/// Formats a report as one JSON document with sorted keys.
///
/// # Errors
/// If the report cannot be serialized.
pub fn document(report: &impl Serialize) -> serde_json::Result<String> {
    // The keys of a value are sorted, but the fields of a struct are not.
    serde_json::to_string_pretty(&serde_json::to_value(report)?)
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter != '\n' && is_unsafe(letter) {
            escaped += &format!("\\u{:04x}", u32::from(letter));
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_document_keeps_its_values_without_what_a_terminal_obeys() {
        let document = Value::from_iter([("pod", "a\u{1b}[2J\n\u{7f}\u{9b}\u{202e}\u{2028}é")]);
        let printed = escaped(&format!("{document:#}"));
        assert!(!printed.contains(|letter: char| letter != '\n' && is_unsafe(letter)), "{printed:?}");
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), document);
    }
}
