//! Several files of one hour, cut between organizations. So a late event rewrites only files that hold rows
//! of the event's organization.

use std::ops::Range;

use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{CutFile, HourClock, Table};

use crate::{EncodeError, check_order, encode};

/// Decides where files end. A file ends after the organization with which it reaches a number of rows. The
/// decision depends only on organizations and their numbers of rows, so the same rows are always cut alike.
pub struct Cutter {
    file_rows: u64,
    rows: u64,
}

impl Cutter {
    /// Creates the cutter of `table`, whose files end once they have `file_rows` rows. `hours` is never cut:
    /// all rows of `hours` carry the revision, so a change rewrites them all.
    pub fn new(table: Table, file_rows: u64) -> Self {
        let file_rows = if table == Table::Hours { u64::MAX } else { file_rows };
        Self { file_rows, rows: 0 }
    }

    /// Counts the rows of the next organization, and returns whether a file ends after it.
    pub fn ends_after(&mut self, rows: u64) -> bool {
        self.rows += rows;
        let ends = self.rows >= self.file_rows && rows > 0;
        if ends {
            self.rows = 0;
        }
        ends
    }
}

/// Returns the files of `table` for one hour of a shard; no files if there are no rows. Each file ends after
/// the organization with which it reaches `file_rows` rows. See [`encode`].
///
/// # Errors
/// Returns the errors of [`encode`].
pub fn encode_files(
    table: Table,
    hours: &[HourTables],
    clocks: &[HourClock],
    file_rows: u64,
) -> Result<Vec<CutFile>, EncodeError> {
    check_order(hours)?;
    let mut files = Vec::new();
    for part in parts(table, hours, file_rows) {
        let hours = hours.get(part).unwrap_or_default();
        let with_rows = hours.iter().rev().find(|hour| rows_of(table, hour) > 0);
        if let Some((file, last)) = encode(table, hours, clocks)?.zip(with_rows) {
            files.push(CutFile { file, last_organization: last.organization_id.clone() });
        }
    }
    Ok(files)
}

fn parts(table: Table, hours: &[HourTables], file_rows: u64) -> Vec<Range<usize>> {
    let (mut cutter, mut parts, mut first) = (Cutter::new(table, file_rows), Vec::new(), 0);
    for (index, hour) in hours.iter().enumerate() {
        if cutter.ends_after(rows_of(table, hour) as u64) {
            parts.push(first..index + 1);
            first = index + 1;
        }
    }
    parts.push(first..hours.len());
    parts
}

fn rows_of(table: Table, hour: &HourTables) -> usize {
    match table {
        Table::CostAllocation => hour.cost_allocation.len(),
        Table::ReservationUsage => hour.reservation_usage.len(),
        Table::CommitmentUtilization => hour.commitment_utilization.len(),
        Table::QuotaUsage => hour.quota_usage.len(),
        Table::PoolUsage => hour.pool_usage.len(),
        Table::Hours => 1,
        // Closed files are not made from hours; see `closed`.
        Table::ClosedAllocation => 0,
    }
}
