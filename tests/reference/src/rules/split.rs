//! The division of a node's cost over its pods (RULES.md, section 1). It consists of the cost of each
//! component in each stretch, and the part that each pod takes. A stretch is the time at one price, or under
//! one key of a bill.

mod billed;
mod stays;

use std::collections::BTreeMap;
use std::sync::Arc;

use num_traits::Zero;
use prorata_schemas::event::{CommitmentSet, NodeStarted};
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::BilledLine;
use prorata_schemas::rules::Rules;

use crate::hour::{HourView, Slice, Usage, counted};
use crate::resources::{Three, add, none, of_node};
use crate::rounding::{Exact, exact, fraction, hours, whole};
use crate::rules::bill::billed_key;
use crate::rules::commitment;
use crate::rules::plan::{self, Covered};
use crate::world::{BillKey, NodeKey};

pub use self::stays::{LabelTime, Stay, Stays, stays};

/// The terms under which a node runs. A stretch of a node has the same terms at every instant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Terms {
    /// The node's own price, as the hour counts it.
    Price(UnitPrice),
    /// A key under which the provider bills the node.
    Bill(BillKey),
}

/// The commitment that pays a component, and the list price of the component. The commitment is `None` if
/// none pays.
pub type ComponentKey = (Option<CommitmentId>, UnitPrice);

/// One node under the same terms in the hour.
pub struct Stretch {
    /// The last description in the hour.
    pub last: Arc<NodeStarted>,
    /// Available vCPU-, GiB- and GPU-hours.
    pub available: Three,
    /// The components.
    pub components: BTreeMap<ComponentKey, Component>,
    /// Sums over the time in which the node is billed.
    billed: billed::Sums,
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
    /// What bills say of the component; `None` if the component is an estimate.
    pub bill: Option<ComponentBill>,
}

/// What bills say of a component, besides its effective cost.
#[derive(Clone)]
pub struct ComponentBill {
    /// The lines, in order; never empty.
    pub lines: Arc<[BilledLine]>,
    /// The invoiced cost.
    pub billed: Exact,
    /// The cost at list prices.
    pub list: Exact,
    /// The cost by the node's own price.
    pub estimate: Exact,
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
            bill: None,
        }
    }

    /// Returns whether the component has no time and no cost.
    pub fn is_nothing(&self) -> bool {
        let amounts = self.quantity.iter().chain(&self.cost).chain(&self.weightless);
        amounts.into_iter().all(Zero::is_zero)
    }
}

/// Returns the terms of a node that runs in a slice.
fn terms(view: &HourView, slice: &Slice, node: &NodeStarted) -> Terms {
    match billed_key(&slice.world, slice.from, node) {
        Some(key) => Terms::Bill(key),
        None => Terms::Price(counted(view, node.hourly_cost, &node.currency).0),
    }
}

/// Stretches by node and terms.
pub type Stretches = BTreeMap<(NodeKey, Terms), Stretch>;

/// Returns the stretches of every node that ran in the hour.
pub fn stretches(view: &HourView) -> Stretches {
    let mut stretches = Stretches::new();
    let mut last = BTreeMap::new();
    for (place, slice) in view.slices.iter().enumerate() {
        for (key, running) in &slice.world.nodes {
            last.insert(key, Arc::clone(&running.set));
            let (unit_price, other) = counted(view, running.set.hourly_cost, &running.set.currency);
            let terms = terms(view, slice, &running.set);
            let stretch = stretches.entry((key.clone(), terms.clone())).or_insert_with(|| Stretch {
                last: Arc::clone(&running.set),
                available: none(),
                components: BTreeMap::new(),
                billed: billed::Sums::default(),
            });
            let (capacity, time) = (of_node(&running.set, view.rules), hours(slice.to - slice.from));
            add(&mut stretch.available, &capacity, &time);
            if let Terms::Bill(_) = terms {
                stretch.billed.add(&time, &exact(unit_price), &resource_parts(&capacity, view.rules));
                continue;
            }
            let usage = Usage::Node(key.clone(), running.start);
            let plans = plan::covered(view, place, &usage);
            accrue(stretch, slice, (key, unit_price, other), &capacity, view, &plans);
        }
    }
    billed::add_components(view, &mut stretches);
    for ((key, _), stretch) in &mut stretches {
        stretch.components.retain(|_, component| !component.is_nothing());
        if let Some(last) = last.get(key) {
            stretch.last = Arc::clone(last);
        }
    }
    stretches
}

/// Returns the part of a node's cost that each resource carries. All are zero if no resource has a weight.
fn resource_parts(capacity: &Three, rules: &Rules) -> Three {
    let weights = [exact(rules.weights.cpu), exact(rules.weights.memory), exact(rules.weights.gpu)];
    let weight_of = |resource: usize| &weights[resource] * &capacity[resource];
    let all: Exact = (0..3).map(weight_of).sum();
    [0, 1, 2].map(|resource| fraction(&weight_of(resource), &all))
}

/// Adds one slice of a node, whose price may be in another currency, to the components of its stretch.
fn accrue(
    stretch: &mut Stretch,
    slice: &Slice,
    (key, unit_price, other): (&NodeKey, UnitPrice, bool),
    capacity: &Three,
    view: &HourView,
    plans: &[Covered<'_>],
) {
    let time = hours(slice.to - slice.from);
    let price = exact(unit_price);
    let parts = resource_parts(capacity, view.rules);
    let is_weightless = parts.iter().all(Zero::is_zero);

    let mut uncovered: Three = [whole(1), whole(1), whole(1)];
    for cover in slice.covers.iter().filter(|cover| cover.node == *key) {
        let Some(set) = slice.world.commitments.get(&cover.commitment_id) else { continue };
        let received = commitment::parts(set, &cover.amount);
        let id = Some(cover.commitment_id.clone());
        let component = stretch.components.entry((id, unit_price)).or_insert_with(Component::new);
        let (hourly_cost, other_set) = counted(view, set.hourly_cost, &set.currency);
        component.other |= other || other_set;
        component.last = Some(Arc::clone(set));
        for resource in 0..3 {
            let covered = fraction(&cover.amount[resource], &capacity[resource]);
            component.quantity[resource] += &time * &parts[resource] * &covered;
            component.cost[resource] += &time * exact(hourly_cost) * &received[resource];
            component.commitment[resource] += &time * &received[resource];
            uncovered[resource] -= covered;
        }
    }
    let mut own_part = whole(1);
    for Covered { set, part: covered, spend, of_plan } in plans {
        own_part -= *covered;
        let id = Some(set.commitment_id.clone());
        let component = stretch.components.entry((id, unit_price)).or_insert_with(Component::new);
        let (hourly_cost, other_set) = counted(view, set.hourly_cost, &set.currency);
        component.other |= other || other_set;
        component.last = Some(Arc::clone(set));
        // Spend and cost are divided over resources in the same way as the cost that the plan covers.
        for (resource, uncovered) in uncovered.iter().enumerate() {
            let there = &time * &parts[resource] * uncovered;
            component.quantity[resource] += &there * *covered;
            component.cost[resource] += &there * of_plan * exact(hourly_cost);
            component.commitment[resource] += &there * spend;
        }
        if is_weightless {
            component.weightless[0] += &time * *covered;
            component.weightless[1] += &time * of_plan * exact(hourly_cost);
            component.weightless[2] += &time * spend;
        }
    }
    let own = stretch.components.entry((None, unit_price)).or_insert_with(Component::new);
    own.other |= other;
    for (resource, uncovered) in uncovered.iter().enumerate() {
        own.quantity[resource] += &time * &parts[resource] * uncovered * &own_part;
        own.cost[resource] += &time * &parts[resource] * uncovered * &price * &own_part;
    }
    if is_weightless {
        own.weightless[0] += &time * &own_part;
        own.weightless[1] += &time * &price * &own_part;
    }
}
