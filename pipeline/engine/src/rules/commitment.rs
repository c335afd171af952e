//! Commitments (RULES.md, section 3): reserved instances and committed-use discounts.
//!
//! **Decides** what each commitment covers of which node at every instant, and which part of its money each
//! covered part earns.
//!
//! **Precedence**: commitments cover in the order of (starts_at, id). Each walks the on-demand nodes of its
//! provider, region and family: clusters assigned with a priority first (1 is highest), then assigned
//! without, then all others; within a rank by node start, node id, cluster id. It covers what is left of a
//! node's vCPU, memory and GPU, each up to what is left of its total x allowed_utilization. Covered capacity
//! is gone for the next commitment.
//!
//! **Interval ends**: a commitment is effective on [starts_at, ends_at), from its first `CommitmentSet` until
//! it is deleted, always as its current description says. A disabled one is tracked and covers nothing.
//!
//! **Rounding**: none. A total has twelve decimals and allowed_utilization twelve more, so what is covered is
//! a whole number of 10^-24 thousandths or bytes ([`COVERAGE_SCALE`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::event::{CapacityType, CommitmentSet, NodeStarted};
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::time::Timestamp;

use crate::exact::{ATOMS_IN_ONE, atoms, ratio};
use crate::per_resource::{PARTS_PER_UNIT, PerResource};
use crate::timeline::slices::{CommitmentHour, CommitmentSlice, Coverage};
use crate::timeline::span::Span;
use crate::timeline::spec::{Amounts, NodeSpec};
use crate::timeline::state::NodeKey;
use crate::trace::{Recorder, WalkStep, covered_units};

/// Covered amounts are counted in this part of a thousandth or byte: 10^24, twice the decimals of an event.
pub(crate) const COVERAGE_SCALE: UBig = UBig::from_dword(10_u128.pow(24));

/// A running node as coverage sees it.
pub(crate) struct CandidateNode<'a> {
    pub(crate) key: &'a NodeKey,
    pub(crate) spec: &'a NodeSpec,
    pub(crate) start: Timestamp,
}

/// A commitment since its last slice ended.
#[derive(Debug)]
struct LiveCommitment {
    description: Arc<CommitmentSet>,
    since: Timestamp,
    /// As of the last decision about coverage, like the two amounts.
    effective: bool,
    covered: PerResource<UBig>,
    provisioned: Amounts,
}

/// All commitments and what they cover.
#[derive(Debug)]
pub(crate) struct Commitments {
    hour_start: Timestamp,
    live: BTreeMap<CommitmentId, LiveCommitment>,
    hours: BTreeMap<CommitmentId, CommitmentHour>,
    pub(crate) trace: Recorder<WalkStep>,
}

impl Commitments {
    /// Starts from the commitments of a state at the hour's start.
    pub(crate) fn restore(states: BTreeMap<CommitmentId, Arc<CommitmentSet>>, hour_start: Timestamp) -> Self {
        let (live, hours) = (BTreeMap::new(), BTreeMap::new());
        let mut commitments = Self { hour_start, live, hours, trace: Recorder::default() };
        for description in states.into_values() {
            commitments.set(description, hour_start);
        }
        commitments
    }

    /// Whether there is no commitment, so that coverage need not be decided.
    pub(crate) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Instants at which commitments start or end.
    pub(crate) fn edges(&self) -> impl Iterator<Item = Timestamp> {
        self.live
            .values()
            .flat_map(|live| std::iter::once(live.description.starts_at).chain(live.description.ends_at))
    }

    /// A `CommitmentSet`.
    pub(crate) fn set(&mut self, description: Arc<CommitmentSet>, now: Timestamp) {
        let id = description.commitment_id.clone();
        self.close_slice(&id, now);
        let live = LiveCommitment {
            description: description.clone(),
            since: now,
            effective: false,
            covered: PerResource::default(),
            provisioned: Amounts::default(),
        };
        self.live.insert(id.clone(), live);
        let hour = self.hours.entry(id).or_insert_with(|| CommitmentHour {
            description: description.clone(),
            existed_micros: 0,
            unexpired: false,
            deleted: false,
            slices: Vec::new(),
        });
        hour.description = description;
        hour.deleted = false;
    }

    /// A `CommitmentDeleted`.
    pub(crate) fn delete(&mut self, id: &CommitmentId, now: Timestamp) {
        self.close_slice(id, now);
        if self.live.remove(id).is_some()
            && let Some(hour) = self.hours.get_mut(id)
        {
            hour.deleted = true;
        }
    }

    /// Recomputes all coverage and returns it by node; nodes without any are left out.
    pub(crate) fn cover(
        &mut self,
        nodes: &[CandidateNode<'_>],
        now: Timestamp,
    ) -> BTreeMap<NodeKey, Vec<Coverage>> {
        self.close_slices(now);
        let mut in_order: Vec<&mut LiveCommitment> = self.live.values_mut().collect();
        in_order.sort_by(|a, b| {
            let key =
                |live: &LiveCommitment| (live.description.starts_at, live.description.commitment_id.clone());
            key(a).cmp(&key(b))
        });
        let mut coverage: BTreeMap<NodeKey, Vec<Coverage>> = BTreeMap::new();
        let mut left: BTreeMap<&NodeKey, PerResource<UBig>> = BTreeMap::new();
        for (commitment_place, live) in in_order.into_iter().enumerate() {
            let commitment = live.description.clone();
            live.effective = commitment.starts_at <= now && commitment.ends_at.is_none_or(|end| now < end);
            live.covered = PerResource::default();
            live.provisioned = Amounts::default();
            if !live.effective {
                continue;
            }
            let mut allowed = allowed_totals(&commitment);
            for (place, node) in matching_nodes(nodes, &commitment).into_iter().enumerate() {
                let matching = matching_capacity(node.spec, &commitment);
                live.provisioned += matching;
                if !commitment.enabled {
                    continue;
                }
                let rest = left.entry(node.key).or_insert_with(|| scaled(node.spec.capacity));
                let before = self.trace.wants(|focus| focus.has_walk(&commitment.commitment_id, node.key));
                let before = before.then(|| [rest.clone(), allowed.clone()]);
                let amounts = take(rest, &mut allowed, matching);
                if let Some(before) = before {
                    let places = [commitment_place + 1, place + 1];
                    self.trace.push(walk_step(now, (&commitment, node), places, &before, &amounts));
                }
                if amounts.iter().any(|amount| !amount.is_zero()) {
                    live.covered += amounts.as_ref();
                    let part = Coverage { commitment: commitment.clone(), amounts };
                    coverage.entry(node.key.clone()).or_default().push(part);
                }
            }
        }
        coverage
    }

    /// Ends all slices at the hour's end: what the next hour needs, and what this one saw.
    pub(crate) fn finish(
        mut self,
        end: Timestamp,
    ) -> (BTreeMap<CommitmentId, Arc<CommitmentSet>>, BTreeMap<CommitmentId, CommitmentHour>) {
        self.close_slices(end);
        let states = self.live.into_iter().map(|(id, live)| (id, live.description));
        (states.collect(), self.hours)
    }

    fn close_slices(&mut self, now: Timestamp) {
        for id in self.live.keys().cloned().collect::<Vec<_>>() {
            self.close_slice(&id, now);
        }
    }

    fn close_slice(&mut self, id: &CommitmentId, now: Timestamp) {
        let (Some(live), Some(hour)) = (self.live.get_mut(id), self.hours.get_mut(id)) else { return };
        if let Some(span) = Span::new(live.since, now) {
            hour.existed_micros += span.micros();
            hour.unexpired |= live.description.ends_at.is_none_or(|end| end > self.hour_start);
            if live.effective {
                let (covered, provisioned) = (live.covered.clone(), live.provisioned);
                let description = live.description.clone();
                hour.slices.push(CommitmentSlice { span, description, covered, provisioned });
            }
        }
        live.since = now;
    }
}

fn walk_step(
    at: Timestamp,
    (commitment, node): (&CommitmentSet, &CandidateNode<'_>),
    [commitment_place, place]: [usize; 2],
    [rest, allowed]: &[PerResource<UBig>; 2],
    taken: &PerResource<UBig>,
) -> WalkStep {
    let (cluster_id, node_id) = node.key.clone();
    let rank = match rank(commitment, &cluster_id) {
        ClusterRank::Priority(priority) => format!("assigned with priority {priority}"),
        ClusterRank::Assigned => "assigned without priority".to_owned(),
        ClusterRank::Other => "not assigned".to_owned(),
    };
    WalkStep {
        at,
        commitment_id: commitment.commitment_id.clone(),
        commitment_place,
        cluster_id,
        node_id,
        place,
        rank,
        node_start: node.start,
        left_of_commitment: covered_units(allowed),
        left_of_node: covered_units(rest),
        covered: covered_units(taken),
    }
}

/// Amounts in the scale of coverage.
pub(crate) fn scaled(amounts: Amounts) -> PerResource<UBig> {
    amounts.map(|amount| UBig::from(amount) * COVERAGE_SCALE)
}

/// Committed totals in the scale of coverage.
pub(crate) fn committed(commitment: &CommitmentSet) -> PerResource<UBig> {
    let gpus = UBig::from(u128::try_from(commitment.gpu).unwrap_or(0)) * ATOMS_IN_ONE;
    let totals = PerResource { cpu: atoms(commitment.vcpu), memory: atoms(commitment.memory_gib), gpu: gpus };
    // Atoms of a unit, times its parts, are atoms of a part; twelve places are missing to 10^-24.
    totals.zip(PARTS_PER_UNIT).map(|(total, parts)| total * parts * ATOMS_IN_ONE)
}

/// The parts of a commitment's hourly cost that covered amounts earn, by resource.
pub(crate) fn money_parts(commitment: &CommitmentSet, covered: &PerResource<UBig>) -> PerResource<RBig> {
    utilization_parts(&committed(commitment), covered)
}

/// How far amounts use totals, by the resource that carries it: half by vCPU and half by memory; the other
/// alone where one total is zero; GPUs alone where both are; nothing where all three are.
pub(crate) fn utilization_parts(
    totals: &PerResource<UBig>,
    amounts: &PerResource<UBig>,
) -> PerResource<RBig> {
    let PerResource { cpu, memory, gpu } =
        amounts.as_ref().zip(totals.as_ref()).map(|(amount, total)| ratio(amount.clone(), total.clone()));
    let none = PerResource::<RBig>::default();
    let half = RBig::from_parts(1.into(), 2_u8.into());
    match (totals.cpu.is_zero(), totals.memory.is_zero()) {
        (false, false) => PerResource { cpu: cpu * &half, memory: memory * half, ..none },
        (false, true) => PerResource { cpu, ..none },
        (true, false) => PerResource { memory, ..none },
        (true, true) => PerResource { gpu, ..none },
    }
}

/// What may be covered: totals times allowed_utilization, not rounded.
fn allowed_totals(commitment: &CommitmentSet) -> PerResource<UBig> {
    let allowed = commitment.allowed_utilization.map_or(ATOMS_IN_ONE, atoms);
    committed(commitment).map(|total| total / ATOMS_IN_ONE * &allowed)
}

/// Covers what is left of a node, where the commitment can match it, up to what is left of the totals.
fn take(
    rest: &mut PerResource<UBig>,
    totals: &mut PerResource<UBig>,
    matching: Amounts,
) -> PerResource<UBig> {
    rest.as_mut().zip(totals.as_mut()).zip(matching).map(|((rest, total), matching)| {
        if matching == 0 {
            return UBig::ZERO;
        }
        let taken = rest.clone().min(total.clone());
        *rest -= &taken;
        *total -= &taken;
        taken
    })
}

/// A node's capacity as far as the commitment can match it: GPUs of another model do not count.
fn matching_capacity(node: &NodeSpec, commitment: &CommitmentSet) -> Amounts {
    let same_model = commitment.gpu_model.is_none() || commitment.gpu_model == node.description.gpu_model;
    let gpu = if same_model { node.capacity.gpu } else { 0 };
    PerResource { gpu, ..node.capacity }
}

/// The nodes that the commitment may cover, in the order in which it does.
fn matching_nodes<'a, 'b>(
    nodes: &'a [CandidateNode<'b>],
    commitment: &CommitmentSet,
) -> Vec<&'a CandidateNode<'b>> {
    let mut matching: Vec<(ClusterRank, &CandidateNode<'_>)> = nodes
        .iter()
        .filter(|node| matches(&node.spec.description, commitment))
        .map(|node| (rank(commitment, &node.key.0), node))
        .collect();
    matching.sort_by(|(rank_a, a), (rank_b, b)| {
        let place = |node: &CandidateNode<'_>| (node.start, node.key.1.clone(), node.key.0.clone());
        rank_a.cmp(rank_b).then_with(|| place(a).cmp(&place(b)))
    });
    matching.into_iter().map(|(_, node)| node).collect()
}

fn matches(node: &NodeStarted, commitment: &CommitmentSet) -> bool {
    node.capacity_type == CapacityType::OnDemand
        && node.provider == commitment.provider
        && node.region == commitment.region
        && node.instance_family == commitment.instance_family
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

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: u64, memory: u64, gpu: u64) -> PerResource<UBig> {
        PerResource { cpu, memory, gpu }.map(UBig::from)
    }

    fn utilization(totals: (u64, u64, u64), used: (u64, u64, u64)) -> RBig {
        let [totals, used] = [totals, used].map(|(cpu, memory, gpu)| amounts(cpu, memory, gpu));
        utilization_parts(&totals, &used).sum()
    }

    #[test]
    fn utilization_is_half_by_cpu_and_half_by_memory_unless_a_total_is_zero() {
        let of = |numerator: u8, denominator: u8| ratio(numerator.into(), denominator.into());
        assert_eq!(utilization((100, 400, 8), (100, 200, 8)), of(3, 4));
        assert_eq!(utilization((100, 0, 8), (50, 7, 8)), of(1, 2));
        assert_eq!(utilization((0, 400, 8), (9, 100, 8)), of(1, 4));
        assert_eq!(utilization((0, 0, 8), (9, 9, 2)), of(1, 4));
        assert_eq!(utilization((0, 0, 0), (9, 9, 9)), RBig::ZERO);
    }

    #[test]
    fn clusters_with_a_priority_come_before_assigned_ones_and_those_before_others() {
        use ClusterRank::{Assigned, Other, Priority};
        assert!([Priority(1), Priority(2), Priority(i32::MAX), Assigned, Other].is_sorted());
    }

    #[test]
    fn a_node_is_covered_up_to_what_is_left_on_either_side_and_only_where_it_matches() {
        let (mut rest, mut totals) = (amounts(10, 20, 4), amounts(6, 30, 8));
        let taken = take(&mut rest, &mut totals, PerResource { cpu: 10, memory: 20, gpu: 0 });
        assert_eq!(taken, amounts(6, 20, 0));
        assert_eq!(rest, amounts(4, 0, 4));
        assert_eq!(totals, amounts(0, 10, 8));
    }
}
