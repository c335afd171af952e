//! An hour of one organization takes no more work than its bound, whatever its events are. An hour with too
//! much work fails before the work is done.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use prorata_engine::{EngineError, HourEvents, State, close_hour};
use prorata_schemas::event::{
    BillLine, BillSet, CapacityType, ChargeCategory, CommitmentKind, CommitmentSet, Event, Labels,
    NodeStarted, Payload, PodStarted, Quantities, RateSet,
};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rules::Rules;
use prorata_schemas::rules::division::{ChargeDivision, DivideOver};
use prorata_schemas::time::{Hour, Timestamp};

const SECOND: i64 = 1_000_000;

/// A number of objects of each kind whose pairs exceed the bound.
const TOO_MANY: i64 = 1_500;

/// A number of objects of each kind whose pairs do not exceed the bound.
const FEW: i64 = 40;

fn quantities(cpu: i64) -> Quantities {
    let text = cpu.to_string();
    [("cpu".into(), Quantity::parse("cpu", &text).unwrap())].into()
}

fn at(seconds: i64, payload: Payload) -> Event {
    Event::new("o".into(), Timestamp(seconds * SECOND), payload)
}

fn node(number: i64, hourly_cost: i64) -> Payload {
    Payload::NodeStarted(Box::new(NodeStarted {
        cluster_id: "c".into(),
        node_id: format!("n{number}").as_str().into(),
        node_name: "node".into(),
        provider: "aws".into(),
        region: "r".into(),
        zone: None,
        instance_type: "t".into(),
        instance_family: "f".into(),
        capacity_type: CapacityType::OnDemand,
        capacity: quantities(4_000),
        gpu_model: None,
        hourly_cost: hourly_cost.to_string().parse().unwrap(),
        currency: "USD".into(),
        pool_id: None,
        gpus: None,
        resource_key: None,
        account_id: None,
    }))
}

fn pod(number: i64, on_node: bool) -> Payload {
    Payload::PodStarted(Box::new(PodStarted {
        cluster_id: "c".into(),
        namespace: "n".into(),
        pod_name: "p".into(),
        pod_uid: format!("p{number}").as_str().into(),
        created_at: Timestamp(0),
        priority: 0,
        node_id: on_node.then(|| "n0".into()),
        region: (!on_node).then(|| "r".into()),
        zone: None,
        pool_id: None,
        qos: "default".into(),
        gpu_model: None,
        requests: quantities(1),
        limits: Quantities::new(),
        workload_kind: None,
        workload_name: None,
        labels: Labels::new(),
        eviction_protected_until: None,
        gpus: None,
        gpu_sharing: None,
        volume_keys: Vec::new(),
    }))
}

fn commitment(number: i64) -> Payload {
    Payload::CommitmentSet(Box::new(CommitmentSet {
        commitment_id: format!("c{number}").as_str().into(),
        name: "commitment".into(),
        provider: "aws".into(),
        kind: CommitmentKind::CommittedUseDiscount,
        region: "r".into(),
        instance_family: "f".into(),
        vcpu: 1.into(),
        memory_gib: 1.into(),
        gpu: 0,
        gpu_model: None,
        hourly_cost: 1.into(),
        currency: "USD".into(),
        starts_at: Timestamp(0),
        ends_at: None,
        enabled: true,
        allowed_utilization: None,
        assignments: Vec::new(),
        hourly_commitment: None,
        discounts: Vec::new(),
    }))
}

fn rate(price: i64) -> Payload {
    Payload::RateSet(Box::new(RateSet {
        provider: "p".into(),
        region: "r".into(),
        gpu_model: None,
        qos: "default".into(),
        per_vcpu_hour: price.to_string().parse().unwrap(),
        per_gib_hour: 1.into(),
        per_gpu_hour: 1.into(),
        currency: "USD".into(),
    }))
}

/// Returns a set of this many lines, each of another account.
fn bill(lines: i64) -> Payload {
    let line = |number: i64| BillLine {
        line_id: format!("l{number}").as_str().into(),
        period_end: Hour(0).end(),
        category: ChargeCategory::Usage,
        is_correction: false,
        service: "s".into(),
        sku_id: None,
        description: None,
        account_id: Some(format!("a{number}").as_str().into()),
        invoice_id: None,
        commitment_id: None,
        commitment_status: None,
        reservation_id: None,
        reservation_status: None,
        hours: None,
        list_unit_price: None,
        billed_cost: 1.into(),
        effective_cost: 1.into(),
        list_cost: 1.into(),
    };
    Payload::BillSet(Box::new(BillSet {
        provider: "aws".into(),
        billing_account_id: "b".into(),
        resource_key: "".into(),
        currency: "USD".into(),
        lines: (0..lines).map(line).collect(),
    }))
}

/// Closes the first hour of these events.
fn closed(events: Vec<Event>) -> Result<State, EngineError> {
    closed_by(&Rules::default(), events)
}

fn closed_by(rules: &Rules, events: Vec<Event>) -> Result<State, EngineError> {
    let hour = HourEvents::of(Hour(0), events);
    close_hour(State::new("o".into()), hour, rules).map(|(state, _)| state)
}

/// Asserts that many objects of both kinds exceed the bound, and few objects do not.
fn assert_bounded(events: impl Fn(i64) -> Vec<Event>, of: &str) {
    closed(events(FEW)).unwrap();
    let refused = closed(events(TOO_MANY)).unwrap_err();
    assert!(matches!(refused, EngineError::Work { of: found, .. } if found == of), "{refused}");
}

#[test]
fn commitments_times_nodes_are_bounded() {
    let events = |count: i64| {
        let commitments = (0..count).map(|number| at(0, commitment(number)));
        commitments.chain((0..count).map(|number| at(1, node(number, 1)))).collect()
    };
    assert_bounded(events, "pairs of commitments and nodes");
}

#[test]
fn an_hour_that_begins_with_too_many_of_both_is_refused() {
    let half = |count: i64| -> Vec<Event> {
        (0..count).flat_map(|number| [at(0, commitment(number)), at(0, node(number, 1))]).collect()
    };
    let state = closed(half(FEW)).unwrap();
    let events = half(TOO_MANY).into_iter().map(|event| Event { event_time: Hour(1).start(), ..event });
    let refused = close_hour(state, HourEvents::of(Hour(1), events), &Rules::default()).unwrap_err();
    assert!(refused.to_string().starts_with("the hour has more than 2000000 pairs"), "{refused}");
}

#[test]
fn rates_times_serverless_pods_are_bounded() {
    let events = |count: i64| {
        let pods = (0..count).map(|number| at(0, pod(number, false)));
        pods.chain((0..count).map(|number| at(1 + number, rate(1 + number)))).collect()
    };
    assert_bounded(events, "prices of pods");
}

#[test]
fn prices_times_pods_of_a_node_are_bounded() {
    let events = |count: i64| {
        let pods = (0..count).map(|number| at(0, pod(number, true)));
        pods.chain((0..count).map(|number| at(number, node(0, 1 + number)))).collect()
    };
    assert_bounded(events, "rows of pods by price and label");
}

#[test]
fn divided_charges_times_pods_are_bounded() {
    let over_all = ChargeDivision {
        organization_id: None,
        provider: None,
        billing_account_id: None,
        account_id: None,
        service: None,
        category: None,
        resource_key: None,
        cluster_id: None,
        namespace: None,
        over: DivideOver::Pods,
    };
    let rules = Rules { shared_charges: vec![over_all], ..Rules::default() };
    let events = |count: i64| {
        let pods = (0..count).map(|number| at(0, pod(number, false)));
        pods.chain([at(0, bill(count))]).collect()
    };
    closed_by(&rules, events(FEW)).unwrap();
    let refused = closed_by(&rules, events(TOO_MANY)).unwrap_err();
    let of_rows = matches!(refused, EngineError::Work { of: "rows of divided charges", .. });
    assert!(of_rows, "{refused}");
}
