//! Coverage of the nodes of one family by one commitment (RULES.md, section 3).
//!
//! **Decides** how much of each node the commitment covers. vCPU, memory and GPU are covered independently;
//! only GPUs of the commitment's model count. The commitment finds what the earlier commitments leave: see
//! `family.rs`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashu_int::UBig;
use prorata_schemas::Text;
use prorata_schemas::event::CommitmentSet;
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::time::Timestamp;

use crate::model::per_resource::PerResource;
use crate::model::spec::{Amounts, NodeSpec, gpu_model};
use crate::model::state::NodeKey;
use crate::rules::commitment::coverable;
use crate::rules::commitment::place::{FamilyNode, NodeRun, Place};
use crate::rules::commitment::walk::Walk;

/// An effective commitment, with the amounts that it covers and could cover over all nodes.
#[derive(Debug)]
pub(crate) struct Cover {
    pub(crate) commitment: Arc<CommitmentSet>,
    /// The canonical name of the only GPU model that the commitment covers; `None` if it covers any model.
    gpu_model: Option<Text>,
    pub(crate) covered: PerResource<UBig>,
    /// Capacity of all nodes, as far as the commitment can match it.
    pub(crate) provisioned: Amounts,
    walks: PerResource<Walk<Place>>,
    turn: Turn,
}

/// Commitments cover in this order.
pub(crate) type CommitmentOrder = (Timestamp, CommitmentId);

/// The role of a commitment in the next decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The commitment has not looked at the nodes yet.
    Begins,
    /// The commitment knows the nodes, except for what has changed.
    Stays,
    /// The commitment covers nothing more.
    Ends,
}

impl Cover {
    /// Creates the cover of a commitment that has not looked at any of the nodes. `totals` are the amounts
    /// that it may cover over all nodes.
    pub(crate) fn new(
        commitment: Arc<CommitmentSet>,
        totals: PerResource<UBig>,
        nodes: &FamilyNodes,
    ) -> Self {
        let mut cover = Self {
            gpu_model: gpu_model(commitment.gpu_model.as_ref()),
            commitment,
            covered: PerResource::default(),
            provisioned: Amounts::default(),
            walks: totals.map(Walk::new),
            turn: if nodes.is_empty() { Turn::Stays } else { Turn::Begins },
        };
        nodes.values().for_each(|node| cover.provision(None, Some(node)));
        cover
    }

    /// Marks the commitment as ended: it covers nothing after its next walk.
    pub(crate) fn ended(self) -> Self {
        Self { turn: Turn::Ends, ..self }
    }

    /// Returns whether the commitment covers nothing more.
    pub(crate) fn has_ended(&self) -> bool {
        self.turn == Turn::Ends
    }

    /// Updates the provisioned capacity for a node that starts, ends or is described again.
    pub(crate) fn provision(&mut self, before: Option<&FamilyNode>, now: Option<&FamilyNode>) {
        let capacity = |node: Option<&FamilyNode>| {
            node.map(|node| matching_capacity(&node.spec, self.gpu_model.as_ref())).unwrap_or_default()
        };
        let (before, now) = (capacity(before), capacity(now));
        let provisioned = self.provisioned.zip(now).zip(before);
        self.provisioned = provisioned.map(|((sum, now), before)| sum + now - before);
    }

    /// Walks the nodes again, after the commitments in `before` have walked. On entry, `rests` holds the
    /// nodes for which the earlier commitments may leave a different amount, with the amount that they leave.
    /// On return, it holds the nodes for which this commitment may leave a different amount, likewise.
    /// `changed` are the nodes that have started, ended or been described again. Returns the nodes whose
    /// cover by this commitment may have changed.
    pub(crate) fn walk(
        &mut self,
        before: &[Self],
        nodes: &FamilyNodes,
        changed: &BTreeSet<NodeKey>,
        rests: &mut PerResource<Rests>,
    ) -> BTreeSet<NodeRun> {
        match self.turn {
            Turn::Ends => return self.leave(rests),
            Turn::Begins if self.walks.iter().all(Walk::is_empty) => {}
            Turn::Begins => self.find(left_by(before, nodes, rests), nodes),
            Turn::Stays => {}
        }
        let mut touched = BTreeSet::new();
        let knows_nodes = self.turn == Turn::Stays;
        for ((walk, rests), matches) in self.walks.as_mut().zip(rests.as_mut()).zip(MATCHES) {
            if walk.is_empty() {
                continue;
            }
            let mut as_before = Vec::new();
            for (run, rest) in rests.iter() {
                let place = Place::new(&self.commitment, run);
                let is_matched = matches_node(self.gpu_model.as_ref(), matches, nodes, run);
                let rest = if is_matched { rest.clone() } else { UBig::ZERO };
                if walk.rest_of(&place) != rest {
                    walk.set_rest(place, rest);
                } else if is_matched && knows_nodes && !changed.contains(&run.0) {
                    as_before.push(place);
                }
            }
            let mut moved = BTreeSet::new();
            walk.settle(&mut moved);
            // If the cover of an unchanged node stays, the commitments after this one find what they found
            // before. If the node has changed, they may match it now, or no longer match it.
            for place in as_before {
                rests.remove(&place.into_run());
            }
            for place in moved {
                let rest = walk.rest_of(&place);
                rests.entry(place.into_run()).or_insert(rest);
            }
            // The next commitment finds what this one leaves.
            for (run, rest) in rests.iter_mut() {
                *rest -= walk.covered_of(&Place::new(&self.commitment, run));
            }
            touched.extend(rests.keys().cloned());
        }
        self.covered = self.walks.as_ref().map(Walk::covered);
        self.turn = Turn::Stays;
        touched
    }

    /// Looks at nodes for the first time.
    fn find(&mut self, lefts: PerResource<Rests>, nodes: &FamilyNodes) {
        for ((walk, lefts), matches) in self.walks.as_mut().zip(lefts).zip(MATCHES) {
            for (run, left) in lefts {
                if !walk.is_empty() && matches_node(self.gpu_model.as_ref(), matches, nodes, &run) {
                    walk.set_rest(Place::new(&self.commitment, &run), left);
                }
            }
        }
    }

    /// Stops covering, so that the commitments after this one find what it found. Returns the nodes that it
    /// covered.
    fn leave(&self, rests: &mut PerResource<Rests>) -> BTreeSet<NodeRun> {
        let mut left = BTreeSet::new();
        for (walk, rests) in self.walks.as_ref().zip(rests.as_mut()) {
            for (place, share) in walk.covered_shares() {
                rests.entry(place.run()).or_insert_with(|| share.rest.clone());
                left.insert(place.run());
            }
        }
        left
    }

    /// Returns the commitment's place in the order of commitments.
    pub(crate) fn order(&self) -> CommitmentOrder {
        (self.commitment.starts_at, self.commitment.commitment_id.clone())
    }

    /// Compares the commitment's place in the order with another place.
    pub(crate) fn cmp_order(&self, (starts_at, id): &CommitmentOrder) -> Ordering {
        (self.commitment.starts_at, &self.commitment.commitment_id).cmp(&(*starts_at, id))
    }

    /// Returns whether the commitment covers anything of a node.
    pub(crate) fn covers_any_of(&self, run: &NodeRun) -> bool {
        let place = Place::new(&self.commitment, run);
        !self.has_ended() && self.covered_of(&place).iter().any(|amount| !amount.is_zero())
    }

    /// Returns the amounts that the commitment covers of a node.
    pub(crate) fn covered_of(&self, place: &Place) -> PerResource<UBig> {
        self.walks.as_ref().map(|walk| walk.covered_of(place))
    }
}

/// Returns the capacity of a node that a commitment to this GPU model can match. GPUs of other models do not
/// count.
fn matching_capacity(node: &NodeSpec, gpu_model: Option<&Text>) -> Amounts {
    let gpu = if matches_gpus(gpu_model, node) { node.capacity.gpu } else { 0 };
    PerResource { gpu, ..node.capacity }
}

/// Returns whether a commitment to this GPU model, or to any model if `None`, may cover the node's GPUs.
pub(super) fn matches_gpus(gpu_model: Option<&Text>, node: &NodeSpec) -> bool {
    gpu_model.is_none() || gpu_model == node.gpu_model.as_ref()
}

/// A test of whether a commitment to a GPU model, or to any model if `None`, may cover a resource of a node.
type Matches = fn(Option<&Text>, &NodeSpec) -> bool;

const MATCHES: PerResource<Matches> =
    PerResource { cpu: |_, _| true, memory: |_, _| true, gpu: matches_gpus };

/// Returns whether the node runs and the commitment may cover a resource of it.
fn matches_node(gpu_model: Option<&Text>, matches: Matches, nodes: &FamilyNodes, (key, _): &NodeRun) -> bool {
    nodes.get(key).is_some_and(|node| matches(gpu_model, &node.spec))
}

/// The amount of each node that is available to cover.
pub(crate) type Rests = BTreeMap<NodeRun, UBig>;

/// The running nodes of a family.
pub(crate) type FamilyNodes = BTreeMap<NodeKey, FamilyNode>;

/// Returns the amount of each node that the commitments leave, except for the nodes in `rests`.
fn left_by(commitments: &[Cover], nodes: &FamilyNodes, rests: &PerResource<Rests>) -> PerResource<Rests> {
    let mut lefts = PerResource::<Rests>::default();
    for (key, node) in nodes {
        let run = (key.clone(), node.start);
        for ((left, rests), capacity) in lefts.as_mut().zip(rests.as_ref()).zip(coverable(&node.spec)) {
            if !rests.contains_key(&run) {
                left.insert(run.clone(), capacity);
            }
        }
    }
    for cover in commitments.iter().filter(|cover| !cover.has_ended()) {
        for (left, walk) in lefts.as_mut().zip(cover.walks.as_ref()) {
            for (place, share) in walk.covered_shares() {
                if let Some(left) = left.get_mut(&place.run()) {
                    *left -= &share.covered;
                }
            }
        }
    }
    lefts
}
