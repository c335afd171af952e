//! Counts instructions of a small fixed load. First it processes events as a worker does: it decodes archive
//! files, folds and closes hours, and encodes the tables. Then it folds an hour of one organization in which
//! very many things change. At the end it folds one hour without bills, and with a line of a bill for each
//! node. `tests/bench/instructions` runs this program in Valgrind, which counts the instructions of each
//! `counted_` function separately. Without Valgrind the program only prints the load.
//!
//! Everything runs on the main thread, which is the only thread of rayon's pool, so a count depends only on
//! the load and the code.

#![expect(clippy::unwrap_used, reason = "a benchmark stops on a broken assumption")]

use std::collections::BTreeMap;

use prorata_connectors::archive::{read_own, write_own};
use prorata_engine::{HourEvents, OrderedEvents, State, close_hour};
use prorata_generate::Load;
use prorata_samples::bill::bill_line;
use prorata_samples::typical::typical;
use prorata_schemas::body::EventRef;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{
    BillLine, BillSet, CapacityType, Event, EventKind, EventRecord, NodeStarted, Payload,
};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::money::{Amount, Money};
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::tables::{CutFile, HourClock, Table};
use prorata_schemas::time::{Hour, Timestamp, WallTime};
use prorata_tables::encode_files;
use prorata_worker::ports::Wanted;
use prorata_worker::{Body, in_archive_order};

/// Two organizations, without late or duplicate events.
const LOAD: Load = Load {
    organizations: 2,
    pods: 150,
    hours: 3,
    start: Hour(498_661),
    seed: 9,
    late_per_million: 0,
    duplicates_per_million: 0,
    usage_interval: None,
};
/// Number of objects of each kind in the crowded hour. If each object took time for each other object, the
/// count would be several times as high.
const CROWD: i64 = 300;
/// Number of commitments. It is lower than the number of other objects, because each commitment looks at all
/// nodes.
const COMMITMENTS: i64 = CROWD / 10;
const FILE_ROWS: u64 = 100_000;
const CLOCK: HourClock = HourClock {
    late_events: 0,
    max_event_time_seen: None,
    complete: true,
    revision: 0,
    last_updated: WallTime(0),
};

/// Decoded events of one hour, by organization.
type ByOrganization = BTreeMap<OrganizationId, HourEvents>;

/// Events of each hour, by organization.
type Hours = BTreeMap<Hour, BTreeMap<OrganizationId, OrderedEvents>>;

/// Returns one archive file for each hour, with events in the order of a worker's own files.
fn archive() -> Vec<(Hour, Vec<u8>)> {
    let mut hours: BTreeMap<Hour, Vec<Body>> = BTreeMap::new();
    for event in LOAD.arrivals() {
        let EventRecord { event, body } = EventRecord::new(event);
        hours.entry(event.event_time.hour()).or_default().push((event.payload.kind(), body));
    }
    let write = |(hour, bodies): (Hour, Vec<Body>)| {
        let bodies = in_archive_order(bodies);
        let lent: Vec<_> = bodies.iter().map(|(kind, body)| (*kind, &**body)).collect();
        (hour, write_own(&lent).unwrap())
    };
    hours.into_iter().map(write).collect()
}

#[inline(never)]
fn counted_decode(files: &[(Hour, Vec<u8>)]) -> Vec<(Hour, ByOrganization)> {
    let read = |(hour, file): &(Hour, Vec<u8>)| {
        let mut organizations = ByOrganization::new();
        let mut each = |event: EventRef<'_>| {
            let organization = OrganizationId::from(event.organization_id());
            organizations.entry(organization).or_insert_with(|| HourEvents::new(*hour)).push_ref(event);
        };
        read_own(file, Wanted::default(), &mut each).unwrap();
        (*hour, organizations)
    };
    files.iter().map(read).collect()
}

/// Reduces usage to sums. Orders all other events, and removes duplicates.
#[inline(never)]
fn counted_fold(decoded: Vec<(Hour, ByOrganization)>) -> Hours {
    let fold = |(hour, organizations): (Hour, ByOrganization)| {
        let ordered = organizations.into_iter().map(|(organization, events)| (organization, events.into()));
        (hour, ordered.collect())
    };
    decoded.into_iter().map(fold).collect()
}

#[inline(never)]
fn counted_close(hours: Hours, rules: &Rules) -> Vec<Vec<HourTables>> {
    let mut states: BTreeMap<OrganizationId, State> = BTreeMap::new();
    let mut close = |(organization, events): (OrganizationId, OrderedEvents)| {
        let state = states.remove(&organization).unwrap_or_else(|| State::new(organization.clone()));
        let (state, tables) = close_hour(state, events, rules).unwrap();
        states.insert(organization, state);
        tables
    };
    hours.into_values().map(|events| events.into_iter().map(&mut close).collect()).collect()
}

#[inline(never)]
fn counted_encode(hours: &[Vec<HourTables>]) -> Vec<CutFile> {
    let mut files = Vec::new();
    for tables in hours {
        let clocks = vec![CLOCK; tables.len()];
        for table in Table::HOURLY {
            files.extend(encode_files(table, tables, &clocks, FILE_ROWS).unwrap());
        }
    }
    files
}

/// Returns the events of one hour of one organization. They set quotas, rates, pools and nodes in order, each
/// with a pod that it affects. They set quotas, rates and pools again while all pods run. Then they set each
/// commitment for the nodes' family twice.
fn crowd() -> HourEvents {
    let mut hour = HourEvents::new(LOAD.start);
    let mut at = LOAD.start.start();
    let kinds = [
        EventKind::QuotaSet,
        EventKind::RateSet,
        EventKind::PoolSet,
        EventKind::CommitmentSet,
        EventKind::NodeStarted,
        EventKind::PodStarted,
    ];
    let samples: BTreeMap<EventKind, Event> = kinds.map(|kind| (kind, typical(kind))).into();
    let mut push = |kind: EventKind, number: i64| {
        let Event { organization_id, payload, .. } = samples[&kind].clone();
        at = Timestamp(at.0 + 1000);
        hour.push(Event::new(organization_id, at, of_number(payload, number)));
    };
    for number in 0..CROWD {
        push(EventKind::QuotaSet, number);
        push(EventKind::RateSet, number);
        push(EventKind::PoolSet, number);
        push(EventKind::NodeStarted, number);
        (0..3).for_each(|place| push(EventKind::PodStarted, 3 * number + place));
    }
    for number in 0..CROWD {
        push(EventKind::QuotaSet, number);
        push(EventKind::RateSet, number);
        push(EventKind::PoolSet, number);
    }
    (0..2 * COMMITMENTS).for_each(|number| push(EventKind::CommitmentSet, number % COMMITMENTS));
    hour
}

/// Returns the event for the object with this number. A third of the pods run on nodes, one on each node. A
/// third are priced by a rate, and a third run in a pool.
fn of_number(mut payload: Payload, number: i64) -> Payload {
    let name = |kind: &str, number: i64| format!("{kind}-{number}");
    match &mut payload {
        Payload::QuotaSet(quota) => {
            quota.cluster_id = "acme-aws-use1".into();
            quota.quota_id = name("quota", number).into();
            quota.namespaces = vec![name("namespace", number).as_str().into()];
        }
        Payload::RateSet(rate) => {
            rate.region = name("region", number).as_str().into();
            (rate.qos, rate.gpu_model) = ("default".into(), Some("A100".into()));
            rate.currency = "USD".into();
        }
        Payload::PoolSet(pool) => {
            pool.pool_id = name("pool", number).into();
            pool.currency = "USD".into();
            pool.qos_pricing.truncate(1);
            pool.qos_pricing.iter_mut().for_each(|price| price.qos = "default".into());
        }
        Payload::CommitmentSet(commitment) => {
            commitment.commitment_id = name("commitment", number).into();
            (commitment.provider, commitment.region) = ("aws".into(), "us-east-1".into());
            commitment.instance_family = "p4d".into();
            (commitment.vcpu, commitment.memory_gib) = ("64".parse().unwrap(), "1024".parse().unwrap());
            (commitment.gpu, commitment.gpu_model) = (8, Some("A100".into()));
            (commitment.enabled, commitment.allowed_utilization) = (true, None);
            commitment.currency = "USD".into();
            (commitment.starts_at, commitment.ends_at) = (Timestamp(number), None);
            commitment.assignments.clear();
        }
        Payload::NodeStarted(node) => {
            node.node_id = name("node", number).into();
            node.capacity_type = CapacityType::OnDemand;
        }
        Payload::PodStarted(pod) => {
            pod.pod_uid = name("pod", number).into();
            pod.namespace = name("namespace", number / 3).as_str().into();
            let place = number / 3;
            pod.node_id = (number % 3 == 0).then(|| name("node", place).into());
            pod.region = (number % 3 == 1).then(|| name("region", place).as_str().into());
            pod.pool_id = (number % 3 == 2).then(|| name("pool", place).into());
        }
        _ => {}
    }
    payload
}

#[inline(never)]
fn counted_crowd(events: HourEvents, rules: &Rules) -> HourTables {
    close_hour(State::new("acme-corporation".into()), events, rules).unwrap().1
}

/// Returns the events of one organization in the load's first hour. If `billed`, a bill has a line for each
/// node. Commitments are left out, because they cover only nodes without a bill.
fn one_hour(billed: bool) -> HourEvents {
    let mut hour = HourEvents::new(LOAD.start);
    for event in LOAD.organization(0).filter(|event| event.event_time.hour() == LOAD.start) {
        match &event.payload {
            Payload::CommitmentSet(_) => continue,
            Payload::NodeStarted(node) if billed => {
                let bill = Payload::BillSet(Box::new(bill_of(node)));
                hour.push(Event::new(event.organization_id.clone(), LOAD.start.start(), bill));
            }
            _ => {}
        }
        hour.push(event);
    }
    hour
}

/// Returns a bill with one line, which has the node's price without a tenth.
fn bill_of(node: &NodeStarted) -> BillSet {
    let list_cost = Money::from_atoms(node.hourly_cost.atoms()).unwrap();
    let cost = Money::from_atoms(list_cost.atoms() / 10 * 9).unwrap();
    let line = BillLine {
        account_id: node.account_id.clone(),
        hours: Some(Amount::from(1)),
        list_unit_price: Some(node.hourly_cost),
        billed_cost: cost,
        effective_cost: cost,
        list_cost,
        ..bill_line(&node.node_id, LOAD.start.end(), "0")
    };
    BillSet {
        provider: node.provider.clone(),
        billing_account_id: "123456789012".into(),
        resource_key: node.resource_key.clone().unwrap(),
        currency: node.currency.clone(),
        lines: vec![line],
    }
}

#[inline(never)]
fn counted_estimated(events: HourEvents, rules: &Rules) -> HourTables {
    close_hour(State::new("acme".into()), events, rules).unwrap().1
}

#[inline(never)]
fn counted_billed(events: HourEvents, rules: &Rules) -> HourTables {
    close_hour(State::new("acme".into()), events, rules).unwrap().1
}

fn main() {
    // Lives to the end, because dropping it would end the pool.
    let _pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().unwrap();
    let files = archive();
    let decoded = counted_decode(&files);
    let events = LOAD.arrivals().count();
    let hours = counted_fold(decoded);
    let tables = counted_close(hours, &Rules::default());
    let rows: usize = tables.iter().flatten().map(|tables| tables.cost_allocation.len()).sum();
    let written = counted_encode(&tables).len();
    let crowd = counted_crowd(crowd(), &Rules::default());
    let crowd = crowd.cost_allocation.len() + crowd.quota_usage.len() + crowd.pool_usage.len();
    let estimated = counted_estimated(one_hour(false), &Rules::default());
    let billed = counted_billed(one_hour(true), &Rules::default());
    assert_eq!(billed.cost_allocation.len(), estimated.cost_allocation.len(), "rows with and without bills");
    assert!(estimated.totals.node_cost > Decimal12::ZERO, "no node has a price");
    assert_eq!(billed.totals.node_cost, Decimal12::ZERO, "a node is not billed");
    assert!(billed.totals.bill_cost > Decimal12::ZERO, "no node is billed");
    println!(
        "{{\"events\": {events}, \"rows\": {rows}, \"files\": {written}, \"rows of the crowd\": {crowd}}}"
    );
}
