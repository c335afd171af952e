//! Several files of one hour, cut between organizations: a late event writes only files again that hold rows
//! of its organization.

use std::ops::Range;

use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{CutFile, HourClock, Table};

use crate::{EncodeError, check_order, encode};

/// Says where files end: after the organization with which they reach a number of rows. It looks at nothing
/// but organizations and their numbers of rows, so that the same rows are always cut alike.
pub struct Cutter {
    file_rows: u64,
    rows: u64,
}

impl Cutter {
    /// Files of `table` that end once they have `file_rows` rows. `hours` is never cut: every row of it
    /// carries the revision, so a change writes all of them again.
    pub fn new(table: Table, file_rows: u64) -> Self {
        let file_rows = if table == Table::Hours { u64::MAX } else { file_rows };
        Self { file_rows, rows: 0 }
    }

    /// Whether a file ends after the next organization, which has this number of rows.
    pub fn ends_after(&mut self, rows: u64) -> bool {
        self.rows += rows;
        let ends = self.rows >= self.file_rows && rows > 0;
        if ends {
            self.rows = 0;
        }
        ends
    }
}

/// The files of one shard's one hour of `table`, each of which ends after the organization with which it
/// reaches `file_rows` rows; none when there are no rows. See [`encode`].
///
/// # Errors
/// As [`encode`].
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
    }
}
