//! A slow, obvious model of the accounting rules, with which the engine is compared.
//!
//! The model takes a whole history at once and cuts it at every instant at which anything may change. It
//! computes everything again for each stretch between two such instants, and adds up the results. Only the
//! objects themselves are kept from one stretch to the next. All numbers are exact rationals until a row is
//! written. The model shares the types of events and rows with the engine, and nothing else. Read in this
//! order: `timeline` (events to stretches), `rules` (each independently), `rows` (one hour of
//! `cost_allocation`), `tables` (all others).

mod hour;
pub mod names;
mod resources;
pub mod rounding;
mod rows;
mod rules;
pub mod scenario;
mod tables;
pub mod text;
mod timeline;
mod usage;
mod world;

use std::collections::BTreeMap;

use prorata_schemas::event::{BillSet, Event, EventRecord, Payload};
use prorata_schemas::ids::{OrganizationId, PodUid, QuotaId};
use prorata_schemas::rows::{HourTables, QuotaState};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, Timestamp};

use hour::HourView;

/// Returns the tables of every hour that one organization has, from the hour of its first event through
/// `through`.
pub fn tables(records: &[EventRecord], rules: &Rules, through: Hour) -> Vec<HourTables> {
    let organization_id: OrganizationId =
        records.first().map_or_else(|| "".into(), |record| record.event.organization_id.clone());
    let samples = usage::samples(&timeline::resolve(records));
    let slices = timeline::slices(records, rules, through);
    let mut lines = rules::bill::parts(&slices);
    let mut spend = tables::pools::Spend::new();
    let mut tables = Vec::new();
    let mut before: &[hour::Slice] = &[];
    for slices in slices.chunk_by(|left, right| hour_of(left) == hour_of(right)) {
        let Some(hour) = slices.first().map(hour_of) else { continue };
        let mut view = HourView {
            organization_id: &organization_id,
            hour,
            slices,
            samples: &samples,
            rules,
            lines: lines.remove(&hour).unwrap_or_default(),
            plans: hour::Plans::default(),
        };
        view.plans = rules::plan::plans(&view, rules::plan::committed);
        let is_there = has_hour(&view, before.last(), records, &spend);
        before = slices;
        if is_there {
            tables.push(hour_tables(&view, records, &mut spend));
        }
    }
    tables
}

/// Returns the sets of lines of bills that count, each with its event time.
pub fn bills(records: &[EventRecord]) -> Vec<(Timestamp, BillSet)> {
    let bill = |event: &Event| match &event.payload {
        Payload::BillSet(bill) => Some((event.event_time, (**bill).clone())),
        _ => None,
    };
    timeline::resolve(records).into_iter().filter_map(bill).collect()
}

/// The time and the amounts of each pod and node in each hour.
#[derive(Default)]
pub struct Ran {
    /// Pods by hour and pod uid.
    pub pods: BTreeMap<(Hour, PodUid), PodRan>,
    /// Microseconds by hour, cluster and node.
    pub nodes: BTreeMap<(Hour, world::NodeKey), i64>,
}

/// The time and the amounts of one pod in one hour.
#[derive(Default)]
pub struct PodRan {
    /// Microseconds for which the pod ran.
    pub micros: i64,
    /// vCPU-, GiB- and GPU-hours that the pod requested.
    pub requested: resources::Three,
    /// vCPU-, GiB- and GPU-hours that the pod used.
    pub used: resources::Three,
}

/// Returns the time and the amounts of each pod and node in each hour.
pub fn ran(records: &[EventRecord], rules: &Rules, through: Hour) -> Ran {
    let samples = usage::samples(&timeline::resolve(records));
    let mut ran = Ran::default();
    for slice in timeline::slices(records, rules, through) {
        let (hour, micros) = (hour_of(&slice), slice.to - slice.from);
        for (uid, running) in &slice.world.pods {
            let pod = ran.pods.entry((hour, uid.clone())).or_default();
            pod.micros += micros;
            let requests = resources::of_pod(&running.set, rules);
            resources::add(&mut pod.requested, &requests, &rounding::hours(micros));
            if let Some(used) = usage::used(&samples, uid, slice.from, slice.to) {
                resources::add(&mut pod.used, &used, &rounding::whole(1));
            }
        }
        for key in slice.world.nodes.keys() {
            *ran.nodes.entry((hour, key.clone())).or_default() += micros;
        }
    }
    ran
}

/// Returns the labels of each quota's pods in each stretch of time. An item holds the first instant of the
/// stretch, the quota, and the labels in the order of the pods.
pub fn labels(
    records: &[EventRecord],
    rules: &Rules,
    through: Hour,
) -> Vec<(Timestamp, QuotaId, Vec<QuotaState>)> {
    let mut labels = Vec::new();
    for slice in timeline::slices(records, rules, through) {
        for standing in &slice.quotas {
            let states = standing.pods.iter().map(|(_, state)| *state).collect();
            labels.push((Timestamp(slice.from), standing.key.1.clone(), states));
        }
    }
    labels
}

/// Returns whether the organization has the hour: something exists when the hour before ends, or an event of
/// the organization is in the hour. A pool's spend exists until its quarter has passed, a bill until its last
/// line ends, and a closed account until the month ends.
fn has_hour(
    view: &HourView,
    before: Option<&hour::Slice>,
    records: &[EventRecord],
    spend: &tables::pools::Spend,
) -> bool {
    let (hour, start) = (view.hour, view.hour.start().0);
    let month_start = hour.date().month_start().start().hour();
    let measured = view.samples.iter().any(|sample| sample.from < start && sample.to > start);
    let quarter = hour.previous().date().quarter_start().start();
    let spent = spend.values().flatten().any(|(hour, _)| hour.start() >= quarter);
    let described = before.is_some_and(|slice| !slice.world.is_empty());
    let billed = before.is_some_and(|slice| slice.world.bills.iter().any(|bill| bill.end() > start));
    let closed = hour != month_start && !tables::closed_accounts(hour, records).is_empty();
    let happened = records.iter().any(|record| record.event.event_time.hour() == hour);
    measured || spent || described || billed || closed || happened
}

fn hour_of(slice: &hour::Slice) -> Hour {
    Timestamp(slice.from).hour()
}

fn hour_tables(view: &HourView, records: &[EventRecord], spend: &mut tables::pools::Spend) -> HourTables {
    let rows = rows::cost_rows(view);
    tables::pools::spend(view, &rows, spend);
    HourTables {
        organization_id: view.organization_id.clone(),
        currency: view.rules.currency_of(view.organization_id).clone(),
        rules_version: view.rules.version.clone(),
        gpu_resources: view.rules.gpu_resources.clone(),
        hour: view.hour,
        reservation_usage: tables::reservation_usage(view, &rows),
        commitment_utilization: tables::commitment_utilization(view, &rows),
        quota_usage: tables::quotas::quota_usage(view, &rows),
        pool_usage: tables::pools::pool_usage(view, &rows, spend),
        totals: tables::totals(view, &rows, records),
        cost_allocation: rows.into_iter().map(Box::new).collect(),
    }
}
