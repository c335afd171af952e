//! Benchmark of closing an hour: many pods on shared nodes, with and without commitments and quotas. It
//! reports rows per second, and the ratio to the plain case in the same run.

#![expect(clippy::unwrap_used, reason = "a benchmark stops on a broken assumption")]

use divan::Bencher;
use divan::counter::ItemsCount;
use prorata_engine::{HourEvents, State, close_hour};
use prorata_schemas::Text;
use prorata_schemas::event::{
    CapacityType, CommitmentKind, CommitmentSet, Event, Labels, NodeStarted, Payload, PodStarted, Quantities,
    QuotaKind, QuotaSet,
};
use prorata_schemas::money::{Amount, Ratio, UnitPrice};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, Timestamp};

const NODES: i64 = 100;
const PODS_PER_NODE: i64 = 30;

fn main() {
    divan::main();
}

fn quantities(entries: &[(&str, u128)]) -> Quantities {
    let quantity = |amount| Quantity { text: "".into(), amount };
    entries.iter().map(|(name, amount)| (Text::from(*name), quantity(*amount))).collect()
}

fn event(micros: i64, payload: Payload) -> Event {
    Event::new("o".into(), Timestamp(micros), payload)
}

fn node(index: i64) -> Event {
    let node = NodeStarted {
        cluster_id: "c".into(),
        node_id: format!("node-{index:05}").as_str().into(),
        node_name: "node".into(),
        provider: "aws".into(),
        region: "us-east-1".into(),
        zone: None,
        instance_type: "p5.48xlarge".into(),
        instance_family: "p5".into(),
        capacity_type: CapacityType::OnDemand,
        capacity: quantities(&[("cpu", 192_000), ("memory", 2048 << 30), ("nvidia.com/gpu", 8000)]),
        gpu_model: Some("h100".into()),
        hourly_cost: UnitPrice::from_nanos(55_040_000_000),
        currency: "USD".into(),
        pool_id: None,
        gpus: None,
        resource_key: None,
        account_id: None,
    };
    event(0, Payload::NodeStarted(Box::new(node)))
}

fn pod(index: i64) -> Event {
    let gpus = if index % 5 == 0 { 1000 } else { 0 };
    let pod = PodStarted {
        cluster_id: "c".into(),
        namespace: format!("team-{}", index % 20).as_str().into(),
        pod_name: format!("pod-{index}").as_str().into(),
        pod_uid: format!("uid-{index:08}").as_str().into(),
        created_at: Timestamp(index),
        priority: 0,
        node_id: Some(format!("node-{:05}", index % NODES).as_str().into()),
        region: None,
        zone: None,
        pool_id: None,
        qos: "default".into(),
        gpu_model: None,
        requests: quantities(&[
            ("cpu", 500 + 250 * (index % 7) as u128),
            ("memory", (1 + index % 9) as u128 * (512 << 20)),
            ("nvidia.com/gpu", gpus),
        ]),
        limits: Quantities::new(),
        workload_kind: Some("Deployment".into()),
        workload_name: Some("web".into()),
        labels: Labels::from([("app".into(), "web".into())]),
        eviction_protected_until: None,
        gpus: None,
        gpu_sharing: None,
        volume_keys: Vec::new(),
    };
    // Every third pod starts inside the hour, at a time of its own.
    let start = if index % 3 == 0 { 1_000_003 * (index % 3_000) + 1 } else { 0 };
    event(start, Payload::PodStarted(Box::new(pod)))
}

fn commitment() -> Event {
    let commitment = CommitmentSet {
        commitment_id: "c1".into(),
        name: "c1".into(),
        provider: "aws".into(),
        kind: CommitmentKind::ReservedInstance,
        region: "us-east-1".into(),
        instance_family: "p5".into(),
        vcpu: Amount::from(192 * 60 + 7),
        memory_gib: Amount::from(2048 * 55),
        gpu: 8 * 50,
        gpu_model: None,
        hourly_cost: UnitPrice::from(1234),
        currency: "USD".into(),
        starts_at: Timestamp(0),
        ends_at: None,
        enabled: true,
        allowed_utilization: Ratio::from_atoms(900_000_000_001),
        assignments: Vec::new(),
        hourly_commitment: None,
        discounts: Vec::new(),
    };
    event(0, Payload::CommitmentSet(Box::new(commitment)))
}

fn quota(index: i64) -> Event {
    let quota = QuotaSet {
        cluster_id: "c".into(),
        quota_id: format!("q{index}").as_str().into(),
        kind: QuotaKind::ElasticQuota,
        namespaces: vec![format!("team-{index}").as_str().into()],
        min: quantities(&[("cpu", 90_000), ("nvidia.com/gpu", 20_000)]),
        max: None,
    };
    event(0, Payload::QuotaSet(Box::new(quota)))
}

fn pods_and_nodes() -> Vec<Event> {
    (0..NODES).map(node).chain((0..NODES * PODS_PER_NODE).map(pod)).collect()
}

fn rows(bencher: Bencher<'_, '_>, events: Vec<Event>) {
    let rules = Rules::default();
    let (state, _) = close_hour(State::new("o".into()), HourEvents::of(Hour(0), events), &rules).unwrap();
    let (_, tables) = close_hour(state.clone(), HourEvents::new(Hour(1)), &rules).unwrap();
    bencher
        .counter(ItemsCount::new(tables.cost_allocation.len()))
        .with_inputs(|| state.clone())
        .bench_values(|state| close_hour(state, HourEvents::new(Hour(1)), &rules).unwrap());
}

/// Steady pods without any change: the minimum cost of an hour.
#[divan::bench(sample_count = 20)]
fn steady_rows(bencher: Bencher<'_, '_>) {
    rows(bencher, pods_and_nodes());
}

/// Steady pods with a commitment that covers about half of the nodes.
#[divan::bench(sample_count = 20)]
fn committed_rows(bencher: Bencher<'_, '_>) {
    rows(bencher, pods_and_nodes().into_iter().chain([commitment()]).collect());
}

/// Steady pods with a quota on every namespace.
#[divan::bench(sample_count = 20)]
fn quota_rows(bencher: Bencher<'_, '_>) {
    rows(bencher, pods_and_nodes().into_iter().chain((0..20).map(quota)).collect());
}

/// The hour in which everything starts, in events per second.
#[divan::bench(sample_count = 20)]
fn starting_events(bencher: Bencher<'_, '_>) {
    let rules = Rules::default();
    let events = pods_and_nodes();
    bencher.counter(ItemsCount::new(events.len())).with_inputs(|| events.clone()).bench_values(|events| {
        close_hour(State::new("o".into()), HourEvents::of(Hour(0), events), &rules).unwrap()
    });
}
