//! The shard core: the work on a shard that stream worker and backfill share.
//!
//! Read in this order: [`archive`] (the files that hold an hour), `cursor` (the start of a recomputation),
//! `window` (the number of hours folded at a time), `reading` (archive files, a few at a time), [`fold`],
//! `converge` (the end of a recomputation), `emit` (folded hours as objects and entries of a
//! [`crate::checkpoint::Draft`]), `courses` and `restate` (recomputation of only some organizations),
//! `dead_letters`, `clock` and `clock_limit`.

pub mod archive;
pub(crate) mod clock;
pub(crate) mod clock_limit;
pub(crate) mod converge;
pub(crate) mod courses;
pub(crate) mod cursor;
pub(crate) mod dead_letters;
pub(crate) mod emit;
pub mod fold;
pub(crate) mod reading;
pub(crate) mod restate;
pub(crate) mod window;

use prorata_schemas::event::EventKind;

/// An event's kind and canonical body.
pub type Body = (EventKind, Box<[u8]>);
