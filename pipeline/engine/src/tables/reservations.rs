//! `reservation_usage`: a row for each reservation that was effective in the hour.

use std::collections::BTreeMap;

use dashu_int::UBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::{PodUid, ReservationId};
use prorata_schemas::rows::{CostRow, ReservationUsageRow, RowKind};

use crate::error::EngineError;
use crate::exact::{HOUR_MICROS, ratio, round};
use crate::rows::draft::sum;
use crate::rows::{seconds, unused_units};
use crate::timeline::slices::{PodSlice, ReservationSlice};

/// Rows by reservation id.
pub(crate) fn reservation_usage(
    slices: &BTreeMap<ReservationId, Vec<ReservationSlice>>,
    pods: &BTreeMap<PodUid, Vec<PodSlice>>,
    rows: &[CostRow],
) -> Result<Vec<ReservationUsageRow>, EngineError> {
    if slices.is_empty() {
        return Ok(Vec::new());
    }
    let mut used_by: BTreeMap<&ReservationId, BTreeMap<PodUid, u128>> = BTreeMap::new();
    for (uid, pod_slices) in pods {
        for slice in pod_slices {
            if let Some(id) = &slice.standing.reservation {
                *used_by.entry(id).or_default().entry(uid.clone()).or_default() += slice.span.micros();
            }
        }
    }
    slices.iter().map(|(id, slices)| row(id, slices, used_by.remove(id).unwrap_or_default(), rows)).collect()
}

fn row(
    id: &ReservationId,
    slices: &[ReservationSlice],
    used_by: BTreeMap<PodUid, u128>,
    rows: &[CostRow],
) -> Result<ReservationUsageRow, EngineError> {
    let (mut used, mut unused) = (0_u128, 0_u128);
    for slice in slices {
        used += u128::from(slice.used) * slice.span.micros();
        unused += unused_units(slice) * slice.span.micros();
    }
    let Some(last) = slices.last() else {
        return Err(EngineError::Conservation(format!("reservation {id} has no slices")));
    };
    let reservation = &last.description;
    let all = UBig::from(used + unused);
    let own = rows
        .iter()
        .filter(|row| row.kind == RowKind::ReservationUnused && row.reservation_id.as_ref() == Some(id));
    let used_by = used_by.into_iter().map(|(uid, micros)| (uid, seconds(micros)));
    Ok(ReservationUsageRow {
        reservation_id: id.clone(),
        name: reservation.name.clone(),
        region: reservation.region.clone(),
        zone: reservation.zone.clone(),
        gpu_model: reservation.gpu_model.clone(),
        units: round(&ratio(all.clone(), UBig::from(HOUR_MICROS)))?,
        used_unit_seconds: seconds(used),
        unused_unit_seconds: seconds(unused),
        utilization: if all == UBig::ZERO { None } else { Some(round(&ratio(UBig::from(used), all))?) },
        used_by: used_by.collect::<BTreeMap<PodUid, Decimal12>>(),
        unused_cost: sum(own.map(|row| row.effective_cost))?,
    })
}
