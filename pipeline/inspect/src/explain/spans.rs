//! Describes the time of pods, reservations and commitments in text: their properties, matches and costs.

use prorata_engine::trace::{
    CommitmentSpan, LabelStep, MatchOutcome, MatchStep, PlanStep, PlanUsage, PodSpan, PoolStep, RankedPod,
    ReservationSpan, Trace,
};

use super::Subject;
use super::lines::{TextLines, amounts, instant, span};

/// Maximum number of pods of a quota to report around the pods in focus.
const RANKED_REPORTED_MAX: usize = 12;

/// Maximum number of spans of one kind to report.
const SPANS_REPORTED_MAX: usize = 40;

/// Writes the time of everything in focus.
pub fn write(lines: &mut TextLines, trace: &Trace, subject: &Subject) {
    if !trace.pods.is_empty() && !matches!(subject, Subject::Namespace(_)) {
        lines.head("Time");
        for pod in &trace.pods {
            write_pod(lines, pod);
        }
    }
    if !trace.matches.is_empty() {
        lines.head("Reservations: which unit serves the pod");
        lines.add("  A pod takes the smallest unit that is free and fits: by CPU, memory, creation, id.");
        trace.matches.iter().take(SPANS_REPORTED_MAX).for_each(|step| write_match(lines, step));
    }
    if matches!(subject, Subject::Reservation(_)) && !trace.reservations.is_empty() {
        lines.head("Reservations: units that no pod holds");
        trace.reservations.iter().take(SPANS_REPORTED_MAX).for_each(|step| write_reservation(lines, step));
    }
    if !trace.labels.is_empty() && !matches!(subject, Subject::Namespace(_)) {
        lines.head("Quotas: pods in order of creation, priority, size, name");
        lines.add("  Requests add up; from the first pod that exceeds min on, all are over quota.");
        trace.labels.iter().take(SPANS_REPORTED_MAX).for_each(|step| write_label(lines, step, trace));
    }
    if !trace.plans.is_empty() {
        lines.head("Savings plans: the usage that they cover, at discounted prices");
        lines.add(
            "  Plans of families come first; then the highest saving, the lowest price, the plan, the id.",
        );
        trace.plans.iter().take(SPANS_REPORTED_MAX).for_each(|step| write_plan(lines, step));
    }
    if !trace.commitments.is_empty() {
        lines.head("Commitments: what they cover, and what is left unused");
        trace.commitments.iter().take(SPANS_REPORTED_MAX).for_each(|step| write_commitment(lines, step));
    }
}

fn write_pod(lines: &mut TextLines, pod: &PodSpan) {
    let place = match &pod.node {
        Some((node, true)) => format!("on node {node}"),
        Some((node, false)) => format!("on node {node}, which is not running"),
        None => "on no node".to_owned(),
    };
    let label = match &pod.label {
        Some((quota, state)) => format!(", {state} of quota {quota}"),
        None => String::new(),
    };
    let unit = match &pod.reservation_id {
        Some(id) => format!(", with a unit of reservation {id}"),
        None => String::new(),
    };
    let time = span(pod.from, pod.to);
    lines.add(format!("  {time}: {} h {place}{unit}{label}, requests {}", pod.hours, amounts(&pod.requests)));
    if let Some(reason) = pod.unpriced {
        lines.add(format!("    it has no price: {reason}"));
    }
    if let Some(rate) = &pod.rate {
        let pairs = pod.requests.as_ref().zip(rate.prices.as_ref()).zip(rate.hourly.as_ref());
        let named = pairs.into_iter().zip(["vCPU", "GiB", "GPU"]);
        for (((amount, price), hourly), name) in named {
            lines.add(format!("    {amount} {name} x {price} = {hourly} an hour"));
        }
    }
    if let Some(pool) = &pod.pool {
        write_pool(lines, pool);
    }
    for priced in &pod.priced {
        lines.add(format!("    {} h x {} an hour = {}", priced.hours, priced.hourly, priced.cost));
    }
}

fn write_pool(lines: &mut TextLines, pool: &PoolStep) {
    let [tflops, vram] = &pool.requests;
    let [tflops_limit, vram_limit] = &pool.limits;
    lines.add(format!(
        "    pool {} at the price of qos {}: {} a TFLOP-hour, {} a GiB-hour of VRAM, limits above requests \
         at {} of that",
        pool.pool_id, pool.qos, pool.per_tflop_hour, pool.per_vram_gib_hour, pool.limits_over_requests
    ));
    lines.add(format!(
        "    {} GPU x ({tflops} TFLOPs and {vram} GiB requested, limits {tflops_limit} and {vram_limit}); \
         under eviction protection x {}",
        pool.count, pool.protection
    ));
}

fn write_match(lines: &mut TextLines, step: &MatchStep) {
    let at = instant(step.at);
    let (pod, id) = (&step.pod_uid, step.reservation_id.as_deref().unwrap_or("none"));
    lines.add(match step.outcome {
        MatchOutcome::Held => format!("  {at}: pod {pod} took a unit of {id}, and still holds it"),
        MatchOutcome::Taken => format!("  {at}: pod {pod} takes a unit of {id}"),
        MatchOutcome::None => format!("  {at}: pod {pod} finds no unit"),
        MatchOutcome::Lost => format!("  {at}: pod {pod} loses its unit of {id}"),
    });
    for unit in step.units.iter().take(SPANS_REPORTED_MAX) {
        let why = match (unit.refused, step.reservation_id.as_ref() == Some(&unit.reservation_id)) {
            (Some(why), _) => why,
            (None, true) => "fits, and is the smallest",
            (None, false) => "fits, and is larger or newer",
        };
        let size = amounts(&unit.size);
        let created = unit.created_at;
        lines.add(format!("    {}: {size}, created {created}: {why}", unit.reservation_id));
    }
}

fn write_reservation(lines: &mut TextLines, step: &ReservationSpan) {
    lines.add(format!(
        "  {} {}: {} h with {} units, {} of them held: {} unit-hours unused x {} = {}",
        step.reservation_id,
        span(step.from, step.to),
        step.hours,
        step.units,
        step.used_units,
        step.unused_hours,
        step.unit_hourly_price,
        step.cost
    ));
}

fn write_commitment(lines: &mut TextLines, step: &CommitmentSpan) {
    let disabled = if step.enabled { "" } else { " (disabled: the provider applies it all the same)" };
    lines.add(format!(
        "  {} {}: {} h at {} an hour{disabled}",
        step.commitment_id,
        span(step.from, step.to),
        step.hours,
        step.hourly_cost
    ));
    let by = match &step.hourly_commitment {
        Some(spend) => {
            lines.add(format!("    committed to a spend of {spend} an hour at discounted prices"));
            lines.add(format!("    covers a spend of {} an hour", step.spend));
            "by spend"
        }
        None => {
            lines.add(format!("    committed to {}", amounts(&step.committed)));
            lines.add(format!("    covers {}", amounts(&step.covered)));
            "half by vCPU, half by memory, or one alone"
        }
    };
    lines.add(format!("    used part {} ({by}); unused cost {}", step.utilization, step.unused_cost));
}

fn write_plan(lines: &mut TextLines, step: &PlanStep) {
    let usage = match &step.usage {
        PlanUsage::Node { cluster_id, node_id } => format!("node {node_id} of cluster {cluster_id}"),
        PlanUsage::Pod { pod_uid } => format!("pod {pod_uid}"),
        PlanUsage::Reservation { reservation_id } => {
            format!("unused units of reservation {reservation_id}")
        }
    };
    lines.add(format!(
        "  {} {}: {usage} at {} an hour, which saves {}",
        step.commitment_id,
        span(step.from, step.to),
        step.rate,
        step.saving
    ));
    lines.add(format!(
        "    left of the plan {}; left of the usage {}; it covers {}",
        step.plan_remaining, step.usage_remaining, step.covered
    ));
}

fn write_label(lines: &mut TextLines, step: &LabelStep, trace: &Trace) {
    let named = |amounts: &std::collections::BTreeMap<_, _>| -> String {
        let named: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
        named.join(", ")
    };
    lines.add(format!("  {}: quota {}, min {}", instant(step.at), step.quota_id, named(&step.min)));
    let is_asked = |pod: &RankedPod| trace.pods.iter().any(|span| span.pod_uid == pod.pod_uid);
    let crossing = step.pods.iter().position(|pod| pod.state == "over-quota");
    for (at, pod) in step.pods.iter().enumerate() {
        let crosses = crossing == Some(at);
        let near_crossing = crossing.is_some_and(|crossing| at + 1 == crossing);
        if !(crosses || near_crossing || is_asked(pod) || step.pods.len() <= RANKED_REPORTED_MAX) {
            continue;
        }
        let note = match (crosses, is_asked(pod)) {
            (true, true) => ": it exceeds min, and is the pod",
            (true, false) => ": it exceeds min",
            (false, true) => ": the pod",
            (false, false) => "",
        };
        lines.add(format!(
            "    {}. {}/{}, created {}: requests {}; sum {}; {}{note}",
            pod.position,
            pod.namespace,
            pod.pod_name,
            pod.created_at,
            named(&pod.requests),
            named(&pod.sum),
            pod.state
        ));
    }
}
