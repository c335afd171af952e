//! `hours`: the totals of an organization's hour, and the check that they agree (RULES.md, section 9).

use std::collections::BTreeSet;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::{CostRow, HourRow, RowKind};

use crate::error::EngineError;
use crate::exact::sum;
use crate::timeline::order::EventCounts;

/// Adds up the hour. Supply comes from the charges, with the charges of nodes and commitments as given.
/// Allocated cost comes from the rows.
///
/// # Errors
/// If a sum does not fit its column, or the sums differ. For every organization and hour, `sum(EffectiveCost)
/// = sum(BilledCost) = supply` must hold.
pub(crate) fn totals(
    rows: &[Box<CostRow>],
    [node_cost, commitment_cost]: [Decimal12; 2],
    events: EventCounts,
) -> Result<HourRow, EngineError> {
    // The part that savings plans pay is billed as their purchase.
    let of = |kind: RowKind| sum(rows.iter().filter(|row| row.kind == kind).map(|row| row.billed_cost));
    let serverless_cost = of(RowKind::PodServerless)?;
    let reservation_unused_cost = of(RowKind::ReservationUnused)?;
    let pool_cost = of(RowKind::PodPool)?;
    let supply_cost = sum([node_cost, serverless_cost, reservation_unused_cost, commitment_cost, pool_cost])?;
    let allocated_cost = sum(rows.iter().map(|row| row.effective_cost))?;
    let billed_cost = sum(rows.iter().map(|row| row.billed_cost))?;
    if allocated_cost != supply_cost || billed_cost != supply_cost {
        let sums = format!("supply {supply_cost}, allocated {allocated_cost}, billed {billed_cost}");
        return Err(EngineError::Conservation(sums));
    }
    let unpriced = rows.iter().filter(|row| row.unpriced.is_some());
    let unpriced_pods: BTreeSet<&PodUid> = unpriced.filter_map(|row| row.pod_uid.as_ref()).collect();
    Ok(HourRow {
        node_cost,
        serverless_cost,
        reservation_unused_cost,
        commitment_cost,
        pool_cost,
        supply_cost,
        allocated_cost,
        difference: Decimal12::ZERO,
        rows: i64::try_from(rows.len()).unwrap_or(i64::MAX),
        events: events.distinct,
        unpriced_pods: i64::try_from(unpriced_pods.len()).unwrap_or(i64::MAX),
        max_event_time: events.latest,
    })
}
