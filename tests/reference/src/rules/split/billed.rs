//! The components of billed stretches (RULES.md, section 13). They have the cost of the lines of a bill. A
//! line that bills several nodes divides over them by their estimates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use num_traits::Zero;
use prorata_schemas::event::CommitmentSet;
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::rows::BilledLine;

use super::{Component, ComponentBill, ComponentKey, Stretch, Stretches, Terms};
use crate::hour::{HourView, LineAmounts, LinePart};
use crate::resources::{Three, add, none};
use crate::rounding::{Exact, exact, fraction, half_even, whole, zero};
use crate::rules::bill::{by_weight, key_of_set};
use crate::world::BillKey;

/// Sums over the time in which a node is billed under one key.
#[derive(Default)]
pub(super) struct Sums {
    /// The billed time in hours.
    time: Exact,
    /// The cost of this time at the node's own price.
    estimate: Exact,
    /// The hours that each resource carries.
    by_resource: Three,
}

impl Sums {
    /// Adds a slice, in which each resource carries a part of the node's cost.
    pub fn add(&mut self, time: &Exact, price: &Exact, parts: &Three) {
        self.time += time;
        self.estimate += time * price;
        add(&mut self.by_resource, parts, time);
    }
}

/// The lines of a component, and the node's part of the sums of their amounts.
type Lines = (Vec<BilledLine>, LineAmounts);

/// Adds the components of all billed stretches.
pub(super) fn add_components(view: &HourView, stretches: &mut Stretches) {
    let bills = stretches.keys().filter_map(|(_, terms)| match terms {
        Terms::Bill(key) => Some(key.clone()),
        Terms::Price(_) => None,
    });
    for key in bills.collect::<BTreeSet<BillKey>>() {
        let of_key =
            |part: &&LinePart| part.kind.is_none() && key_of_set(&part.line.set).as_ref() == Some(&key);
        let parts: Vec<&LinePart> = view.lines.iter().filter(of_key).collect();
        let terms = Terms::Bill(key.clone());
        let nodes = stretches.iter_mut().filter(|((_, of_node), _)| *of_node == terms);
        let nodes: Vec<&mut Stretch> = nodes.map(|(_, stretch)| stretch).collect();
        let weights: Vec<Exact> = weights(nodes.iter().map(|stretch| &stretch.billed));
        for (index, stretch) in nodes.into_iter().enumerate() {
            let mut lines: BTreeMap<ComponentKey, Lines> = BTreeMap::new();
            for part in &parts {
                let line = part.line.line();
                let component = (line.commitment_id.clone(), line.list_unit_price.unwrap_or_default());
                let (lines, sums) = lines.entry(component).or_default();
                lines.push(part.line.clone());
                for (sum, amount) in sums.iter_mut().zip(&by_weight(&part.amounts, &weights)[index]) {
                    *sum += amount;
                }
            }
            stretch.components = components(view, &stretch.billed, lines);
        }
    }
}

/// Returns the weights by which amounts divide over nodes: their estimates, or their billed times if all
/// estimates are zero.
fn weights<'a>(nodes: impl Iterator<Item = &'a Sums> + Clone) -> Vec<Exact> {
    let estimates: Vec<Exact> = nodes.clone().map(|sums| sums.estimate.clone()).collect();
    if estimates.iter().all(Zero::is_zero) {
        nodes.map(|sums| sums.time.clone()).collect()
    } else {
        estimates
    }
}

/// Returns the components of one billed stretch.
fn components(
    view: &HourView,
    sums: &Sums,
    lines: BTreeMap<ComponentKey, Lines>,
) -> BTreeMap<ComponentKey, Component> {
    let quantity = |hours: &Exact| if hours.is_zero() { sums.time.clone() } else { hours.clone() };
    let all: Exact = lines.values().map(|(_, [_, _, _, hours])| quantity(hours)).sum();
    // Each resource carries the same part of every component. No resource carries the rest.
    let parts = sums.by_resource.clone().map(|hours| hours / &sums.time);
    let rest = whole(1) - parts.iter().sum::<Exact>();
    let mut components = BTreeMap::new();
    for (key, (lines, [billed, effective, list, hours])) in lines {
        let quantity = quantity(&hours);
        let estimate = exact(half_even(&(&sums.estimate * fraction(&quantity, &all))));
        let component = Component {
            quantity: parts.clone().map(|part| part * &quantity),
            cost: parts.clone().map(|part| part * &effective),
            weightless: [&rest * &quantity, &rest * &effective, zero()],
            commitment: none(),
            last: key.0.as_ref().and_then(|id| last_description(view, id)),
            other: false,
            bill: Some(ComponentBill { lines: lines.into(), billed, list, estimate }),
        };
        components.insert(key, component);
    }
    components
}

/// Returns the last description of a commitment in the hour; `None` if the commitment did not exist.
fn last_description(view: &HourView, id: &CommitmentId) -> Option<Arc<CommitmentSet>> {
    view.slices.iter().rev().find_map(|slice| slice.world.commitments.get(id)).cloned()
}
