//! One organization's hour, written by hand, with every kind of row and sums that a reader can follow.
//!
//! Node `n1` costs 8 an hour. Commitment `c1` covers half of it; `c1` costs 3, of which 1.8 reaches the node.
//! Pod `a` has a quarter of the node and pod `b` a half; the rest is idle. Pod `b` is within its quota in the
//! first half hour and above it in the second. Spot node `n2` is idle. Pool pod `d` has all of node `n3`. Pod
//! `c` names a node that is not running.
//!
//! The provider has billed `n3`: its own price is 0.8, but its effective cost is 1. The bill also has a
//! credit of 0.5.

mod bills;
mod pools;

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{
    BillSet, CapacityType, CommitmentKind, CommitmentSet, Labels, NodeStarted, PodStarted, Quantities,
    QuotaKind, RateSet, ReservationSet,
};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rows::{
    BilledLine, ClusterCover, CommitmentState, CommitmentUtilizationRow, CostBasis, CostRow, HourRow,
    HourTables, QuotaState, QuotaUsageRow, ReservationUsageRow, ResourceHours, ResourceRatios, RowKind,
    Unpriced,
};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, Timestamp};

use bills::{credit, node_bill};
use pools::{pool, pool_usage};

/// Parses a decimal.
pub fn dec(text: &str) -> Decimal12 {
    text.parse().unwrap()
}

/// Returns quantities of vCPU, memory and GPUs, with texts as a producer writes them.
fn quantities(vcpu: u128, gib: u128, gpus: u128) -> Quantities {
    let mut all = Quantities::new();
    all.insert("cpu".into(), Quantity { text: vcpu.to_string().into(), amount: vcpu * 1_000 });
    all.insert("memory".into(), Quantity { text: format!("{gib}Gi").into(), amount: gib << 30 });
    if gpus > 0 {
        all.insert("nvidia.com/gpu".into(), Quantity { text: gpus.to_string().into(), amount: gpus * 1_000 });
    }
    all
}

/// Returns a node with the hourly cost `price`. Only node `n3` belongs to the pool.
pub fn node(id: &str, name: &str, capacity_type: CapacityType, price: &str) -> NodeStarted {
    NodeStarted {
        cluster_id: "prod".into(),
        node_id: id.into(),
        node_name: name.into(),
        provider: "aws".into(),
        region: "us-east-1".into(),
        zone: Some("us-east-1a".into()),
        instance_type: "g5.48xlarge".into(),
        instance_family: "g5".into(),
        capacity_type,
        capacity: quantities(192, 768, 8),
        gpu_model: Some("a10g".into()),
        hourly_cost: price.parse().unwrap(),
        currency: "USD".into(),
        pool_id: (id == "n3").then(|| "shared".into()),
        gpus: None,
        resource_key: Some(format!("i-{id}").into()),
        account_id: Some("111122223333".into()),
    }
}

/// Returns a pod on this node or in this pool.
pub fn pod(uid: &str, node_id: Option<&str>, pool_id: Option<&str>) -> PodStarted {
    PodStarted {
        cluster_id: "prod".into(),
        namespace: "team-a".into(),
        pod_name: format!("{uid}-0").into(),
        pod_uid: uid.into(),
        created_at: Timestamp(0),
        priority: 0,
        node_id: node_id.map(Into::into),
        region: node_id.is_none().then(|| "cn-hangzhou".into()),
        zone: None,
        pool_id: pool_id.map(Into::into),
        qos: "default".into(),
        gpu_model: node_id.is_none().then(|| "P16EN".into()),
        requests: quantities(8, 60, 1),
        limits: Quantities::new(),
        workload_kind: Some("Job".into()),
        workload_name: Some("train".into()),
        labels: Labels::from([("app".into(), "train".into()), ("note".into(), "say \"hi\"".into())]),
        eviction_protected_until: None,
        gpus: None,
        gpu_sharing: None,
        volume_keys: Vec::new(),
    }
}

fn commitment() -> CommitmentSet {
    CommitmentSet {
        commitment_id: "c1".into(),
        name: "g5 for a year".into(),
        provider: "aws".into(),
        kind: CommitmentKind::ReservedInstance,
        region: "us-east-1".into(),
        instance_family: "g5".into(),
        vcpu: "160".parse().unwrap(),
        memory_gib: "640".parse().unwrap(),
        gpu: 0,
        gpu_model: None,
        hourly_cost: "3".parse().unwrap(),
        currency: "USD".into(),
        starts_at: Timestamp(0),
        ends_at: None,
        enabled: true,
        allowed_utilization: Some("0.5".parse().unwrap()),
        assignments: Vec::new(),
        hourly_commitment: None,
        discounts: Vec::new(),
    }
}

fn reservation() -> ReservationSet {
    ReservationSet {
        reservation_id: "r1".into(),
        name: "night batch".into(),
        provider: "alibaba".into(),
        region: "cn-hangzhou".into(),
        zone: None,
        gpu_model: "P16EN".into(),
        capacity: quantities(10, 80, 1),
        quantity: 1,
        unit_hourly_price: "2".parse().unwrap(),
        currency: "USD".into(),
        created_at: Timestamp(0),
        starts_at: Timestamp(0),
        ends_at: None,
    }
}

/// Returns a row of cluster `prod` and provider `aws` with this kind, resource, quantity, price and costs.
/// All other fields are empty.
fn row(kind: RowKind, resource: &str, quantity: &str, price: &str, costs: [&str; 3]) -> CostRow {
    let [billed, effective, list] = costs.map(dec);
    CostRow {
        cluster_id: Some("prod".into()),
        list_unit_price: dec(price),
        pricing_quantity: dec(quantity),
        billed_cost: billed,
        effective_cost: effective,
        list_cost: list,
        ..CostRow::new(kind, resource.into(), "aws".into())
    }
}

fn with_pod(mut row: CostRow, pod: PodStarted) -> CostRow {
    let hours = ResourceHours {
        cpu_core_hours: dec("2"),
        memory_gib_hours: dec("15"),
        gpu_hours: dec("0.333333333333"),
    };
    row.pod_uid = Some(pod.pod_uid.clone());
    row.allocated = Some(hours);
    row.requested = Some(hours);
    row.running_seconds = Some(dec("900"));
    let on_node = row.kind == RowKind::PodNode;
    row.split_cost = on_node.then_some(row.effective_cost);
    row.unused_cost = on_node.then_some(Decimal12::ZERO);
    if on_node || row.kind == RowKind::PodServerless {
        row.cpu_cost = Some(Decimal12::ZERO);
        row.memory_cost = Some(Decimal12::ZERO);
        row.gpu_cost = Some(row.effective_cost);
    }
    row.pod = Some(Arc::new(pod));
    row
}

/// Adds a node and the row's ratios to a row. Adds the commitment too if `committed` holds the covered
/// quantity.
fn on_node(mut row: CostRow, node: NodeStarted, ratio: &str, committed: Option<&str>) -> CostRow {
    row.node = Some(Arc::new(node));
    row.allocated_ratio = Some(dec(ratio));
    if row.kind == RowKind::PodNode {
        row.split_usage =
            ResourceRatios { cpu: Some(dec("0.010416666667")), memory: Some(dec("0.02")), gpu: None };
        row.unused = ResourceRatios { cpu: Some(dec("0.25")), memory: Some(Decimal12::ZERO), gpu: None };
    }
    committed.map_or(row.clone(), |quantity| with_commitment(row, quantity))
}

fn with_commitment(mut row: CostRow, quantity: &str) -> CostRow {
    row.commitment_id = Some("c1".into());
    row.commitment_quantity = Some(dec(quantity));
    row.commitment = Some(Arc::new(commitment()));
    row
}

fn in_quota(mut row: CostRow, state: QuotaState) -> CostRow {
    row.quota_id = Some("team".into());
    row.quota_state = Some(state);
    row
}

/// Adds the only line of a set, which begins at an hour's start, to a row.
fn billed(mut row: CostRow, set: BillSet, hour: Hour) -> CostRow {
    row.lines = Arc::new([BilledLine { set: Arc::new(set), begins_at: hour.start(), index: 0 }]);
    row
}

fn node_rows(hour: Hour) -> Vec<CostRow> {
    use QuotaState::{InQuota, OverQuota};
    use RowKind::{NodeIdle, PodNode};
    let n1 = || node("n1", "gpu-1", CapacityType::OnDemand, "8");
    let (a, b) = (|| pod("a", Some("n1"), None), || pod("b", Some("n1"), None));
    let own = |kind| row(kind, "n1", "0.125", "8", ["1", "1", "1"]);
    let paid = |kind| row(kind, "n1", "0.125", "8", ["0", "0.45", "1"]);
    let mut c = with_pod(row(PodNode, "gone", "0.5", "0", ["0", "0", "0"]), pod("c", Some("gone"), None));
    c.unpriced = Some(Unpriced::UnknownNode);
    c.provider = "unknown".into();
    let d = row(PodNode, "n3", "1", "1.2", ["0.9", "1", "1.2"]);
    let mut d = on_node(
        with_pod(billed(d, node_bill(hour), hour), pod("d", Some("n3"), Some("shared"))),
        node("n3", "gpu-3", CapacityType::OnDemand, "0.8"),
        "1",
        None,
    );
    d.estimated_cost = Some(dec("0.8"));
    d.pool_charge = Some(dec("1.69416"));
    d.used = d.requested;
    vec![
        c,
        on_node(with_pod(own(PodNode), a()), n1(), "0.25", None),
        on_node(with_pod(paid(PodNode), a()), n1(), "0.25", Some("0.15")),
        in_quota(on_node(with_pod(own(PodNode), b()), n1(), "0.25", None), InQuota),
        in_quota(on_node(with_pod(own(PodNode), b()), n1(), "0.25", None), OverQuota),
        in_quota(on_node(with_pod(paid(PodNode), b()), n1(), "0.25", Some("0.15")), InQuota),
        in_quota(on_node(with_pod(paid(PodNode), b()), n1(), "0.25", Some("0.15")), OverQuota),
        d,
        on_node(own(NodeIdle), n1(), "0.25", None),
        on_node(paid(NodeIdle), n1(), "0.25", Some("0.15")),
        on_node(
            row(NodeIdle, "n2", "1", "2", ["2", "2", "2"]),
            node("n2", "n2", CapacityType::Spot, "2"),
            "1",
            None,
        ),
    ]
}

fn other_rows(hour: Hour) -> Vec<CostRow> {
    use RowKind::{
        CommitmentPurchase, CommitmentUnused, PodPool, PodServerless, ReservationUnused, SharedCharge,
    };
    let alibaba = |mut row: CostRow| {
        row.provider = "alibaba".into();
        row
    };
    let g = |quantity, cost| {
        let mut row = row(PodServerless, "g", quantity, "10", [cost; 3]);
        row.rate = Some(Arc::new(rate()));
        alibaba(with_pod(row, pod("g", None, None)))
    };
    let mut matched = g("0.5", "5");
    matched.reservation_id = Some("r1".into());
    let unpriced = |mut row: CostRow, reason| {
        row.provider = "unknown".into();
        row.unpriced = Some(reason);
        row
    };
    let zero = ["0"; 3];
    let h =
        unpriced(with_pod(row(PodServerless, "h", "1", "0", zero), pod("h", None, None)), Unpriced::NoRate);
    let mut e = with_pod(row(PodPool, "e", "0.5", "1.69416", ["0.84708"; 3]), pod("e", None, Some("shared")));
    e.pool_charge = Some(dec("0.84708"));
    e.pool = Some(Arc::new(pool()));
    let f = unpriced(
        with_pod(row(PodPool, "f", "1", "0", zero), pod("f", None, Some("lost"))),
        Unpriced::UnknownPool,
    );
    let mut idle_units = alibaba(row(ReservationUnused, "r1", "0.5", "2", ["1"; 3]));
    idle_units.reservation_id = Some("r1".into());
    idle_units.reservation = Some(Arc::new(reservation()));
    let mut unused = with_commitment(row(CommitmentUnused, "c1", "0.4", "3", ["0", "1.2", "1.2"]), "0.4");
    let mut purchase = with_commitment(row(CommitmentPurchase, "c1", "1", "3", ["3", "0", "3"]), "1");
    let mut shared = billed(row(SharedCharge, "", "0", "0", ["-0.5"; 3]), credit(hour), hour);
    for row in [&mut idle_units, &mut unused, &mut purchase, &mut shared] {
        row.cluster_id = None;
    }
    vec![g("0.25", "2.5"), matched, h, e, f, idle_units, unused, purchase, shared]
}

fn rate() -> RateSet {
    RateSet {
        provider: "alibaba".into(),
        region: "cn-hangzhou".into(),
        gpu_model: Some("P16EN".into()),
        qos: "default".into(),
        per_vcpu_hour: "0.1".parse().unwrap(),
        per_gib_hour: "0.02".parse().unwrap(),
        per_gpu_hour: "8".parse().unwrap(),
        currency: "USD".into(),
    }
}

/// Returns the hour with every kind of row; its supply is 18.84708.
pub fn full_hour(organization: &str, hour: Hour) -> HourTables {
    let cost_allocation: Vec<_> = node_rows(hour).into_iter().chain(other_rows(hour)).map(Box::new).collect();
    let (reservation_usage, commitment_utilization) = (vec![reservation_usage()], vec![commitment_usage()]);
    let totals = HourRow {
        node_cost: dec("6"),
        serverless_cost: dec("7.5"),
        reservation_unused_cost: dec("1"),
        commitment_cost: dec("3"),
        pool_cost: dec("0.84708"),
        bill_cost: dec("0.5"),
        supply_cost: dec("18.84708"),
        bill_billed_cost: dec("0.4"),
        basis: CostBasis::Partial,
        allocated_cost: dec("18.84708"),
        difference: Decimal12::ZERO,
        rows: i64::try_from(cost_allocation.len()).unwrap(),
        events: 20,
        unpriced_pods: 3,
        max_event_time: Some(Timestamp(hour.start().0 + 1)),
    };
    HourTables {
        organization_id: organization.into(),
        currency: "USD".into(),
        rules_version: "1".into(),
        gpu_resources: Rules::default().gpu_resources,
        hour,
        cost_allocation,
        reservation_usage,
        commitment_utilization,
        quota_usage: vec![quota_usage()],
        pool_usage: vec![pool_usage()],
        totals,
    }
}

/// Returns an hour in which nothing ran.
pub fn empty_hour(organization: &str, hour: Hour) -> HourTables {
    let mut tables = full_hour(organization, hour);
    tables.cost_allocation.clear();
    tables.reservation_usage.clear();
    tables.commitment_utilization.clear();
    tables.quota_usage.clear();
    tables.pool_usage.clear();
    tables.totals = HourRow::default();
    tables
}

fn reservation_usage() -> ReservationUsageRow {
    ReservationUsageRow {
        reservation_id: "r1".into(),
        description: Arc::new(reservation()),
        units: dec("1"),
        used_unit_seconds: dec("1800"),
        unused_unit_seconds: dec("1800"),
        utilization: Some(dec("0.5")),
        used_by: BTreeMap::from([("g".into(), dec("1800"))]),
        unused_cost: dec("1"),
    }
}

fn commitment_usage() -> CommitmentUtilizationRow {
    let hours = |vcpu, gib| ResourceHours {
        cpu_core_hours: dec(vcpu),
        memory_gib_hours: dec(gib),
        gpu_hours: Decimal12::ZERO,
    };
    let cover = ClusterCover { vcpu_hours: dec("96"), gib_hours: dec("384"), cost: dec("1.8") };
    CommitmentUtilizationRow {
        commitment_id: "c1".into(),
        description: Arc::new(commitment()),
        hourly_cost: Some(commitment().hourly_cost),
        committed: hours("160", "640"),
        covered: hours("96", "384"),
        planned: hours("80", "320"),
        provisioned: hours("192", "768"),
        utilization: dec("0.6"),
        planned_utilization: dec("0.5"),
        raw_utilization: dec("1.2"),
        spend: None,
        used_cost: dec("1.8"),
        unused_cost: dec("1.2"),
        list_cost_avoided: dec("4"),
        clusters: BTreeMap::from([("prod".into(), cover)]),
        state: CommitmentState::Active,
    }
}

fn quota_usage() -> QuotaUsageRow {
    let zero = Decimal12::ZERO;
    QuotaUsageRow {
        cluster_id: "prod".into(),
        quota_id: "team".into(),
        kind: QuotaKind::ElasticQuota,
        namespaces: vec!["team-a".into(), "team-b".into()],
        resource: "nvidia.com/gpu".into(),
        min: dec("1"),
        max: None,
        used_mean: dec("1.5"),
        used_peak: dec("2"),
        in_quota_amount_hours: dec("0.5"),
        over_quota_amount_hours: dec("1"),
        in_quota_cost: dec("1.45"),
        over_quota_cost: dec("1.45"),
        over_quota_pool: zero,
        guaranteed_over_quota: zero,
        borrowed_hours: dec("0.5"),
        lent_hours: zero,
        preemptible_cost: dec("1.45"),
        over_quota_pods_peak: 1,
    }
}
