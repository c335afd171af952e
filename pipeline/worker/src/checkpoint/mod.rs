//! A shard's checkpoints: what they say, how one is decided, and how a shard changes hands.
//!
//! The life of a checkpoint is in its types:
//!
//! | type | what it is | who makes it |
//! |---|---|---|
//! | [`Draft`] | what the next checkpoint will say, and the objects it will name | [`Decided::next_draft`] |
//! | [`Sealed`] | a checkpoint on its way; nothing of it changes any more | [`Draft::seal`] |
//! | [`Decided`] | a checkpoint that stands in the log | [`log::decide`], [`log::latest`] |
//!
//! Creating `checkpoint-<seq>` is the only decision of the protocol; what it does not admit does not exist.
//! Only decided checkpoints can be published (`publish.rs`).

pub mod checksum;
pub(crate) mod claim;
pub(crate) mod days;
mod draft;
mod hours;
pub mod log;
mod model;
mod offsets;
pub(crate) mod publish;
pub mod retention;
pub mod snapshot;
pub(crate) mod sweep;

pub use draft::{ArchivedFile, Decided, Draft, ObjectNamer, Sealed};
pub use hours::{Dirty, HourSet};
pub use model::{Checkpoint, FORMAT, HourEntry, Owner, OwnerKind, RulesFrom, TableFiles};
pub use offsets::{LastRecord, TopicOffsets};
