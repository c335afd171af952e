//! A shard's checkpoints: their content, how a checkpoint is decided, and how a shard changes owners.
//!
//! Each stage in the life of a checkpoint has its own type:
//!
//! | type | meaning | made by |
//! |---|---|---|
//! | [`Draft`] | the next checkpoint while it is built, with its objects | [`Decided::next_draft`] |
//! | [`Sealed`] | a checkpoint to be decided; it no longer changes | [`log::Log::seal`] |
//! | [`Decided`] | a checkpoint in the log | [`log::Log::append`], [`log::latest`] |
//!
//! The creation of `checkpoint-<seq>` is the only decision of the protocol. An object that the latest
//! checkpoint does not name does not count. Only decided checkpoints can be published (`publish.rs`).

pub mod checksum;
pub(crate) mod claim;
mod draft;
mod hours;
pub mod log;
mod model;
mod offsets;
pub(crate) mod publish;
pub mod retention;
pub mod snapshot;
pub(crate) mod sweep;

pub use draft::{Decided, Draft, ObjectNamer, Sealed};
pub use hours::{Dirty, HourSet};
pub use model::{
    ArchivedFile, Checkpoint, FORMAT, HourEntry, Name, Named, Owner, OwnerKind, RulesFrom, TableFiles,
};
pub use offsets::{LastRecord, TopicOffsets};
