//! One writer for each kind of record, which writes the fields in the order of the schema, in canonical form
//! only.

mod bill;

use crate::body::wire::{put_bytes, put_decimal, put_long, put_longs};
use crate::body::{EventRef, PodUsageRef};
use crate::event::{
    BudgetExceedStrategy, ByName, CapacityType, CommitmentKind, CommitmentSet, DiscountTarget,
    DiscountedPrice, Event, NodeStarted, Payload, PlanDiscount, PodStarted, PodStopped, PoolSet, Quantities,
    QuotaKind, QuotaSet, RateSet, Recording, ReservationSet,
};
use crate::money::{Money, Ratio, UnitPrice};
use crate::time::Timestamp;

/// The bytes written so far.
pub struct Out(pub Vec<u8>);

impl Out {
    /// Appends all fields of `event`.
    pub fn event(&mut self, event: &Event) {
        self.text(&event.organization_id);
        self.time(event.event_time);
        match &event.payload {
            Payload::NodeStarted(node) => self.node_started(node),
            Payload::NodeStopped(node) => {
                self.text(&node.cluster_id);
                self.text(&node.node_id);
            }
            Payload::PodStarted(pod) => self.pod_started(pod),
            Payload::PodStopped(pod) => self.pod_stopped(pod),
            Payload::PodUsage(usage) => self.pod_usage(usage.into()),
            Payload::ReservationSet(reservation) => self.reservation_set(reservation),
            Payload::ReservationReleased(reservation) => self.text(&reservation.reservation_id),
            Payload::CommitmentSet(commitment) => self.commitment_set(commitment),
            Payload::CommitmentDeleted(commitment) => self.text(&commitment.commitment_id),
            Payload::QuotaSet(quota) => self.quota_set(quota),
            Payload::QuotaDeleted(quota) => {
                self.text(&quota.cluster_id);
                self.text(&quota.quota_id);
            }
            Payload::PoolSet(pool) => self.pool_set(pool),
            Payload::PoolDeleted(pool) => self.text(&pool.pool_id),
            Payload::RateSet(rate) => self.rate_set(rate),
            Payload::BillSet(bill) => self.bill_set(bill),
            Payload::BillingPeriodClosed(closed) => self.billing_period_closed(closed),
        }
        self.recording(event.recording);
    }

    /// Appends all fields of an event whose texts may be borrowed.
    pub fn event_ref(&mut self, event: &EventRef<'_>) {
        match event {
            EventRef::PodUsage { organization_id, event_time, recording, usage } => {
                self.text(organization_id);
                self.time(*event_time);
                self.pod_usage(*usage);
                self.recording(*recording);
            }
            EventRef::Event(event) => self.event(event),
        }
    }

    fn recording(&mut self, recording: Recording) {
        if recording == Recording::NONE {
            return self.0.extend_from_slice(&[0, 0]);
        }
        self.optional(recording.recorded_at(), Self::time);
        self.0.push(recording.is_retraction().into());
    }

    fn node_started(&mut self, node: &NodeStarted) {
        self.text(&node.cluster_id);
        self.text(&node.node_id);
        self.text(&node.node_name);
        self.text(&node.provider);
        self.text(&node.region);
        self.optional(node.zone.as_deref(), Self::text);
        self.text(&node.instance_type);
        self.text(&node.instance_family);
        self.long(match node.capacity_type {
            CapacityType::OnDemand => 0,
            CapacityType::Spot => 1,
        });
        self.quantities(&node.capacity);
        self.optional(node.gpu_model.as_deref(), Self::text);
        self.decimal(node.hourly_cost.atoms());
        self.text(&node.currency);
        self.optional(node.pool_id.as_deref(), Self::text);
        self.optional(node.gpus.as_ref(), |out, gpus| out.text(&gpus.text));
        self.optional(node.resource_key.as_deref(), Self::text);
        self.optional(node.account_id.as_deref(), Self::text);
    }

    fn pod_started(&mut self, pod: &PodStarted) {
        self.text(&pod.cluster_id);
        self.text(&pod.namespace);
        self.text(&pod.pod_name);
        self.text(&pod.pod_uid);
        self.time(pod.created_at);
        self.long(pod.priority.into());
        self.optional(pod.node_id.as_deref(), Self::text);
        self.optional(pod.region.as_deref(), Self::text);
        self.optional(pod.zone.as_deref(), Self::text);
        self.optional(pod.pool_id.as_deref(), Self::text);
        self.text(&pod.qos);
        self.optional(pod.gpu_model.as_deref(), Self::text);
        self.quantities(&pod.requests);
        self.quantities(&pod.limits);
        self.optional(pod.workload_kind.as_deref(), Self::text);
        self.optional(pod.workload_name.as_deref(), Self::text);
        self.map(&pod.labels, |out, label| out.text(label));
        self.optional(pod.eviction_protected_until, Self::time);
        self.optional(pod.gpus.as_ref(), |out, gpus| out.text(&gpus.text));
        self.optional(pod.gpu_sharing.as_deref(), Self::text);
        self.array(&pod.volume_keys, |out, key| out.text(key));
    }

    fn pod_stopped(&mut self, pod: &PodStopped) {
        self.text(&pod.cluster_id);
        self.text(&pod.namespace);
        self.text(&pod.pod_uid);
        self.optional(pod.reason.as_deref(), Self::text);
    }

    fn pod_usage(&mut self, usage: PodUsageRef<'_>) {
        let PodUsageRef { pod_uid, interval_end, cpu_millis, memory_bytes, gpu_millis, gpu_memory_bytes } =
            usage;
        self.text(pod_uid);
        put_longs(&mut self.0, [interval_end.0, cpu_millis, memory_bytes, gpu_millis]);
        self.optional(gpu_memory_bytes, Self::long);
    }

    fn reservation_set(&mut self, reservation: &ReservationSet) {
        self.text(&reservation.reservation_id);
        self.text(&reservation.name);
        self.text(&reservation.provider);
        self.text(&reservation.region);
        self.optional(reservation.zone.as_deref(), Self::text);
        self.text(&reservation.gpu_model);
        self.quantities(&reservation.capacity);
        self.long(reservation.quantity.into());
        self.decimal(reservation.unit_hourly_price.atoms());
        self.text(&reservation.currency);
        self.time(reservation.created_at);
        self.time(reservation.starts_at);
        self.optional(reservation.ends_at, Self::time);
    }

    fn commitment_set(&mut self, commitment: &CommitmentSet) {
        self.text(&commitment.commitment_id);
        self.text(&commitment.name);
        self.text(&commitment.provider);
        self.long(match commitment.kind {
            CommitmentKind::ReservedInstance => 0,
            CommitmentKind::CommittedUseDiscount => 1,
            CommitmentKind::SavingsPlan => 2,
        });
        self.text(&commitment.region);
        self.text(&commitment.instance_family);
        self.decimal(commitment.vcpu.atoms());
        self.decimal(commitment.memory_gib.atoms());
        self.long(commitment.gpu.into());
        self.optional(commitment.gpu_model.as_deref(), Self::text);
        self.decimal(commitment.hourly_cost.atoms());
        self.text(&commitment.currency);
        self.time(commitment.starts_at);
        self.optional(commitment.ends_at, Self::time);
        self.0.push(commitment.enabled.into());
        self.optional(commitment.allowed_utilization.map(Ratio::atoms), Self::decimal);
        self.array(&commitment.assignments, |out, assignment| {
            out.text(&assignment.cluster_id);
            out.optional(assignment.priority, |out, priority| out.long(priority.into()));
        });
        self.optional(commitment.hourly_commitment.map(UnitPrice::atoms), Self::decimal);
        self.array(&commitment.discounts, Self::plan_discount);
    }

    fn plan_discount(&mut self, discount: &PlanDiscount) {
        self.long(match discount.applies_to {
            DiscountTarget::Node => 0,
            DiscountTarget::Pod => 1,
            DiscountTarget::Reservation => 2,
        });
        self.optional(discount.region.as_deref(), Self::text);
        self.optional(discount.instance_family.as_deref(), Self::text);
        self.optional(discount.instance_type.as_deref(), Self::text);
        self.optional(discount.gpu_model.as_deref(), Self::text);
        let (saving, rate) = match discount.price {
            DiscountedPrice::Saving(saving) => (Some(saving.atoms()), None),
            DiscountedPrice::Rate(rate) => (None, Some(rate.atoms())),
        };
        self.optional(saving, Self::decimal);
        self.optional(rate, Self::decimal);
    }

    fn quota_set(&mut self, quota: &QuotaSet) {
        self.text(&quota.cluster_id);
        self.text(&quota.quota_id);
        self.long(match quota.kind {
            QuotaKind::ElasticQuota => 0,
            QuotaKind::CompositeElasticQuota => 1,
        });
        self.array(&quota.namespaces, |out, namespace| out.text(namespace));
        self.quantities(&quota.min);
        self.optional(quota.max.as_ref(), Self::quantities);
    }

    fn pool_set(&mut self, pool: &PoolSet) {
        self.text(&pool.pool_id);
        self.text(&pool.cluster_id);
        self.text(&pool.provider);
        self.text(&pool.default_qos);
        self.array(&pool.qos_pricing, |out, price| {
            out.text(&price.qos);
            out.decimal(price.per_fp16_tflop_hour.atoms());
            out.decimal(price.per_vram_gib_hour.atoms());
            out.decimal(price.limits_over_requests.atoms());
        });
        self.long(pool.tflops_oversell_percent.into());
        self.long(pool.vram_expand_to_host_disk_percent.into());
        self.long(pool.vram_expand_to_host_mem_percent.into());
        self.quantities(&pool.max_capacity);
        self.quantities(&pool.min_capacity);
        self.quantities(&pool.warm_capacity);
        self.optional(pool.budget_per_day.map(Money::atoms), Self::decimal);
        self.optional(pool.budget_per_month.map(Money::atoms), Self::decimal);
        self.optional(pool.budget_per_quarter.map(Money::atoms), Self::decimal);
        self.long(match pool.budget_exceed_strategy {
            BudgetExceedStrategy::AlertOnly => 0,
            BudgetExceedStrategy::AlertAndTerminateVm => 1,
        });
        self.text(&pool.currency);
    }

    fn rate_set(&mut self, rate: &RateSet) {
        self.text(&rate.provider);
        self.text(&rate.region);
        self.optional(rate.gpu_model.as_deref(), Self::text);
        self.text(&rate.qos);
        self.decimal(rate.per_vcpu_hour.atoms());
        self.decimal(rate.per_gib_hour.atoms());
        self.decimal(rate.per_gpu_hour.atoms());
        self.text(&rate.currency);
    }

    fn long(&mut self, value: i64) {
        put_long(&mut self.0, value);
    }

    /// Appends a text, preceded by its length.
    pub fn text(&mut self, text: &str) {
        put_bytes(&mut self.0, text.as_bytes());
    }

    fn time(&mut self, time: Timestamp) {
        self.long(time.0);
    }

    fn decimal(&mut self, atoms: i128) {
        put_decimal(&mut self.0, atoms);
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.long(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn quantities(&mut self, quantities: &Quantities) {
        self.map(quantities, |out, quantity| out.text(&quantity.text));
    }

    /// Appends a map as one block in the order of the keys' bytes, which is also the order of the map.
    pub fn map<'v, T>(&mut self, map: &'v ByName<T>, write: impl Fn(&mut Self, &'v T)) {
        if !map.is_empty() {
            self.long(map.len() as i64);
        }
        for (key, value) in map {
            self.text(key);
            write(self, value);
        }
        self.long(0);
    }

    fn array<'v, T>(&mut self, items: &'v [T], write: impl Fn(&mut Self, &'v T)) {
        if !items.is_empty() {
            self.long(items.len() as i64);
        }
        for item in items {
            write(self, item);
        }
        self.long(0);
    }
}
