//! Rows of a commitment itself (RULES.md, section 3): what it is bought for, and what of that reached no node.

use std::collections::BTreeMap;

use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::{CostRow, RowKind};

use crate::error::EngineError;
use crate::exact::{Fraction, atoms, hours, round};
use crate::rows::draft::{ChargeKey, ChargeTotals, Draft};
use crate::rules::commitment::money_parts;
use crate::timeline::slices::{CommitmentHour, CommitmentSlice};

/// Drafts a commitment's purchase rows, one for each price, and its unused row; `totals` learns its charge.
///
/// # Errors
/// When an amount passes its column.
pub(crate) fn draft(hour: &CommitmentHour, totals: &mut ChargeTotals) -> Result<Vec<Draft>, EngineError> {
    let Some(last) = hour.slices.last() else { return Ok(Vec::new()) };
    // Microseconds by price, with the last description of that price.
    let mut purchases: BTreeMap<Decimal12, (u128, &CommitmentSlice)> = BTreeMap::new();
    let (mut unused_hours, mut unused_cost) = (RBig::ZERO, RBig::ZERO);
    for slice in &hour.slices {
        let price = slice.description.hourly_cost;
        let entry = purchases.entry(price).or_insert((0, slice));
        entry.0 += slice.span.micros();
        entry.1 = slice;
        let used = money_parts(&slice.description, &slice.covered).sum();
        let unused = (RBig::ONE - used) * hours(slice.span.micros());
        unused_cost += &unused * RBig::from(atoms(price));
        unused_hours += unused;
    }
    let id = hour.description.commitment_id.clone();
    let mut total = RBig::ZERO;
    let mut drafts = Vec::new();
    for (price, (micros, slice)) in purchases {
        let cost = hours(micros) * RBig::from(atoms(price));
        let row = row(RowKind::CommitmentPurchase, slice, round(&hours(micros))?);
        drafts.push(Draft::new(row, ChargeKey::Purchase(id.clone()), Fraction::of(&cost)));
        total += cost;
    }
    if !unused_hours.is_zero() {
        // The last price on all unused hours: a row's list cost is its own price times its own quantity.
        let list = &unused_hours * RBig::from(atoms(last.description.hourly_cost));
        let row = CostRow {
            list_cost: Fraction::of(&list).round_atoms()?,
            ..row(RowKind::CommitmentUnused, last, round(&unused_hours)?)
        };
        drafts.push(Draft::new(row, ChargeKey::Commitment(id.clone()), Fraction::of(&unused_cost)));
    }
    totals.insert(ChargeKey::Purchase(id.clone()), total.clone());
    totals.insert(ChargeKey::Commitment(id), total);
    Ok(drafts)
}

fn row(kind: RowKind, slice: &CommitmentSlice, quantity: Decimal12) -> CostRow {
    let commitment = &slice.description;
    let id = &commitment.commitment_id;
    CostRow {
        commitment_id: Some(id.clone()),
        list_unit_price: commitment.hourly_cost,
        pricing_quantity: quantity,
        commitment_quantity: Some(quantity),
        commitment: Some(commitment.clone()),
        ..CostRow::new(kind, id.clone().into(), commitment.provider.clone())
    }
}
