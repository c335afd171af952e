//! The hourly tables: their names, a file of one of them, and what `hours` says of when events arrived.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::OrganizationId;
use crate::rows::HourTables;
use crate::time::{Hour, Timestamp, WallTime};

/// The hourly tables, in the order in which they are published; `hours` is last.
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
}

impl Table {
    /// Every table, `hours` last.
    pub const ALL: [Self; 6] = [
        Self::CostAllocation,
        Self::ReservationUsage,
        Self::CommitmentUtilization,
        Self::QuotaUsage,
        Self::PoolUsage,
        Self::Hours,
    ];

    /// Its name, which is also its folder under the root.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CostAllocation => "cost_allocation",
            Self::ReservationUsage => "reservation_usage",
            Self::CommitmentUtilization => "commitment_utilization",
            Self::QuotaUsage => "quota_usage",
            Self::PoolUsage => "pool_usage",
            Self::Hours => "hours",
        }
    }
}

/// One file of a table: one shard's rows of one hour, before it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedFile {
    /// The file.
    pub bytes: Vec<u8>,
    /// Its number of rows.
    pub rows: u64,
    /// Its statistics as the Delta log carries them: a JSON object whose decimals are exact numbers.
    pub stats: String,
    /// Digest of the rows as far as they depend on events and rules alone, in hexadecimal: of `hours` all
    /// columns but those of [`HourClock`].
    pub digest: String,
}

/// One of the files of a table's hour, which are cut between organizations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutFile {
    /// The file.
    pub file: EncodedFile,
    /// The last organization that it has rows of.
    pub last_organization: OrganizationId,
}

/// The columns of `hours` that depend on when events arrived, of one organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourClock {
    /// Number of events that came after the hour had closed.
    pub late_events: i64,
    /// Latest event time seen when the hour was folded.
    pub max_event_time_seen: Option<Timestamp>,
    /// Whether the watermark has passed the hour's end.
    pub complete: bool,
    /// How often the hour's rows have changed since they were first published.
    pub revision: i64,
    /// When they last changed.
    pub last_updated: WallTime,
}

/// A file whose rows become a part of the file of a day, as bytes of type `B`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowSource<B> {
    /// A file of one hour.
    Hour {
        /// The hour.
        hour: Hour,
        /// Digest of its content, which the file of the day keeps.
        digest: String,
        /// The file.
        bytes: B,
    },
    /// A file of a day.
    Day(B),
}

/// A file of one hour that was a part of the file of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HourFile {
    /// The hour.
    pub hour: Hour,
    /// The file, with the digest that it had.
    pub file: EncodedFile,
}

/// New rows of some organizations of an hour, and the files that hold the rows of all others.
#[derive(Clone, Copy, Debug)]
pub struct TableSplice<'a> {
    /// The files as they were, in their order; files of the hour that are not among them stay.
    pub old: &'a [&'a [u8]],
    /// Organizations whose rows are replaced.
    pub organizations: &'a BTreeSet<OrganizationId>,
    /// Their new rows, in ascending order; one that is missing has none any more.
    pub hours: &'a [HourTables],
    /// One clock for each of `hours`.
    pub clocks: &'a [HourClock],
    /// Revision of the hour, which every row of `hours` carries.
    pub revision: i64,
    /// When the hour's rows changed, which every row of `hours` carries.
    pub last_updated: WallTime,
    /// Rows with which a file ends after an organization; see [`CutFile`].
    pub file_rows: u64,
}

/// Files with new rows of some organizations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplicedFiles {
    /// The same files as if all rows had been encoded again; none when no row is left.
    pub files: Vec<CutFile>,
    /// Digests of the files as they were, to tell a damaged one.
    pub old_digests: Vec<String>,
    /// Of `hours`: organizations whose hour was not complete in the file as it was, ascending.
    pub old_incomplete: Vec<OrganizationId>,
    /// Of `hours`: organizations whose hour is not complete now, ascending.
    pub incomplete: Vec<OrganizationId>,
}
