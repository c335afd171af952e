//! Rows of a commitment itself (RULES.md, section 3): its purchase, and the part of it that covered no node.

use std::collections::BTreeMap;

use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{CostRow, RowKind};

use crate::currency::{counted, is_other, reason};
use crate::error::EngineError;
use crate::exact::{Fraction, atoms, hours, round};
use crate::model::slices::{CommitmentHour, CommitmentSlice};
use crate::rows::draft::{ChargeKey, Draft, RowBook};
use crate::rules::commitment::money_parts;

/// A commitment's effective time at one price.
struct AtPrice<'a> {
    micros: u128,
    unused_hours: RBig,
    /// The last slice at this price.
    last: &'a CommitmentSlice,
}

/// Adds a commitment's purchase rows and its unused rows, one of each for every price, and its charge to the
/// book. A price at which nothing was unused has no unused row.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn draft(hour: &CommitmentHour, book: &mut RowBook) -> Result<(), EngineError> {
    if hour.slices.is_empty() {
        return Ok(());
    }
    let mut prices: BTreeMap<(UnitPrice, bool), AtPrice<'_>> = BTreeMap::new();
    for slice in &hour.slices {
        let set = &slice.description;
        let entry = prices.entry((counted(set.hourly_cost, &set.currency), is_other(&set.currency)));
        let at_price = entry.or_insert(AtPrice { micros: 0, unused_hours: RBig::ZERO, last: slice });
        let used = money_parts(&slice.description, &slice.covered).sum();
        at_price.micros += slice.span.micros();
        at_price.unused_hours += (RBig::ONE - used) * hours(slice.span.micros());
        at_price.last = slice;
    }
    let id = &hour.description.commitment_id;
    let mut total = RBig::ZERO;
    for ((price, _), AtPrice { micros, unused_hours, last }) in prices {
        let price = RBig::from(atoms(price));
        let bought = hours(micros);
        let cost = &bought * &price;
        let purchase = row(RowKind::CommitmentPurchase, last, round(&bought)?);
        book.add_open(ChargeKey::Purchase(id.clone()), Draft::new(purchase, Fraction::of(&cost)));
        total += cost;
        if !unused_hours.is_zero() {
            let cost = Fraction::of(&(&unused_hours * &price));
            let unused = CostRow {
                list_cost: cost.round_atoms()?,
                ..row(RowKind::CommitmentUnused, last, round(&unused_hours)?)
            };
            book.add_open(ChargeKey::Commitment(id.clone()), Draft::new(unused, cost));
        }
    }
    book.set_total(ChargeKey::Purchase(id.clone()), total.clone());
    book.set_total(ChargeKey::Commitment(id.clone()), total);
    Ok(())
}

fn row(kind: RowKind, slice: &CommitmentSlice, quantity: Decimal12) -> CostRow {
    let commitment = &slice.description;
    let id = &commitment.commitment_id;
    CostRow {
        commitment_id: Some(id.clone()),
        list_unit_price: counted(commitment.hourly_cost, &commitment.currency).into(),
        unpriced: reason(&commitment.currency),
        pricing_quantity: quantity,
        commitment_quantity: Some(quantity),
        commitment: Some(commitment.clone()),
        ..CostRow::new(kind, id.clone().into(), commitment.provider.clone())
    }
}
