//! Tables: their logs, and the files that hold their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rows::budget::BudgetUse;
use prorata_schemas::tables::{
    ClosedFile, CorrectedRows, CutFile, EncodedFile, HourBasis, HourClock, HourFile, RowSource, SplicedFiles,
    Table, TableSplice,
};
use prorata_schemas::time::{Date, WallTime, micros};
use serde::{Deserialize, Serialize};

use crate::names;

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
    /// Live files of the table, in ascending order of path.
    pub files: Vec<LiveFile>,
}

/// A table file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Path under the table's folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Digest of the part of the content that depends only on events and rules.
    pub digest: String,
    /// Statistics for the table's log; needed only until the table holds the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stats: Option<String>,
    /// The last organization with rows in the file, if the table holds the hour in several files.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_organization: Option<OrganizationId>,
}

/// One commit to a table's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCommit {
    /// Files to add. A path begins with the file's partition, `date=<date>/`.
    pub adds: Vec<FileEntry>,
    /// Paths of live files to remove.
    pub removes: Vec<String>,
    /// Transactions, by name.
    pub transactions: BTreeMap<String, u64>,
    /// Random id that identifies the owner of the commit.
    pub id: String,
    /// Whether the added files hold the rows of the removed files in another arrangement, so that readers of
    /// changes can ignore the commit.
    pub same_rows: bool,
}

/// The answer to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CommitOutcome {
    /// The commit is in the log.
    Committed,
    /// The version after the base already exists. It may be this very commit: a client that lost the first
    /// answer and retried finds its own version. Load the table again to find out.
    Conflict,
}

/// The logs of the tables.
#[async_trait]
pub trait TableCommitter: Send + Sync {
    /// Returns the table at its newest version. Creates an empty table if the table does not exist.
    async fn load(&self, table: Table) -> Result<LiveTable, TableError>;

    /// Returns the table at its newest version, with only the files in partitions of these dates. An
    /// implementation keeps in memory only the files of dates that were requested.
    async fn load_dates(&self, table: Table, dates: &BTreeSet<Date>) -> Result<LiveTable, TableError> {
        let mut live = self.load(table).await?;
        let is_wanted =
            |file: &LiveFile| names::partition_date(&file.path).is_some_and(|date| dates.contains(&date));
        live.files.retain(is_wanted);
        Ok(live)
    }

    /// Returns the latest version of each of these transactions as of table version `base`. Transactions that
    /// do not exist are left out. This may read the whole log.
    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError>;

    /// Commits directly after version `base`, in one attempt without retries. Returns
    /// [`CommitOutcome::Conflict`] if the log has grown since.
    async fn commit(
        &self,
        table: Table,
        base: u64,
        commit: &TableCommit,
    ) -> Result<CommitOutcome, TableError>;
}

/// Limits on the age of replaced files and versions. Ages are differences between times of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The age up to which a file or version stays.
    pub age: Duration,
    /// The time at which the store stored an object of this run.
    pub now: WallTime,
}

impl Kept {
    /// Returns the time before which stored files are too old. `newest` is the newest time in a listing. It
    /// counts only up to `now`, because in a local folder the clock of the last writer sets it.
    pub fn cutoff(&self, newest: WallTime) -> WallTime {
        WallTime(newest.min(self.now).0.saturating_sub(micros(self.age)))
    }
}

/// Maintenance of the logs of the tables.
#[async_trait]
pub trait TableLogs: Send + Sync {
    /// Returns the files that commits have removed and that are still young enough to be kept.
    async fn removed_within(&self, table: Table, kept: Kept) -> Result<BTreeSet<String>, TableError>;

    /// Writes a checkpoint of the log if enough commits have come since the last checkpoint, and deletes
    /// versions that are too old. All other versions stay readable.
    async fn trim(&self, table: Table, kept: Kept) -> Result<TrimmedLog, TableError>;
}

/// The result of trimming a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimmedLog {
    /// The number of deleted files.
    pub files: u64,
    /// Whether a checkpoint was written.
    pub checkpoint: bool,
}

/// The number of rows at which a table file ends.
pub const FILE_ROWS: u64 = 131_072;

/// An encoder of rows as table files.
pub trait TableEncoder: Send + Sync {
    /// Returns the number of rows at which a file of an hour is cut, once the current organization is
    /// complete.
    fn file_rows(&self) -> u64 {
        FILE_ROWS
    }

    /// Encodes one hour of one shard, and returns its files; no files if there are no rows. Organizations
    /// ascend, and each has one clock. A file is cut after the organization with which it reaches `file_rows`
    /// rows; a file of `hours` is never cut.
    fn encode(
        &self,
        table: Table,
        hours: &[HourTables],
        clocks: &[HourClock],
        file_rows: u64,
    ) -> Result<Vec<CutFile>, FormatError>;

    /// Replaces the rows of some organizations in consecutive files. The bytes are the same as if all rows of
    /// the files were encoded again. Returns an error if a file cannot be read.
    fn splice(&self, table: Table, splice: &TableSplice<'_>) -> Result<SplicedFiles, FormatError>;

    /// Joins several files of one date and shard into one file, which can be split again. The digest of the
    /// new file is the digest of its hours' digests. Returns an error if a file cannot be read.
    fn join(&self, table: Table, sources: &[RowSource<Bytes>]) -> Result<EncodedFile, FormatError>;

    /// Splits a joined file into the files of its hours, with their former digests and in ascending order of
    /// hour.
    fn split(&self, table: Table, joined: &Bytes) -> Result<Vec<HourFile>, FormatError>;

    /// Returns the allocated cost of each organization in a file of `hours`. Returns an error if the file
    /// cannot be read.
    fn allocated_costs(&self, hours: &Bytes) -> Result<Vec<(OrganizationId, Decimal12)>, FormatError>;

    /// Returns the budgets in a file of `pool_usage`. Returns an error if the file cannot be read.
    fn budgets(&self, pool_usage: &Bytes) -> Result<Vec<BudgetUse>, FormatError>;

    /// Returns the basis of every row in a file of `hours`. Returns an error if the file cannot be read.
    fn bases(&self, hours: &Bytes) -> Result<Vec<HourBasis>, FormatError>;

    /// Copies an organization's rows of one date into files of `closed_allocation`, in the order of their
    /// hours; no files if there are no rows. `ledger` has files of `cost_allocation`, in any order. A file
    /// has at most `file_rows` rows. Equal rows give equal bytes. Returns an error if a file cannot be read.
    fn copy_closed(
        &self,
        ledger: &[Bytes],
        organization_id: &OrganizationId,
        file_rows: u64,
    ) -> Result<Vec<ClosedFile>, FormatError>;

    /// Returns files with the corrections that make the closed rows of one date equal to the ledger; no files
    /// if nothing differs. Equal rows give equal bytes. Returns an error if a file cannot be read, or a sum
    /// is out of range.
    fn correct_closed(
        &self,
        rows: &CorrectedRows<'_, Bytes>,
        file_rows: u64,
    ) -> Result<Vec<ClosedFile>, FormatError>;

    /// Describes a stored file of `closed_allocation`. Returns an error if the file cannot be read, or has
    /// rows of several organizations.
    fn describe_closed(&self, file: &Bytes) -> Result<ClosedFile, FormatError>;
}
