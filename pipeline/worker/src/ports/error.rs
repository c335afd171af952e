//! Errors of the ports. Each error names the request, the object, the cause, and the kind of remedy that it
//! needs.
//!
//! An error never means that nothing happened: the answer may have been lost after the operation took effect.

use std::error::Error;
use std::io;

use prorata_schemas::tables::Table;

/// The cause of an error: another error, or a message.
pub type Cause = Box<dyn Error + Send + Sync>;

/// The kind of remedy that an error needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// No answer, a busy server, a full disk: the same request may succeed later.
    Transient,
    /// The credentials are refused or lack a permission. A person must change them.
    Permission,
    /// The bucket, container or folder does not exist, or a required object is gone.
    Missing,
    /// Another writer was first.
    Conflict,
    /// The request or the stored content can never work: a damaged log, an unsupported protocol feature, an
    /// impossible name.
    Invalid,
}

impl ErrorKind {
    /// All kinds, in order.
    pub const ALL: [Self; 5] =
        [Self::Transient, Self::Permission, Self::Missing, Self::Conflict, Self::Invalid];

    /// Returns the kind as one lower-case word, as in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permission => "permission",
            Self::Missing => "missing",
            Self::Conflict => "conflict",
            Self::Invalid => "invalid",
        }
    }

    /// Returns whether a retry within seconds may help. Errors of all other kinds wait for a person.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Transient | Self::Conflict)
    }

    /// Returns, in words, the state of storage that an error of this kind implies.
    pub const fn state_of_storage(self) -> &'static str {
        if self.is_retryable() { "storage is unavailable" } else { "storage cannot be used" }
    }

    /// Returns the kind of an error of the file system.
    pub fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Permission,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => Self::Invalid,
            _ => Self::Transient,
        }
    }
}

/// A failure of an object store, which did not carry out a request or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{operation} '{path}': {source}")]
pub struct StoreError {
    /// The kind of remedy that the error needs.
    pub kind: ErrorKind,
    /// The request: `read`, `write`, `list`, `delete`.
    pub operation: &'static str,
    /// The object or folder, as a path under the root.
    pub path: String,
    /// The cause.
    pub source: Cause,
}

impl StoreError {
    /// Returns an error of `operation` on `path`.
    pub fn new(
        kind: ErrorKind,
        operation: &'static str,
        path: impl Into<String>,
        source: impl Into<Cause>,
    ) -> Self {
        Self { kind, operation, path: path.into(), source: source.into() }
    }

    /// Returns an error of the file system.
    pub fn io(operation: &'static str, path: impl Into<String>, error: io::Error) -> Self {
        Self::new(ErrorKind::of_io(&error), operation, path, error)
    }
}

/// A failure of a table's log, which did not carry out a request or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("table {table}: {operation}: {source}", table = .table.name())]
pub struct TableError {
    /// The kind of remedy that the error needs.
    pub kind: ErrorKind,
    /// The request: `load`, `create`, `read transactions`, `commit`.
    pub operation: &'static str,
    /// The table.
    pub table: Table,
    /// The cause.
    pub source: Cause,
}

impl TableError {
    /// Returns an error of `operation` on `table`.
    pub fn new(kind: ErrorKind, operation: &'static str, table: Table, source: impl Into<Cause>) -> Self {
        Self { kind, operation, table, source: source.into() }
    }
}

/// A failure to encode values in a file format, or to decode bytes. A retry does not help.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {source}")]
pub struct FormatError {
    /// The request, such as `encode events`.
    pub operation: &'static str,
    /// The cause.
    pub source: Cause,
}

impl FormatError {
    /// Returns an error of `operation`.
    pub fn new(operation: &'static str, source: impl Into<Cause>) -> Self {
        Self { operation, source: source.into() }
    }
}
