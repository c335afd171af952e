//! Describes stretches of nodes in text, in the manner of AWS's worked example: capacity and price, coverage
//! by commitments, unit costs, and the amounts that pods were allocated.

use std::collections::{BTreeMap, BTreeSet};

use prorata_engine::PerResource;
use prorata_engine::trace::{ComponentStep, ExactNumber, NodePod, NodeStep, Trace, WalkStep};
use prorata_schemas::event::Labels;
use prorata_tables::tags_of;

use super::Subject;
use super::lines::{REPORTED_MAX, TextLines, amounts, instant, resource_hours, span};

/// Writes the steps of the nodes in focus.
pub fn write(lines: &mut TextLines, trace: &Trace, subject: &Subject) {
    let all = matches!(subject, Subject::Node(_) | Subject::Bill(_));
    let is_asked = |pod: &NodePod| all || trace.pods.iter().any(|span| span.pod_uid == pod.pod_uid);
    // A pod has no part of the prices that applied while it did not run.
    let shown = trace.nodes.iter().filter(|node| all || node.pods.iter().any(is_asked));
    let shown: Vec<&NodeStep> = shown.collect();
    let mut before = None;
    for node in shown.iter().take(REPORTED_MAX) {
        let key = (&node.cluster_id, &node.node_id);
        let is_only =
            trace.nodes.iter().filter(|other| (&other.cluster_id, &other.node_id) == key).count() == 1;
        let is_billed = is_billed(node, trace);
        write_node(lines, node, is_only, is_billed);
        if before != Some(key) {
            write_walks(lines, node, trace);
        }
        before = Some(key);
        write_components(lines, node, is_billed);
        write_pods(lines, node, node.pods.iter().filter(|pod| is_asked(pod)));
    }
    if shown.len() > REPORTED_MAX {
        lines.add("  and so on: --json lists all");
    }
}

/// Returns whether lines of bills decide the cost of a stretch. The own price of such a stretch counts
/// nothing.
fn is_billed(node: &NodeStep, trace: &Trace) -> bool {
    let mut given = trace.bills.iter().flat_map(|step| &step.nodes);
    node.unit_price.is_zero()
        && given.any(|(cluster, id, _)| (cluster, id) == (&node.cluster_id, &node.node_id))
}

fn write_node(lines: &mut TextLines, node: &NodeStep, is_only: bool, is_billed: bool) {
    let (id, cluster, kind) = (&node.node_id, &node.cluster_id, &node.description.instance_type);
    lines.head(&match (is_only, is_billed) {
        (true, _) => format!("Node {id} ({kind}, cluster {cluster})"),
        (false, true) => format!("Node {id} ({kind}, cluster {cluster}) while it is billed"),
        (false, false) => {
            format!("Node {id} ({kind}, cluster {cluster}) while it costs {} an hour", node.unit_price)
        }
    });
    for found in node.spans.iter().take(REPORTED_MAX) {
        let by = if is_billed { "billed, by its own price" } else { "at" };
        lines.add(format!(
            "  {}: {} h {by} {} an hour, {}",
            span(found.from, found.to),
            found.hours,
            found.hourly_cost,
            amounts(&found.capacity)
        ));
        for (commitment, covered) in &found.covered {
            lines.add(format!("    of which commitment {commitment} covers {}", amounts(covered)));
        }
    }
    if node.spans.len() > REPORTED_MAX {
        lines.add("  and so on: --json lists all");
    }
}

fn write_walks(lines: &mut TextLines, node: &NodeStep, trace: &Trace) {
    let walks = trace.walks.iter();
    let mine = walks.filter(|walk| (&walk.cluster_id, &walk.node_id) == (&node.cluster_id, &node.node_id));
    // Coverage is decided at every change: unchanged coverage is not reported again.
    let mut before: BTreeMap<&str, &PerResource<ExactNumber>> = BTreeMap::new();
    let changed: Vec<&WalkStep> = mine
        .filter(|walk| before.insert(&*walk.commitment_id, &walk.covered) != Some(&walk.covered))
        .collect();
    if changed.is_empty() {
        return;
    }
    lines.add("  Walk of the commitments, by (starts_at, id); nodes by rank of cluster, start, id:");
    for walk in changed.into_iter().take(REPORTED_MAX) {
        lines.add(format!(
            "    {}: commitment {} (place {}) reaches the node at place {} of its walk: the cluster is {}, \
             and the node has run since {}",
            walk.until.map_or_else(|| instant(walk.at), |until| span(walk.at, until)),
            walk.commitment_id,
            walk.commitment_position,
            walk.position,
            walk.rank,
            walk.node_start
        ));
        // A reserved instance covers the use of the clock hour, in resource-hours.
        let amounts = if walk.until.is_some() { resource_hours } else { amounts };
        lines.add(format!("      left of the commitment {}", amounts(&walk.commitment_remaining)));
        lines.add(format!("      left of the node       {}", amounts(&walk.node_remaining)));
        lines.add(format!("      it covers              {}", amounts(&walk.covered)));
    }
}

fn write_components(lines: &mut TextLines, node: &NodeStep, is_billed: bool) {
    let weights = &node.weights;
    lines.add(format!(
        "  Weights: {} a GPU, {} a vCPU, {} a GiB. A resource's part of the node is weight x capacity.",
        weights.gpu, weights.cpu, weights.memory
    ));
    for component in &node.components {
        lines.head(&format!("  {}", component_name(component, is_billed)));
        lines.resource_names("");
        lines.exact("hours of the node", &component.hours);
        if component.commitment_id.is_some() && !is_billed {
            lines.exact("hours of it, or spend", &component.commitment_quantity);
        }
        lines.exact("cost", &component.cost);
        lines.exact("hours of capacity", &node.available);
        lines.exact("unit cost (cost / capacity)", &component.unit_cost);
        if !component.weightless_cost.is_zero() {
            lines.add(format!(
                "  {} is the cost of time in which nothing of the node had any weight: all idle",
                component.weightless_cost
            ));
        }
        if let Some(reason) = component.unpriced {
            lines.add(format!("  it had no price at some time: {reason}"));
        }
        lines.add(format!("  together {}", component.total));
    }
}

/// Returns the name of the payer.
fn component_name(component: &ComponentStep, is_billed: bool) -> String {
    let price = &component.unit_price;
    match &component.commitment_id {
        Some(commitment) if is_billed => {
            format!("By the lines of the bill for commitment {commitment}, list price {price} an hour")
        }
        Some(commitment) => format!("Paid by commitment {commitment}"),
        None if is_billed => format!("By the lines of the bill, list price {price} an hour"),
        None => format!("At its own price of {price} an hour"),
    }
}

fn write_pods<'a>(lines: &mut TextLines, node: &NodeStep, pods: impl Iterator<Item = &'a NodePod>) {
    for pod in pods.take(REPORTED_MAX) {
        lines.head(&format!("  Pod {}/{} there, {} s", pod.namespace, pod.pod_name, pod.seconds));
        lines.resource_names("hours");
        lines.exact("requested", &pod.requested);
        match &pod.used {
            Some(used) => lines.exact("used", used),
            None => lines.add("  used: no sample"),
        }
        lines.exact("allocated (the larger)", &pod.allocated);
        lines.exact("allocated to all pods (S)", &node.allocated);
        lines.exact("capacity (A)", &node.available);
        lines.exact("its part (allocated / S)", &pod.share);
        lines.exact("of that split (S / A, at most all)", &node.split_part);
        if pod.labels.len() > 1 {
            let labels: BTreeSet<&Labels> = pod.labels.iter().map(|label| &label.labels).collect();
            for label in &pod.labels {
                let mut name = match (&label.quota_id, label.state) {
                    (Some(quota), Some(state)) => format!("{state} of quota {quota}"),
                    _ => "under no quota".to_owned(),
                };
                if labels.len() > 1 {
                    let labels = tags_of(&label.labels);
                    name.push_str(&format!(", with labels {}", labels.as_deref().unwrap_or("{}")));
                }
                lines.add(format!("  {name}: {} s, {} of its time", label.seconds, label.share));
            }
        }
    }
}
