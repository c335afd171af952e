//! Which archive files hold a shard's hour.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::time::Hour;

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::names::{self, Shard, Stamp};
use crate::ports::{Listed, ObjectStore};

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

/// A shard's admitted archive files, listed date by date as they are needed.
#[derive(Clone, Debug, Default)]
pub struct ArchiveDates {
    hours: ShardArchive,
    /// Dates that are listed, in days since the epoch.
    dates: BTreeSet<i64>,
    all: bool,
}

impl ArchiveDates {
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

    fn take(&mut self, listed: Vec<Listed>, checkpoint: &Checkpoint) {
        for object in listed {
            match names::parse_archive(&object.path) {
                Some((hour, shard, stamp)) if shard == checkpoint.shard && checkpoint.admits(&stamp) => {
                    self.add(hour, stamp, object.bytes);
                }
                _ => {}
            }
        }
    }

    /// Adds a file that is stored and decided.
    pub fn add(&mut self, hour: Hour, stamp: Stamp, bytes: u64) {
        let files = self.hours.entry(hour).or_default();
        if !files.iter().any(|file| file.stamp == stamp) {
            files.push(ArchiveFile { stamp, bytes, earlier: true });
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

    /// Hours with files, of the dates that are listed.
    pub fn hours(&self) -> impl Iterator<Item = Hour> {
        self.hours.keys().copied()
    }
}
