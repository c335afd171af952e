//! The step from a line to an event.

use prorata_schemas::Text;
use prorata_schemas::event::{
    Assignment, BudgetExceedStrategy, CapacityType, CommitmentDeleted, CommitmentKind, CommitmentSet,
    DiscountTarget, DiscountedPrice, Event, NodeStarted, NodeStopped, Payload, PlanDiscount, PodStarted,
    PodStopped, PodUsage, PoolDeleted, PoolSet, QosPrice, QuotaDeleted, QuotaKind, QuotaSet, RateSet,
    Recording, ReservationReleased, ReservationSet,
};
use prorata_schemas::ids::{CommitmentId, NodeId, PodUid, PoolId, QuotaId, ReservationId};
use prorata_schemas::quantity::{MEMORY, NVIDIA_GPU};
use prorata_schemas::time::Timestamp;

use super::ORGANIZATION;
use super::bill;
use super::fields::{LineFields, decimal, parse_quantity, parse_time};

/// Reads one line. Defaults: cluster c, provider aws, region r, family f, namespace ns and price 0. The
/// default of creation and start is the time of the line.
///
/// # Errors
/// Returns a message that describes what cannot be read.
pub fn parse(line: &str) -> Result<Event, String> {
    let mut words = line.split_whitespace();
    let mut next = || words.next().ok_or_else(|| format!("'{line}' is no 'time event id key=value ..'"));
    let (time, kind, id) = (next()?, next()?, next()?);
    let event_time = parse_time(time)?;
    let mut fields = LineFields::new(words);
    let recording = Recording::new(fields.time("recorded")?, fields.flag("retracted"));
    let payload = payload(event_time, kind, id, &mut fields)?;
    Ok(Event::new(ORGANIZATION.into(), event_time, payload).recorded(recording))
}

fn payload(at: Timestamp, kind: &str, id: &str, fields: &mut LineFields) -> Result<Payload, String> {
    Ok(match kind {
        "node" => Payload::NodeStarted(Box::new(node(id.into(), fields)?)),
        "stop-node" => Payload::NodeStopped(NodeStopped {
            cluster_id: fields.text_or("cluster", "c"),
            node_id: id.into(),
        }),
        "pod" => Payload::PodStarted(Box::new(pod(at, id.into(), fields)?)),
        "stop-pod" => Payload::PodStopped(PodStopped {
            cluster_id: fields.text_or("cluster", "c"),
            namespace: fields.text_or("ns", "ns"),
            pod_uid: id.into(),
            reason: fields.text("reason"),
        }),
        "use" => Payload::PodUsage(usage(at, id.into(), fields)?),
        "reservation" => Payload::ReservationSet(Box::new(reservation(at, id.into(), fields)?)),
        "release" => Payload::ReservationReleased(ReservationReleased { reservation_id: id.into() }),
        "commitment" => Payload::CommitmentSet(Box::new(commitment(at, id.into(), fields)?)),
        "delete-commitment" => Payload::CommitmentDeleted(CommitmentDeleted { commitment_id: id.into() }),
        "quota" => Payload::QuotaSet(Box::new(quota(id.into(), fields)?)),
        "delete-quota" => Payload::QuotaDeleted(QuotaDeleted {
            cluster_id: fields.text_or("cluster", "c"),
            quota_id: id.into(),
        }),
        "pool" => Payload::PoolSet(Box::new(pool(id.into(), fields)?)),
        "delete-pool" => Payload::PoolDeleted(PoolDeleted { pool_id: id.into() }),
        "rate" => Payload::RateSet(Box::new(rate(id.into(), fields)?)),
        "bill" => Payload::BillSet(Box::new(bill::parse(at, id, fields)?)),
        "closed" => Payload::BillingPeriodClosed(bill::parse_closed(id, fields)?),
        other => return Err(format!("'{other}' is not an event")),
    })
}

fn node(node_id: NodeId, fields: &mut LineFields) -> Result<NodeStarted, String> {
    Ok(NodeStarted {
        cluster_id: fields.text_or("cluster", "c"),
        node_name: fields.text_or("name", &node_id),
        node_id,
        provider: fields.text_or("provider", "aws"),
        region: fields.text_or("region", "r"),
        zone: fields.text("zone"),
        instance_type: fields.text_or("type", "f.1"),
        instance_family: fields.text_or("family", "f"),
        capacity_type: if fields.flag("spot") { CapacityType::Spot } else { CapacityType::OnDemand },
        gpu_model: fields.text("model"),
        hourly_cost: fields.decimal("cost")?.unwrap_or_default(),
        currency: "USD".into(),
        pool_id: fields.text("pool"),
        gpus: fields.gpus("gpus")?,
        resource_key: fields.text("resource"),
        account_id: fields.text("account"),
        capacity: fields.quantities("")?.unwrap_or_default(),
    })
}

fn pod(at: Timestamp, pod_uid: PodUid, fields: &mut LineFields) -> Result<PodStarted, String> {
    Ok(PodStarted {
        cluster_id: fields.text_or("cluster", "c"),
        namespace: fields.text_or("ns", "ns"),
        pod_name: fields.text_or("name", &pod_uid),
        pod_uid,
        created_at: fields.time("created")?.unwrap_or(at),
        priority: fields.number("priority", 0)?,
        node_id: fields.text("node"),
        region: fields.text("region"),
        zone: fields.text("zone"),
        pool_id: fields.text("pool"),
        qos: fields.text_or("qos", "default"),
        gpu_model: fields.text("model"),
        workload_kind: fields.text("kind"),
        workload_name: fields.text("workload"),
        labels: fields.labels("label."),
        eviction_protected_until: fields.time("until")?,
        gpus: fields.gpus("gpus")?,
        gpu_sharing: fields.text("sharing"),
        volume_keys: fields.list("volumes"),
        limits: fields.quantities("limit.")?.unwrap_or_default(),
        requests: fields.quantities("")?.unwrap_or_default(),
    })
}

fn usage(at: Timestamp, pod_uid: PodUid, fields: &mut LineFields) -> Result<PodUsage, String> {
    let interval_end = fields.time("to")?.unwrap_or(at);
    let mut amount = |key: &str, resource: &str| -> Result<i64, String> {
        let text: Text = fields.text_or(key, "0");
        Ok(parse_quantity(resource, &text)?.amount as i64)
    };
    let (cpu_millis, memory_bytes) = (amount("cpu", "cpu")?, amount("memory", MEMORY)?);
    let gpu_millis = amount("gpu", NVIDIA_GPU)?;
    let gpu_memory = fields.text::<Text>("gpu-memory");
    let gpu_memory = gpu_memory.map(|text| parse_quantity(MEMORY, &text)).transpose()?;
    let gpu_memory_bytes = gpu_memory.map(|quantity| quantity.amount as i64);
    Ok(PodUsage { pod_uid, interval_end, cpu_millis, memory_bytes, gpu_millis, gpu_memory_bytes })
}

fn reservation(
    at: Timestamp,
    reservation_id: ReservationId,
    fields: &mut LineFields,
) -> Result<ReservationSet, String> {
    Ok(ReservationSet {
        name: fields.text_or("name", &reservation_id),
        reservation_id,
        provider: fields.text_or("provider", "aws"),
        region: fields.text_or("region", "r"),
        zone: fields.text("zone"),
        gpu_model: fields.text_or("model", "m"),
        quantity: fields.number("x", 1)?,
        unit_hourly_price: fields.decimal("price")?.unwrap_or_default(),
        currency: "USD".into(),
        created_at: fields.time("created")?.unwrap_or(at),
        starts_at: fields.time("from")?.unwrap_or(at),
        ends_at: fields.time("to")?,
        capacity: fields.quantities("")?.unwrap_or_default(),
    })
}

fn commitment(
    at: Timestamp,
    commitment_id: CommitmentId,
    fields: &mut LineFields,
) -> Result<CommitmentSet, String> {
    let mut assignments = Vec::new();
    for assigned in fields.list("assign") {
        let (cluster_id, priority) = assigned.split_once(':').unwrap_or((&assigned, ""));
        let priority =
            if priority.is_empty() { None } else { Some(priority.parse().map_err(|_| "no priority")?) };
        assignments.push(Assignment { cluster_id: cluster_id.into(), priority });
    }
    let reserved = fields.flag("reserved");
    let hourly_commitment = fields.decimal("spend")?;
    let mut discounts = Vec::new();
    for discount in fields.list("discount") {
        discounts.push(plan_discount(&discount)?);
    }
    Ok(CommitmentSet {
        name: fields.text_or("name", &commitment_id),
        commitment_id,
        provider: fields.text_or("provider", "aws"),
        kind: match (hourly_commitment, reserved) {
            (Some(_), _) => CommitmentKind::SavingsPlan,
            (None, true) => CommitmentKind::ReservedInstance,
            (None, false) => CommitmentKind::CommittedUseDiscount,
        },
        region: fields.text_or("region", "r"),
        instance_family: fields.text_or("family", "f"),
        vcpu: fields.decimal("vcpu")?.unwrap_or_default(),
        memory_gib: fields.decimal("gib")?.unwrap_or_default(),
        gpu: fields.number("gpu", 0)?,
        gpu_model: fields.text("model"),
        hourly_cost: fields.decimal("cost")?.unwrap_or_default(),
        currency: "USD".into(),
        starts_at: fields.time("from")?.unwrap_or(at),
        ends_at: fields.time("to")?,
        enabled: !fields.flag("disabled"),
        allowed_utilization: fields.decimal("allowed")?,
        assignments,
        hourly_commitment,
        discounts,
    })
}

/// Reads a discounted price such as `node:region=r:family=f:saving=0.3`.
fn plan_discount(text: &str) -> Result<PlanDiscount, String> {
    let mut words = text.split(':');
    let applies_to = match words.next() {
        Some("node") => DiscountTarget::Node,
        Some("pod") => DiscountTarget::Pod,
        Some("reservation") => DiscountTarget::Reservation,
        _ => return Err(format!("'{text}' is no discount of a node, pod or reservation")),
    };
    let mut fields = LineFields::new(words);
    let price = match (fields.decimal("saving")?, fields.decimal("rate")?) {
        (Some(saving), None) => DiscountedPrice::Saving(saving),
        (None, Some(rate)) => DiscountedPrice::Rate(rate),
        _ => return Err(format!("'{text}' has not one of saving and rate")),
    };
    Ok(PlanDiscount {
        applies_to,
        region: fields.text("region"),
        instance_family: fields.text("family"),
        instance_type: fields.text("type"),
        gpu_model: fields.text("model"),
        price,
    })
}

fn quota(quota_id: QuotaId, fields: &mut LineFields) -> Result<QuotaSet, String> {
    let composite = fields.flag("composite");
    Ok(QuotaSet {
        cluster_id: fields.text_or("cluster", "c"),
        quota_id,
        kind: if composite { QuotaKind::CompositeElasticQuota } else { QuotaKind::ElasticQuota },
        namespaces: fields.list("ns"),
        min: fields.quantities("min.")?.unwrap_or_default(),
        max: fields.quantities("max.")?,
    })
}

fn pool(pool_id: PoolId, fields: &mut LineFields) -> Result<PoolSet, String> {
    let mut qos_pricing = Vec::new();
    for priced in fields.list("qos") {
        let parts: Vec<&str> = priced.split(':').collect();
        let [qos, tflop, gib, over] = parts.as_slice() else {
            return Err(format!("'{priced}' is not a price"));
        };
        qos_pricing.push(QosPrice {
            qos: (*qos).into(),
            per_fp16_tflop_hour: decimal(tflop)?,
            per_vram_gib_hour: decimal(gib)?,
            limits_over_requests: decimal(over)?,
        });
    }
    Ok(PoolSet {
        pool_id,
        cluster_id: fields.text_or("cluster", "c"),
        provider: fields.text_or("provider", "aws"),
        default_qos: fields.text_or("default", "medium"),
        qos_pricing,
        tflops_oversell_percent: fields.number("oversell", 500)?,
        vram_expand_to_host_disk_percent: fields.number("disk", 70)?,
        vram_expand_to_host_mem_percent: fields.number("mem", 50)?,
        max_capacity: fields.quantities("max.")?.unwrap_or_default(),
        min_capacity: fields.quantities("min.")?.unwrap_or_default(),
        warm_capacity: fields.quantities("warm.")?.unwrap_or_default(),
        budget_per_day: fields.decimal("day")?,
        budget_per_month: fields.decimal("month")?,
        budget_per_quarter: fields.decimal("quarter")?,
        budget_exceed_strategy: if fields.flag("terminates") {
            BudgetExceedStrategy::AlertAndTerminateVm
        } else {
            BudgetExceedStrategy::AlertOnly
        },
        currency: "USD".into(),
    })
}

fn rate(region: Text, fields: &mut LineFields) -> Result<RateSet, String> {
    Ok(RateSet {
        provider: fields.text_or("provider", "aws"),
        region,
        gpu_model: fields.text("model"),
        qos: fields.text_or("qos", "default"),
        per_vcpu_hour: fields.decimal("cpu")?.unwrap_or_default(),
        per_gib_hour: fields.decimal("gib")?.unwrap_or_default(),
        per_gpu_hour: fields.decimal("gpu")?.unwrap_or_default(),
        currency: "USD".into(),
    })
}
