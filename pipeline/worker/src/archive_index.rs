//! Which archive files hold a shard's hour.

use std::collections::BTreeMap;

use prorata_schemas::time::Hour;

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::names::{self, Shard, Stamp};
use crate::ports::ObjectStore;

/// An archive file of one shard and hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFile {
    /// Who wrote it.
    pub stamp: Stamp,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether it was there before this run.
    pub earlier: bool,
}

/// A shard's archive files by hour.
pub type ShardArchive = BTreeMap<Hour, Vec<ArchiveFile>>;

/// Every archive file under the root by shard, admitted or not.
///
/// # Errors
/// When storage is unavailable.
pub async fn list(store: &dyn ObjectStore) -> Result<BTreeMap<Shard, ShardArchive>> {
    let mut shards: BTreeMap<Shard, ShardArchive> = BTreeMap::new();
    for object in store.list(names::EVENTS).await? {
        if let Some((hour, shard, stamp)) = names::parse_archive(&object.path) {
            let file = ArchiveFile { stamp, bytes: object.bytes, earlier: true };
            shards.entry(shard).or_default().entry(hour).or_default().push(file);
        }
    }
    Ok(shards)
}

/// Only the files that the checkpoint admits.
pub fn admitted(mut archive: ShardArchive, checkpoint: &Checkpoint) -> ShardArchive {
    archive.retain(|_, files| {
        files.retain(|file| checkpoint.admits(&file.stamp));
        !files.is_empty()
    });
    archive
}
