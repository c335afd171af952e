//! The division of a node's cost over its pods (RULES.md, section 1). It consists of the cost of each
//! component in each stretch, and the part that each pod takes. A stretch is the time at one price.

use std::collections::BTreeMap;
use std::sync::Arc;

use num_traits::Zero;
use prorata_schemas::event::{CommitmentSet, NodeStarted, PodStarted};
use prorata_schemas::ids::{CommitmentId, PodUid};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rules::{Allocation, Rules};

use crate::hour::{HourView, Label, Slice, Usage, counted};
use crate::resources::{Three, add, is_share_unknown, none, of_node, of_pod};
use crate::rounding::{Exact, exact, fraction, hours, larger, whole, zero};
use crate::rules::commitment;
use crate::rules::plan::{self, Covered};
use crate::rules::pool;
use crate::rules::quota;
use crate::usage;
use crate::world::{Billing, NodeKey};

/// One node at one price in the hour.
pub struct Stretch {
    /// The last description in the hour.
    pub last: Arc<NodeStarted>,
    /// The price, as the hour counts it.
    pub unit_price: UnitPrice,
    /// Available vCPU-, GiB- and GPU-hours.
    pub available: Three,
    /// The components by commitment, `None` for the node's own price.
    pub components: BTreeMap<Option<CommitmentId>, Component>,
}

/// A component of a node's cost.
#[derive(Clone)]
pub struct Component {
    /// Hours of the node that the component pays for, by resource.
    pub quantity: Three,
    /// Cost by resource.
    pub cost: Three,
    /// Hours, cost and commitment quantity of the time in which no resource has a weight.
    pub weightless: Three,
    /// Hours or spend of the commitment that the node receives, by resource.
    pub commitment: Three,
    /// The commitment's last description while it covered.
    pub last: Option<Arc<CommitmentSet>>,
    /// Whether the price was in another currency at some time.
    pub other: bool,
}

impl Component {
    fn new() -> Self {
        Self {
            quantity: none(),
            cost: none(),
            weightless: none(),
            commitment: none(),
            last: None,
            other: false,
        }
    }

    /// Returns whether the component has no time and no cost.
    pub fn is_nothing(&self) -> bool {
        let amounts = self.quantity.iter().chain(&self.cost).chain(&self.weightless);
        amounts.into_iter().all(Zero::is_zero)
    }
}

/// A pod's time on one node at one price, or the time for which it names a node that does not run.
pub struct Stay {
    /// Hours for which the pod ran there.
    pub running: Exact,
    /// Requested resource-hours.
    pub requested: Three,
    /// Used resource-hours. `None` if no sample overlaps.
    pub used: Option<Three>,
    /// The pod's time by label.
    pub labels: BTreeMap<Label, LabelTime>,
}

/// A part of a stay under one label.
pub struct LabelTime {
    /// The pod's last description under the label.
    pub pod: Arc<PodStarted>,
    /// The length in hours.
    pub running: Exact,
    /// The charge of the pod's pool for this time. `None` if no pool priced it.
    pub charge: Option<Exact>,
}

impl Stay {
    fn new() -> Self {
        Self { running: zero(), requested: none(), used: None, labels: BTreeMap::new() }
    }

    /// Returns the amounts that the pod is allocated: the larger of request and use, or only the request.
    pub fn allocated(&self, rules: &Rules) -> Three {
        let used = self.used.clone().unwrap_or_else(none);
        let mut allocated = none();
        for (resource, amount) in allocated.iter_mut().enumerate() {
            let request = self.requested[resource].clone();
            *amount = match rules.allocation {
                Allocation::Max => larger(request, used[resource].clone()),
                Allocation::Requests => request,
            };
        }
        allocated
    }
}

/// Stays of pods by the price of the node (`None` if it does not run), the node and the pod.
pub type Stays = BTreeMap<(Option<UnitPrice>, NodeKey, PodUid), Stay>;

/// Returns the stretches of every node that ran in the hour.
pub fn stretches(view: &HourView) -> BTreeMap<(NodeKey, UnitPrice), Stretch> {
    let mut stretches = BTreeMap::new();
    let mut last = BTreeMap::new();
    for (place, slice) in view.slices.iter().enumerate() {
        for (key, running) in &slice.world.nodes {
            last.insert(key, Arc::clone(&running.set));
            let (unit_price, other) = counted(view, running.set.hourly_cost, &running.set.currency);
            let stretch = stretches.entry((key.clone(), unit_price)).or_insert_with(|| Stretch {
                last: Arc::clone(&running.set),
                unit_price,
                available: none(),
                components: BTreeMap::new(),
            });
            let capacity = of_node(&running.set, view.rules);
            add(&mut stretch.available, &capacity, &hours(slice.to - slice.from));
            let usage = Usage::Node(key.clone(), running.start);
            let plans = plan::covered(view, place, &usage);
            accrue(stretch, slice, (key, other), &capacity, view, &plans);
        }
    }
    for ((key, _), stretch) in &mut stretches {
        stretch.components.retain(|_, component| !component.is_nothing());
        if let Some(last) = last.get(key) {
            stretch.last = Arc::clone(last);
        }
    }
    stretches
}

/// Adds one slice of a node, whose price may be in another currency, to the components of its stretch.
fn accrue(
    stretch: &mut Stretch,
    slice: &Slice,
    (key, other): (&NodeKey, bool),
    capacity: &Three,
    view: &HourView,
    plans: &[Covered<'_>],
) {
    let rules = view.rules;
    let time = hours(slice.to - slice.from);
    let price = exact(stretch.unit_price);
    let weights = [exact(rules.weights.cpu), exact(rules.weights.memory), exact(rules.weights.gpu)];
    let weight_of = |resource: usize| &weights[resource] * &capacity[resource];
    let all: Exact = (0..3).map(weight_of).sum();
    let part = |resource: usize| fraction(&weight_of(resource), &all);

    let mut uncovered: Three = [whole(1), whole(1), whole(1)];
    for cover in slice.covers.iter().filter(|cover| cover.node == *key) {
        let Some(set) = slice.world.commitments.get(&cover.commitment_id) else { continue };
        let received = commitment::parts(set, &cover.amount);
        let component =
            stretch.components.entry(Some(cover.commitment_id.clone())).or_insert_with(Component::new);
        let (hourly_cost, other_set) = counted(view, set.hourly_cost, &set.currency);
        component.other |= other || other_set;
        component.last = Some(Arc::clone(set));
        for resource in 0..3 {
            let covered = fraction(&cover.amount[resource], &capacity[resource]);
            component.quantity[resource] += &time * part(resource) * &covered;
            component.cost[resource] += &time * exact(hourly_cost) * &received[resource];
            component.commitment[resource] += &time * &received[resource];
            uncovered[resource] -= covered;
        }
    }
    let mut own_part = whole(1);
    for Covered { set, part: covered, spend, of_plan } in plans {
        own_part -= *covered;
        let id = Some(set.commitment_id.clone());
        let component = stretch.components.entry(id).or_insert_with(Component::new);
        let (hourly_cost, other_set) = counted(view, set.hourly_cost, &set.currency);
        component.other |= other || other_set;
        component.last = Some(Arc::clone(set));
        // Spend and cost are divided over resources in the same way as the cost that the plan covers.
        for (resource, uncovered) in uncovered.iter().enumerate() {
            let there = &time * part(resource) * uncovered;
            component.quantity[resource] += &there * *covered;
            component.cost[resource] += &there * of_plan * exact(hourly_cost);
            component.commitment[resource] += &there * spend;
        }
        if all.is_zero() {
            component.weightless[0] += &time * *covered;
            component.weightless[1] += &time * of_plan * exact(hourly_cost);
            component.weightless[2] += &time * spend;
        }
    }
    let own = stretch.components.entry(None).or_insert_with(Component::new);
    own.other |= other;
    for (resource, uncovered) in uncovered.iter().enumerate() {
        own.quantity[resource] += &time * part(resource) * uncovered * &own_part;
        own.cost[resource] += &time * part(resource) * uncovered * &price * &own_part;
    }
    if all.is_zero() {
        own.weightless[0] += &time * &own_part;
        own.weightless[1] += &time * &price * &own_part;
    }
}

/// Returns every stay of a pod on a node, whether the node is running or unknown.
pub fn stays(view: &HourView) -> Stays {
    let mut stays = Stays::new();
    for slice in view.slices {
        for (uid, running) in &slice.world.pods {
            let (known, node) = match slice.world.billing(&running.set) {
                Billing::Node(node) => (true, node),
                Billing::UnknownNode(node) => (false, node),
                Billing::Pool | Billing::Serverless => continue,
            };
            let price = slice.world.nodes.get(&node).filter(|_| known);
            let price = price.map(|node| counted(view, node.set.hourly_cost, &node.set.currency).0);
            let stay = stays.entry((price, node, uid.clone())).or_insert_with(Stay::new);
            extend(stay, view, slice, known, &running.set);
        }
    }
    stays
}

/// Adds one slice to a stay.
fn extend(stay: &mut Stay, view: &HourView, slice: &Slice, known: bool, pod: &Arc<PodStarted>) {
    let time = hours(slice.to - slice.from);
    stay.running += &time;
    add(&mut stay.requested, &of_pod(pod, view.rules), &time);
    if let Some(used) = usage::used(view.samples, &pod.pod_uid, slice.from, slice.to) {
        add(stay.used.get_or_insert_with(none), &used, &whole(1));
    }
    let charge = pool::charge(&slice.world, pod, slice.from, view);
    let quota = quota::label(&slice.quotas, &pod.cluster_id, &pod.pod_uid);
    let reason = match &charge {
        _ if !known => Some(prorata_schemas::rows::Unpriced::UnknownNode),
        Some(Err(reason)) => Some(*reason),
        None if is_share_unknown(pod, view.rules) => Some(prorata_schemas::rows::Unpriced::UnknownGpuShare),
        _ => None,
    };
    let (quota_id, state) = quota.unzip();
    let label = Label { quota_id, state, reason, labels: pod.labels.clone() };
    let new = || LabelTime { pod: Arc::clone(pod), running: zero(), charge: None };
    let part = stay.labels.entry(label).or_insert_with(new);
    part.pod = Arc::clone(pod);
    part.running += &time;
    if let Some(Ok((rate, _))) = charge {
        *part.charge.get_or_insert_with(zero) += rate * &time;
    }
}
