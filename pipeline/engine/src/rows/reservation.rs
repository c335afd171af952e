//! Rows of a reservation's unused units (RULES.md, section 2): one for each price that it had in the hour.

use std::collections::BTreeMap;

use dashu_ratio::RBig;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{CostRow, RowKind};

use crate::currency::{counted, is_other, reason};
use crate::error::EngineError;
use crate::exact::{Fraction, atoms, hours, round};
use crate::model::slices::ReservationSlice;
use crate::rows::draft::Draft;
use crate::rules::reservation::unused_units;

/// Drafts the rows of one reservation.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn draft(slices: &[ReservationSlice]) -> Result<Vec<Draft>, EngineError> {
    // Unit-microseconds by price, with the last description of that price.
    let mut by_price: BTreeMap<(UnitPrice, bool), (u128, &ReservationSlice)> = BTreeMap::new();
    for slice in slices {
        let set = &slice.description;
        let key = (counted(set.unit_hourly_price, &set.currency), is_other(&set.currency));
        let entry = by_price.entry(key).or_insert((0, slice));
        entry.0 += unused_units(slice) * slice.span.micros();
        entry.1 = slice;
    }
    let mut drafts = Vec::new();
    for ((price, _), (unit_micros, slice)) in by_price {
        if unit_micros == 0 {
            continue;
        }
        let reservation = &slice.description;
        let id = &reservation.reservation_id;
        let unit_hours = hours(unit_micros);
        let cost = Fraction::of(&(&unit_hours * RBig::from(atoms(price))));
        let row = CostRow {
            reservation_id: Some(id.clone()),
            list_unit_price: price.into(),
            unpriced: reason(&reservation.currency),
            pricing_quantity: round(&unit_hours)?,
            list_cost: cost.round_atoms()?,
            reservation: Some(reservation.clone()),
            ..CostRow::new(RowKind::ReservationUnused, id.clone().into(), reservation.provider.clone())
        };
        drafts.push(Draft::new(row, cost));
    }
    Ok(drafts)
}
