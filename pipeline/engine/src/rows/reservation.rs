//! Rows of a reservation's unused units (RULES.md, section 2). There is one row for each price of the
//! reservation in the hour, and for each savings plan that pays a part of the units.

use std::collections::BTreeMap;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{CostRow, RowKind};

use crate::currency::{counted, is_other, reason};
use crate::error::EngineError;
use crate::exact::{Fraction, HOUR_MICROS, atoms, ratio, round};
use crate::model::slices::{PlanPart, ReservationSlice, own_part};
use crate::rows::draft::{Draft, Paid};
use crate::rules::reservation::unused_units;

/// The price, whether the price is in another currency than the hour's, and the savings plan that pays.
type UnitsKey = (UnitPrice, bool, Option<CommitmentId>);

/// Unused units that make one row.
struct UnitsSum<'a> {
    unit_hours: RBig,
    /// The cost in atoms.
    cost: RBig,
    paid: Option<Paid>,
    /// The last slice.
    last: &'a ReservationSlice,
}

/// Drafts the rows of one reservation.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn draft(slices: &[ReservationSlice]) -> Result<Vec<Draft>, EngineError> {
    let mut sums: BTreeMap<UnitsKey, UnitsSum<'_>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| !slice.is_billed) {
        for plan in &slice.plans {
            add(&mut sums, slice, Some(plan));
        }
        add(&mut sums, slice, None);
    }
    let mut drafts = Vec::new();
    for ((price, _, _), sum) in sums {
        if sum.unit_hours.is_zero() {
            continue;
        }
        let reservation = &sum.last.description;
        let id = &reservation.reservation_id;
        let cost = Fraction::of(&sum.cost);
        let mut row = CostRow {
            reservation_id: Some(id.clone()),
            list_unit_price: price.into(),
            unpriced: reason(&reservation.currency),
            pricing_quantity: round(&sum.unit_hours)?,
            list_cost: cost.round_atoms()?,
            reservation: Some(reservation.clone()),
            ..CostRow::new(RowKind::ReservationUnused, id.clone().into(), reservation.provider.clone())
        };
        if let Some(paid) = sum.paid {
            paid.set(&mut row)?;
        }
        drafts.push(Draft::new(row, cost));
    }
    Ok(drafts)
}

/// Adds the unused units of a slice that `plan` pays. If `plan` is `None`, adds the units that no plan pays.
fn add<'a>(
    sums: &mut BTreeMap<UnitsKey, UnitsSum<'a>>,
    slice: &'a ReservationSlice,
    plan: Option<&PlanPart>,
) {
    let part = plan.map_or_else(|| own_part(&slice.plans), |plan| plan.part.clone());
    if part.is_zero() {
        // Plans pay for everything, so this slice does not describe the row of the rest.
        return;
    }
    let set = &slice.description;
    let price = counted(set.unit_hourly_price, &set.currency);
    let key = (price, is_other(&set.currency), plan.map(|plan| plan.plan.commitment_id.clone()));
    let zero = || UnitsSum { unit_hours: RBig::ZERO, cost: RBig::ZERO, paid: None, last: slice };
    let sum = sums.entry(key).or_insert_with(zero);
    sum.last = slice;
    let unit_micros = UBig::from(unused_units(slice) * slice.span.micros());
    let unit_hours = ratio(unit_micros, UBig::from(HOUR_MICROS));
    let list_cost = &unit_hours * &part * RBig::from(atoms(price));
    match plan {
        Some(plan) => {
            Paid::add(&mut sum.paid, plan, &list_cost, &(&plan.spend * &unit_hours));
            sum.cost += &plan.cost * &unit_hours;
        }
        None => sum.cost += list_cost,
    }
    sum.unit_hours += unit_hours * part;
}
