//! The shard core: the work on a shard that stream worker and backfill share.
//!
//! Read in this order: [`archive`] (the files that hold an hour), `base` (the state to start from), `window`
//! (the number of hours folded at a time), `reading` (archive files, a few at a time), [`fold`], `emit`
//! (folded hours as objects and entries of a [`crate::checkpoint::Draft`]), `recompute` (closed hours again),
//! with `splice` (rows of some organizations in table files) and `patch` (their states in snapshots),
//! [`rules`] (the rules of each hour), `dead_letters` and `clock`.

pub mod archive;
pub(crate) mod base;
pub(crate) mod clock;
pub(crate) mod dead_letters;
pub(crate) mod emit;
pub mod fold;
pub(crate) mod patch;
pub(crate) mod reading;
pub(crate) mod recompute;
pub mod rules;
pub(crate) mod splice;
pub(crate) mod window;

use prorata_schemas::event::EventKind;

/// An event's kind and canonical body.
pub type Body = (EventKind, Box<[u8]>);
