//! `hours`: the totals of an organization's hour, and the check that they agree (RULES.md, section 9).

use std::collections::BTreeSet;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::{CostBasis, CostRow, HourRow, RowKind};

use crate::error::EngineError;
use crate::exact::sum;
use crate::rows::draft::BillCost;
use crate::timeline::order::EventCounts;

/// Adds up the hour. Supply comes from the charges, with the charges of nodes, commitments and bills as
/// given. Allocated cost comes from the rows. `is_final` says whether the bills of the hour are complete.
///
/// # Errors
/// If a sum does not fit its column, or the sums differ. For every organization and hour,
/// `sum(EffectiveCost)` must be supply, and `sum(BilledCost)` must be the estimates and the billed cost of
/// the lines.
pub(crate) fn totals(
    rows: &[Box<CostRow>],
    [node_cost, commitment_cost]: [Decimal12; 2],
    bill: BillCost,
    events: EventCounts,
    is_final: bool,
) -> Result<HourRow, EngineError> {
    // The part that savings plans pay is billed as their purchase.
    let estimated = || rows.iter().filter(|row| row.lines.is_empty());
    let of = |kind: RowKind| sum(estimated().filter(|row| row.kind == kind).map(|row| row.billed_cost));
    let serverless_cost = of(RowKind::PodServerless)?;
    let reservation_unused_cost = of(RowKind::ReservationUnused)?;
    let pool_cost = of(RowKind::PodPool)?;
    let estimates = [node_cost, serverless_cost, reservation_unused_cost, commitment_cost, pool_cost];
    let estimates = sum(estimates)?;
    let supply_cost = sum([estimates, bill.effective])?;
    let allocated_cost = sum(rows.iter().map(|row| row.effective_cost))?;
    let billed_cost = sum(rows.iter().map(|row| row.billed_cost))?;
    if allocated_cost != supply_cost || billed_cost != sum([estimates, bill.billed])? {
        let of_lines = format!("{} by {} of bills", bill.effective, bill.billed);
        let sums =
            format!("supply {supply_cost}, allocated {allocated_cost}, billed {billed_cost}, {of_lines}");
        return Err(EngineError::Conservation(sums));
    }
    let basis = match (estimated().next().is_some(), rows.iter().any(|row| !row.lines.is_empty())) {
        _ if is_final => CostBasis::Final,
        (_, false) => CostBasis::Estimated,
        (true, true) => CostBasis::Partial,
        (false, true) => CostBasis::Billed,
    };
    let unpriced = rows.iter().filter(|row| row.unpriced.is_some());
    let unpriced_pods: BTreeSet<&PodUid> = unpriced.filter_map(|row| row.pod_uid.as_ref()).collect();
    Ok(HourRow {
        node_cost,
        serverless_cost,
        reservation_unused_cost,
        commitment_cost,
        pool_cost,
        bill_cost: bill.effective,
        supply_cost,
        bill_billed_cost: bill.billed,
        basis,
        allocated_cost,
        difference: Decimal12::ZERO,
        rows: i64::try_from(rows.len()).unwrap_or(i64::MAX),
        events: events.standing,
        unpriced_pods: i64::try_from(unpriced_pods.len()).unwrap_or(i64::MAX),
        max_event_time: events.latest,
    })
}
