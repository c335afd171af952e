//! The shard core: what a stream worker and a backfill both do with a shard.
//!
//! Read in this order: [`archive`] (which files hold an hour), `cursor` (where a recomputation starts),
//! `window` (how many hours are read at a time), [`fold`], `converge` (where a recomputation may end),
//! `emit` (folded hours as objects and entries of a [`crate::checkpoint::Draft`]), `dead_letters`.

pub mod archive;
pub(crate) mod converge;
pub(crate) mod cursor;
pub(crate) mod dead_letters;
pub(crate) mod emit;
pub mod fold;
pub(crate) mod window;

use std::sync::Arc;

use crate::ports::{Archive, Clock, ObjectStore, TableCommitter, TableEncoder};

/// What every owner of shards runs on.
#[derive(Clone)]
pub struct Ports {
    /// The root.
    pub store: Arc<dyn ObjectStore>,
    /// The logs of its tables.
    pub tables: Arc<dyn TableCommitter>,
    /// Avro files.
    pub archive: Arc<dyn Archive>,
    /// Table files.
    pub encoder: Arc<dyn TableEncoder>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
}
