//! The shard core: what a stream worker and a backfill both do with a shard.

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
