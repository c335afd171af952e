//! Commitments (reserved instances, committed-use discounts): what each covers of which node, at every instant.
//!
//! Commitments cover in the order of (starts_at, id); each walks the on-demand nodes of its provider, region and
//! family: clusters assigned with a priority first (1 is highest), then assigned without, then all others; within a
//! rank by node start, node id, cluster id. It covers what is left of a node's vCPU, memory and GPU, each up to what
//! is left of total x allowed_utilization. Covered capacity is gone for the next commitment. Nothing is rounded:
//! amounts are integers of 10^-24 thousandths or bytes. A commitment is effective on [starts_at, ends_at).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::decimal::{Decimal12, ONE};
use prorata_schemas::event::{CapacityType, CommitmentSet, NodeStarted};
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::time::Timestamp;

use crate::exact::{one, ratio, units};
use crate::timeline::size::NodeShape;
use crate::timeline::slices::{CommitmentSlice, Cover, Span};
use crate::timeline::state::NodeKey;

/// A node as coverage sees it.
pub(crate) struct Coverable<'a> {
    pub(crate) key: &'a NodeKey,
    pub(crate) shape: &'a NodeShape,
    pub(crate) start: Timestamp,
}

/// What an hour saw of one commitment.
#[derive(Debug)]
pub(crate) struct History {
    /// As last described.
    pub(crate) description: Arc<CommitmentSet>,
    /// Microseconds for which it existed.
    pub(crate) existed_micros: u128,
    /// Whether any description in force ended after the hour's start, or not at all.
    pub(crate) unexpired: bool,
    /// Whether it is deleted at the hour's end.
    pub(crate) deleted: bool,
    /// Its effective slices.
    pub(crate) slices: Vec<CommitmentSlice>,
}

#[derive(Debug)]
struct Live {
    description: Arc<CommitmentSet>,
    since: Timestamp,
    effective: bool,
    covered: [UBig; 3],
    provisioned: [u128; 3],
}

/// All commitments and their cover.
#[derive(Debug)]
pub(crate) struct Commitments {
    hour_start: Timestamp,
    live: BTreeMap<CommitmentId, Live>,
    /// By commitment id, for the tables.
    pub(crate) histories: BTreeMap<CommitmentId, History>,
}

impl Commitments {
    /// Takes up the commitments of a state at the hour's start.
    pub(crate) fn restore(states: BTreeMap<CommitmentId, Arc<CommitmentSet>>, hour_start: Timestamp) -> Self {
        let mut commitments = Self { hour_start, live: BTreeMap::new(), histories: BTreeMap::new() };
        for description in states.into_values() {
            commitments.set(description, hour_start);
        }
        commitments
    }

    /// What the next hour needs.
    pub(crate) fn states(&self) -> BTreeMap<CommitmentId, Arc<CommitmentSet>> {
        self.live.iter().map(|(id, live)| (id.clone(), live.description.clone())).collect()
    }

    /// Whether there is any commitment, so that cover has to be decided at all.
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
        let live = Live {
            description: description.clone(),
            since: now,
            effective: false,
            covered: Default::default(),
            provisioned: [0; 3],
        };
        self.live.insert(id.clone(), live);
        let history = self.histories.entry(id).or_insert_with(|| History {
            description: description.clone(),
            existed_micros: 0,
            unexpired: false,
            deleted: false,
            slices: Vec::new(),
        });
        history.description = description;
        history.deleted = false;
    }

    /// A `CommitmentDeleted`.
    pub(crate) fn delete(&mut self, id: &CommitmentId, now: Timestamp) {
        self.close_slice(id, now);
        if self.live.remove(id).is_some()
            && let Some(history) = self.histories.get_mut(id)
        {
            history.deleted = true;
        }
    }

    /// Decides all cover anew and returns it by node; nodes without cover are left out.
    pub(crate) fn cover(&mut self, nodes: &[Coverable<'_>], now: Timestamp) -> BTreeMap<NodeKey, Vec<Cover>> {
        for id in self.live.keys().cloned().collect::<Vec<_>>() {
            self.close_slice(&id, now);
        }
        let mut order: Vec<&mut Live> = self.live.values_mut().collect();
        order.sort_by(|a, b| {
            let key = |live: &Live| (live.description.starts_at, live.description.commitment_id.clone());
            key(a).cmp(&key(b))
        });
        let mut covers: BTreeMap<NodeKey, Vec<Cover>> = BTreeMap::new();
        let mut left: BTreeMap<&NodeKey, [UBig; 3]> = BTreeMap::new();
        for live in order {
            let commitment = live.description.clone();
            live.effective = commitment.starts_at <= now && commitment.ends_at.is_none_or(|end| now < end);
            live.covered = Default::default();
            live.provisioned = [0; 3];
            if !live.effective {
                continue;
            }
            let mut totals = allowed_totals(&commitment);
            for node in walk(nodes, &commitment) {
                let matching = matching_amounts(node.shape, &commitment);
                for (sum, amount) in live.provisioned.iter_mut().zip(matching) {
                    *sum += amount;
                }
                if !commitment.enabled {
                    continue;
                }
                let remaining =
                    left.entry(node.key).or_insert_with(|| node.shape.capacity.amounts().map(fine));
                let taken = take(remaining, &mut totals, matching);
                if taken.iter().any(|amount| *amount != UBig::ZERO) {
                    for (sum, amount) in live.covered.iter_mut().zip(&taken) {
                        *sum += amount;
                    }
                    let cover = Cover { commitment: commitment.clone(), fine: taken };
                    covers.entry(node.key.clone()).or_default().push(cover);
                }
            }
        }
        covers
    }

    /// Ends all slices at the hour's end.
    pub(crate) fn close(&mut self, now: Timestamp) {
        for id in self.live.keys().cloned().collect::<Vec<_>>() {
            self.close_slice(&id, now);
        }
    }

    fn close_slice(&mut self, id: &CommitmentId, now: Timestamp) {
        let (Some(live), Some(history)) = (self.live.get_mut(id), self.histories.get_mut(id)) else { return };
        if let Some(span) = Span::new(live.since, now) {
            history.existed_micros += span.micros();
            history.unexpired |= live.description.ends_at.is_none_or(|end| end > self.hour_start);
            if live.effective {
                let (covered, provisioned) = (live.covered.clone(), live.provisioned);
                let description = live.description.clone();
                history.slices.push(CommitmentSlice { span, description, covered, provisioned });
            }
        }
        live.since = now;
    }
}

/// Units of 10^-24 in one thousandth or byte.
pub(crate) fn fine(amount: u128) -> UBig {
    UBig::from(amount) * one() * one()
}

/// Committed totals in units of 10^-24 thousandths or bytes.
pub(crate) fn committed(commitment: &CommitmentSet) -> [UBig; 3] {
    let scaled = |total: Decimal12, scale: u64| units(total) * UBig::from(scale) * one();
    let gpus = u128::try_from(commitment.gpu).unwrap_or(0) * 1000;
    [scaled(commitment.vcpu, 1000), scaled(commitment.memory_gib, 1 << 30), fine(gpus)]
}

/// The parts of a commitment's hourly cost that a cover earns, by resource: half by vCPU and half by memory; the other
/// alone where one total is zero; GPUs alone where both are.
pub(crate) fn money_parts(commitment: &CommitmentSet, covered: &[UBig; 3]) -> [RBig; 3] {
    let [cpu, memory, gpu] = committed(commitment);
    let two = UBig::from(2u8);
    let zero = UBig::ZERO;
    let [covered_cpu, covered_memory, covered_gpu] = covered.clone();
    match (cpu == zero, memory == zero) {
        (false, false) => [ratio(covered_cpu, cpu * &two), ratio(covered_memory, memory * two), RBig::ZERO],
        (false, true) => [ratio(covered_cpu, cpu), RBig::ZERO, RBig::ZERO],
        (true, false) => [RBig::ZERO, ratio(covered_memory, memory), RBig::ZERO],
        (true, true) => [RBig::ZERO, RBig::ZERO, ratio(covered_gpu, gpu)],
    }
}

/// What may be covered: totals times allowed_utilization, not rounded.
fn allowed_totals(commitment: &CommitmentSet) -> [UBig; 3] {
    let allowed = commitment.allowed_utilization.map_or_else(one, units);
    committed(commitment).map(|total| total / one() * &allowed)
}

/// Covers what is left of a node up to what is left of the totals.
fn take(remaining: &mut [UBig; 3], totals: &mut [UBig; 3], matching: [u128; 3]) -> [UBig; 3] {
    let mut taken: [UBig; 3] = Default::default();
    for (((rest, total), amount), part) in remaining.iter_mut().zip(totals).zip(matching).zip(&mut taken) {
        if amount == 0 {
            continue;
        }
        *part = rest.clone().min(total.clone());
        *rest -= &*part;
        *total -= &*part;
    }
    taken
}

/// A node's capacity as far as the commitment can match it: GPUs of another model do not count.
fn matching_amounts(node: &NodeShape, commitment: &CommitmentSet) -> [u128; 3] {
    let [cpu, memory, gpu] = node.capacity.amounts();
    let same_model = commitment.gpu_model.is_none() || commitment.gpu_model == node.description.gpu_model;
    [cpu, memory, if same_model { gpu } else { 0 }]
}

/// The matching nodes in the order in which the commitment covers them.
fn walk<'a, 'b>(nodes: &'a [Coverable<'b>], commitment: &CommitmentSet) -> Vec<&'a Coverable<'b>> {
    let mut matching: Vec<(Rank, &Coverable<'_>)> = nodes
        .iter()
        .filter(|node| matches(&node.shape.description, commitment))
        .map(|node| (rank(commitment, &node.key.0), node))
        .collect();
    matching.sort_by(|(rank_a, a), (rank_b, b)| {
        let place = |node: &Coverable<'_>| (node.start, node.key.1.clone(), node.key.0.clone());
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

/// Rank of a cluster: its priority, then assigned without one, then not assigned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    Priority(i32),
    Assigned,
    Other,
}

impl Rank {
    const fn order(self) -> (u8, i32) {
        match self {
            Self::Priority(priority) => (0, priority),
            Self::Assigned => (1, 0),
            Self::Other => (2, 0),
        }
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The best rank that the assignments give a cluster.
fn rank(commitment: &CommitmentSet, cluster: &str) -> Rank {
    let assigned = commitment.assignments.iter().filter(|assignment| &*assignment.cluster_id == cluster);
    let ranks = assigned.map(|assignment| assignment.priority.map_or(Rank::Assigned, Rank::Priority));
    ranks.min().unwrap_or(Rank::Other)
}

const _: () = assert!(ONE == 1_000_000_000_000, "covers are counted in 10^-24: twice twelve places");
