//! What is looked at: the live files of the six tables, and the root they lie in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Date, Hour};
use prorata_worker::WorkerError;
use prorata_worker::names::{self, DayFile, Shard, TableFile};
use prorata_worker::ports::{LiveFile, ObjectStore};

/// Files read at a time: bounds the memory of a day.
const CONCURRENCY: usize = 8;

/// Hours to look at, both ends included; all of them by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HourRange {
    /// The first; none: from the beginning.
    pub from: Option<Hour>,
    /// The last; none: to the end.
    pub to: Option<Hour>,
}

impl HourRange {
    /// Whether an hour is in it.
    pub fn holds(&self, hour: Hour) -> bool {
        self.from.is_none_or(|from| from <= hour) && self.to.is_none_or(|to| hour <= to)
    }

    fn holds_some_of(&self, date: Date) -> bool {
        self.from.is_none_or(|from| from.date() <= date) && self.to.is_none_or(|to| date <= to.date())
    }
}

/// One table as its log says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableLog {
    /// Its live files.
    pub files: Vec<LiveFile>,
    /// How the columns that the log names differ from those of this release.
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
    /// Size in bytes, as the log has it.
    pub bytes: u64,
}

impl fmt::Display for FoundFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.table.name(), self.path)
    }
}

impl FoundFile {
    /// What the name says; none for a file that is not one of an hour.
    pub fn name(&self) -> Option<TableFile> {
        TableFile::parse(&self.path)
    }

    /// What the name says; none for a file that is not one of a day.
    pub fn day(&self) -> Option<DayFile> {
        DayFile::parse(&self.path)
    }

    /// Its shard; none for a file that is not ours.
    pub fn shard(&self) -> Option<Shard> {
        names::parse_table_file(&self.path).map(|(shard, _)| shard)
    }

    /// The hours that its name says, ascending; none for a file that is not ours.
    pub fn hours(&self) -> Vec<Hour> {
        let of_day = self.day().map(|day| day.hours().collect());
        of_day.unwrap_or_else(|| self.name().map(|name| name.hour).into_iter().collect())
    }

    /// The date of its partition.
    pub fn date(&self) -> Option<Date> {
        names::parse_date(self.path.strip_prefix("date=")?.split_once('/')?.0)
    }
}

impl<'a> LakeTables<'a> {
    /// The tables under `store`, with what their logs say. A table without a log has no entry.
    pub const fn new(store: &'a dyn ObjectStore, logs: BTreeMap<Table, TableLog>) -> Self {
        Self { store, logs }
    }

    /// The root.
    pub fn store(&self) -> &dyn ObjectStore {
        self.store
    }

    /// What each log says.
    pub const fn logs(&self) -> &BTreeMap<Table, TableLog> {
        &self.logs
    }

    /// All live files.
    pub fn files(&self) -> impl Iterator<Item = FoundFile> {
        self.logs.iter().flat_map(|(table, log)| {
            log.files.iter().map(|file| FoundFile {
                table: *table,
                path: file.path.clone(),
                bytes: file.bytes,
            })
        })
    }

    /// Live files of every date that has hours in range.
    pub fn days(&self, range: HourRange) -> BTreeMap<Date, Vec<FoundFile>> {
        let mut days: BTreeMap<Date, Vec<FoundFile>> = BTreeMap::new();
        for file in self.files() {
            if let Some(date) = file.date().filter(|date| range.holds_some_of(*date)) {
                days.entry(date).or_default().push(file);
            }
        }
        days
    }

    /// Live files in no date's partition: not ours.
    pub fn undated(&self) -> BTreeSet<FoundFile> {
        self.files().filter(|file| file.date().is_none()).collect()
    }

    /// Reads live files in turn, some at a time; none where there is no such object.
    ///
    /// # Errors
    /// When storage is unavailable.
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
