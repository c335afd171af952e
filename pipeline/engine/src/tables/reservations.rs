//! `reservation_usage`: a row for each reservation that was effective in the hour (RULES.md, section 2).

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::{PodUid, ReservationId};
use prorata_schemas::rows::{CostRow, ReservationUsageRow, RowKind};

use crate::currency;
use crate::error::EngineError;
use crate::exact::{HOUR_MICROS, ratio, round, seconds};
use crate::model::slices::{ReservationSlice, Slices};
use crate::rules::reservation::unused_units;
use crate::tables::{of_kind, sum_by};

/// Returns the rows in order of reservation id.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn reservation_usage(
    slices: &Slices,
    rows: &[Box<CostRow>],
) -> Result<Vec<ReservationUsageRow>, EngineError> {
    if slices.reservations.is_empty() {
        return Ok(Vec::new());
    }
    let mut used_by: BTreeMap<&ReservationId, BTreeMap<PodUid, u128>> = BTreeMap::new();
    for (uid, pod_slices) in &slices.pods {
        for slice in pod_slices {
            if let Some(id) = &slice.status.reservation {
                *used_by.entry(id).or_default().entry(uid.clone()).or_default() += slice.span.micros();
            }
        }
    }
    let unused = of_kind(rows, RowKind::ReservationUnused).iter();
    let unused = unused.filter_map(|row| Some((row.reservation_id.as_ref()?, row.effective_cost)));
    let unused_costs = sum_by(unused)?;
    let effective = slices.reservations.iter();
    effective
        .map(|(id, slices)| {
            let unused_cost = unused_costs.get(id).copied().unwrap_or_default();
            row(id, slices, used_by.remove(id).unwrap_or_default(), unused_cost)
        })
        .collect()
}

fn row(
    id: &ReservationId,
    slices: &[ReservationSlice],
    used_by: BTreeMap<PodUid, u128>,
    unused_cost: Decimal12,
) -> Result<ReservationUsageRow, EngineError> {
    let (mut used, mut unused) = (0_u128, 0_u128);
    for slice in slices {
        used += u128::from(slice.used_units) * slice.span.micros();
        unused += unused_units(slice) * slice.span.micros();
    }
    let Some(last) = slices.last() else {
        return Err(EngineError::Conservation(format!("reservation {id} has no slices")));
    };
    let mut description = Arc::clone(&last.description);
    currency::unmark_reservation(&mut description);
    let all = UBig::from(used + unused);
    let used_by = used_by.into_iter().map(|(uid, micros)| Ok((uid, seconds(micros)?)));
    Ok(ReservationUsageRow {
        reservation_id: id.clone(),
        description,
        units: round(&ratio(all.clone(), UBig::from(HOUR_MICROS)))?,
        used_unit_seconds: seconds(used)?,
        unused_unit_seconds: seconds(unused)?,
        utilization: if all.is_zero() { None } else { Some(round(&ratio(UBig::from(used), all))?) },
        used_by: used_by.collect::<Result<BTreeMap<PodUid, Decimal12>, EngineError>>()?,
        unused_cost,
    })
}
