//! Tables: their logs, and the files that hold their rows.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Timestamp;

use super::error::{FormatError, TableError};

/// A live file of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveFile {
    /// Path under the table's folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// A table at one version of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveTable {
    /// The version that was read.
    pub version: u64,
    /// Its live files, in ascending order of path.
    pub files: Vec<LiveFile>,
}

/// A file to add to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddFile {
    /// Path under the table's folder.
    pub path: String,
    /// Its date, the partition's value.
    pub date: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Statistics in Delta's JSON form, where known.
    pub stats: Option<String>,
}

/// One commit to a table's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCommit {
    /// Files to add.
    pub adds: Vec<AddFile>,
    /// Paths of live files to remove.
    pub removes: Vec<String>,
    /// Transactions, by name.
    pub transactions: BTreeMap<String, u64>,
    /// Random id that says whose commit it is.
    pub id: String,
}

/// Answer to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CommitOutcome {
    /// The commit is in the log.
    Committed,
    /// The version after the base exists. It may be this very commit: a client that lost the first answer and asked
    /// again meets what it wrote itself. Load the table again to find out.
    Conflict,
}

/// The logs of the tables.
#[async_trait]
pub trait TableCommitter: Send + Sync {
    /// The table's newest version; creates an empty table when there is none.
    async fn load(&self, table: Table) -> Result<LiveTable, TableError>;

    /// Latest version of each of these transactions as of version `base`, without those that never were. Asking may
    /// mean reading the whole log.
    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError>;

    /// Commits right behind version `base`, once and without trying again. [`CommitOutcome::Conflict`] when the log
    /// has grown since.
    async fn commit(
        &self,
        table: Table,
        base: u64,
        commit: &TableCommit,
    ) -> Result<CommitOutcome, TableError>;
}

/// What of one organization's hour depends on when its events arrived: the clock columns of `hours`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourClock {
    /// Events that came after the hour had closed.
    pub late_events: i64,
    /// Latest event time seen by then.
    pub max_event_time_seen: Option<Timestamp>,
    /// Whether the watermark has passed the hour's end.
    pub complete: bool,
    /// How often the hour's rows have changed since they were first published.
    pub revision: i64,
    /// When they last changed.
    pub last_updated: Timestamp,
}

/// A table file before it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedFile {
    /// The file.
    pub bytes: Bytes,
    /// Its number of rows.
    pub rows: u64,
    /// Statistics in Delta's JSON form.
    pub stats: String,
    /// Digest of what of the content depends on events and rules alone, in hexadecimal.
    pub digest: String,
}

/// Turns rows into table files.
pub trait TableEncoder: Send + Sync {
    /// The file of one shard's one hour; none without rows. Organizations ascend, clocks go with them one by one.
    fn encode(
        &self,
        table: Table,
        hours: &[HourTables],
        clocks: &[HourClock],
    ) -> Result<Option<EncodedFile>, FormatError>;
}
