//! Faults: of one line, which is left out, and of a whole import, which then writes nothing.

use std::fmt;
use std::io;

use prorata_schemas::reject::Reject;
use serde::{Deserialize, Serialize};

/// The place of a line in its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// A line of a text, from 1. A row of CSV may have several lines; this is the first.
    Line(u64),
    /// A row of a Parquet file, from 1.
    Row(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Row(number) => write!(f, "row {number}"),
        }
    }
}

/// A fault of one line. The other lines of the document are imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFault {
    /// The column with the fault; `None` if the whole line is wrong.
    pub column: Option<&'static str>,
    /// A message that says what is wrong, and how to fix it.
    pub message: String,
}

impl LineFault {
    /// Creates a fault of a whole line.
    pub fn of_line(message: impl Into<String>) -> Self {
        Self { column: None, message: message.into() }
    }

    /// Creates a fault of a cell.
    pub fn of_cell(column: &'static str, message: impl Into<String>) -> Self {
        Self { column: Some(column), message: message.into() }
    }
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            Some(column) => write!(f, "column {column}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// The reason for which nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum BillError {
    /// A document cannot be read from some place on.
    #[error("'{file}': {message}")]
    Document {
        /// The name of the document.
        file: String,
        /// A message that says what is wrong, and how to fix it.
        message: String,
    },
    /// A document lacks columns.
    #[error("'{file}' has no column {}; add it to the export, or name another format", .columns.join(", "))]
    Columns {
        /// The name of the document.
        file: String,
        /// The columns.
        columns: Vec<&'static str>,
    },
    /// A line has another currency than an earlier one.
    #[error(
        "{here} is in '{currency}', but {before} is in '{currency_before}'; a set has one currency, so \
         import the files of each currency alone"
    )]
    TwoCurrencies {
        /// The line.
        here: String,
        /// Currency of the line.
        currency: String,
        /// The earlier line.
        before: String,
        /// Currency of the earlier line.
        currency_before: String,
    },
    /// Documents of Azure hold the same charges as actual and as amortized costs.
    #[error(
        "{actual} is an actual cost, and {amortized} an amortized cost; both exports hold the same usage, so \
         import only one"
    )]
    ActualAndAmortized {
        /// A line of an actual cost.
        actual: String,
        /// A line of an amortized cost.
        amortized: String,
    },
    /// No line could be read.
    #[error("none of the {lines} lines can be read; the first fault: {first}")]
    NothingRead {
        /// Number of lines.
        lines: u64,
        /// The first fault.
        first: String,
    },
    /// A set is too large for an event, even if lines are merged.
    #[error(
        "{charges} from {from} on have {lines} lines that differ in period, kind, service, invoice or \
         commitment, and a set has at most {lines_max} lines and {bytes_max} bytes; import fewer accounts: \
         name them with --account in place of --all"
    )]
    TooManyLines {
        /// The resource, or the charges of no resource.
        charges: String,
        /// The first hour.
        from: String,
        /// Number of lines.
        lines: usize,
        /// Largest number of lines.
        lines_max: usize,
        /// Largest number of bytes.
        bytes_max: usize,
    },
    /// Lines were added up to a set that readers would reject.
    #[error("the lines of {charges} make no valid event: {reject}; correct the amounts in the bill")]
    Rejected {
        /// The resource, or the charges of no resource.
        charges: String,
        /// The reason.
        reject: Reject,
    },
    /// Temporary files or the output cannot be written or read.
    #[error("failed to write or read the lines on disk: {0}; free some space, or set TMPDIR to another disk")]
    Disk(#[from] io::Error),
}
