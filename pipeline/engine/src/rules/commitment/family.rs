//! Coverage of the nodes of one family by commitments (RULES.md, section 3). A family is one provider, region
//! and instance family. A commitment of another family cannot cover any of its nodes.
//!
//! **Decides** how much of which node each commitment covers, in the precedence that `commitment.rs`
//! describes. Every resource is walked independently, and only what has changed is walked again: see
//! `walk.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, CommitmentSet, NodeStarted, names};
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::time::Timestamp;

use crate::error::EngineError;
use crate::model::per_resource::PerResource;
use crate::model::slices::Coverage;
use crate::model::state::NodeKey;
use crate::rules::commitment::cover::{CommitmentOrder, Cover, FamilyNodes, Rests};
use crate::rules::commitment::place::{FamilyNode, NodeRun, Place};
use crate::rules::commitment::{TotalAmounts, committed, coverable, is_hourly, planned};
use crate::trace::{Recorder, WalkStep, covered_units};
use crate::work::Work;

/// Provider, region and instance family, as canonical names (RULES.md, section 12).
pub(crate) type FamilyKey = (Text, Text, Text);

/// Returns the family whose commitments may cover a node. `None` if the node is not on demand.
pub(crate) fn family_of_node(node: &NodeStarted) -> Option<FamilyKey> {
    let key = || family_key(&node.provider, &node.region, &node.instance_family);
    (node.capacity_type == CapacityType::OnDemand).then(key)
}

/// Returns the family whose nodes a commitment may cover.
pub(crate) fn family_of_commitment(commitment: &CommitmentSet) -> FamilyKey {
    family_key(&commitment.provider, &commitment.region, &commitment.instance_family)
}

fn family_key(provider: &Text, region: &Text, family: &Text) -> FamilyKey {
    let provider = names::shared(provider, names::provider);
    (provider, names::shared(region, names::place), names::shared(family, names::family))
}

/// The nodes of a family, and the effective commitments in the order in which they cover.
#[derive(Debug, Default)]
pub(crate) struct Family {
    nodes: FamilyNodes,
    covers: Vec<Cover>,
    /// The same commitments with the amounts that an autoscaler plans with. `None` if every commitment is
    /// planned in full, so that `planned` would equal `covers`.
    planned: Option<Vec<Cover>>,
    /// The commitments that cover any part of each node.
    covered_by: BTreeMap<NodeRun, BTreeSet<CommitmentOrder>>,
    /// Nodes that have started, ended or been described again since the last decision. `None` for an ended
    /// node.
    changes: BTreeMap<NodeKey, Option<FamilyNode>>,
}

impl Family {
    /// Notes that a node runs, or is described again.
    pub(crate) fn node_runs(&mut self, key: &NodeKey, node: FamilyNode) {
        self.changes.insert(key.clone(), Some(node));
    }

    /// Notes that a node has ended, or belongs to another family now.
    pub(crate) fn node_left(&mut self, key: &NodeKey) {
        self.changes.insert(key.clone(), None);
    }

    /// Sets the effective commitments, in order. A commitment that was not effective before looks at each
    /// node. Commitments in `billed` cover nothing.
    ///
    /// # Errors
    /// If there are too many pairs.
    pub(crate) fn set_commitments(
        &mut self,
        commitments: Vec<Arc<CommitmentSet>>,
        billed: &BTreeSet<CommitmentId>,
        pairs: &Work,
    ) -> Result<(), EngineError> {
        let totals = |totals: TotalAmounts| {
            move |commitment: &CommitmentSet| match is_hourly(commitment)
                || billed.contains(&commitment.commitment_id)
            {
                // A reserved instance covers use of the clock hour, and a billed commitment covers nothing.
                true => PerResource::default(),
                false => totals(commitment),
            }
        };
        let (planned, committed) = (totals(planned), totals(committed));
        if commitments.iter().all(|commitment| planned(commitment) == committed(commitment)) {
            self.planned = None;
        } else {
            let covers = self.planned.get_or_insert_default();
            set_commitments(covers, &commitments, &self.nodes, planned, pairs)?;
        }
        set_commitments(&mut self.covers, &commitments, &self.nodes, committed, pairs)
    }

    /// Returns each commitment with the amounts that it covers, and the amounts that it would cover by plan.
    pub(crate) fn covers(&self) -> impl Iterator<Item = (&Cover, &PerResource<UBig>)> {
        let planned = self.planned.as_deref().unwrap_or(&self.covers);
        self.covers.iter().zip(planned.iter().map(|cover| &cover.covered))
    }

    /// Returns the coverage of a node, in the order of the commitments.
    pub(crate) fn coverage_of(&self, run: &NodeRun) -> Vec<Coverage> {
        let orders = self.covered_by.get(run).into_iter().flatten();
        let covers = orders.filter_map(|order| {
            let index = self.covers.binary_search_by(|cover| cover.cmp_order(order)).ok()?;
            self.covers.get(index)
        });
        let coverage = |cover: &Cover| {
            let amounts = cover.covered_of(&Place::new(&cover.commitment, run));
            Coverage { commitment: cover.commitment.clone(), amounts: amounts.map(RBig::from) }
        };
        covers.map(coverage).collect()
    }

    /// Decides coverage again where nodes and commitments have changed. Returns the nodes whose coverage may
    /// have changed. Each commitment looks at each node that has changed, and at each node whose cover by the
    /// commitment changes.
    ///
    /// # Errors
    /// If there are too many pairs.
    pub(crate) fn decide(&mut self, pairs: &Work) -> Result<BTreeSet<NodeKey>, EngineError> {
        let mut nodes_changed = BTreeSet::new();
        let mut rests = PerResource::<Rests>::default();
        for (key, now) in std::mem::take(&mut self.changes) {
            let before = self.nodes.remove(&key);
            for cover in self.covers.iter_mut().chain(self.planned.iter_mut().flatten()) {
                pairs.add(1)?;
                cover.provision(before.as_ref(), now.as_ref());
            }
            if let Some(before) = before {
                for rests in rests.as_mut() {
                    rests.insert((key.clone(), before.start), UBig::ZERO);
                }
            }
            if let Some(now) = now {
                for (rests, rest) in rests.as_mut().zip(coverable(&now.spec)) {
                    rests.insert((key.clone(), now.start), rest);
                }
                self.nodes.insert(key.clone(), now);
            }
            nodes_changed.insert(key);
        }
        if let Some(planned) = &mut self.planned {
            walk(planned, &self.nodes, &nodes_changed, rests.clone(), pairs, |_, _| {})?;
        }
        let mut changed = nodes_changed.clone();
        walk(&mut self.covers, &self.nodes, &nodes_changed, rests, pairs, |cover, run| {
            let orders = self.covered_by.entry(run.clone()).or_default();
            if cover.covers_any_of(&run) {
                orders.insert(cover.order());
            } else {
                orders.remove(&cover.order());
            }
            if orders.is_empty() {
                self.covered_by.remove(&run);
            }
            changed.insert(run.0);
        })?;
        Ok(changed)
    }

    /// Records the steps of the commitments to the nodes in focus. `places` are the positions of the
    /// commitments in their order, from 1.
    pub(crate) fn record(
        &self,
        now: Timestamp,
        places: &BTreeMap<CommitmentId, usize>,
        trace: &mut Recorder<WalkStep>,
    ) {
        let capacity = |(key, node): (&NodeKey, &FamilyNode)| (key.clone(), coverable(&node.spec));
        let mut rests: BTreeMap<NodeKey, PerResource<UBig>> = self.nodes.iter().map(capacity).collect();
        for cover in self.covers.iter().filter(|cover| !is_hourly(&cover.commitment)) {
            let commitment = &cover.commitment;
            let id = &commitment.commitment_id;
            let mut left = committed(commitment);
            let runs = self.nodes.iter().map(|(key, node)| (key.clone(), node.start));
            let mut walk: Vec<Place> = runs.map(|run| Place::new(commitment, &run)).collect();
            walk.sort();
            for (place, node) in walk.into_iter().enumerate() {
                let covered = cover.covered_of(&node);
                let Place { rank, start: node_start, .. } = node;
                let (key, _) = node.into_run();
                let Some(rest) = rests.get_mut(&key) else { continue };
                if trace.wants(|focus| focus.has_walk(id, &key)) {
                    trace.push(WalkStep {
                        at: now,
                        until: None,
                        commitment_id: id.clone(),
                        commitment_position: places.get(id).copied().unwrap_or_default(),
                        cluster_id: key.0,
                        node_id: key.1,
                        position: place + 1,
                        rank: rank.to_string(),
                        node_start,
                        commitment_remaining: covered_units(left.clone().map(RBig::from)),
                        node_remaining: covered_units(rest.clone().map(RBig::from)),
                        covered: covered_units(covered.clone().map(RBig::from)),
                    });
                }
                for ((left, rest), covered) in left.as_mut().zip(rest.as_mut()).zip(covered) {
                    *left -= &covered;
                    *rest -= covered;
                }
            }
        }
    }
}

/// Sets the effective commitments, in order, each with the totals that it may cover.
fn set_commitments(
    covers: &mut Vec<Cover>,
    commitments: &[Arc<CommitmentSet>],
    nodes: &FamilyNodes,
    totals: impl Fn(&CommitmentSet) -> PerResource<UBig>,
    pairs: &Work,
) -> Result<(), EngineError> {
    let now: BTreeSet<*const CommitmentSet> = commitments.iter().map(Arc::as_ptr).collect();
    let mut before = std::mem::take(covers).into_iter().peekable();
    for commitment in commitments {
        while let Some(ended) = before.next_if(|cover| !now.contains(&Arc::as_ptr(&cover.commitment))) {
            covers.push(ended.ended());
        }
        let same = before.next_if(|cover| Arc::ptr_eq(&cover.commitment, commitment));
        let cover = match same {
            Some(cover) => cover,
            None => {
                pairs.add(nodes.len())?;
                Cover::new(Arc::clone(commitment), totals(commitment), nodes)
            }
        };
        covers.push(cover);
    }
    covers.extend(before.map(Cover::ended));
    Ok(())
}

/// Walks the nodes again for each commitment, and removes ended commitments. `rests` are as in
/// [`Cover::walk`]. Calls `touched` for each node whose cover by a commitment may have changed.
fn walk(
    covers: &mut Vec<Cover>,
    nodes: &FamilyNodes,
    changed: &BTreeSet<NodeKey>,
    mut rests: PerResource<Rests>,
    pairs: &Work,
    mut touched: impl FnMut(&Cover, NodeRun),
) -> Result<(), EngineError> {
    for index in 0..covers.len() {
        let (before, from) = covers.split_at_mut(index);
        let Some((cover, _)) = from.split_first_mut() else { break };
        let runs = cover.walk(before, nodes, changed, &mut rests);
        pairs.add(runs.len().saturating_sub(changed.len()))?;
        runs.into_iter().for_each(|run| touched(cover, run));
    }
    covers.retain(|cover| !cover.has_ended());
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prorata_schemas::event::{CommitmentKind, Quantities};
    use prorata_schemas::quantity::Quantity;
    use prorata_schemas::rules::Rules;

    use super::*;
    use crate::model::spec::NodeSpec;

    /// vCPU, GPUs, and the index of the GPU model. An index of 2 or more means no model.
    type Size = (u8, u8, u8);

    /// A change to one of a few nodes or commitments at an instant.
    #[derive(Clone, Debug)]
    enum Step {
        /// A node runs, with or without an earlier stop, or ends.
        Node(u8, Option<Size>, bool),
        /// A commitment is set, enabled or not, or deleted.
        Commitment(u8, Option<(Size, bool)>),
    }

    fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
        let size = || (0_u8..4, 0_u8..9, 0_u8..3);
        let step = prop_oneof![
            (0_u8..4, prop::option::weighted(0.8, size()), prop::bool::weighted(0.2))
                .prop_map(|(number, size, stops)| Step::Node(number, size, stops)),
            (0_u8..5, prop::option::weighted(0.8, (size(), prop::bool::weighted(0.9))))
                .prop_map(|(number, terms)| Step::Commitment(number, terms)),
        ];
        prop::collection::vec(prop::collection::vec(step, 1..4), 1..12)
    }

    fn model(number: u8) -> Option<Text> {
        ["H100", "A100"].get(usize::from(number)).map(|name| (*name).into())
    }

    fn node(key: &NodeKey, (vcpu, gpu, gpu_model): Size) -> Arc<NodeSpec> {
        let quantities = [("cpu", vcpu), ("nvidia.com/gpu", gpu)];
        let capacity = quantities.map(|(name, amount)| {
            let quantity = Quantity::parse(name, &amount.to_string()).unwrap();
            (name.into(), quantity)
        });
        let description = NodeStarted {
            cluster_id: key.0.clone(),
            node_id: key.1.clone(),
            node_name: "node".into(),
            provider: "aws".into(),
            region: "us-east-1".into(),
            zone: None,
            instance_type: "p5.48xlarge".into(),
            instance_family: "p5".into(),
            capacity_type: CapacityType::OnDemand,
            capacity: Quantities::from(capacity),
            gpu_model: model(gpu_model),
            hourly_cost: "1".parse().unwrap(),
            currency: "USD".into(),
            pool_id: None,
            gpus: None,
            resource_key: None,
            account_id: None,
        };
        Arc::new(NodeSpec::new(Arc::new(description), &BTreeSet::new(), &Rules::default()))
    }

    fn commitment(number: u8, (vcpu, gpu, gpu_model): Size, enabled: bool) -> Arc<CommitmentSet> {
        Arc::new(CommitmentSet {
            commitment_id: format!("{number}").as_str().into(),
            name: "commitment".into(),
            provider: "aws".into(),
            kind: CommitmentKind::CommittedUseDiscount,
            region: "us-east-1".into(),
            instance_family: "p5".into(),
            vcpu: vcpu.to_string().parse().unwrap(),
            memory_gib: "0".parse().unwrap(),
            gpu: gpu.into(),
            gpu_model: model(gpu_model),
            hourly_cost: "1".parse().unwrap(),
            currency: "USD".into(),
            starts_at: Timestamp(0),
            ends_at: None,
            enabled,
            allowed_utilization: None,
            assignments: Vec::new(),
            hourly_commitment: None,
            discounts: Vec::new(),
        })
    }

    /// A family, and the nodes, commitments and coverage that it should have.
    #[derive(Default)]
    struct World {
        family: Family,
        nodes: BTreeMap<NodeKey, FamilyNode>,
        commitments: BTreeMap<u8, Arc<CommitmentSet>>,
        coverage: BTreeMap<NodeKey, Vec<Coverage>>,
    }

    impl World {
        fn step(&mut self, step: Step, now: Timestamp) {
            match step {
                Step::Node(number, size, stops) => {
                    let key = ("cluster".into(), format!("{number}").as_str().into());
                    let before = self.nodes.remove(&key).filter(|_| !stops);
                    let Some(size) = size else { return self.family.node_left(&key) };
                    let start = before.map_or(now, |node| node.start);
                    let runs = FamilyNode { spec: node(&key, size), start };
                    self.family.node_runs(&key, runs.clone());
                    self.nodes.insert(key, runs);
                }
                Step::Commitment(number, terms) => {
                    self.commitments.remove(&number);
                    let set = terms.map(|(size, enabled)| commitment(number, size, enabled));
                    self.commitments.extend(set.map(|set| (number, set)));
                }
            }
        }

        /// Decides coverage, and compares the family with a new family that decides for the first time.
        fn decide(&mut self) {
            let pairs = Work::of_pairs();
            self.family
                .set_commitments(self.commitments.values().cloned().collect(), &BTreeSet::new(), &pairs)
                .unwrap();
            let changed = self.family.decide(&pairs).unwrap();
            let mut fresh = Family::default();
            self.nodes.iter().for_each(|(key, node)| fresh.node_runs(key, node.clone()));
            fresh
                .set_commitments(self.commitments.values().cloned().collect(), &BTreeSet::new(), &pairs)
                .unwrap();
            fresh.decide(&pairs).unwrap();
            let known = |family: &Family| {
                let covers = family.covers.iter();
                let known = covers.map(|cover| (cover.order(), cover.covered.clone(), cover.provisioned));
                known.collect::<Vec<_>>()
            };
            assert_eq!(known(&self.family), known(&fresh));
            let of = |family: &Family, (key, node): (&NodeKey, &FamilyNode)| {
                (key.clone(), family.coverage_of(&(key.clone(), node.start)))
            };
            let coverage: BTreeMap<_, _> = self.nodes.iter().map(|node| of(&self.family, node)).collect();
            assert_eq!(coverage, self.nodes.iter().map(|node| of(&fresh, node)).collect());
            for cover in &self.family.covers {
                let parts = coverage.values().flatten();
                let parts =
                    parts.filter(|part| part.commitment.commitment_id == cover.commitment.commitment_id);
                let mut sum = PerResource::<RBig>::default();
                parts.for_each(|part| sum += part.amounts.clone());
                assert_eq!(sum, cover.covered.clone().map(RBig::from));
            }
            for (key, covered) in &coverage {
                assert!(changed.contains(key) || self.coverage.get(key) == Some(covered), "{key:?}");
            }
            self.coverage = coverage;
        }
    }

    /// Asserts that the steps take exactly this number of pairs.
    fn assert_pairs(expected: u64, steps: impl Fn(&mut Family, &Work) -> Result<(), EngineError>) {
        let within = |max: u64| steps(&mut Family::default(), &Work::new("pairs", max));
        within(expected).unwrap();
        within(expected - 1).unwrap_err();
    }

    fn runs(family: &mut Family, number: u8, vcpu: u8, start: i64) {
        let key = ("cluster".into(), format!("{number}").as_str().into());
        let spec = node(&key, (vcpu, 0, 0));
        family.node_runs(&key, FamilyNode { spec, start: Timestamp(start) });
    }

    fn commitments(count: u8) -> Vec<Arc<CommitmentSet>> {
        (0..count).map(|number| commitment(number, (1, 0, 0), true)).collect()
    }

    #[test]
    fn each_commitment_counts_each_node_that_it_looks_at() {
        // Nodes that start one by one, and one that is described again and again.
        for (numbers, start) in [([0, 1, 2, 3, 4], 1), ([0; 5], 1)] {
            assert_pairs(3 * 5, |family, pairs| {
                family.set_commitments(commitments(3), &BTreeSet::new(), pairs)?;
                numbers.into_iter().try_for_each(|number| {
                    runs(family, number, 4, start);
                    family.decide(pairs).map(drop)
                })
            });
        }
        // Commitments that are set again while nodes run.
        assert_pairs(3 * 5 + 2 * 3 * 5, |family, pairs| {
            (0..5).for_each(|number| runs(family, number, 0, 1));
            (0..3).try_for_each(|_| {
                family.set_commitments(commitments(3), &BTreeSet::new(), pairs)?;
                family.decide(pairs).map(drop)
            })
        });
        // The first node of the walk takes what four others had.
        assert_pairs(4 + 1 + 4, |family, pairs| {
            family.set_commitments(vec![commitment(0, (4, 0, 0), true)], &BTreeSet::new(), pairs)?;
            (1..5).for_each(|number| runs(family, number, 1, 1));
            family.decide(pairs)?;
            runs(family, 0, 4, 0);
            family.decide(pairs).map(drop)
        });
    }

    proptest! {
        /// Decisions after any changes, in any order, equal decisions from scratch.
        #[test]
        fn decisions_after_changes_equal_decisions_from_scratch(instants in steps()) {
            let mut world = World::default();
            for (now, steps) in (0..).map(Timestamp).zip(instants) {
                for step in steps {
                    world.step(step, now);
                }
                world.decide();
            }
        }
    }
}
