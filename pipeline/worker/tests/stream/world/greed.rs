//! Valid events of an organization that prevent its hours from being folded. Their charges overflow under
//! rules that no limit at intake can foresee, or they need more work than an hour allows.

use prorata_samples::trace::{START, TRACE_END, node, pod};
use prorata_schemas::event::{
    BudgetExceedStrategy, CommitmentKind, CommitmentSet, Event, EventRecord, Payload, PodStarted, PodStopped,
    PoolSet, QosPrice, Quantities,
};
use prorata_schemas::ids::PodUid;
use prorata_schemas::money::{Ratio, UnitPrice};
use prorata_schemas::quantity::{Quantity, TFLOPS};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, Timestamp};

/// The number of pods that [`stops`] stops.
const PODS: usize = 9;

/// Returns these rules with a factor of 10^16 for eviction protection.
pub fn protected(rules: &Rules) -> Rules {
    let ratio = Ratio::from_atoms(10_i128.pow(28) - 1).unwrap();
    Rules { eviction_protection_ratio: ratio, ..rules.clone() }
}

/// Returns a pool and pods of it that are protected from eviction. Each pod requests 10^8 TFLOPs, the maximum
/// of an event. Under [`protected`], each pod is charged 10^24 times the price. `minutes` counts from the
/// start of the trace.
pub fn greedy(organization: &str, minutes: i64, price: i32, pods: usize) -> Vec<EventRecord> {
    let price = QosPrice {
        qos: "default".into(),
        per_fp16_tflop_hour: UnitPrice::from(price),
        per_vram_gib_hour: UnitPrice::ZERO,
        limits_over_requests: Ratio::from(1),
    };
    let pool = PoolSet {
        pool_id: "p".into(),
        cluster_id: "c".into(),
        provider: "aws".into(),
        default_qos: "default".into(),
        qos_pricing: vec![price],
        tflops_oversell_percent: 100,
        vram_expand_to_host_disk_percent: 0,
        vram_expand_to_host_mem_percent: 0,
        max_capacity: Quantities::new(),
        min_capacity: Quantities::new(),
        warm_capacity: Quantities::new(),
        budget_per_day: None,
        budget_per_month: None,
        budget_per_quarter: None,
        budget_exceed_strategy: BudgetExceedStrategy::AlertOnly,
        currency: "USD".into(),
    };
    let greedy = (0..pods).map(|id| {
        let started = PodStarted {
            node_id: None,
            pool_id: Some("p".into()),
            requests: [(TFLOPS.into(), Quantity::parse(TFLOPS, "100M").unwrap())].into(),
            eviction_protected_until: Some(Hour(TRACE_END.0 + 3_000).end()),
            ..of_trace(organization, id)
        };
        event(organization, minutes, Payload::PodStarted(Box::new(started)))
    });
    std::iter::once(event(organization, minutes, Payload::PoolSet(Box::new(pool)))).chain(greedy).collect()
}

/// Returns `count` commitments and `count` nodes. Every commitment may cover every node.
pub fn crowded(organization: &str, minutes: i64, count: usize) -> Vec<EventRecord> {
    let commitment = |number: usize| CommitmentSet {
        commitment_id: format!("c{number}").as_str().into(),
        name: "commitment".into(),
        provider: "aws".into(),
        kind: CommitmentKind::ReservedInstance,
        region: "r".into(),
        instance_family: "m5".into(),
        vcpu: 1.into(),
        memory_gib: 1.into(),
        gpu: 0,
        gpu_model: None,
        hourly_cost: 1.into(),
        currency: "USD".into(),
        starts_at: Hour(START).start(),
        ends_at: None,
        enabled: true,
        allowed_utilization: None,
        assignments: Vec::new(),
        hourly_commitment: None,
        discounts: Vec::new(),
    };
    let node = |number: usize| {
        let record = node(organization, minutes, 1);
        let Payload::NodeStarted(mut started) = record.event.payload else { panic!("a node starts") };
        started.node_id = format!("n{number}").as_str().into();
        event(organization, minutes, Payload::NodeStarted(started))
    };
    let commitments = (0..count).map(commitment);
    let commitments =
        commitments.map(|set| event(organization, minutes, Payload::CommitmentSet(Box::new(set))));
    commitments.chain((0..count).map(node)).collect()
}

/// Returns the stops of the nine pods of [`greedy`].
pub fn stops(organization: &str, minutes: i64) -> Vec<EventRecord> {
    let stop = |id| PodStopped {
        cluster_id: "c".into(),
        namespace: "ns".into(),
        pod_uid: pod_uid(organization, id),
        reason: None,
    };
    (0..PODS).map(|id| event(organization, minutes, Payload::PodStopped(stop(id)))).collect()
}

fn pod_uid(organization: &str, id: usize) -> PodUid {
    of_trace(organization, id).pod_uid
}

fn of_trace(organization: &str, id: usize) -> PodStarted {
    let record = pod(organization, 5, &format!("greedy{id}"), 1);
    let Payload::PodStarted(started) = record.event.payload else { panic!("a pod starts") };
    *started
}

fn event(organization: &str, minutes: i64, payload: Payload) -> EventRecord {
    let event_time = Timestamp(Hour(START).start().0 + minutes * 60_000_000);
    EventRecord::new(Event::new(organization.into(), event_time, payload))
}
