//! The tables of reservations and commitments, and the totals of the hour.

pub mod pools;
pub mod quotas;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use num_traits::Zero;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{CommitmentKind, CommitmentSet, EventRecord, Payload};
use prorata_schemas::ids::{ClusterId, CommitmentId, PodUid, ReservationId};
use prorata_schemas::rows::{
    ClusterCover, CommitmentState, CommitmentUtilizationRow, CostBasis, CostRow, HourRow, PlanSpend,
    ReservationUsageRow, RowKind,
};
use prorata_schemas::time::Hour;

use crate::hour::{HourView, PlanTotals};
use crate::names;
use crate::resources::{Three, add, none};
use crate::rounding::{Exact, exact, fraction, half_even, hours, whole, zero};
use crate::rows::draft::resource_hours;
use crate::rules::bill::bills_commitment;
use crate::rules::commitment;
use crate::rules::plan;
use crate::timeline;
use crate::world::Reservation;

/// Returns the sum of a column over some rows.
pub fn sum<'a>(rows: impl Iterator<Item = &'a CostRow>, column: impl Fn(&CostRow) -> Decimal12) -> Decimal12 {
    half_even(&rows.map(|row| exact(column(row))).sum())
}

/// Returns the rows of `reservation_usage`.
pub fn reservation_usage(view: &HourView, rows: &[CostRow]) -> Vec<ReservationUsageRow> {
    let mut last: BTreeMap<&ReservationId, &Reservation> = BTreeMap::new();
    let mut units: BTreeMap<&ReservationId, Exact> = BTreeMap::new();
    let mut used_by: BTreeMap<&ReservationId, BTreeMap<PodUid, Exact>> = BTreeMap::new();
    for slice in view.slices {
        let time = hours(slice.to - slice.from);
        for (id, reservation) in
            slice.world.reservations.iter().filter(|(_, reservation)| reservation.effective)
        {
            last.insert(id, reservation);
            *units.entry(id).or_default() += whole(reservation.set.quantity) * &time;
            used_by.entry(id).or_default();
        }
        for (uid, held) in &slice.world.matches {
            if let Some(by) = used_by.get_mut(&held.reservation_id) {
                *by.entry(uid.clone()).or_default() += &time;
            }
        }
    }
    let mut table = Vec::new();
    for (id, reservation) in last {
        let (units, used_by) = (units.remove(id).unwrap_or_default(), used_by.remove(id).unwrap_or_default());
        let used: Exact = used_by.values().sum();
        let seconds = |hours: &Exact| half_even(&(hours * whole(3600)));
        let unused = rows
            .iter()
            .filter(|row| row.kind == RowKind::ReservationUnused && row.reservation_id.as_ref() == Some(id));
        table.push(ReservationUsageRow {
            reservation_id: id.clone(),
            description: Arc::clone(&reservation.set),
            units: half_even(&units),
            used_unit_seconds: seconds(&used),
            unused_unit_seconds: seconds(&(&units - &used)),
            utilization: (!units.is_zero()).then(|| half_even(&(&used / &units))),
            used_by: used_by.iter().map(|(uid, hours)| (uid.clone(), seconds(hours))).collect(),
            unused_cost: sum(unused, |row| row.effective_cost),
        });
    }
    table
}

/// Returns the rows of `commitment_utilization`.
pub fn commitment_utilization(view: &HourView, rows: &[CostRow]) -> Vec<CommitmentUtilizationRow> {
    let mut last: BTreeMap<&CommitmentId, &Arc<CommitmentSet>> = BTreeMap::new();
    let mut shown = BTreeSet::new();
    for slice in view.slices {
        for (id, set) in &slice.world.commitments {
            if set.ends_at.is_none_or(|end| end > view.hour.start()) {
                shown.insert(id);
            }
        }
        last.extend(&slice.world.last_commitments);
    }
    last.retain(|id, _| shown.contains(id));
    last.into_iter().map(|(id, set)| utilization_row(view, rows, id, set)).collect()
}

/// Committed, covered and provisioned resource-hours of one commitment, and cover by cluster.
#[derive(Default)]
struct CoverSums {
    committed: Three,
    covered: Three,
    planned: Three,
    provisioned: Three,
    clusters: BTreeMap<ClusterId, Three>,
}

fn cover(view: &HourView, id: &CommitmentId) -> CoverSums {
    let mut sums = CoverSums::default();
    for slice in view.slices {
        let Some(set) = slice.world.commitments.get(id) else { continue };
        if !commitment::effective(set, slice.from) {
            continue;
        }
        let time = hours(slice.to - slice.from);
        add(&mut sums.committed, &commitment::totals(set), &time);
        for node in slice.world.nodes.values() {
            if let Some(capacity) = commitment::matching_capacity(set, &node.set, view.rules) {
                add(&mut sums.provisioned, &capacity, &time);
            }
        }
        let planned = commitment::covers(&slice.world, slice.from, view.rules, commitment::planned_totals);
        for cover in planned.iter().filter(|cover| cover.commitment_id == *id) {
            add(&mut sums.planned, &cover.amount, &time);
        }
        for cover in slice.covers.iter().filter(|cover| cover.commitment_id == *id) {
            add(&mut sums.covered, &cover.amount, &time);
            add(sums.clusters.entry(cover.node.0.clone()).or_insert_with(none), &cover.amount, &time);
        }
    }
    let planned = commitment::hourly_covers(view.slices, view.rules, commitment::planned_totals);
    for (place, cover) in planned.iter().filter(|(_, cover)| cover.commitment_id == *id) {
        let slice = &view.slices[*place];
        add(&mut sums.planned, &cover.amount, &hours(slice.to - slice.from));
    }
    sums
}

fn utilization_row(
    view: &HourView,
    rows: &[CostRow],
    id: &CommitmentId,
    set: &Arc<CommitmentSet>,
) -> CommitmentUtilizationRow {
    let mut sums = cover(view, id);
    // A plan may cover usage in clusters in which it covers no node.
    for cluster_id in used_rows_of(rows, id).filter_map(|row| row.cluster_id.clone()) {
        sums.clusters.entry(cluster_id).or_insert_with(none);
    }
    let unused = rows
        .iter()
        .filter(|row| row.kind == RowKind::CommitmentUnused && row.commitment_id.as_ref() == Some(id));
    let mut clusters = BTreeMap::new();
    for (cluster_id, amounts) in &sums.clusters {
        let hours = resource_hours(amounts);
        let here = used_rows_of(rows, id).filter(|row| row.cluster_id.as_ref() == Some(cluster_id));
        let cover = ClusterCover {
            vcpu_hours: hours.cpu_core_hours,
            gib_hours: hours.memory_gib_hours,
            cost: sum(here, |row| row.effective_cost),
        };
        clusters.insert(cluster_id.clone(), cover);
    }
    let spend = spend(view, id);
    let utilization = |used: &Three, used_spend: &Exact| match set.kind {
        CommitmentKind::SavingsPlan => half_even(&fraction(used_spend, &spend.committed)),
        _ => half_even(&commitment::weighted(&sums.committed, used).iter().sum()),
    };
    let (used_cost, unused_cost) =
        (sum(used_rows_of(rows, id), |row| row.effective_cost), sum(unused, |row| row.effective_cost));
    let is_billed = view.slices.iter().any(|slice| bills_commitment(&slice.world, slice.from, id));
    CommitmentUtilizationRow {
        commitment_id: id.clone(),
        description: Arc::clone(set),
        hourly_cost: (set.currency == *view.rules.currency_of(view.organization_id))
            .then_some(set.hourly_cost),
        committed: resource_hours(&sums.committed),
        covered: resource_hours(&sums.covered),
        planned: resource_hours(&sums.planned),
        provisioned: resource_hours(&sums.provisioned),
        utilization: match is_billed {
            true => part_of_cost(used_cost, unused_cost),
            false => utilization(&sums.covered, &spend.covered),
        },
        planned_utilization: utilization(&sums.planned, &spend.planned),
        raw_utilization: utilization(&sums.provisioned, &spend.provisioned),
        spend: (set.kind == CommitmentKind::SavingsPlan).then(|| PlanSpend {
            committed: half_even(&spend.committed),
            covered: half_even(&spend.covered),
            planned: half_even(&spend.planned),
            provisioned: half_even(&spend.provisioned),
        }),
        used_cost,
        unused_cost,
        list_cost_avoided: sum(used_rows_of(rows, id), |row| row.list_cost),
        clusters,
        state: state(view, id, set),
    }
}

/// Returns the used part of the cost of a billed commitment; zero if the cost is not above zero.
fn part_of_cost(used: Decimal12, unused: Decimal12) -> Decimal12 {
    let all = exact(used) + exact(unused);
    if all > zero() { half_even(&(exact(used) / all)) } else { Decimal12::ZERO }
}

/// Returns the rows of usage that the commitment pays.
fn used_rows_of<'a>(rows: &'a [CostRow], id: &'a CommitmentId) -> impl Iterator<Item = &'a CostRow> {
    let own = |row: &CostRow| matches!(row.kind, RowKind::CommitmentUnused | RowKind::CommitmentPurchase);
    rows.iter().filter(move |row| row.commitment_id.as_ref() == Some(id) && !own(row))
}

/// The spend of a savings plan in the hour.
#[derive(Default)]
struct SpendSums {
    committed: Exact,
    covered: Exact,
    planned: Exact,
    provisioned: Exact,
}

fn spend(view: &HourView, id: &CommitmentId) -> SpendSums {
    let Some(spend) = view.plans.spends.get(id).cloned() else { return SpendSums::default() };
    let planned = plan::plans(view, plan::planned).spends.remove(id).unwrap_or_default().covered;
    let PlanTotals { committed, covered, provisioned } = spend;
    SpendSums { committed, covered, planned, provisioned }
}

/// Returns the state at the hour's end, before the steps of that very instant.
fn state(view: &HourView, id: &CommitmentId, set: &CommitmentSet) -> CommitmentState {
    let exists = view.slices.last().is_some_and(|slice| slice.world.commitments.contains_key(id));
    let end = view.hour.end();
    if !exists {
        CommitmentState::Deleted
    } else if set.ends_at.is_some_and(|ends_at| ends_at <= end) {
        CommitmentState::Expired
    } else if set.starts_at > end {
        CommitmentState::Pending
    } else if !set.enabled {
        CommitmentState::Disabled
    } else {
        CommitmentState::Active
    }
}

/// Returns the row of `hours`: the sums of the rows, and the counts of the input.
pub fn totals(view: &HourView, rows: &[CostRow], records: &[EventRecord]) -> HourRow {
    let of = |kinds: &[RowKind]| {
        let own = |row: &&CostRow| kinds.contains(&row.kind) && row.commitment_id.is_none();
        let estimates = rows.iter().filter(|row| row.lines.is_empty());
        sum(estimates.filter(own), |row| row.effective_cost)
    };
    let node_cost = of(&[RowKind::PodNode, RowKind::NodeIdle]);
    let serverless_cost = of(&[RowKind::PodServerless]);
    let reservation_unused_cost = of(&[RowKind::ReservationUnused]);
    let pool_cost = of(&[RowKind::PodPool]);
    let estimates = rows.iter().filter(|row| row.lines.is_empty());
    let purchases = estimates.filter(|row| row.kind == RowKind::CommitmentPurchase);
    let commitment_cost = sum(purchases, |row| row.billed_cost);
    // From the lines, and not from their rows: a row that lacks a part of a line makes a difference.
    let of_lines = |amount: usize| view.lines.iter().map(|part| part.amounts[amount].clone()).sum::<Exact>();
    let [bill_billed_cost, bill_cost] = [0, 1].map(|amount| half_even(&of_lines(amount)));
    let costs = [node_cost, serverless_cost, reservation_unused_cost, commitment_cost, pool_cost, bill_cost];
    let supply: Exact = costs.into_iter().fold(zero(), |sum, cost| sum + exact(cost));
    let allocated = sum(rows.iter(), |row| row.effective_cost);

    let here: Vec<&EventRecord> =
        records.iter().filter(|record| record.event.event_time.hour() == view.hour).collect();
    let standing = timeline::resolve(records).into_iter();
    let standing = standing.filter(|event| event.event_time.hour() == view.hour).count();
    let unpriced: BTreeSet<&PodUid> =
        rows.iter().filter(|row| row.unpriced.is_some()).filter_map(|row| row.pod_uid.as_ref()).collect();
    HourRow {
        node_cost,
        serverless_cost,
        reservation_unused_cost,
        commitment_cost,
        pool_cost,
        bill_cost,
        supply_cost: half_even(&supply),
        bill_billed_cost,
        basis: if is_final(view, records) { CostBasis::Final } else { basis(rows) },
        allocated_cost: allocated,
        difference: half_even(&(supply - exact(allocated))),
        rows: rows.len() as i64,
        events: standing as i64,
        unpriced_pods: unpriced.len() as i64,
        max_event_time: here.iter().map(|record| record.event.event_time).max(),
    }
}

/// Returns whether an hour is final: some account is closed for its month, and no line that covers the hour
/// is of another account.
fn is_final(view: &HourView, records: &[EventRecord]) -> bool {
    let closed = closed_accounts(view.hour, records);
    let mut sets = view.lines.iter().map(|part| &part.line.set);
    !closed.is_empty() && sets.all(|set| closed.contains(&account(&set.provider, &set.billing_account_id)))
}

/// Returns the accounts that are closed for the month of an hour.
pub fn closed_accounts(hour: Hour, records: &[EventRecord]) -> BTreeSet<(String, Text)> {
    let month = hour.date().month_start().start();
    let closed = timeline::resolve(records).into_iter().filter(|event| event.event_time == month);
    let closed = closed.filter_map(|event| match &event.payload {
        Payload::BillingPeriodClosed(of) => Some(account(&of.provider, &of.billing_account_id)),
        _ => None,
    });
    closed.collect()
}

fn account(provider: &str, id: &Text) -> (String, Text) {
    (names::provider(provider), id.clone())
}

/// Returns whether rows are estimates, billed, or both.
fn basis(rows: &[CostRow]) -> CostBasis {
    let billed = rows.iter().filter(|row| !row.lines.is_empty()).count();
    match rows.len() - billed {
        _ if billed == 0 => CostBasis::Estimated,
        0 => CostBasis::Billed,
        _ => CostBasis::Partial,
    }
}
