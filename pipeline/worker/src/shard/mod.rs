//! The shard core: what a stream worker and a backfill both do with a shard.
//!
//! Read in this order: [`archive`] (which files hold an hour), `cursor` (where a recomputation starts),
//! `window` (how many hours are folded at a time), `reading` (archive files, a few at a time), [`fold`],
//! `converge` (where a recomputation may end), `emit` (folded hours as objects and entries of a
//! [`crate::checkpoint::Draft`]), `courses` and `restate` (some organizations of hours that are folded
//! already), `dead_letters`, `clock` and `clock_limit`.

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
