//! A small handwritten cluster: one node, and pods that start and stop on it at given minutes.

use prorata_schemas::event::{
    CapacityType, Event, EventRecord, Labels, NodeStarted, NodeStopped, Payload, PodStarted, PodStopped,
    Quantities,
};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::quantity::Quantity;
use prorata_schemas::time::{Hour, Timestamp};

/// The first hour of every trace: 2026-11-01T00.
pub const START: i64 = 498_192;

/// Returns an event `minutes` after the start.
fn event(organization: &str, minutes: i64, payload: Payload) -> EventRecord {
    let event_time = Timestamp(Hour(START).start().0 + minutes * 60_000_000);
    EventRecord::new(Event::new(organization.into(), event_time, payload))
}

fn quantities(cpu: u32, gib: u32) -> Quantities {
    let quantity = |text: String, amount| Quantity { text: text.into(), amount };
    Quantities::from([
        ("cpu".into(), quantity(format!("{cpu}"), u128::from(cpu) * 1_000)),
        ("memory".into(), quantity(format!("{gib}Gi"), u128::from(gib) << 30)),
    ])
}

/// Returns the start of the node, at a price in whole units of the currency.
pub fn node(organization: &str, minutes: i64, hourly_cost: i64) -> EventRecord {
    node_priced(organization, minutes, UnitPrice::from_nanos(hourly_cost * 1_000_000_000))
}

/// Returns the start of the node, at any price.
pub fn node_priced(organization: &str, minutes: i64, hourly_cost: UnitPrice) -> EventRecord {
    let node = NodeStarted {
        cluster_id: "c".into(),
        node_id: "n".into(),
        node_name: "n".into(),
        provider: "aws".into(),
        region: "r".into(),
        zone: None,
        instance_type: "m5.xlarge".into(),
        instance_family: "m5".into(),
        capacity_type: CapacityType::OnDemand,
        capacity: quantities(4, 16),
        gpu_model: None,
        hourly_cost,
        currency: "USD".into(),
        pool_id: None,
        gpus: None,
        resource_key: None,
        account_id: None,
    };
    event(organization, minutes, Payload::NodeStarted(Box::new(node)))
}

/// Returns the stop of the node.
pub fn node_stop(organization: &str, minutes: i64) -> EventRecord {
    let stop = NodeStopped { cluster_id: "c".into(), node_id: "n".into() };
    event(organization, minutes, Payload::NodeStopped(stop))
}

/// Returns the start of a pod on the node.
pub fn pod(organization: &str, minutes: i64, uid: &str, cpu: u32) -> EventRecord {
    pod_on("n", organization, minutes, uid, cpu)
}

/// Returns the start of a pod on the node with this id.
pub fn pod_on(node_id: &str, organization: &str, minutes: i64, uid: &str, cpu: u32) -> EventRecord {
    let pod = PodStarted {
        cluster_id: "c".into(),
        namespace: "team".into(),
        pod_name: uid.into(),
        pod_uid: uid.into(),
        created_at: Hour(START).start(),
        priority: 0,
        node_id: Some(node_id.into()),
        region: None,
        zone: None,
        pool_id: None,
        qos: "default".into(),
        gpu_model: None,
        requests: quantities(cpu, 2),
        limits: Quantities::new(),
        workload_kind: None,
        workload_name: None,
        labels: Labels::new(),
        eviction_protected_until: None,
        gpus: None,
        gpu_sharing: None,
        volume_keys: Vec::new(),
    };
    event(organization, minutes, Payload::PodStarted(Box::new(pod)))
}

/// Returns the stop of a pod.
pub fn pod_stop(organization: &str, minutes: i64, uid: &str) -> EventRecord {
    let stop =
        PodStopped { cluster_id: "c".into(), namespace: "team".into(), pod_uid: uid.into(), reason: None };
    event(organization, minutes, Payload::PodStopped(stop))
}

/// Returns six hours of three organizations in two shards. One organization starts late.
pub fn trace() -> Vec<EventRecord> {
    vec![
        node("acme", 0, 10),
        pod("acme", 10, "a1", 1),
        pod("acme", 95, "a2", 2),
        pod_stop("acme", 200, "a1"),
        node("hooli", 130, 3),
        pod("hooli", 140, "b1", 1),
        node_stop("hooli", 250),
        node("gamma", 30, 7),
        pod("gamma", 310, "g1", 3),
        pod_stop("gamma", 355, "g1"),
    ]
}

/// The last hour of [`trace`].
pub const TRACE_END: Hour = Hour(START + 5);
