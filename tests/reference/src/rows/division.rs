//! The division of shared charges over pods (RULES.md, section 13). Lines of volumes go to the pods that have
//! the volumes. Entries of the rules divide other lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{ChargeCategory, PodStarted};
use prorata_schemas::ids::{CommitmentId, PodUid};
use prorata_schemas::rows::{BilledLine, CostRow, ResourceHours, RowKind};
use prorata_schemas::rules::division::{ChargeDivision, DivideOver};

use crate::hour::{HourView, LineAmounts, LinePart, has_cost};
use crate::names;
use crate::rounding::{Exact, exact, hours, larger, largest_remainder, zero};
use crate::rules::bill::by_weight;

/// The lines of one charge that divides over pods.
pub struct DividedCharge {
    /// The lines, in order; never empty.
    pub lines: Arc<[BilledLine]>,
    /// The key of the volume; empty if an entry of the rules divides the charge.
    pub resource_key: Text,
    /// The shares, in the order of cluster, namespace and uid of the pods.
    pub shares: Vec<ChargeShare>,
}

/// The share that a pod has of a divided charge.
pub struct ChargeShare {
    /// The pod as last described in the hour.
    pub pod: Arc<PodStarted>,
    /// The pod's part of each amount.
    pub amounts: LineAmounts,
    /// The pod's part of all weights.
    pub ratio: Decimal12,
}

/// The rule that divides a line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Divider {
    /// The time of pods with the volume of this key.
    Volume(Text),
    /// The entry of the rules at this index.
    Entry(usize),
}

/// Divider, canonical provider, billing account and service; category, and whether it is a correction;
/// account, invoice and commitment. Lines with the same key are one charge.
type ChargeKey = (
    (Divider, String, Text, Text),
    (ChargeCategory, bool),
    (Option<Text>, Option<Text>, Option<CommitmentId>),
);

/// Divides the lines of the hour over pods. The rows are all rows of the hour, except for rows of lines.
/// Returns the divided charges, and the lines that do not divide.
pub fn divide<'v>(view: &'v HourView<'_>, rows: &[CostRow]) -> (Vec<DividedCharge>, Vec<&'v LinePart>) {
    let mut charges: BTreeMap<ChargeKey, Vec<&'v LinePart>> = BTreeMap::new();
    let mut undivided = Vec::new();
    // A line without a cost in the hour is in no charge.
    for part in view.lines.iter().filter(|part| has_cost(&part.amounts)) {
        match divider(view, part) {
            Some(divider) => charges.entry(charge_key(divider, &part.line)).or_default().push(part),
            None => undivided.push(part),
        }
    }
    let mut divided = Vec::new();
    for (((divider, ..), ..), parts) in charges {
        let weights = weights(view, rows, &divider);
        if weights.is_empty() {
            undivided.extend(parts);
        } else {
            divided.push(charge(divider, &parts, weights));
        }
    }
    (divided, undivided)
}

/// Returns the rule that divides a line: the line's volume, or the first entry that matches. `None` if no
/// rule does.
fn divider(view: &HourView, part: &LinePart) -> Option<Divider> {
    if part.kind != Some(RowKind::SharedCharge) {
        return None;
    }
    let key = &part.line.set.resource_key;
    let mut pods = view.slices.iter().flat_map(|slice| slice.world.pods.values());
    if pods.any(|pod| pod.set.volume_keys.contains(key)) {
        return Some(Divider::Volume(key.clone()));
    }
    let entries = &view.rules.shared_charges;
    entries.iter().position(|entry| applies(view, entry, &part.line)).map(Divider::Entry)
}

/// Returns whether a line has every value that an entry names.
fn applies(view: &HourView, entry: &ChargeDivision, line: &BilledLine) -> bool {
    let (set, line) = (&line.set, line.line());
    let texts: [(Option<&str>, Option<&str>); 5] = [
        (entry.organization_id.as_deref(), Some(&**view.organization_id)),
        (entry.billing_account_id.as_deref(), Some(&*set.billing_account_id)),
        (entry.account_id.as_deref(), line.account_id.as_deref()),
        (entry.service.as_deref(), Some(&*line.service)),
        (entry.resource_key.as_deref(), Some(&*set.resource_key)),
    ];
    let has = |pattern: Option<&str>, text: Option<&str>| match pattern {
        Some(pattern) => text.is_some_and(|text| fits(pattern, text)),
        None => true,
    };
    entry.provider.as_ref().is_none_or(|pattern| provider_fits(pattern, &set.provider))
        && entry.category.as_ref().is_none_or(|category| *category == line.category)
        && texts.into_iter().all(|(pattern, text)| has(pattern, text))
}

/// Returns whether a text is what a pattern stands for. `*` at the end of the pattern stands for any rest.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => text == pattern,
    }
}

/// Returns whether the canonical name of a provider is what a pattern stands for.
fn provider_fits(pattern: &str, provider: &str) -> bool {
    let pattern = match pattern.strip_suffix('*') {
        Some(start) => format!("{}*", names::provider(start)),
        None => names::provider(pattern),
    };
    fits(&pattern, &names::provider(provider))
}

fn charge_key(divider: Divider, line: &BilledLine) -> ChargeKey {
    let (set, line) = (&line.set, line.line());
    (
        (divider, names::provider(&set.provider), set.billing_account_id.clone(), line.service.clone()),
        (line.category, line.is_correction),
        (line.account_id.clone(), line.invoice_id.clone(), line.commitment_id.clone()),
    )
}

/// Pods as last described in the hour, each with its weight.
type Weights = Vec<(Arc<PodStarted>, Exact)>;

/// Returns the pods with a weight above zero, in the order of cluster, namespace and uid.
fn weights(view: &HourView, rows: &[CostRow], divider: &Divider) -> Weights {
    let mut last: BTreeMap<&PodUid, &Arc<PodStarted>> = BTreeMap::new();
    for slice in view.slices {
        last.extend(slice.world.pods.iter().map(|(uid, pod)| (uid, &pod.set)));
    }
    let mut weights = Weights::new();
    for pod in last.into_values() {
        let weight = match divider {
            Divider::Volume(key) => time(view, &pod.pod_uid, |set| set.volume_keys.contains(key)),
            Divider::Entry(index) => entry_weight(view, rows, &view.rules.shared_charges[*index], pod),
        };
        if weight > zero() {
            weights.push((Arc::clone(pod), weight));
        }
    }
    weights.sort_by_key(|(pod, _)| (pod.cluster_id.clone(), pod.namespace.clone(), pod.pod_uid.clone()));
    weights
}

/// Returns the hours for which a pod ran with a description that satisfies `counts`.
fn time(view: &HourView, uid: &PodUid, counts: impl Fn(&PodStarted) -> bool) -> Exact {
    let mut time = zero();
    for slice in view.slices {
        if slice.world.pods.get(uid).is_some_and(|pod| counts(&pod.set)) {
            time += hours(slice.to - slice.from);
        }
    }
    time
}

/// Returns the weight of a pod under an entry; zero if the pod is not where the entry says.
fn entry_weight(view: &HourView, rows: &[CostRow], entry: &ChargeDivision, pod: &PodStarted) -> Exact {
    let is_in_cluster = entry.cluster_id.as_ref().is_none_or(|id| *id == pod.cluster_id);
    let is_in_namespace = entry.namespace.as_ref().is_none_or(|namespace| *namespace == pod.namespace);
    if !is_in_cluster || !is_in_namespace {
        return zero();
    }
    let mine: Vec<&CostRow> = rows.iter().filter(|row| row.pod_uid.as_ref() == Some(&pod.pod_uid)).collect();
    let allocated = |of: fn(ResourceHours) -> Decimal12| -> Exact {
        mine.iter().filter_map(|row| row.allocated).map(|hours| exact(of(hours))).sum()
    };
    match entry.over {
        DivideOver::Cost => larger(mine.iter().map(|row| exact(row.effective_cost)).sum(), zero()),
        DivideOver::Cpu => allocated(|hours| hours.cpu_core_hours),
        DivideOver::Memory => allocated(|hours| hours.memory_gib_hours),
        DivideOver::Gpu => allocated(|hours| hours.gpu_hours),
        DivideOver::Pods => time(view, &pod.pod_uid, |_| true),
    }
}

/// Divides the sums of the amounts of some lines.
fn charge(divider: Divider, parts: &[&LinePart], weights: Weights) -> DividedCharge {
    let mut sums = LineAmounts::default();
    for part in parts {
        for (sum, amount) in sums.iter_mut().zip(&part.amounts) {
            *sum += amount;
        }
    }
    let (pods, weights): (Vec<Arc<PodStarted>>, Vec<Exact>) = weights.into_iter().unzip();
    let all: Exact = weights.iter().sum();
    let ratios: Vec<Exact> = weights.iter().map(|weight| weight / &all).collect();
    let ratios = largest_remainder(Decimal12::ONE, &ratios);
    let shares = pods.into_iter().zip(by_weight(&sums, &weights)).zip(ratios);
    DividedCharge {
        lines: parts.iter().map(|part| part.line.clone()).collect(),
        resource_key: match divider {
            Divider::Volume(key) => key,
            Divider::Entry(_) => "".into(),
        },
        shares: shares.map(|((pod, amounts), ratio)| ChargeShare { pod, amounts, ratio }).collect(),
    }
}
