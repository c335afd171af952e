//! The archive files that hold a shard's hours, as the shard's checkpoint names them.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::time::{Hour, HourRange};

use super::reading::FileToRead;
use crate::checkpoint::{ArchivedFile, Checkpoint, Named, log};
use crate::error::Result;
use crate::names::{ObjectId, Shard};
use crate::ports::ObjectStore;

impl ArchivedFile {
    /// Returns the file's path and size for a reader.
    pub fn to_read(&self, shard: Shard) -> FileToRead {
        FileToRead { path: self.path(shard), bytes: self.bytes }
    }
}

/// The archive files of a shard. Names in parts of the checkpoint are read when they are needed.
#[derive(Clone, Debug, Default)]
pub struct ArchiveIndex {
    shard: Shard,
    named: Named<ArchivedFile>,
    /// Parts that were read, by group, each with its path.
    read: BTreeMap<String, (String, BTreeSet<ArchivedFile>)>,
}

impl ArchiveIndex {
    /// Returns the archive files that a checkpoint names.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        Self { shard: checkpoint.shard, named: checkpoint.archive.clone(), read: BTreeMap::new() }
    }

    /// Follows a later checkpoint of the shard. Parts that were read and that this checkpoint still names are
    /// not read again.
    pub fn follow(&mut self, checkpoint: &Checkpoint) {
        self.named = checkpoint.archive.clone();
        let named = &self.named;
        self.read.retain(|group, (path, _)| named.part_of(group) == Some(path));
    }

    /// Adds a file that is stored.
    pub fn add(&mut self, file: ArchivedFile) {
        self.named.insert(file);
    }

    /// Removes a file until [`Self::follow`] is called, and returns it; `None` if the file is not known.
    pub fn remove(&mut self, hour: Hour, object_id: &ObjectId) -> Option<ArchivedFile> {
        let file = self.files(hour).find(|file| file.object_id == *object_id)?.clone();
        self.named.remove(&file);
        for (_, files) in self.read.values_mut() {
            files.remove(&file);
        }
        Some(file)
    }

    /// Reads the names of the files of these hours, unless they were read already.
    ///
    /// # Errors
    /// If storage is unavailable, or a part of the checkpoint is missing or damaged.
    pub async fn ensure(
        &mut self,
        store: &dyn ObjectStore,
        HourRange { first, last }: HourRange,
    ) -> Result<()> {
        let (first, last) = (ArchivedFile::group_of(first), ArchivedFile::group_of(last));
        self.read_groups(store, |group| (&first..=&last).contains(&group)).await
    }

    /// Reads the names of the files of all hours.
    ///
    /// # Errors
    /// If storage is unavailable, or a part of the checkpoint is missing or damaged.
    pub async fn ensure_all(&mut self, store: &dyn ObjectStore) -> Result<()> {
        self.read_groups(store, |_| true).await
    }

    async fn read_groups(&mut self, store: &dyn ObjectStore, wanted: impl Fn(&String) -> bool) -> Result<()> {
        for (group, path) in self.named.packed().filter(|(group, _)| wanted(group)) {
            if !self.read.contains_key(group) {
                let files = log::read_archive_names(store, path).await?;
                self.read.insert(group.clone(), (path.clone(), files));
            }
        }
        Ok(())
    }

    /// Forgets parts whose hours all lie before this hour. They are read again when they are needed.
    pub fn forget_before(&mut self, hour: Hour) {
        self.read = self.read.split_off(&ArchivedFile::group_of(hour));
    }

    /// Returns the files of an hour, as far as their names were read.
    pub fn files(&self, hour: Hour) -> impl Iterator<Item = &ArchivedFile> {
        let part = self.read.get(&ArchivedFile::group_of(hour));
        let part = part.into_iter().flat_map(move |(_, files)| ArchivedFile::of_hour(files, hour));
        part.chain(self.named.recent().filter(move |file| file.hour == hour))
    }

    /// Returns the files of an hour with their paths, for a reader.
    pub fn to_read(&self, hour: Hour) -> Vec<FileToRead> {
        self.files(hour).map(|file| file.to_read(self.shard)).collect()
    }

    /// Returns all files whose names were read.
    pub fn all(&self) -> impl Iterator<Item = &ArchivedFile> {
        self.read.values().flat_map(|(_, files)| files).chain(self.named.recent())
    }

    /// Returns the hours of all files whose names were read.
    pub fn hours(&self) -> BTreeSet<Hour> {
        self.all().map(|file| file.hour).collect()
    }
}
