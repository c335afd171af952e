//! One reader for each kind of record, which reads the fields in the order of the schema.

mod bill;

use crate::body::PodUsageRef;
use crate::body::fields::Fields;
use crate::event::{
    Assignment, BudgetExceedStrategy, CapacityType, CommitmentDeleted, CommitmentKind, CommitmentSet,
    DiscountTarget, DiscountedPrice, Event, EventKind, NodeStarted, NodeStopped, Payload, PlanDiscount,
    PodStarted, PodStopped, PoolDeleted, PoolSet, QosPrice, QuotaDeleted, QuotaKind, QuotaSet, RateSet,
    ReservationReleased, ReservationSet,
};
use crate::money::{Amount, Money, Ratio, UnitPrice};
use crate::reject::Reject;
use crate::time::Timestamp;

/// Reads the fields of a record of `kind`.
pub fn event(fields: &mut Fields<'_, '_>, kind: EventKind) -> Result<Event, Reject> {
    let f = fields;
    let organization_id = f.organization("organization_id")?;
    let event_time = f.time("event_time")?;
    let payload = match kind {
        EventKind::NodeStarted => Payload::NodeStarted(Box::new(node_started(f)?)),
        EventKind::NodeStopped => {
            Payload::NodeStopped(NodeStopped { cluster_id: f.key("cluster_id")?, node_id: f.key("node_id")? })
        }
        EventKind::PodStarted => Payload::PodStarted(Box::new(pod_started(f)?)),
        EventKind::PodStopped => Payload::PodStopped(pod_stopped(f)?),
        EventKind::PodUsage => {
            let usage = pod_usage(f, event_time)?;
            Payload::PodUsage(usage.owned(f.shared(usage.pod_uid).into()))
        }
        EventKind::ReservationSet => Payload::ReservationSet(Box::new(reservation_set(f)?)),
        EventKind::ReservationReleased => {
            Payload::ReservationReleased(ReservationReleased { reservation_id: f.key("reservation_id")? })
        }
        EventKind::CommitmentSet => Payload::CommitmentSet(Box::new(commitment_set(f)?)),
        EventKind::CommitmentDeleted => {
            Payload::CommitmentDeleted(CommitmentDeleted { commitment_id: f.key("commitment_id")? })
        }
        EventKind::QuotaSet => Payload::QuotaSet(Box::new(quota_set(f)?)),
        EventKind::QuotaDeleted => Payload::QuotaDeleted(QuotaDeleted {
            cluster_id: f.key("cluster_id")?,
            quota_id: f.key("quota_id")?,
        }),
        EventKind::PoolSet => Payload::PoolSet(Box::new(pool_set(f)?)),
        EventKind::PoolDeleted => Payload::PoolDeleted(PoolDeleted { pool_id: f.key("pool_id")? }),
        EventKind::RateSet => Payload::RateSet(Box::new(rate_set(f)?)),
        EventKind::BillSet => Payload::BillSet(Box::new(bill::bill_set(f, event_time)?)),
        EventKind::BillingPeriodClosed => {
            Payload::BillingPeriodClosed(bill::billing_period_closed(f, event_time)?)
        }
    };
    let recording = f.recording()?;
    Ok(Event { organization_id, event_time, recording, payload })
}

fn node_started(f: &mut Fields<'_, '_>) -> Result<NodeStarted, Reject> {
    Ok(NodeStarted {
        cluster_id: f.key("cluster_id")?,
        node_id: f.key("node_id")?,
        node_name: f.text("node_name")?,
        provider: f.text("provider")?,
        region: f.text("region")?,
        zone: f.optional("zone", Fields::text)?,
        instance_type: f.text("instance_type")?,
        instance_family: f.text("instance_family")?,
        capacity_type: match f.symbol("capacity_type", 2)? {
            0 => CapacityType::OnDemand,
            _ => CapacityType::Spot,
        },
        capacity: f.quantities("capacity")?,
        gpu_model: f.optional("gpu_model", Fields::text)?,
        hourly_cost: f.decimal("hourly_cost", UnitPrice::from_atoms)?,
        currency: f.text("currency")?,
        pool_id: f.optional("pool_id", Fields::key)?,
        gpus: f.optional("gpus", Fields::gpus)?.flatten(),
        resource_key: f.optional("resource_key", Fields::key)?,
        account_id: f.optional("account_id", Fields::key)?,
    })
}

fn pod_started(f: &mut Fields<'_, '_>) -> Result<PodStarted, Reject> {
    Ok(PodStarted {
        cluster_id: f.key("cluster_id")?,
        namespace: f.key("namespace")?,
        pod_name: f.own_text("pod_name")?,
        pod_uid: f.key("pod_uid")?,
        created_at: f.time("created_at")?,
        priority: f.signed()?,
        node_id: f.optional("node_id", Fields::key)?,
        region: f.optional("region", Fields::text)?,
        zone: f.optional("zone", Fields::text)?,
        pool_id: f.optional("pool_id", Fields::key)?,
        qos: f.text("qos")?,
        gpu_model: f.optional("gpu_model", Fields::text)?,
        requests: f.quantities("requests")?,
        limits: f.quantities("limits")?,
        workload_kind: f.optional("workload_kind", Fields::text)?,
        workload_name: f.optional("workload_name", Fields::text)?,
        labels: f.labels("labels")?,
        eviction_protected_until: f.optional("eviction_protected_until", Fields::time)?,
        gpus: f.optional("gpus", Fields::gpus)?.flatten(),
        gpu_sharing: f.optional("gpu_sharing", Fields::key)?,
        volume_keys: f.array(|f| f.key("volume_keys"))?,
    })
}

fn pod_stopped(f: &mut Fields<'_, '_>) -> Result<PodStopped, Reject> {
    Ok(PodStopped {
        cluster_id: f.key("cluster_id")?,
        namespace: f.text("namespace")?,
        pod_uid: f.key("pod_uid")?,
        reason: f.optional("reason", Fields::text)?,
    })
}

fn pod_usage<'a>(f: &mut Fields<'_, 'a>, event_time: Timestamp) -> Result<PodUsageRef<'a>, Reject> {
    let usage = PodUsageRef {
        pod_uid: f.key_ref("pod_uid")?,
        interval_end: f.time("interval_end")?,
        cpu_millis: f.measured("cpu_millis")?,
        memory_bytes: f.measured("memory_bytes")?,
        gpu_millis: f.measured("gpu_millis")?,
        gpu_memory_bytes: f.optional("gpu_memory_bytes", Fields::measured)?,
    };
    f.judge_interval(event_time, usage.interval_end);
    Ok(usage)
}

fn reservation_set(f: &mut Fields<'_, '_>) -> Result<ReservationSet, Reject> {
    let reservation = ReservationSet {
        reservation_id: f.key("reservation_id")?,
        name: f.text("name")?,
        provider: f.text("provider")?,
        region: f.text("region")?,
        zone: f.optional("zone", Fields::text)?,
        gpu_model: f.text("gpu_model")?,
        capacity: f.quantities("capacity")?,
        quantity: f.count("quantity")?,
        unit_hourly_price: f.decimal("unit_hourly_price", UnitPrice::from_atoms)?,
        currency: f.text("currency")?,
        created_at: f.time("created_at")?,
        starts_at: f.time("starts_at")?,
        ends_at: f.optional("ends_at", Fields::time)?,
    };
    f.judge_span(reservation.starts_at, reservation.ends_at);
    Ok(reservation)
}

fn commitment_set(f: &mut Fields<'_, '_>) -> Result<CommitmentSet, Reject> {
    let commitment = CommitmentSet {
        commitment_id: f.key("commitment_id")?,
        name: f.text("name")?,
        provider: f.text("provider")?,
        kind: match f.symbol("kind", 3)? {
            0 => CommitmentKind::ReservedInstance,
            1 => CommitmentKind::CommittedUseDiscount,
            _ => CommitmentKind::SavingsPlan,
        },
        region: f.text("region")?,
        instance_family: f.text("instance_family")?,
        vcpu: f.decimal("vcpu", Amount::from_atoms)?,
        memory_gib: f.decimal("memory_gib", Amount::from_atoms)?,
        gpu: f.count("gpu")?,
        gpu_model: f.optional("gpu_model", Fields::text)?,
        hourly_cost: f.decimal("hourly_cost", UnitPrice::from_atoms)?,
        currency: f.text("currency")?,
        starts_at: f.time("starts_at")?,
        ends_at: f.optional("ends_at", Fields::time)?,
        enabled: f.boolean()?,
        allowed_utilization: f
            .optional("allowed_utilization", |f, field| f.decimal(field, Ratio::from_atoms))?,
        assignments: f.array(|f| {
            Ok(Assignment {
                cluster_id: f.key("assignments.cluster_id")?,
                priority: f.optional("assignments.priority", Fields::rank)?,
            })
        })?,
        hourly_commitment: f
            .optional("hourly_commitment", |f, field| f.decimal(field, UnitPrice::from_atoms))?,
        discounts: f.array(plan_discount)?,
    };
    f.judge_span(commitment.starts_at, commitment.ends_at);
    f.judge_fraction("allowed_utilization", commitment.allowed_utilization);
    let is_spend = commitment.hourly_commitment.is_some_and(|spend| spend > UnitPrice::ZERO);
    match commitment.kind {
        CommitmentKind::SavingsPlan if !is_spend => {
            f.invalid("hourly_commitment", "null or zero, but a savings plan commits to a spend above zero");
        }
        CommitmentKind::SavingsPlan if commitment.discounts.is_empty() => {
            f.invalid("discounts", "empty, but a savings plan has at least one discounted price");
        }
        CommitmentKind::SavingsPlan => {}
        _ if commitment.hourly_commitment.is_some() => {
            f.invalid("hourly_commitment", "set, but only a savings plan has one");
        }
        _ if !commitment.discounts.is_empty() => {
            f.invalid("discounts", "not empty, but only a savings plan has discounted prices");
        }
        _ => {}
    }
    Ok(commitment)
}

fn plan_discount(f: &mut Fields<'_, '_>) -> Result<PlanDiscount, Reject> {
    let applies_to = match f.symbol("discounts.applies_to", 3)? {
        0 => DiscountTarget::Node,
        1 => DiscountTarget::Pod,
        _ => DiscountTarget::Reservation,
    };
    let region = f.optional("discounts.region", Fields::text)?;
    let instance_family = f.optional("discounts.instance_family", Fields::text)?;
    let instance_type = f.optional("discounts.instance_type", Fields::text)?;
    let gpu_model = f.optional("discounts.gpu_model", Fields::text)?;
    let saving = f.optional("discounts.saving", |f, field| f.decimal(field, Ratio::from_atoms))?;
    let rate = f.optional("discounts.rate", |f, field| f.decimal(field, UnitPrice::from_atoms))?;
    if applies_to != DiscountTarget::Node && (instance_family.is_some() || instance_type.is_some()) {
        f.invalid("discounts.instance_family", "set, but only a discount of nodes has a family or a type");
    }
    if saving.is_some_and(|saving| saving >= Ratio::from(1)) {
        f.invalid("discounts.saving", "not below 1: a discounted price is above zero");
    }
    match rate {
        Some(rate) if rate == UnitPrice::ZERO => {
            f.invalid("discounts.rate", "zero, but a discounted price is above zero");
        }
        Some(_) if applies_to == DiscountTarget::Pod => {
            f.invalid("discounts.rate", "set, but a pod has no unit: give the saving");
        }
        _ => {}
    }
    let price = match (saving, rate) {
        (Some(saving), None) => DiscountedPrice::Saving(saving),
        (None, Some(rate)) => DiscountedPrice::Rate(rate),
        _ => {
            f.invalid("discounts.saving", "exactly one of saving and rate must be set");
            DiscountedPrice::Saving(Ratio::ZERO)
        }
    };
    Ok(PlanDiscount { applies_to, region, instance_family, instance_type, gpu_model, price })
}

fn quota_set(f: &mut Fields<'_, '_>) -> Result<QuotaSet, Reject> {
    Ok(QuotaSet {
        cluster_id: f.key("cluster_id")?,
        quota_id: f.key("quota_id")?,
        kind: match f.symbol("kind", 2)? {
            0 => QuotaKind::ElasticQuota,
            _ => QuotaKind::CompositeElasticQuota,
        },
        namespaces: f.array(|f| f.text("namespaces"))?,
        min: f.quantities("min")?,
        max: f.optional("max", Fields::quantities)?,
    })
}

fn budget(f: &mut Fields<'_, '_>, field: &str) -> Result<Money, Reject> {
    f.decimal(field, Money::from_atoms)
}

fn pool_set(f: &mut Fields<'_, '_>) -> Result<PoolSet, Reject> {
    let pool = PoolSet {
        pool_id: f.key("pool_id")?,
        cluster_id: f.key("cluster_id")?,
        provider: f.text("provider")?,
        default_qos: f.text("default_qos")?,
        qos_pricing: f.array(|f| {
            Ok(QosPrice {
                qos: f.text("qos_pricing.qos")?,
                per_fp16_tflop_hour: f.decimal("qos_pricing.per_fp16_tflop_hour", UnitPrice::from_atoms)?,
                per_vram_gib_hour: f.decimal("qos_pricing.per_vram_gib_hour", UnitPrice::from_atoms)?,
                limits_over_requests: f.decimal("qos_pricing.limits_over_requests", Ratio::from_atoms)?,
            })
        })?,
        tflops_oversell_percent: f.count("tflops_oversell_percent")?,
        vram_expand_to_host_disk_percent: f.count("vram_expand_to_host_disk_percent")?,
        vram_expand_to_host_mem_percent: f.count("vram_expand_to_host_mem_percent")?,
        max_capacity: f.quantities("max_capacity")?,
        min_capacity: f.quantities("min_capacity")?,
        warm_capacity: f.quantities("warm_capacity")?,
        budget_per_day: f.optional("budget_per_day", budget)?,
        budget_per_month: f.optional("budget_per_month", budget)?,
        budget_per_quarter: f.optional("budget_per_quarter", budget)?,
        budget_exceed_strategy: match f.symbol("budget_exceed_strategy", 2)? {
            0 => BudgetExceedStrategy::AlertOnly,
            _ => BudgetExceedStrategy::AlertAndTerminateVm,
        },
        currency: f.text("currency")?,
    };
    if let Some((field, fault)) = pool.fault_of_capacity() {
        f.invalid(field, fault);
    }
    Ok(pool)
}

fn rate_set(f: &mut Fields<'_, '_>) -> Result<RateSet, Reject> {
    Ok(RateSet {
        provider: f.text("provider")?,
        region: f.key("region")?,
        gpu_model: f.optional("gpu_model", Fields::key)?,
        qos: f.key("qos")?,
        per_vcpu_hour: f.decimal("per_vcpu_hour", UnitPrice::from_atoms)?,
        per_gib_hour: f.decimal("per_gib_hour", UnitPrice::from_atoms)?,
        per_gpu_hour: f.decimal("per_gpu_hour", UnitPrice::from_atoms)?,
        currency: f.text("currency")?,
    })
}
