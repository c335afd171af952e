//! What commitments cover of the nodes of one family (RULES.md, section 3): of one provider, region and
//! instance family. No commitment of another family can cover any of them.
//!
//! **Decides** what each commitment covers of which node, in the precedence that `commitment.rs` tells. Every
//! resource is walked by itself, and only what has changed is walked again: see `walk.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashu_int::UBig;
use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, CommitmentSet, NodeStarted};
use prorata_schemas::ids::{ClusterId, CommitmentId, NodeId};
use prorata_schemas::time::Timestamp;

use crate::per_resource::PerResource;
use crate::rules::commitment::{allowed_totals, scaled};
use crate::rules::walk::Walk;
use crate::timeline::slices::Coverage;
use crate::timeline::spec::{Amounts, NodeSpec};
use crate::timeline::state::NodeKey;
use crate::trace::{Recorder, WalkStep, covered_units};

/// Provider, region and instance family.
pub(crate) type FamilyKey = (Text, Text, Text);

/// The family whose commitments may cover a node; none: it is not on demand, so none may.
pub(crate) fn family_of_node(node: &NodeStarted) -> Option<FamilyKey> {
    let key = || (node.provider.clone(), node.region.clone(), node.instance_family.clone());
    (node.capacity_type == CapacityType::OnDemand).then(key)
}

/// The family whose nodes a commitment may cover.
pub(crate) fn family_of_commitment(commitment: &CommitmentSet) -> FamilyKey {
    (commitment.provider.clone(), commitment.region.clone(), commitment.instance_family.clone())
}

/// A running node of a family.
#[derive(Clone, Debug)]
pub(crate) struct FamilyNode {
    pub(crate) spec: Arc<NodeSpec>,
    pub(crate) start: Timestamp,
}

/// A node, and its start.
pub(crate) type NodeRun = (NodeKey, Timestamp);

/// Where a node comes on the walk of a commitment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    rank: ClusterRank,
    start: Timestamp,
    node_id: NodeId,
    cluster_id: ClusterId,
}

impl Place {
    fn new(commitment: &CommitmentSet, ((cluster_id, node_id), start): &NodeRun) -> Self {
        let rank = rank(commitment, cluster_id);
        Self { rank, start: *start, node_id: node_id.clone(), cluster_id: cluster_id.clone() }
    }

    fn into_run(self) -> NodeRun {
        ((self.cluster_id, self.node_id), self.start)
    }
}

/// Rank of a cluster, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClusterRank {
    /// Assigned with a priority; 1 is the highest.
    Priority(i32),
    /// Assigned without one.
    Assigned,
    /// Not assigned.
    Other,
}

/// The best rank that the assignments give a cluster.
fn rank(commitment: &CommitmentSet, cluster: &str) -> ClusterRank {
    let assigned = commitment.assignments.iter().filter(|assignment| &*assignment.cluster_id == cluster);
    let ranks =
        assigned.map(|assignment| assignment.priority.map_or(ClusterRank::Assigned, ClusterRank::Priority));
    ranks.min().unwrap_or(ClusterRank::Other)
}

/// What an effective commitment covers of all nodes, and what there is to cover.
#[derive(Debug)]
pub(crate) struct Cover {
    pub(crate) commitment: Arc<CommitmentSet>,
    pub(crate) covered: PerResource<UBig>,
    /// Capacity of all nodes, as far as the commitment can match it.
    pub(crate) provisioned: Amounts,
}

impl Cover {
    fn new(commitment: Arc<CommitmentSet>) -> Self {
        Self { commitment, covered: PerResource::default(), provisioned: Amounts::default() }
    }

    /// A node is described otherwise, starts, or ends.
    fn provision(&mut self, before: Option<&FamilyNode>, now: Option<&FamilyNode>) {
        let capacity = |node: Option<&FamilyNode>| {
            node.map(|node| matching_capacity(&node.spec, &self.commitment)).unwrap_or_default()
        };
        let (before, now) = (capacity(before), capacity(now));
        let provisioned = self.provisioned.zip(now).zip(before);
        self.provisioned = provisioned.map(|((sum, now), before)| sum + now - before);
    }
}

/// A node's capacity as far as the commitment can match it: GPUs of another model do not count.
fn matching_capacity(node: &NodeSpec, commitment: &CommitmentSet) -> Amounts {
    let gpu = if matches_gpus(commitment, node) { node.capacity.gpu } else { 0 };
    PerResource { gpu, ..node.capacity }
}

/// Whether the commitment may cover the node's GPUs.
fn matches_gpus(commitment: &CommitmentSet, node: &NodeSpec) -> bool {
    commitment.gpu_model.is_none() || commitment.gpu_model == node.description.gpu_model
}

/// The nodes of a family, and the effective commitments in their order.
#[derive(Debug, Default)]
pub(crate) struct Family {
    nodes: BTreeMap<NodeKey, FamilyNode>,
    covers: Vec<Cover>,
    /// One for each of them.
    walks: PerResource<Vec<Walk<Place>>>,
    /// Nodes that have started, ended or been described again since coverage was decided; none: ended.
    changes: BTreeMap<NodeKey, Option<FamilyNode>>,
}

impl Family {
    /// A node runs, or is described again.
    pub(crate) fn node_runs(&mut self, key: &NodeKey, node: FamilyNode) {
        self.changes.insert(key.clone(), Some(node));
    }

    /// A node has ended, or is one of another family now.
    pub(crate) fn node_left(&mut self, key: &NodeKey) {
        self.changes.insert(key.clone(), None);
    }

    /// What the commitments cover.
    pub(crate) fn covers(&self) -> &[Cover] {
        &self.covers
    }

    /// What is covered of a node, in the order of the commitments.
    pub(crate) fn coverage_of(&self, run: &NodeRun) -> Vec<Coverage> {
        let covered = self.covers.iter().enumerate().map(|(index, Cover { commitment, .. })| {
            let amounts = self.covered_of(index, &Place::new(commitment, run));
            Coverage { commitment: commitment.clone(), amounts }
        });
        covered.filter(|part| part.amounts.iter().any(|amount| !amount.is_zero())).collect()
    }

    /// What the commitment of an index covers of a node.
    fn covered_of(&self, index: usize, place: &Place) -> PerResource<UBig> {
        let walks = self.walks.as_ref().map(|walks| walks.get(index));
        walks.map(|walk| walk.map(|walk| walk.covered_of(place)).unwrap_or_default())
    }

    /// Decides all coverage again, for these effective commitments, and returns the nodes that may be covered
    /// otherwise.
    pub(crate) fn decide_anew(&mut self, commitments: Vec<Arc<CommitmentSet>>) -> BTreeSet<NodeKey> {
        let nodes = std::mem::take(&mut self.nodes);
        let mut changed: BTreeSet<NodeKey> = nodes.keys().cloned().collect();
        for (key, node) in nodes {
            self.changes.entry(key).or_insert(Some(node));
        }
        self.walks = PerResource::default();
        for commitment in &commitments {
            let allowed =
                if commitment.enabled { allowed_totals(commitment) } else { PerResource::default() };
            for (walks, total) in self.walks.as_mut().zip(allowed) {
                walks.push(Walk::new(total));
            }
        }
        self.covers = commitments.into_iter().map(Cover::new).collect();
        changed.extend(self.decide());
        changed
    }

    /// Decides coverage again where nodes have changed, and returns the nodes that may be covered otherwise.
    pub(crate) fn decide(&mut self) -> BTreeSet<NodeKey> {
        let mut changed = BTreeSet::new();
        let mut rests: PerResource<BTreeMap<NodeRun, UBig>> = PerResource::default();
        for (key, now) in std::mem::take(&mut self.changes) {
            let before = self.nodes.remove(&key);
            for cover in &mut self.covers {
                cover.provision(before.as_ref(), now.as_ref());
            }
            if let Some(before) = before {
                for rests in rests.as_mut() {
                    rests.insert((key.clone(), before.start), UBig::ZERO);
                }
            }
            if let Some(now) = now {
                for (rests, rest) in rests.as_mut().zip(scaled(now.spec.capacity)) {
                    rests.insert((key.clone(), now.start), rest);
                }
                self.nodes.insert(key.clone(), now);
            }
            changed.insert(key);
        }
        let PerResource { cpu, memory, gpu } = rests;
        changed.extend(self.walk(|walks| &mut walks.cpu, cpu, |_, _| true));
        changed.extend(self.walk(|walks| &mut walks.memory, memory, |_, _| true));
        changed.extend(self.walk(|walks| &mut walks.gpu, gpu, matches_gpus));
        for (index, cover) in self.covers.iter_mut().enumerate() {
            let walks = self.walks.as_ref().map(|walks| walks.get(index));
            cover.covered = walks.map(|walk| walk.map(Walk::covered).unwrap_or_default());
        }
        changed
    }

    /// Lets all commitments walk one resource again, with what there is to cover of some nodes now. Returns
    /// the nodes whose cover may have changed.
    fn walk(
        &mut self,
        of: impl Fn(&mut PerResource<Vec<Walk<Place>>>) -> &mut Vec<Walk<Place>>,
        mut rests: BTreeMap<NodeRun, UBig>,
        matches: impl Fn(&CommitmentSet, &NodeSpec) -> bool,
    ) -> impl Iterator<Item = NodeKey> {
        for (Cover { commitment, .. }, walk) in self.covers.iter().zip(of(&mut self.walks)) {
            if walk.is_empty() {
                continue;
            }
            for (run, rest) in &rests {
                let is_matched = self.nodes.get(&run.0).is_some_and(|node| matches(commitment, &node.spec));
                let rest = if is_matched { rest.clone() } else { UBig::ZERO };
                walk.set_rest(Place::new(commitment, run), rest);
            }
            let mut changed = BTreeSet::new();
            walk.settle(&mut changed);
            for place in changed {
                let rest = walk.rest_of(&place);
                rests.entry(place.into_run()).or_insert(rest);
            }
            // The next commitment finds what this one leaves.
            for (run, rest) in &mut rests {
                *rest -= walk.covered_of(&Place::new(commitment, run));
            }
        }
        rests.into_keys().map(|(key, _)| key)
    }

    /// Records how the commitments come to the nodes in focus; `places` are those of commitments, from 1.
    pub(crate) fn record(
        &self,
        now: Timestamp,
        places: &BTreeMap<CommitmentId, usize>,
        trace: &mut Recorder<WalkStep>,
    ) {
        let capacity = |(key, node): (&NodeKey, &FamilyNode)| (key.clone(), scaled(node.spec.capacity));
        let mut rests: BTreeMap<NodeKey, PerResource<UBig>> = self.nodes.iter().map(capacity).collect();
        let covers = self.covers.iter().enumerate().filter(|(_, cover)| cover.commitment.enabled);
        for (index, Cover { commitment, .. }) in covers {
            let id = &commitment.commitment_id;
            let mut allowed = allowed_totals(commitment);
            let runs = self.nodes.iter().map(|(key, node)| (key.clone(), node.start));
            let mut walk: Vec<Place> = runs.map(|run| Place::new(commitment, &run)).collect();
            walk.sort();
            for (place, node) in walk.into_iter().enumerate() {
                let covered = self.covered_of(index, &node);
                let Place { rank, start: node_start, .. } = node;
                let (key, _) = node.into_run();
                let Some(rest) = rests.get_mut(&key) else { continue };
                if trace.wants(|focus| focus.has_walk(id, &key)) {
                    trace.push(WalkStep {
                        at: now,
                        commitment_id: id.clone(),
                        commitment_place: places.get(id).copied().unwrap_or_default(),
                        cluster_id: key.0,
                        node_id: key.1,
                        place: place + 1,
                        rank: rank.to_string(),
                        node_start,
                        left_of_commitment: covered_units(&allowed),
                        left_of_node: covered_units(rest),
                        covered: covered_units(&covered),
                    });
                }
                for ((allowed, rest), covered) in allowed.as_mut().zip(rest.as_mut()).zip(covered) {
                    *allowed -= &covered;
                    *rest -= covered;
                }
            }
        }
    }
}

impl std::fmt::Display for ClusterRank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Priority(priority) => write!(f, "assigned with priority {priority}"),
            Self::Assigned => f.write_str("assigned without priority"),
            Self::Other => f.write_str("not assigned"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_with_a_priority_come_before_assigned_ones_and_those_before_others() {
        use ClusterRank::{Assigned, Other, Priority};
        assert!([Priority(1), Priority(2), Priority(i32::MAX), Assigned, Other].is_sorted());
    }
}
