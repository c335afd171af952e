//! Valid events whose amounts exceed every column. An hour of such events returns an error or an exact
//! result, never a panic or a wrapped number.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use prorata_engine::{EngineError, HourEvents, State, close_hour};
use prorata_schemas::Text;
use prorata_schemas::event::{
    BudgetExceedStrategy, CapacityType, Event, Labels, NodeStarted, Payload, PodStarted, PoolSet, QosPrice,
    Quantities, ReservationSet,
};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, Timestamp};

/// The highest price of an event.
const DEAREST: &str = "9999999999999999.999999999999";

fn quantities(entries: &[(&str, &str)]) -> Quantities {
    let parsed = entries.iter().map(|(name, text)| (Text::from(*name), Quantity::parse(name, text).unwrap()));
    parsed.collect()
}

fn close(payloads: Vec<Payload>) -> Result<HourTables, EngineError> {
    let event = |payload| Event::new("o".into(), Timestamp(0), payload);
    let events = HourEvents::of(Hour(0), payloads.into_iter().map(event));
    close_hour(State::new("o".into()), events, &Rules::default()).map(|(_, tables)| tables)
}

fn assert_out_of_range(payloads: Vec<Payload>) {
    let closed = close(payloads).map(|tables| tables.totals);
    assert!(matches!(closed, Err(EngineError::Range(_))), "{closed:?}");
}

fn pod(uid: &str, requests: Quantities) -> PodStarted {
    PodStarted {
        cluster_id: "c".into(),
        namespace: "n".into(),
        pod_name: uid.into(),
        pod_uid: uid.into(),
        created_at: Timestamp(0),
        priority: 0,
        node_id: None,
        region: None,
        zone: None,
        pool_id: None,
        qos: "default".into(),
        gpu_model: None,
        requests,
        limits: Quantities::new(),
        workload_kind: None,
        workload_name: None,
        labels: Labels::new(),
        eviction_protected_until: None,
        gpus: None,
        gpu_sharing: None,
        volume_keys: Vec::new(),
    }
}

fn node() -> Payload {
    Payload::NodeStarted(Box::new(NodeStarted {
        cluster_id: "c".into(),
        node_id: "node".into(),
        node_name: "node".into(),
        provider: "aws".into(),
        region: "r".into(),
        zone: None,
        instance_type: "t".into(),
        instance_family: "f".into(),
        capacity_type: CapacityType::OnDemand,
        capacity: quantities(&[("cpu", "8"), ("nvidia.com/gpu", "8")]),
        gpu_model: None,
        hourly_cost: "7".parse().unwrap(),
        currency: "USD".into(),
        pool_id: None,
        gpus: None,
        resource_key: None,
        account_id: None,
    }))
}

fn on_node(uid: &str, requests: Quantities) -> Payload {
    Payload::PodStarted(Box::new(PodStarted { node_id: Some("node".into()), ..pod(uid, requests) }))
}

fn reservation(id: &str) -> Payload {
    Payload::ReservationSet(Box::new(ReservationSet {
        reservation_id: id.into(),
        name: id.into(),
        provider: "acs".into(),
        region: "r".into(),
        zone: None,
        gpu_model: "m".into(),
        capacity: quantities(&[("nvidia.com/gpu", "1")]),
        quantity: i32::MAX,
        unit_hourly_price: DEAREST.parse().unwrap(),
        currency: "USD".into(),
        created_at: Timestamp(0),
        starts_at: Timestamp(0),
        ends_at: None,
    }))
}

#[test]
fn a_pool_charge_past_its_column_is_an_error() {
    let price = QosPrice {
        qos: "medium".into(),
        per_fp16_tflop_hour: "0.01".parse().unwrap(),
        per_vram_gib_hour: "0.01".parse().unwrap(),
        limits_over_requests: "1".parse().unwrap(),
    };
    let pool = PoolSet {
        pool_id: "pool".into(),
        cluster_id: "c".into(),
        provider: "p".into(),
        default_qos: "medium".into(),
        qos_pricing: vec![price],
        tflops_oversell_percent: i32::MAX,
        vram_expand_to_host_disk_percent: i32::MAX,
        vram_expand_to_host_mem_percent: i32::MAX,
        max_capacity: Quantities::new(),
        min_capacity: Quantities::new(),
        warm_capacity: Quantities::new(),
        budget_per_day: None,
        budget_per_month: None,
        budget_per_quarter: None,
        budget_exceed_strategy: BudgetExceedStrategy::AlertOnly,
        currency: "USD".into(),
    };
    let requests = quantities(&[("nvidia.com/gpu", "9E"), ("tensor-fusion.ai/tflops", "9E")]);
    let pod = PodStarted { pool_id: Some("pool".into()), ..pod("p", requests) };
    assert_out_of_range(vec![Payload::PoolSet(Box::new(pool)), Payload::PodStarted(Box::new(pod))]);
}

#[test]
fn reservations_whose_sum_passes_its_column_are_an_error() {
    // Each one fits: 2^31 units at 10^16. Five of them exceed 38 digits, and nine of them exceed 128 bits.
    assert!(close(vec![reservation("r0")]).is_ok());
    for count in [5, 9] {
        assert_out_of_range((0..count).map(|index| reservation(&format!("r{index}"))).collect());
    }
}

#[test]
fn gpu_time_past_128_bits_is_shared_exactly() {
    // 999,999 sevenths x 2^63 slices x 10^3 x 3.6 x 10^9 µs is near 2^122 for each pod, so 200 of them exceed
    // 2^128.
    let requests = || quantities(&[("nvidia.com/mig-999999g.1gb", "9223372036854775807")]);
    let pods = (0..200).map(|index| on_node(&format!("p{index:03}"), requests()));
    let tables = close(std::iter::once(node()).chain(pods).collect()).unwrap();
    let rows = tables.cost_allocation.iter();
    let costs: Vec<i128> =
        rows.filter(|row| row.pod_uid.is_some()).map(|row| row.effective_cost.atoms()).collect();
    assert_eq!(costs.len(), 200);
    // The pods share the GPUs equally; largest remainder leaves at most one unit of the last place between
    // them.
    assert!(costs.iter().max().unwrap() - costs.iter().min().unwrap() <= 1);
    assert_eq!(tables.totals.allocated_cost.to_string(), "7");
}

#[test]
fn gpu_hours_past_their_column_are_an_error() {
    let profiles: Vec<String> =
        (0..200).map(|index| format!("nvidia.com/mig-999999g.999999gb.{index}")).collect();
    let requests: Vec<(&str, &str)> =
        profiles.iter().map(|name| (name.as_str(), "9223372036854775807")).collect();
    assert_out_of_range(vec![node(), on_node("p", quantities(&requests))]);
}
