//! Files of days: table files whose hours have left the checkpoints, joined into one file per shard and date.
//! A file of a day is split when a checkpoint names one of its hours again.
//!
//! Each join or split is a commit that changes no rows: it replaces files by files with the same rows. Files
//! are immutable, and a commit lands only directly after the version from which it was made. So no ownership
//! is needed: after two concurrent runs, the work of a zombie, or a crash at any step, the rows are the same.

use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::tables::{HourFile, Table};

use crate::error::{Result, WorkerError};
use crate::names::{DayFile, ObjectId, Shard, TableFile};
use crate::ports::{CommitOutcome, FileEntry, ObjectStore, TableCommit, TableCommitter, TableEncoder};

/// A live file of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveDay {
    /// The fields of the file's name.
    pub name: DayFile,
    /// The file's path under the table's folder.
    pub path: String,
}

impl LiveDay {
    /// Parses a path; `None` if it is not the path of a file of a day.
    pub fn parse(path: &str) -> Option<Self> {
        Some(Self { name: DayFile::parse(path)?, path: path.to_owned() })
    }
}

/// Everything that is needed to read, write and name files.
pub struct Rearranger<'a> {
    /// The root.
    pub store: &'a dyn ObjectStore,
    /// The logs of the root's tables.
    pub tables: &'a dyn TableCommitter,
    /// The encoder of table files.
    pub encoder: &'a Arc<dyn TableEncoder>,
    /// Random id of the caller.
    pub id: &'a str,
}

/// A file of a day that does not exist or cannot be read.
#[derive(Clone, Debug)]
pub struct LostDay {
    /// The file.
    pub day: LiveDay,
    /// The problem with the file.
    pub cause: String,
}

/// New files, and the old files with the same rows that they replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rearranged {
    /// The new files, which are stored.
    pub adds: Vec<FileEntry>,
    /// Paths of the old files.
    pub removes: Vec<String>,
}

/// Splits a file of a day, and returns the files of its hours.
///
/// # Errors
/// Returns [`WorkerError::Damaged`] if the file cannot be used, or an error if storage is unavailable.
pub async fn read_day(
    store: &dyn ObjectStore,
    encoder: &Arc<dyn TableEncoder>,
    table: Table,
    day: &LiveDay,
) -> Result<Vec<HourFile>> {
    let object = format!("{}/{}", table.name(), day.path);
    let damaged = |cause: String| WorkerError::Damaged { object: object.clone(), cause };
    let joined = store.get(&object).await?.ok_or_else(|| damaged("it does not exist".to_owned()))?;
    let encoder = Arc::clone(encoder);
    let split = tokio::task::spawn_blocking(move || encoder.split(table, &joined)).await?;
    let hours = split.map_err(|error| damaged(error.to_string()))?;
    if !day.name.has_hours(hours.iter().map(|file| file.hour)) {
        return Err(damaged("its hours differ from the hours in its name".to_owned()));
    }
    Ok(hours)
}

impl Rearranger<'_> {
    /// Replaces files of days by the files of their hours, in one commit directly after version `base`. The
    /// caller must load the table again to see the result. Returns the files of days that cannot be read;
    /// these stay in the table. `seq` returns the sequence number of a decided checkpoint of a shard.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn expand(
        &self,
        table: Table,
        base: u64,
        days: Vec<LiveDay>,
        seq: impl Fn(Shard) -> u64,
    ) -> Result<Vec<LostDay>> {
        let (mut all, mut lost) = (Rearranged::default(), Vec::new());
        for day in days {
            match read_day(self.store, self.encoder, table, &day).await {
                Ok(hours) => {
                    all.adds.extend(self.store_hours(table, base, &day, hours, seq(day.name.shard)).await?);
                    all.removes.push(day.path);
                }
                Err(WorkerError::Damaged { cause, .. }) => lost.push(LostDay { day, cause }),
                Err(error) => return Err(error),
            }
        }
        if !all.removes.is_empty() {
            tracing::info!(
                table = table.name(),
                days = all.removes.len(),
                "splitting files of days into files of hours"
            );
            // The next load of the table shows whether the commit landed.
            if self.commit(table, base, all).await? == CommitOutcome::Conflict {
                tracing::debug!(table = table.name(), "another commit came first");
            }
        }
        Ok(lost)
    }

    /// Commits the files directly after version `base` of the table.
    ///
    /// # Errors
    /// If storage is unavailable; the commit may have landed.
    pub async fn commit(&self, table: Table, base: u64, files: Rearranged) -> Result<CommitOutcome> {
        let Rearranged { adds, removes } = files;
        let id = self.id.to_owned();
        let commit = TableCommit { adds, removes, id, same_rows: true, ..TableCommit::default() };
        Ok(self.tables.commit(table, base, &commit).await?)
    }

    /// Stores the files of the hours of a day.
    async fn store_hours(
        &self,
        table: Table,
        base: u64,
        day: &LiveDay,
        hours: Vec<HourFile>,
        seq: u64,
    ) -> Result<Vec<FileEntry>> {
        let (mut entries, mut objects) = (Vec::new(), Vec::new());
        for (n, hour) in hours.into_iter().enumerate() {
            let (shard, digest, object_id) = (day.name.shard, hour.file.digest, self.name(seq, base, n));
            let path = TableFile { hour: hour.hour, shard, object_id, digest: digest.clone() }.path();
            let (entry, object) = self.entry(table, path, digest, hour.file.bytes.into(), hour.file.stats);
            entries.push(entry);
            objects.push(object);
        }
        super::put_all(self.store, objects).await?;
        Ok(entries)
    }

    /// Returns an object id for a file that is made from version `base` of a table. The rest of the path
    /// describes the content. Both together are unique: at one version, the rows of an hour are in one file.
    pub fn name(&self, seq: u64, base: u64, n: usize) -> ObjectId {
        ObjectId { seq, owner: format!("{}x{base}", self.id).into(), n: n as u64 }
    }

    /// Returns the entry of a new file, and the object to be stored.
    pub fn entry(
        &self,
        table: Table,
        path: String,
        digest: String,
        bytes: Bytes,
        stats: String,
    ) -> (FileEntry, (String, Bytes)) {
        let object = format!("{}/{path}", table.name());
        let (size, stats) = (bytes.len() as u64, Some(stats));
        let entry = FileEntry { path, bytes: size, digest, stats, last_organization: None };
        (entry, (object, bytes))
    }
}
