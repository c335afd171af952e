//! Rows of a commitment itself (RULES.md, section 3): its purchase, and the part of it that covered nothing.

use std::collections::BTreeMap;

use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{CostRow, RowKind};

use crate::currency::{counted, is_other, reason};
use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, Fraction, atoms, hours, ratio, round};
use crate::model::slices::{CommitmentHour, CommitmentSlice};
use crate::rows::draft::{ChargeKey, Draft, RowBook};
use crate::rules::commitment::used_part;

/// A commitment's effective time at one price.
struct AtPrice<'a> {
    micros: u128,
    unused_hours: RBig,
    /// The whole quantity of the commitment, and the unused quantity.
    quantity: RBig,
    unused_quantity: RBig,
    /// The last slice at this price.
    last: &'a CommitmentSlice,
}

impl<'a> AtPrice<'a> {
    fn new(last: &'a CommitmentSlice) -> Self {
        let (unused_hours, quantity, unused_quantity) = (RBig::ZERO, RBig::ZERO, RBig::ZERO);
        Self { micros: 0, unused_hours, quantity, unused_quantity, last }
    }
}

/// Adds a commitment's charge and rows to the book: for each price, one purchase row and one unused row. A
/// price at which nothing was unused has no unused row. A billed commitment has the rows of its lines
/// instead.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn draft(hour: &CommitmentHour, book: &mut RowBook) -> Result<(), EngineError> {
    if hour.slices.is_empty() || hour.is_billed {
        return Ok(());
    }
    let mut prices: BTreeMap<(UnitPrice, bool), AtPrice<'_>> = BTreeMap::new();
    for slice in &hour.slices {
        let set = &slice.description;
        let entry = prices.entry((counted(set.hourly_cost, &set.currency), is_other(&set.currency)));
        let at_price = entry.or_insert_with(|| AtPrice::new(slice));
        let time = hours(slice.span.micros());
        let unused = (RBig::ONE - used_part(slice)) * &time;
        // The quantity of a plan is its spend; the quantity of any other commitment is its time.
        let commitment = set.hourly_commitment.map_or(RBig::ONE, |spend| ratio(atoms(spend), ATOMS_IN_ONE));
        at_price.micros += slice.span.micros();
        at_price.quantity += time * &commitment;
        at_price.unused_quantity += &unused * commitment;
        at_price.unused_hours += unused;
        at_price.last = slice;
    }
    let id = &hour.description.commitment_id;
    let mut total = RBig::ZERO;
    for ((price, _), at_price) in prices {
        let AtPrice { micros, unused_hours, quantity, unused_quantity, last } = at_price;
        let price = RBig::from(atoms(price));
        let bought = hours(micros);
        let cost = &bought * &price;
        let purchase = row(RowKind::CommitmentPurchase, last, [round(&bought)?, round(&quantity)?]);
        book.add_open(ChargeKey::Purchase(id.clone()), Draft::new(purchase, Fraction::of(&cost)));
        total += cost;
        if !unused_hours.is_zero() {
            let cost = Fraction::of(&(&unused_hours * &price));
            let unused = CostRow {
                list_cost: cost.round_atoms()?,
                ..row(RowKind::CommitmentUnused, last, [round(&unused_hours)?, round(&unused_quantity)?])
            };
            book.add_open(ChargeKey::Commitment(id.clone()), Draft::new(unused, cost));
        }
    }
    book.set_total(ChargeKey::Purchase(id.clone()), total.clone());
    book.set_total(ChargeKey::Commitment(id.clone()), total);
    Ok(())
}

fn row(kind: RowKind, slice: &CommitmentSlice, [hours, quantity]: [Decimal12; 2]) -> CostRow {
    let commitment = &slice.description;
    let id = &commitment.commitment_id;
    CostRow {
        commitment_id: Some(id.clone()),
        list_unit_price: counted(commitment.hourly_cost, &commitment.currency).into(),
        unpriced: reason(&commitment.currency),
        pricing_quantity: hours,
        commitment_quantity: Some(quantity),
        commitment: Some(commitment.clone()),
        ..CostRow::new(kind, id.clone().into(), commitment.provider.clone())
    }
}
