//! The ports: the worker's view of the outside world, as traits.
//!
//! `connectors` implements them. `pipeline/testkit` has an in-memory fake of each port, and the conformance
//! suites that connectors and fakes must pass. Read [`error`] first: every port returns an error with a kind
//! and a source. [`duration`] is the form of durations in a configuration.

use std::sync::Arc;

mod archive;
mod budgets;
mod clock;
mod dead_letter;
pub mod duration;
pub mod error;
pub mod source;
mod store;
mod tables;

pub use archive::{Archive, EachRecord, Wanted, read_whole};
pub use budgets::{BudgetTopic, ExceededBudget};
pub use clock::{Clock, Progress, Silent};
pub use dead_letter::{DeadLetter, Origin, Position, Rejected};
pub use error::{Cause, ErrorKind, FormatError, StoreError, TableError};
pub use store::{Input, InputFile, ObjectMeta, ObjectStore, PutOutcome};
pub use tables::{
    CommitOutcome, FILE_ROWS, FileEntry, Kept, LiveFile, LiveTable, TableCommit, TableCommitter,
    TableEncoder, TableLogs, TrimmedLog,
};

/// The ports that every owner of shards needs.
#[derive(Clone)]
pub struct Ports {
    /// The root.
    pub store: Arc<dyn ObjectStore>,
    /// The logs of the root's tables.
    pub tables: Arc<dyn TableCommitter>,
    /// Avro files.
    pub archive: Arc<dyn Archive>,
    /// Table files.
    pub encoder: Arc<dyn TableEncoder>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
}
