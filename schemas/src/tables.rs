//! The tables: their names, their files, and the columns of `hours` that depend on when events arrived.

mod closed;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::OrganizationId;
use crate::rows::HourTables;
use crate::time::{Hour, Timestamp, WallTime};

pub use closed::{ClosedFile, ClosedTotals, CorrectedRows, HourBasis};

/// The hourly tables, in the order in which they are published, with `hours` last; then the table of closed
/// months.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is described by its row type in `rows`")]
pub enum Table {
    CostAllocation,
    ReservationUsage,
    CommitmentUtilization,
    QuotaUsage,
    PoolUsage,
    Hours,
    ClosedAllocation,
}

impl Table {
    /// The tables that follow from events and rules alone, `hours` last.
    pub const HOURLY: [Self; 6] = [
        Self::CostAllocation,
        Self::ReservationUsage,
        Self::CommitmentUtilization,
        Self::QuotaUsage,
        Self::PoolUsage,
        Self::Hours,
    ];

    /// Returns the table's name, which is also its folder under the root.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CostAllocation => "cost_allocation",
            Self::ReservationUsage => "reservation_usage",
            Self::CommitmentUtilization => "commitment_utilization",
            Self::QuotaUsage => "quota_usage",
            Self::PoolUsage => "pool_usage",
            Self::Hours => "hours",
            Self::ClosedAllocation => "closed_allocation",
        }
    }
}

/// One file of a table: one shard's rows of one hour, before it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedFile {
    /// The file.
    pub bytes: Vec<u8>,
    /// Number of rows in the file.
    pub rows: u64,
    /// Statistics in the form of the Delta log: a JSON object whose decimals are exact numbers.
    pub stats: String,
    /// Digest of the rows, in hexadecimal. It covers only columns that depend on events and rules alone: for
    /// `hours`, all columns except the [`HourClock`] columns.
    pub digest: String,
}

/// One of the files of a table's hour. Files are cut between organizations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutFile {
    /// The file.
    pub file: EncodedFile,
    /// The last organization that has rows in the file.
    pub last_organization: OrganizationId,
}

/// One organization's columns of `hours` that depend on when events arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourClock {
    /// Number of events that arrived after the hour had closed.
    pub late_events: i64,
    /// Latest event time seen when the hour was folded; `None` if there was none.
    pub max_event_time_seen: Option<Timestamp>,
    /// Whether the watermark has passed the hour's end.
    pub complete: bool,
    /// Number of times the hour's rows have changed since they were first published.
    pub revision: i64,
    /// The time at which the rows last changed.
    pub last_updated: WallTime,
}

/// A file whose rows become part of a file of the day, with bytes of type `B`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowSource<B> {
    /// A file of one hour.
    Hour {
        /// The hour.
        hour: Hour,
        /// Digest of the hour's content, which the file of the day keeps.
        digest: String,
        /// The file.
        bytes: B,
    },
    /// A file of the day.
    Day(B),
}

/// A file of one hour, restored from a file of the day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HourFile {
    /// The hour.
    pub hour: Hour,
    /// The file, with its original digest.
    pub file: EncodedFile,
}

/// New rows of some organizations of an hour, and the files that hold the rows of all other organizations.
#[derive(Clone, Copy, Debug)]
pub struct TableSplice<'a> {
    /// The files before the change, in order. Other files of the hour are left unchanged.
    pub old: &'a [&'a [u8]],
    /// Organizations whose rows are replaced.
    pub organizations: &'a BTreeSet<OrganizationId>,
    /// New rows of these organizations, in ascending order. An organization that is missing here no longer
    /// has rows.
    pub hours: &'a [HourTables],
    /// One clock for each of `hours`.
    pub clocks: &'a [HourClock],
    /// Revision of the hour, which every row of `hours` carries.
    pub revision: i64,
    /// The time at which the hour's rows changed; every row of `hours` carries it.
    pub last_updated: WallTime,
    /// Number of rows after which a file ends, at the end of an organization; see [`CutFile`].
    pub file_rows: u64,
}

/// Files with new rows of some organizations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplicedFiles {
    /// The new files, the same as if all rows had been encoded again; empty if no row is left.
    pub files: Vec<CutFile>,
    /// Digests of the files before the change, to detect a damaged file.
    pub old_digests: Vec<String>,
    /// Only for `hours`: organizations whose hour was not complete before the change, ascending.
    pub old_incomplete: Vec<OrganizationId>,
    /// Only for `hours`: organizations whose hour is not complete now, ascending.
    pub incomplete: Vec<OrganizationId>,
}
