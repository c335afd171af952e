//! Rows `pod_node` and `node_idle`. Each stretch has a row for each combination of a node's price component
//! and a pod's label.

use std::collections::BTreeMap;
use std::sync::Arc;

use num_traits::Zero;
use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::{RowKind, Unpriced};

use crate::hour::{HourView, line_key};
use crate::resources::{Three, none};
use crate::rounding::{Exact, exact, fraction, larger, whole, zero};
use crate::rows::draft::{BillAmounts, Charge, Draft};
use crate::rules::split::{Component, ComponentKey, LabelTime, Stay, Stays, Stretch, stays, stretches};
use crate::world::NodeKey;

/// Drafts all rows of nodes and of the pods that name them.
pub fn drafts(view: &HourView) -> Vec<Draft> {
    let stays = stays(view);
    let mut drafts = Vec::new();
    for ((key, terms), stretch) in stretches(view) {
        let here: BTreeMap<&PodUid, &Stay> = stays
            .iter()
            .filter(|((under, on, _), _)| under.as_ref() == Some(&terms) && *on == key)
            .map(|((_, _, uid), stay)| (uid, stay))
            .collect();
        stretch_drafts(&mut drafts, view, &key, &stretch, &here);
    }
    unknown_drafts(&mut drafts, view, &stays);
    drafts
}

/// Drafts the rows of one stretch of a node.
fn stretch_drafts(
    drafts: &mut Vec<Draft>,
    view: &HourView,
    key: &NodeKey,
    stretch: &Stretch,
    pods: &BTreeMap<&PodUid, &Stay>,
) {
    let mut total = none();
    for stay in pods.values() {
        crate::resources::add(&mut total, &stay.allocated(view.rules), &whole(1));
    }
    for (uid, stay) in pods {
        let shares = Shares::of(&stay.allocated(view.rules), &total, &stretch.available);
        pod_drafts(drafts, view, (key, stretch), (uid, stay), &shares);
    }
    for (component_key, component) in &stretch.components {
        let [mut quantity, mut cost, mut commitment] = component.weightless.clone();
        for resource in (0..3).filter(|&resource| total[resource].is_zero()) {
            quantity += &component.quantity[resource];
            cost += &component.cost[resource];
            commitment += &component.commitment[resource];
        }
        let mut draft = component_draft(RowKind::NodeIdle, (key, stretch), component_key, component);
        set_amounts(&mut draft, component_key, component, quantity, cost, commitment);
        drafts.push(draft);
    }
}

/// A pod's part of each resource of its node.
struct Shares {
    /// The split part: the pod's part of the node's amount, or of the allocated amount if this is larger.
    split: Three,
    /// The unused part: the pod's part of what nobody was allocated.
    unused: Three,
    /// Both parts: the pod's part of everything that was allocated.
    both: Three,
    /// Whether the node has any of the resource, or a pod was allocated any.
    exists: [bool; 3],
    /// Whether something of the resource is unused.
    is_unused: [bool; 3],
}

impl Shares {
    fn of(allocated: &Three, total: &Three, available: &Three) -> Self {
        let (exists, is_unused) = ([false; 3], [false; 3]);
        let mut shares = Self { split: none(), unused: none(), both: none(), exists, is_unused };
        for resource in 0..3 {
            let (mine, all, there) = (&allocated[resource], &total[resource], &available[resource]);
            shares.split[resource] = fraction(mine, &larger(there.clone(), all.clone()));
            let unused = fraction(&larger(there - all, zero()), there);
            shares.unused[resource] = fraction(mine, all) * unused;
            shares.both[resource] = fraction(mine, all);
            shares.exists[resource] = !there.is_zero() || !all.is_zero();
            shares.is_unused[resource] = there > all;
        }
        shares
    }

    /// Returns the ratios of AWS's table 3, each multiplied by a factor: the part of the node, and the part
    /// of what is unused.
    fn ratios(&self, factor: &Three) -> [[Option<Exact>; 3]; 2] {
        let of = |part: &Three, counts: [bool; 3]| {
            let one = |resource: usize| {
                let ratio = if counts[resource] { &part[resource] * &factor[resource] } else { zero() };
                self.exists[resource].then_some(ratio)
            };
            [one(0), one(1), one(2)]
        };
        [of(&self.split, [true; 3]), of(&self.both, self.is_unused)]
    }
}

/// Returns the sum over resources of each amount times its part.
fn dot(parts: &Three, of: &Three) -> Exact {
    parts.iter().zip(of).map(|(part, all)| part * all).sum()
}

/// Drafts the rows of one pod in one stretch of a node.
fn pod_drafts(
    drafts: &mut Vec<Draft>,
    view: &HourView,
    (key, stretch): (&NodeKey, &Stretch),
    (uid, stay): (&PodUid, &Stay),
    shares: &Shares,
) {
    let mine: Exact =
        stretch.components.values().map(|component| dot(&shares.both, &component.quantity)).sum();
    let has_cost = |component: &Component| !dot(&shares.both, &component.cost).is_zero();
    let first_that_costs =
        stretch.components.iter().find(|(_, component)| has_cost(component)).map(|(key, _)| key);
    if mine.is_zero() && first_that_costs.is_none() {
        let draft = only_draft(view, (key, stretch), (uid, stay));
        let ratios = || shares.ratios(&[whole(1), whole(1), whole(1)]);
        drafts.extend(draft.map(|draft| Draft { ratios: ratios(), ..draft }));
        return;
    }
    // Count only components for which the pod has a row: a quantity must not go to a row that does not exist.
    let has_row =
        |component: &&Component| !dot(&shares.both, &component.quantity).is_zero() || has_cost(component);
    for (component_key, component) in &stretch.components {
        let quantity = dot(&shares.both, &component.quantity);
        // If weights of zero leave a cost without any hours, its first row carries everything that divides by
        // hours.
        let by_quantity = match first_that_costs {
            Some(first) if mine.is_zero() => whole(i32::from(first == component_key)),
            _ => fraction(&quantity, &mine),
        };
        let mut by_resource = none();
        for (resource, part) in by_resource.iter_mut().enumerate() {
            let shared = stretch.components.values().filter(has_row);
            let all: Exact = shared.map(|other| other.quantity[resource].clone()).sum();
            *part = if all.is_zero() { by_quantity.clone() } else { &component.quantity[resource] / all };
        }
        for (label, time) in &stay.labels {
            let label_part = fraction(&time.running, &stay.running);
            let scaled = |amounts: &Three| {
                let [cpu, memory, gpu] = amounts;
                [cpu * &label_part, memory * &label_part, gpu * &label_part]
            };
            let divided = |amounts: &Three| {
                let [cpu, memory, gpu] = amounts;
                scaled(&[cpu * &by_resource[0], memory * &by_resource[1], gpu * &by_resource[2]])
            };
            let mut draft = component_draft(RowKind::PodNode, (key, stretch), component_key, component);
            let split = dot(&shares.split, &component.cost) * &label_part;
            let unused = dot(&shares.unused, &component.cost) * &label_part;
            let commitment = dot(&shares.both, &component.commitment) * &label_part;
            let cost = &split + &unused;
            set_amounts(&mut draft, component_key, component, &quantity * &label_part, cost, commitment);
            let [cpu, memory, gpu] = &component.cost;
            draft.split_unused = Some([split, unused]);
            draft.by_resource =
                Some(scaled(&[cpu * &shares.both[0], memory * &shares.both[1], gpu * &shares.both[2]]));
            draft.allocated = Some(divided(&stay.allocated(view.rules)));
            draft.requested = Some(divided(&stay.requested));
            draft.used = stay.used.as_ref().map(divided);
            draft.ratios = shares.ratios(&scaled(&by_resource));
            draft.running = Some(&time.running * &by_quantity);
            draft.pool_charge = time.charge.as_ref().map(|charge| charge * &by_quantity);
            drafts.push(described(draft, uid, time).labelled(label));
        }
    }
}

/// Drafts the only row of a pod that has no share of anything. The row has the first component and the first
/// label in row order. `None` if the stretch has no components.
fn only_draft(
    view: &HourView,
    (key, stretch): (&NodeKey, &Stretch),
    (uid, stay): (&PodUid, &Stay),
) -> Option<Draft> {
    let (component_key, component) = stretch.components.iter().next()?;
    let (label, time) = stay.labels.iter().min_by_key(|(label, _)| label.order())?;
    let mut draft = component_draft(RowKind::PodNode, (key, stretch), component_key, component);
    draft.keep = true;
    set_amounts(&mut draft, component_key, component, zero(), zero(), zero());
    draft.ratio = Some(zero());
    whole_stay(&mut draft, view, stay);
    Some(described(draft, uid, time).labelled(label))
}

/// Drafts the rows of pods that name a node that is not running.
fn unknown_drafts(drafts: &mut Vec<Draft>, view: &HourView, stays: &Stays) {
    for ((terms, (cluster_id, node_id), uid), stay) in stays {
        if terms.is_some() {
            continue;
        }
        for (label, time) in &stay.labels {
            let part = fraction(&time.running, &stay.running);
            let mut draft = Draft::new(RowKind::PodNode, node_id.clone().into(), Charge::Row);
            draft.row.cluster_id = Some(cluster_id.clone());
            whole_stay(&mut draft, view, stay);
            for amounts in [&mut draft.allocated, &mut draft.requested, &mut draft.used].into_iter().flatten()
            {
                amounts.iter_mut().for_each(|amount| *amount *= &part);
            }
            draft.quantity = time.running.clone();
            draft.running = Some(time.running.clone());
            draft.pool_charge = time.charge.clone();
            drafts.push(described(draft, uid, time).labelled(label));
        }
    }
}

/// Puts all of a stay's time and quantities into a draft, without cost.
fn whole_stay(draft: &mut Draft, view: &HourView, stay: &Stay) {
    draft.split_unused = Some([zero(), zero()]);
    draft.by_resource = Some(none());
    draft.allocated = Some(stay.allocated(view.rules));
    draft.requested = Some(stay.requested.clone());
    draft.used = stay.used.clone();
    draft.running = Some(stay.running.clone());
    draft.pool_charge =
        stay.labels.values().filter_map(|time| time.charge.clone()).reduce(|sum, more| sum + more);
}

/// Creates a draft of one component of a stretch.
fn component_draft(
    kind: RowKind,
    (key, stretch): (&NodeKey, &Stretch),
    (commitment_id, unit_price): &ComponentKey,
    component: &Component,
) -> Draft {
    let charge = match (&component.bill, commitment_id) {
        (Some(bill), _) => Charge::Bill(Some(key.clone()), bill.lines.first().map(line_key)),
        (None, Some(id)) => Charge::Commitment(id.clone()),
        (None, None) => Charge::Node(key.clone(), *unit_price),
    };
    let mut draft = Draft::new(kind, key.1.clone().into(), charge);
    draft.row.cluster_id = Some(key.0.clone());
    draft.row.commitment_id = commitment_id.clone();
    draft.row.list_unit_price = (*unit_price).into();
    draft.row.lines = component.bill.as_ref().map(|bill| Arc::clone(&bill.lines)).unwrap_or_default();
    draft.row.provider = stretch.last.provider.clone();
    draft.row.node = Some(Arc::clone(&stretch.last));
    draft.row.commitment = component.last.clone();
    draft.row.unpriced = component.other.then_some(Unpriced::OtherCurrency);
    draft
}

/// Sets quantity, cost and commitment hours of a part of a component.
fn set_amounts(
    draft: &mut Draft,
    (commitment_id, unit_price): &ComponentKey,
    component: &Component,
    quantity: Exact,
    cost: Exact,
    commitment: Exact,
) {
    let all_quantity = component.quantity.iter().sum::<Exact>() + &component.weightless[0];
    let all_cost = component.cost.iter().sum::<Exact>() + &component.weightless[1];
    // If the component costs nothing, the part is by hours.
    let ratio = if all_cost.is_zero() { fraction(&quantity, &all_quantity) } else { &cost / all_cost };
    draft.ratio = Some(ratio);
    match &component.bill {
        Some(bill) => {
            let part = fraction(&quantity, &all_quantity);
            let estimate = Some(&bill.estimate * &part);
            let (billed, list) = (&bill.billed * &part, &bill.list * &part);
            draft.bill = Some(BillAmounts { billed, list, estimate });
        }
        None => {
            draft.list_cost = Some(exact(*unit_price) * &quantity);
            draft.commitment_quantity = commitment_id.as_ref().map(|_| commitment);
        }
    }
    draft.quantity = quantity;
    draft.cost = cost;
}

/// Adds the pod to a draft.
fn described(mut draft: Draft, uid: &PodUid, time: &LabelTime) -> Draft {
    draft.row.pod_uid = Some(uid.clone());
    draft.row.pod = Some(Arc::clone(&time.pod));
    draft
}
