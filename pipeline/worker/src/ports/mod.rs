//! The ports: what the worker needs from the outside world, as traits.
//!
//! `connectors` implements them. `pipeline/testkit` has an in-memory fake of each, and the conformance suites
//! that both must pass. Read [`error`] first: every port returns an error with a kind and a source.

mod archive;
mod clock;
pub mod error;
pub mod source;
mod store;
mod tables;

pub use archive::{Archive, DeadLetter, EachRecord, Origin, Position, Rejected};
pub use clock::{Clock, Progress, Silent};
pub use error::{Cause, ErrorKind, FormatError, StoreError, TableError};
pub use store::{Input, InputFile, Listed, ObjectStore, Put};
pub use tables::{CommitOutcome, LiveFile, LiveTable, TableCommit, TableCommitter, TableEncoder};
