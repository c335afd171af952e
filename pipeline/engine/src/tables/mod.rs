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

use std::collections::BTreeMap;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::{CostRow, RowKind};

use crate::error::EngineError;
use crate::exact::sum;

/// Returns the rows of one kind. Rows are sorted by kind first.
fn of_kind(rows: &[Box<CostRow>], kind: RowKind) -> &[Box<CostRow>] {
    let start = rows.partition_point(|row| row.kind < kind);
    let end = rows.partition_point(|row| row.kind <= kind);
    &rows[start..end]
}

/// Returns the sum of the amounts of each key.
fn sum_by<K: Ord>(
    amounts: impl Iterator<Item = (K, Decimal12)>,
) -> Result<BTreeMap<K, Decimal12>, EngineError> {
    let mut sums: BTreeMap<K, Decimal12> = BTreeMap::new();
    for (key, amount) in amounts {
        let of_key = sums.entry(key).or_default();
        *of_key = sum([*of_key, amount])?;
    }
    Ok(sums)
}
