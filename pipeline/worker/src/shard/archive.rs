//! The archive files that hold a shard's hours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::time::Hour;

use super::reading::FileToRead;
use crate::checkpoint::{ArchivedFile, Checkpoint};
use crate::error::Result;
use crate::names::{self, ArchivePath, ObjectId, Shard};
use crate::objects::CONCURRENCY;
use crate::ports::{ObjectMeta, ObjectStore, StoreError};

/// An archive file of one shard and hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFile {
    /// The object id, which says who wrote the file.
    pub object_id: ObjectId,
    /// Size in bytes, compressed.
    pub bytes: u64,
}

impl ArchiveFile {
    /// Returns the file's path and size for a reader.
    pub fn to_read(&self, shard: Shard, hour: Hour) -> FileToRead {
        FileToRead { path: self.path(shard, hour), bytes: self.bytes }
    }

    /// Returns the file's path under the root.
    pub fn path(&self, shard: Shard, hour: Hour) -> String {
        ArchivePath { shard, hour, object_id: self.object_id.clone() }.path()
    }
}

/// A date before all dates, in days since the epoch.
const FIRST_DATE: i64 = i64::MIN;

/// A shard's admitted archive files, listed date by date when they are needed, or all at once.
#[derive(Clone, Debug, Default)]
pub struct ArchiveIndex {
    hours: BTreeMap<Hour, Vec<ArchiveFile>>,
    /// Dates that are listed, in days since the epoch.
    dates: BTreeSet<i64>,
    /// The date from which on all dates are listed, too.
    dates_from: Option<i64>,
    /// Files that were taken out and may still exist. A later listing leaves them out.
    removed: BTreeSet<ObjectId>,
    /// Files that were listed and that no checkpoint will ever admit.
    orphans: Vec<String>,
}

/// Lists the whole archive of several shards.
///
/// # Errors
/// If storage is unavailable.
pub async fn list_all<'a>(
    store: &dyn ObjectStore,
    shards: impl Iterator<Item = &'a Checkpoint>,
) -> Result<BTreeMap<Shard, ArchiveIndex>> {
    let lists = shards.map(|checkpoint| async move {
        let mut archive = ArchiveIndex::empty();
        archive.take(&list_own(store, checkpoint).await?, checkpoint);
        Ok((checkpoint.shard, archive))
    });
    stream::iter(lists.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY).try_collect().await
}

/// Lists everything that the archive holds of a shard.
async fn list_own(store: &dyn ObjectStore, checkpoint: &Checkpoint) -> Result<Vec<ObjectMeta>, StoreError> {
    match checkpoint.archive_from {
        Some(_) => store.list(&names::archive_folder(checkpoint.shard)).await,
        None => Ok(Vec::new()),
    }
}

/// Returns the owners that have admitted files in the archive of a shard.
///
/// # Errors
/// If storage is unavailable.
pub async fn list_owners(store: &dyn ObjectStore, checkpoint: &Checkpoint) -> Result<BTreeSet<Arc<str>>> {
    let listed = list_own(store, checkpoint).await?;
    let own = listed.iter().filter_map(|object| ArchivePath::parse(&object.path));
    let counting = own.filter(|path| path.shard == checkpoint.shard && checkpoint.admits(&path.object_id));
    Ok(counting.map(|path| path.object_id.owner).collect())
}

impl ArchiveIndex {
    /// Returns the index of a shard that has no archive yet.
    pub fn empty() -> Self {
        Self { dates_from: Some(FIRST_DATE), ..Self::default() }
    }

    /// Lists the dates of these hours, both inclusive, unless they are listed already.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn ensure(
        &mut self,
        store: &dyn ObjectStore,
        checkpoint: &Checkpoint,
        (first, last): (Hour, Hour),
    ) -> Result<()> {
        for days in first.date().days()..=last.date().days() {
            if self.dates_from.is_some_and(|from| from <= days) || self.dates.contains(&days) {
                continue;
            }
            let date = Hour(days * 24);
            self.take(&store.list(&names::archive_date(checkpoint.shard, date)).await?, checkpoint);
            self.dates.insert(days);
        }
        Ok(())
    }

    /// Lists all dates.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn ensure_all(&mut self, store: &dyn ObjectStore, checkpoint: &Checkpoint) -> Result<()> {
        if self.dates_from != Some(FIRST_DATE) {
            let listed = list_own(store, checkpoint).await?;
            self.hours.clear();
            self.take(&listed, checkpoint);
            self.dates_from = Some(FIRST_DATE);
        }
        Ok(())
    }

    fn take(&mut self, listed: &[ObjectMeta], checkpoint: &Checkpoint) {
        for object in listed {
            match ArchivePath::parse(&object.path) {
                Some(ArchivePath { shard, hour, object_id })
                    if shard == checkpoint.shard && !self.removed.contains(&object_id) =>
                {
                    if checkpoint.admits(&object_id) {
                        self.add(ArchivedFile { hour, object_id, bytes: object.bytes });
                    } else if object_id.seq <= checkpoint.seq {
                        self.orphans.push(object.path.clone());
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes the files that dead attempts left, if they were listed since the last call. An owner's last
    /// attempt leaves files of open hours or of late events. Open hours are listed when the shard is taken;
    /// late events are read and listed once more.
    pub fn take_orphans(&mut self) -> Vec<String> {
        std::mem::take(&mut self.orphans)
    }

    /// Adds a file that is stored.
    pub fn add(&mut self, file: ArchivedFile) {
        let ArchivedFile { hour, object_id, bytes } = file;
        let files = self.hours.entry(hour).or_default();
        if !files.iter().any(|file| file.object_id == object_id) {
            files.push(ArchiveFile { object_id, bytes });
        }
    }

    /// Drops everything that was listed.
    pub fn forget_all(&mut self) {
        *self = Self { removed: std::mem::take(&mut self.removed), ..Self::default() };
    }

    /// Takes a file out: another file has its events, and it will be deleted.
    pub fn remove(&mut self, hour: Hour, object_id: &ObjectId) {
        self.removed.insert(object_id.clone());
        if let Some(files) = self.hours.get_mut(&hour) {
            files.retain(|file| file.object_id != *object_id);
        }
    }

    /// Records that a file that was taken out is deleted.
    pub fn note_deleted(&mut self, object_id: &ObjectId) {
        self.removed.remove(object_id);
    }

    /// Drops the dates before an hour's date. They are listed again when they are needed.
    pub fn forget_before(&mut self, hour: Hour) {
        let first = hour.date().days();
        self.hours = self.hours.split_off(&Hour(first * 24));
        self.dates = self.dates.split_off(&first);
        self.dates_from = self.dates_from.map(|from| from.max(first));
    }

    /// Returns the files of an hour whose date is listed.
    pub fn files(&self, hour: Hour) -> &[ArchiveFile] {
        self.hours.get(&hour).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the files of an hour with their paths, for a reader.
    pub fn to_read(&self, shard: Shard, hour: Hour) -> Vec<FileToRead> {
        self.files(hour).iter().map(|file| file.to_read(shard, hour)).collect()
    }

    /// Returns the hours that have files, on the listed dates, in ascending order.
    pub fn hours(&self) -> impl DoubleEndedIterator<Item = Hour> {
        self.hours.keys().copied()
    }
}
