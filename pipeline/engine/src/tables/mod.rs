//! Our own hourly tables, computed from the hour's slices and its rounded rows.

mod commitments;
mod pools;
mod quotas;
mod reservations;
mod totals;

pub(crate) use commitments::commitment_utilization;
pub(crate) use pools::{PoolHour, pool_usage};
pub(crate) use quotas::quota_usage;
pub(crate) use reservations::reservation_usage;
pub(crate) use totals::totals;

use prorata_schemas::rows::{CostRow, RowKind};

/// The rows of one kind: rows are sorted by it first.
fn of_kind(rows: &[CostRow], kind: RowKind) -> &[CostRow] {
    let start = rows.partition_point(|row| row.kind < kind);
    let end = rows.partition_point(|row| row.kind <= kind);
    &rows[start..end]
}
