//! Which archive files hold a shard's hours.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::time::Hour;

use crate::checkpoint::{ArchivedFile, Checkpoint};
use crate::error::Result;
use crate::names::{self, ObjectId, Shard};
use crate::ports::{ObjectMeta, ObjectStore};

/// An archive file of one shard and hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFile {
    /// Who wrote it.
    pub object_id: ObjectId,
    /// Size in bytes, compressed.
    pub bytes: u64,
}

/// A shard's admitted archive files: listed date by date as they are needed, or all at once.
#[derive(Clone, Debug, Default)]
pub struct ArchiveIndex {
    hours: BTreeMap<Hour, Vec<ArchiveFile>>,
    /// Dates that are listed, in days since the epoch.
    dates: BTreeSet<i64>,
    all: bool,
}

/// The whole archive of several shards, from one listing.
///
/// # Errors
/// When storage is unavailable.
pub async fn list_all<'a>(
    store: &dyn ObjectStore,
    shards: impl Iterator<Item = &'a Checkpoint>,
) -> Result<BTreeMap<Shard, ArchiveIndex>> {
    let checkpoints: BTreeMap<Shard, &Checkpoint> =
        shards.map(|checkpoint| (checkpoint.shard, checkpoint)).collect();
    let mut archives: BTreeMap<Shard, ArchiveIndex> = checkpoints
        .keys()
        .map(|shard| (*shard, ArchiveIndex { all: true, ..ArchiveIndex::default() }))
        .collect();
    for object in store.list(names::EVENTS).await? {
        let Some((hour, shard, object_id)) = names::parse_archive(&object.path) else { continue };
        if let (Some(checkpoint), Some(archive)) = (checkpoints.get(&shard), archives.get_mut(&shard))
            && checkpoint.admits(&object_id)
        {
            archive.add(ArchivedFile { hour, object_id, bytes: object.bytes });
        }
    }
    Ok(archives)
}

impl ArchiveIndex {
    /// Of a shard that has no archive yet.
    pub fn empty() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// Lists the dates of these hours, both inclusive, where not done yet.
    ///
    /// # Errors
    /// When storage is unavailable.
    pub async fn ensure(
        &mut self,
        store: &dyn ObjectStore,
        checkpoint: &Checkpoint,
        (first, last): (Hour, Hour),
    ) -> Result<()> {
        for days in first.date().days()..=last.date().days() {
            if self.all || self.dates.contains(&days) {
                continue;
            }
            let listed = store.list(&names::archive_date(Hour(days * 24))).await?;
            self.take(listed, checkpoint);
            self.dates.insert(days);
        }
        Ok(())
    }

    /// Lists all dates.
    ///
    /// # Errors
    /// When storage is unavailable.
    pub async fn ensure_all(&mut self, store: &dyn ObjectStore, checkpoint: &Checkpoint) -> Result<()> {
        if !self.all {
            let listed = store.list(names::EVENTS).await?;
            self.hours.clear();
            self.take(listed, checkpoint);
            self.all = true;
        }
        Ok(())
    }

    fn take(&mut self, listed: Vec<ObjectMeta>, checkpoint: &Checkpoint) {
        for object in listed {
            match names::parse_archive(&object.path) {
                Some((hour, shard, object_id))
                    if shard == checkpoint.shard && checkpoint.admits(&object_id) =>
                {
                    self.add(ArchivedFile { hour, object_id, bytes: object.bytes });
                }
                _ => {}
            }
        }
    }

    /// Adds a file that is stored.
    pub fn add(&mut self, file: ArchivedFile) {
        let ArchivedFile { hour, object_id, bytes } = file;
        let files = self.hours.entry(hour).or_default();
        if !files.iter().any(|file| file.object_id == object_id) {
            files.push(ArchiveFile { object_id, bytes });
        }
    }

    /// Forgets the dates before an hour's; they are listed again where they are needed.
    pub fn forget_before(&mut self, hour: Hour) {
        let first = hour.date().days();
        self.hours = self.hours.split_off(&Hour(first * 24));
        self.dates = self.dates.split_off(&first);
        self.all = false;
    }

    /// Files of an hour whose date is listed.
    pub fn files(&self, hour: Hour) -> &[ArchiveFile] {
        self.hours.get(&hour).map(Vec::as_slice).unwrap_or_default()
    }

    /// Hours with files, of the dates that are listed, ascending.
    pub fn hours(&self) -> impl DoubleEndedIterator<Item = Hour> {
        self.hours.keys().copied()
    }
}
