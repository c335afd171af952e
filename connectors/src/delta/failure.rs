//! Kinds of the Delta library's errors, which separate faults that a person must fix from outages.

use delta_kernel::Error as Kernel;
use delta_kernel::arrow::error::ArrowError as Arrow;
use deltalake_core::DeltaTableError as Delta;
use deltalake_core::kernel::Error as Actions;
use deltalake_core::kernel::transaction::TransactionError as Transaction;
use prorata_schemas::tables::Table;
use prorata_worker::ports::{ErrorKind, TableError};

use crate::store::{self, Explained};

/// Returns the port's error for an operation on a table.
pub(super) fn failure(operation: &'static str, table: Table, error: Delta) -> TableError {
    let error = without_backtrace(error);
    let kind = kind_of(&error);
    let explained = match kind {
        ErrorKind::Permission => Explained::new(kind, error),
        // Usually a file of the log is missing rather than the bucket, and the error names that file.
        _ => Explained::plain(error),
    };
    TableError::new(kind, operation, table, explained)
}

/// Returns the error without the stack trace that the kernel adds to its message if `RUST_BACKTRACE` is set.
fn without_backtrace(error: Delta) -> Delta {
    match error {
        Delta::KernelError(Kernel::Backtraced { source, .. }) => {
            without_backtrace(Delta::KernelError(*source))
        }
        other => other,
    }
}

/// Returns the kind of an error. An error that is not known to need a person counts as an outage and is tried
/// again.
pub(super) fn kind_of(error: &Delta) -> ErrorKind {
    match error {
        Delta::ObjectStore { source } => store::kind_of(source),
        Delta::KernelError(kernel) => kind_of_kernel(kernel),
        Delta::Kernel { source } => kind_of_actions(source),
        Delta::Io { source } => ErrorKind::of_io(source),
        Delta::Transaction { source } => kind_of_transaction(source),
        Delta::VersionAlreadyExists(_) => ErrorKind::Conflict,
        Delta::InvalidJsonLog { .. }
        | Delta::InvalidStatsJson { .. }
        | Delta::InvalidVersion(_)
        | Delta::InvalidData { .. }
        | Delta::InvalidTableLocation(_)
        | Delta::NotATable(_)
        | Delta::NoSchema
        | Delta::SchemaMismatch { .. }
        | Delta::MetadataError(_)
        | Delta::MissingFeature { .. }
        | Delta::UnsupportedColumnMapping { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Transient,
    }
}

fn kind_of_transaction(error: &Transaction) -> ErrorKind {
    match error {
        Transaction::VersionAlreadyExists(_)
        | Transaction::CommitConflict(_)
        | Transaction::MaxCommitAttempts(_) => ErrorKind::Conflict,
        Transaction::ObjectStore { source } => store::kind_of(source),
        Transaction::SerializeLogJson { .. }
        | Transaction::DeltaTableAppendOnly
        | Transaction::UnsupportedTableFeatures(_)
        | Transaction::TableFeaturesRequired(_) => ErrorKind::Invalid,
        Transaction::LogStoreError { .. } => ErrorKind::Transient,
    }
}

fn kind_of_kernel(error: &Kernel) -> ErrorKind {
    match error {
        Kernel::Backtraced { source, .. } => kind_of_kernel(source),
        Kernel::ObjectStore(source) => store::kind_of(source),
        Kernel::IOError(source) => ErrorKind::of_io(source),
        Kernel::Arrow(source) => kind_of_arrow(source),
        Kernel::FileNotFound(_) | Kernel::MissingVersion => ErrorKind::Missing,
        // A file of the log is gone. The kernel has no variant for it.
        Kernel::Generic(message) if message.contains("found gap") => ErrorKind::Missing,
        Kernel::FileAlreadyExists(_) => ErrorKind::Conflict,
        Kernel::MissingMetadata
        | Kernel::MissingProtocol
        | Kernel::MissingMetadataAndProtocol
        | Kernel::InvalidProtocol(_)
        | Kernel::InvalidCheckpoint(_)
        | Kernel::InvalidLogPath(_)
        | Kernel::MalformedJson(_)
        | Kernel::Unsupported(_)
        | Kernel::Schema(_) => ErrorKind::Invalid,
        _ => ErrorKind::Transient,
    }
}

fn kind_of_arrow(error: &Arrow) -> ErrorKind {
    match error {
        Arrow::IoError(_, source) => ErrorKind::of_io(source),
        Arrow::JsonError(_)
        | Arrow::ParseError(_)
        | Arrow::SchemaError(_)
        | Arrow::CastError(_)
        | Arrow::InvalidArgumentError(_)
        | Arrow::ParquetError(_) => ErrorKind::Invalid,
        _ => ErrorKind::Transient,
    }
}

fn kind_of_actions(error: &Actions) -> ErrorKind {
    match error {
        Actions::ObjectStore(source) => store::kind_of(source),
        Actions::FileNotFound(_) | Actions::MissingVersion => ErrorKind::Missing,
        Actions::MalformedJson(_) | Actions::MissingMetadata | Actions::Schema(_) => ErrorKind::Invalid,
        _ => ErrorKind::Transient,
    }
}
