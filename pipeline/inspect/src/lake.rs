//! The data of a lake: the live files of the hourly tables, and the root that contains them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Date, Hour, HourRange};
use prorata_worker::WorkerError;
use prorata_worker::names::{self, DayFile, Shard, TableFile};
use prorata_worker::ports::{LiveFile, ObjectStore};

/// Number of files read at a time. It limits the memory that a day needs.
const CONCURRENCY: usize = 8;

/// The content of one table's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableLog {
    /// Live files of the table.
    pub files: Vec<LiveFile>,
    /// The difference between the columns in the log and the columns of this release, if any.
    pub drift: Option<String>,
}

/// The tables of a lake.
pub struct LakeTables<'a> {
    store: &'a dyn ObjectStore,
    logs: BTreeMap<Table, TableLog>,
}

/// A live file of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundFile {
    /// The table.
    pub table: Table,
    /// Path under the table's folder.
    pub path: String,
    /// Size in bytes, as in the log.
    pub bytes: u64,
}

impl fmt::Display for FoundFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.table.name(), self.path)
    }
}

impl FoundFile {
    /// Parses the name. Returns `None` if the file is not a file of an hour.
    pub fn name(&self) -> Option<TableFile> {
        TableFile::parse(&self.path)
    }

    /// Parses the name. Returns `None` if the file is not a file of a day.
    pub fn day(&self) -> Option<DayFile> {
        DayFile::parse(&self.path)
    }

    /// Returns the shard, or `None` if the name is not valid.
    pub fn shard(&self) -> Option<Shard> {
        names::parse_table_file(&self.path).map(|(shard, _)| shard)
    }

    /// Returns the hours in the name, ascending, or no hours if the name is not valid.
    pub fn hours(&self) -> Vec<Hour> {
        let of_day = self.day().map(|day| day.hours().collect());
        of_day.unwrap_or_else(|| self.name().map(|name| name.hour).into_iter().collect())
    }

    /// Returns the date of the partition.
    pub fn date(&self) -> Option<Date> {
        names::parse_date(self.path.strip_prefix("date=")?.split_once('/')?.0)
    }
}

impl<'a> LakeTables<'a> {
    /// Creates the tables under `store` from the content of their logs. A table without a log has no entry.
    pub const fn new(store: &'a dyn ObjectStore, logs: BTreeMap<Table, TableLog>) -> Self {
        Self { store, logs }
    }

    /// Returns the store of the root.
    pub fn store(&self) -> &dyn ObjectStore {
        self.store
    }

    /// Returns the content of each log.
    pub const fn logs(&self) -> &BTreeMap<Table, TableLog> {
        &self.logs
    }

    /// Returns all live files.
    pub fn files(&self) -> impl Iterator<Item = FoundFile> {
        self.logs.iter().flat_map(|(table, log)| {
            log.files.iter().map(|file| FoundFile {
                table: *table,
                path: file.path.clone(),
                bytes: file.bytes,
            })
        })
    }

    /// Returns the live files of every date that has hours in range.
    pub fn days(&self, range: HourRange) -> BTreeMap<Date, Vec<FoundFile>> {
        let mut days: BTreeMap<Date, Vec<FoundFile>> = BTreeMap::new();
        for file in self.files() {
            if let Some(date) = file.date().filter(|date| range.overlaps(date.hours())) {
                days.entry(date).or_default().push(file);
            }
        }
        days
    }

    /// Returns the live files outside the partitions of dates. Prorata did not write these files.
    pub fn undated(&self) -> BTreeSet<FoundFile> {
        self.files().filter(|file| file.date().is_none()).collect()
    }

    /// Reads live files, several at a time, and passes them to `each` in order. The bytes are `None` if the
    /// object does not exist.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn read_each<'f>(
        &self,
        files: impl IntoIterator<Item = &'f FoundFile>,
        mut each: impl FnMut(&'f FoundFile, Option<Bytes>),
    ) -> Result<(), WorkerError> {
        let reads = files.into_iter().map(|file| async move {
            Ok::<_, WorkerError>((file, self.store.get(&file.to_string()).await?))
        });
        let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffered(CONCURRENCY);
        while let Some((file, bytes)) = reads.try_next().await? {
            each(file, bytes);
        }
        Ok(())
    }
}
