//! The step from an event to a line that [`super::parse`] reads back as the same event.

use std::fmt::Write;

use prorata_schemas::event::{
    BillSet, BudgetExceedStrategy, CapacityType, CommitmentKind, CommitmentSet, DiscountTarget,
    DiscountedPrice, Event, Labels, NodeStarted, Payload, PlanDiscount, PodStarted, PodUsage, PoolSet,
    Quantities, QuotaKind, QuotaSet, RateSet, ReservationSet,
};
use prorata_schemas::ids::ClusterId;
use prorata_schemas::time::Timestamp;

use super::bill::{NO_RESOURCE, print_line};
use super::fields::{print_time, short};

/// Returns the line of an event. Fields that have their default are left out.
pub fn print(event: &Event) -> String {
    let at = event.event_time;
    let mut line = Line { at, words: print_time(at) };
    match &event.payload {
        Payload::NodeStarted(node) => line.node(node),
        Payload::NodeStopped(node) => line.named("stop-node", &node.node_id, Some(&node.cluster_id)),
        Payload::PodStarted(pod) => line.pod(pod),
        Payload::PodStopped(pod) => {
            line.named("stop-pod", &pod.pod_uid, Some(&pod.cluster_id));
            line.unless("ns", &pod.namespace, "ns");
            line.some("reason", pod.reason.as_deref());
        }
        Payload::PodUsage(usage) => line.usage(usage),
        Payload::ReservationSet(set) => line.reservation(set),
        Payload::ReservationReleased(set) => line.named("release", &set.reservation_id, None),
        Payload::CommitmentSet(set) => line.commitment(set),
        Payload::CommitmentDeleted(set) => line.named("delete-commitment", &set.commitment_id, None),
        Payload::QuotaSet(quota) => line.quota(quota),
        Payload::QuotaDeleted(quota) => line.named("delete-quota", &quota.quota_id, Some(&quota.cluster_id)),
        Payload::PoolSet(pool) => line.pool(pool),
        Payload::PoolDeleted(pool) => line.named("delete-pool", &pool.pool_id, None),
        Payload::RateSet(rate) => line.rate(rate),
        Payload::BillSet(bill) => line.bill(bill),
        Payload::BillingPeriodClosed(month) => {
            line.named("closed", &format!("{}:{}", month.provider, month.billing_account_id), None);
            line.some("invoice", month.invoice_id.as_deref());
        }
    }
    line.time("recorded", event.recording.recorded_at(), None);
    line.flag("retracted", event.recording.is_retraction());
    line.words
}

struct Line {
    at: Timestamp,
    words: String,
}

impl Line {
    fn named(&mut self, kind: &str, id: &str, cluster_id: Option<&ClusterId>) {
        let _ = write!(self.words, " {kind} {id}");
        if let Some(cluster_id) = cluster_id {
            self.unless("cluster", cluster_id, "c");
        }
    }

    fn unless(&mut self, key: &str, value: &str, default: &str) {
        if value != default {
            let _ = write!(self.words, " {key}={value}");
        }
    }

    fn some(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            let _ = write!(self.words, " {key}={value}");
        }
    }

    fn decimal(&mut self, key: &str, value: impl ToString) {
        self.unless(key, &value.to_string(), "0");
    }

    fn time(&mut self, key: &str, value: Option<Timestamp>, default: Option<Timestamp>) {
        if let Some(value) = value.filter(|value| Some(*value) != default) {
            let _ = write!(self.words, " {key}={}", print_time(value));
        }
    }

    fn flag(&mut self, flag: &str, set: bool) {
        if set {
            let _ = write!(self.words, " {flag}");
        }
    }

    fn quantities(&mut self, prefix: &str, quantities: &Quantities) {
        for (resource, quantity) in quantities {
            let _ = write!(self.words, " {prefix}{}={}", short(resource), quantity.text);
        }
    }

    fn labels(&mut self, prefix: &str, labels: &Labels) {
        for (key, value) in labels {
            let _ = write!(self.words, " {prefix}{key}={value}");
        }
    }

    fn list(&mut self, key: &str, parts: &[String]) {
        self.unless(key, &parts.join(","), "");
    }

    fn node(&mut self, node: &NodeStarted) {
        self.named("node", &node.node_id, Some(&node.cluster_id));
        self.unless("name", &node.node_name, &node.node_id);
        self.unless("provider", &node.provider, "aws");
        self.unless("region", &node.region, "r");
        self.some("zone", node.zone.as_deref());
        self.unless("type", &node.instance_type, "f.1");
        self.unless("family", &node.instance_family, "f");
        self.flag("spot", node.capacity_type == CapacityType::Spot);
        self.some("model", node.gpu_model.as_deref());
        self.decimal("cost", node.hourly_cost);
        self.some("pool", node.pool_id.as_deref());
        self.some("gpus", node.gpus.as_ref().map(|gpus| &*gpus.text));
        self.some("resource", node.resource_key.as_deref());
        self.some("account", node.account_id.as_deref());
        self.quantities("", &node.capacity);
    }

    fn pod(&mut self, pod: &PodStarted) {
        self.named("pod", &pod.pod_uid, Some(&pod.cluster_id));
        self.unless("ns", &pod.namespace, "ns");
        self.unless("name", &pod.pod_name, &pod.pod_uid);
        self.time("created", Some(pod.created_at), Some(self.at));
        self.unless("priority", &pod.priority.to_string(), "0");
        self.some("node", pod.node_id.as_deref());
        self.some("region", pod.region.as_deref());
        self.some("zone", pod.zone.as_deref());
        self.some("pool", pod.pool_id.as_deref());
        self.unless("qos", &pod.qos, "default");
        self.some("model", pod.gpu_model.as_deref());
        self.some("kind", pod.workload_kind.as_deref());
        self.some("workload", pod.workload_name.as_deref());
        self.time("until", pod.eviction_protected_until, None);
        self.some("gpus", pod.gpus.as_ref().map(|gpus| &*gpus.text));
        self.some("sharing", pod.gpu_sharing.as_deref());
        self.list("volumes", &pod.volume_keys.iter().map(ToString::to_string).collect::<Vec<_>>());
        self.quantities("", &pod.requests);
        self.quantities("limit.", &pod.limits);
        self.labels("label.", &pod.labels);
    }

    fn usage(&mut self, usage: &PodUsage) {
        self.named("use", &usage.pod_uid, None);
        self.time("to", Some(usage.interval_end), Some(self.at));
        self.unless("cpu", &format!("{}m", usage.cpu_millis), "0m");
        self.unless("memory", &usage.memory_bytes.to_string(), "0");
        self.unless("gpu", &format!("{}m", usage.gpu_millis), "0m");
        self.some("gpu-memory", usage.gpu_memory_bytes.map(|bytes| bytes.to_string()).as_deref());
    }

    fn reservation(&mut self, set: &ReservationSet) {
        self.named("reservation", &set.reservation_id, None);
        self.unless("name", &set.name, &set.reservation_id);
        self.unless("provider", &set.provider, "aws");
        self.unless("region", &set.region, "r");
        self.some("zone", set.zone.as_deref());
        self.unless("model", &set.gpu_model, "m");
        self.unless("x", &set.quantity.to_string(), "1");
        self.decimal("price", set.unit_hourly_price);
        self.time("created", Some(set.created_at), Some(self.at));
        self.time("from", Some(set.starts_at), Some(self.at));
        self.time("to", set.ends_at, None);
        self.quantities("", &set.capacity);
    }

    fn commitment(&mut self, set: &CommitmentSet) {
        self.named("commitment", &set.commitment_id, None);
        self.unless("name", &set.name, &set.commitment_id);
        self.unless("provider", &set.provider, "aws");
        self.flag("reserved", set.kind == CommitmentKind::ReservedInstance);
        self.unless("region", &set.region, "r");
        self.unless("family", &set.instance_family, "f");
        self.decimal("vcpu", set.vcpu);
        self.decimal("gib", set.memory_gib);
        self.unless("gpu", &set.gpu.to_string(), "0");
        self.some("model", set.gpu_model.as_deref());
        self.decimal("cost", set.hourly_cost);
        self.time("from", Some(set.starts_at), Some(self.at));
        self.time("to", set.ends_at, None);
        self.flag("disabled", !set.enabled);
        if let Some(allowed) = set.allowed_utilization {
            self.unless("allowed", &allowed.to_string(), "");
        }
        let assigned = set.assignments.iter().map(|assigned| match assigned.priority {
            Some(priority) => format!("{}:{priority}", assigned.cluster_id),
            None => assigned.cluster_id.to_string(),
        });
        self.list("assign", &assigned.collect::<Vec<_>>());
        self.some("spend", set.hourly_commitment.map(|spend| spend.to_string()).as_deref());
        self.list("discount", &set.discounts.iter().map(plan_discount).collect::<Vec<_>>());
    }

    fn quota(&mut self, quota: &QuotaSet) {
        self.named("quota", &quota.quota_id, Some(&quota.cluster_id));
        self.flag("composite", quota.kind == QuotaKind::CompositeElasticQuota);
        self.list("ns", &quota.namespaces.iter().map(ToString::to_string).collect::<Vec<_>>());
        self.quantities("min.", &quota.min);
        if let Some(max) = &quota.max {
            self.quantities("max.", max);
        }
    }

    fn pool(&mut self, pool: &PoolSet) {
        self.named("pool", &pool.pool_id, None);
        self.unless("cluster", &pool.cluster_id, "c");
        self.unless("provider", &pool.provider, "aws");
        self.unless("default", &pool.default_qos, "medium");
        let priced = pool.qos_pricing.iter().map(|price| {
            let (tflop, gib) = (price.per_fp16_tflop_hour, price.per_vram_gib_hour);
            format!("{}:{tflop}:{gib}:{}", price.qos, price.limits_over_requests)
        });
        self.list("qos", &priced.collect::<Vec<_>>());
        self.unless("oversell", &pool.tflops_oversell_percent.to_string(), "500");
        self.unless("disk", &pool.vram_expand_to_host_disk_percent.to_string(), "70");
        self.unless("mem", &pool.vram_expand_to_host_mem_percent.to_string(), "50");
        self.quantities("max.", &pool.max_capacity);
        self.quantities("min.", &pool.min_capacity);
        self.quantities("warm.", &pool.warm_capacity);
        self.flag("terminates", pool.budget_exceed_strategy == BudgetExceedStrategy::AlertAndTerminateVm);
        let budgets = [
            ("day", pool.budget_per_day),
            ("month", pool.budget_per_month),
            ("quarter", pool.budget_per_quarter),
        ];
        for (key, budget) in budgets {
            if let Some(budget) = budget {
                self.unless(key, &budget.to_string(), "");
            }
        }
    }

    fn rate(&mut self, rate: &RateSet) {
        self.named("rate", &rate.region, None);
        self.unless("provider", &rate.provider, "aws");
        self.some("model", rate.gpu_model.as_deref());
        self.unless("qos", &rate.qos, "default");
        self.decimal("cpu", rate.per_vcpu_hour);
        self.decimal("gib", rate.per_gib_hour);
        self.decimal("gpu", rate.per_gpu_hour);
    }

    fn bill(&mut self, bill: &BillSet) {
        let key = if bill.resource_key.is_empty() { NO_RESOURCE } else { &*bill.resource_key };
        self.named("bill", key, None);
        self.unless("provider", &bill.provider, "aws");
        self.unless("account", &bill.billing_account_id, "a");
        let lines = bill.lines.iter().map(|line| print_line(self.at, line));
        self.list("lines", &lines.collect::<Vec<_>>());
    }
}

fn plan_discount(discount: &PlanDiscount) -> String {
    let mut text = match discount.applies_to {
        DiscountTarget::Node => "node".to_owned(),
        DiscountTarget::Pod => "pod".to_owned(),
        DiscountTarget::Reservation => "reservation".to_owned(),
    };
    let mut add = |key: &str, value: &str| text.push_str(&format!(":{key}={value}"));
    let names = [
        ("region", &discount.region),
        ("family", &discount.instance_family),
        ("type", &discount.instance_type),
        ("model", &discount.gpu_model),
    ];
    names.into_iter().for_each(|(key, name)| name.iter().for_each(|name| add(key, name)));
    match discount.price {
        DiscountedPrice::Saving(saving) => add("saving", &saving.to_string()),
        DiscountedPrice::Rate(rate) => add("rate", &rate.to_string()),
    }
    text
}
