//! Amounts of nodes that commitments cover, and the cost that a node receives for them (RULES.md, section 3).

use std::collections::BTreeMap;
use std::sync::Arc;

use num_traits::Zero;
use prorata_schemas::event::{CapacityType, CommitmentKind, CommitmentSet, NodeStarted};
use prorata_schemas::ids::{ClusterId, NodeId};
use prorata_schemas::rules::Rules;

use crate::hour::{Cover, Slice};
use crate::names;
use crate::resources::{Three, add, none, of_node};
use crate::rounding::{Exact, exact, fraction, hours, ratio, smaller, whole, zero};
use crate::rules::bill::{billed_key, bills_commitment};
use crate::world::{Node, NodeKey, World};

/// Returns whether the commitment is effective at this instant. The provider applies a disabled commitment
/// all the same.
pub fn effective(set: &CommitmentSet, at: i64) -> bool {
    set.starts_at.0 <= at && set.ends_at.is_none_or(|end| at < end.0)
}

/// Returns the committed vCPU, GiB and GPUs. A savings plan commits to a spend alone.
pub fn totals(set: &CommitmentSet) -> Three {
    if set.kind == CommitmentKind::SavingsPlan {
        return none();
    }
    [exact(set.vcpu), exact(set.memory_gib), whole(set.gpu)]
}

/// Returns the capacity of a node that counts for the commitment. `None` unless the node is on demand and has
/// the commitment's provider, region and family. GPUs count only if they are of the commitment's model, or if
/// the commitment names no model.
pub fn matching_capacity(set: &CommitmentSet, node: &NodeStarted, rules: &Rules) -> Option<Three> {
    let matching = node.capacity_type == CapacityType::OnDemand
        && names::provider(&node.provider) == names::provider(&set.provider)
        && names::place(&node.region) == names::place(&set.region)
        && names::family(&node.instance_family) == names::family(&set.instance_family);
    let mut capacity = of_node(node, rules);
    let model = names::optional_gpu_model(set.gpu_model.as_ref());
    if model.is_some() && model != names::optional_gpu_model(node.gpu_model.as_ref()) {
        capacity[2] = zero();
    }
    matching.then_some(capacity)
}

/// Returns the fractions of a commitment's cost that given amounts of vCPU, GiB and GPUs carry. vCPU and
/// memory count half each. If one total is zero, the other counts alone; if both are zero, GPUs count alone.
pub fn parts(set: &CommitmentSet, used: &Three) -> Three {
    weighted(&totals(set), used)
}

/// Returns the same fractions for any totals.
pub fn weighted(totals: &Three, used: &Three) -> Three {
    let [vcpu, gib, gpu] = totals;
    let [used_vcpu, used_gib, used_gpu] = used;
    match (vcpu.is_zero(), gib.is_zero(), gpu.is_zero()) {
        (false, false, _) => [used_vcpu / vcpu * ratio(1, 2), used_gib / gib * ratio(1, 2), zero()],
        (false, true, _) => [used_vcpu / vcpu, zero(), zero()],
        (true, false, _) => [zero(), used_gib / gib, zero()],
        (true, true, false) => [zero(), zero(), used_gpu / gpu],
        (true, true, true) => none(),
    }
}

/// Returns the amounts that an autoscaler may plan with: nothing if the commitment is disabled, and otherwise
/// the totals times `allowed_utilization`.
pub fn planned_totals(set: &CommitmentSet) -> Three {
    let allowed = if set.enabled { set.allowed_utilization.map_or(whole(1), exact) } else { zero() };
    totals(set).map(|total| total * &allowed)
}

/// Returns whether the provider counts the commitment by the clock hour. The provider counts other
/// commitments at every instant.
pub fn is_hourly(set: &CommitmentSet) -> bool {
    set.kind == CommitmentKind::ReservedInstance
}

/// Returns everything that commitments cover at this instant, up to their totals, except reserved instances.
/// Effective commitments cover in the order of (starts_at, id). Each commitment walks the nodes that it
/// matches. A commitment that a bill names covers nothing, and nothing covers a billed node.
pub fn covers(world: &World, at: i64, rules: &Rules, totals: fn(&CommitmentSet) -> Three) -> Vec<Cover> {
    let mut commitments: Vec<&CommitmentSet> = world.commitments.values().map(|set| &**set).collect();
    commitments.retain(|set| effective(set, at) && !is_hourly(set));
    commitments.retain(|set| !bills_commitment(world, at, &set.commitment_id));
    commitments.sort_by_key(|set| (set.starts_at, set.commitment_id.clone()));
    let mut covered: BTreeMap<NodeKey, Three> = BTreeMap::new();
    let mut covers = Vec::new();
    for set in commitments {
        let mut left = totals(set);
        let walk = walk(world, set).into_iter();
        for (key, node) in walk.filter(|(_, node)| billed_key(world, at, &node.set).is_none()) {
            let Some(capacity) = matching_capacity(set, &node.set, rules) else { continue };
            let gone = covered.entry(key.clone()).or_insert_with(none);
            let mut taken = none();
            for resource in 0..3 {
                // GPUs of another model do not count for this commitment, but others may cover them.
                let free: Exact =
                    if capacity[resource].is_zero() { zero() } else { &capacity[resource] - &gone[resource] };
                taken[resource] = smaller(free, left[resource].clone());
                left[resource] -= &taken[resource];
                gone[resource] += &taken[resource];
            }
            if taken.iter().any(|amount| !amount.is_zero()) {
                covers.push(Cover {
                    commitment_id: set.commitment_id.clone(),
                    node: key.clone(),
                    amount: taken,
                });
            }
        }
    }
    covers
}

/// Returns nodes in the order in which the commitment covers them. Nodes of clusters that are assigned with a
/// priority come first (1 is highest), then nodes of clusters assigned without a priority, then all others.
/// Within a rank, nodes are ordered by node start, node id and cluster id.
fn walk<'a>(world: &'a World, set: &CommitmentSet) -> Vec<(&'a NodeKey, &'a Node)> {
    let mut nodes: Vec<(&NodeKey, &Node)> = world.nodes.iter().collect();
    nodes.sort_by_key(|(key, node)| (rank(set, &key.0), node.start, key.1.clone(), key.0.clone()));
    nodes
}

/// The rank of a cluster, lowest first: whether it is not assigned, whether it has no priority, and its
/// priority.
type Rank = (bool, bool, i32);

/// Returns the best rank that the assignments of a commitment give a cluster.
fn rank(set: &CommitmentSet, cluster_id: &ClusterId) -> Rank {
    let mine = set.assignments.iter().filter(|assignment| assignment.cluster_id == *cluster_id);
    mine.map(|assignment| (false, assignment.priority.is_none(), assignment.priority.unwrap_or(0)))
        .min()
        .unwrap_or((true, true, 0))
}

/// A reserved instance in one hour under one description.
struct Pot<'a> {
    set: &'a Arc<CommitmentSet>,
    /// The places of the slices in which the instance is effective.
    slices: Vec<usize>,
}

/// Returns the pots of one hour, in the order in which they cover nodes.
fn pots(slices: &[Slice]) -> Vec<Pot<'_>> {
    let mut pots: Vec<Pot<'_>> = Vec::new();
    for (place, slice) in slices.iter().enumerate() {
        let sets = slice.world.commitments.values();
        for set in sets.filter(|set| is_hourly(set) && effective(set, slice.from)) {
            if bills_commitment(&slice.world, slice.from, &set.commitment_id) {
                continue;
            }
            let mut mine = pots.iter_mut().rev();
            let last = mine.find(|pot| pot.set.commitment_id == set.commitment_id);
            match last.filter(|pot| pot.set == set) {
                Some(pot) => pot.slices.push(place),
                None => pots.push(Pot { set, slices: vec![place] }),
            }
        }
    }
    pots.sort_by_key(|pot| (pot.set.starts_at, pot.set.commitment_id.clone(), pot.slices.clone()));
    pots
}

/// A run of a node, in the order of a walk: rank, start, node and cluster.
type Run = (Rank, i64, (NodeId, ClusterId));

/// Returns everything that reserved instances cover in one hour, each cover with the place of its slice. Each
/// instance has its totals times its effective time in the hour, and walks the runs of nodes. It covers the
/// remaining use of each run in the whole hour, as long as it has anything left. It covers the same part of
/// the last run at every instant.
pub fn hourly_covers(
    slices: &[Slice],
    rules: &Rules,
    totals: fn(&CommitmentSet) -> Three,
) -> Vec<(usize, Cover)> {
    let mut covered: BTreeMap<(usize, NodeKey), Three> = BTreeMap::new();
    for (place, slice) in slices.iter().enumerate() {
        let instant = |cover: &&Cover| {
            slice.world.commitments.get(&cover.commitment_id).is_some_and(|set| !is_hourly(set))
        };
        for cover in slice.covers.iter().filter(instant) {
            let sum = covered.entry((place, cover.node.clone())).or_insert_with(none);
            add(sum, &cover.amount, &whole(1));
        }
    }
    let mut covers = Vec::new();
    for pot in pots(slices) {
        let mut left = none();
        let mut runs: BTreeMap<Run, Vec<(usize, Three)>> = BTreeMap::new();
        for &place in &pot.slices {
            let slice = &slices[place];
            add(&mut left, &totals(pot.set), &hours(slice.to - slice.from));
            for (key, node) in &slice.world.nodes {
                let Some(capacity) = matching_capacity(pot.set, &node.set, rules) else { continue };
                if billed_key(&slice.world, slice.from, &node.set).is_some() {
                    continue;
                }
                let gone = covered.entry((place, key.clone())).or_insert_with(none);
                let mut free = none();
                // GPUs of another model do not count for this commitment, but others may cover them.
                for resource in (0..3).filter(|&resource| !capacity[resource].is_zero()) {
                    free[resource] = &capacity[resource] - &gone[resource];
                }
                let (cluster_id, node_id) = key.clone();
                let run = (rank(pot.set, &cluster_id), node.start, (node_id, cluster_id));
                runs.entry(run).or_default().push((place, free));
            }
        }
        for ((_, _, (node_id, cluster_id)), free) in runs {
            let mut used = none();
            for (place, amount) in &free {
                add(&mut used, amount, &hours(slices[*place].to - slices[*place].from));
            }
            let mut part = none();
            for resource in 0..3 {
                let taken: Exact = smaller(used[resource].clone(), left[resource].clone());
                part[resource] = fraction(&taken, &used[resource]);
                left[resource] -= taken;
            }
            for (place, amount) in free {
                let node = (cluster_id.clone(), node_id.clone());
                let amount = [&amount[0] * &part[0], &amount[1] * &part[1], &amount[2] * &part[2]];
                if amount.iter().any(|amount| !amount.is_zero()) {
                    let gone = covered.entry((place, node.clone())).or_insert_with(none);
                    add(gone, &amount, &whole(1));
                    covers
                        .push((place, Cover { commitment_id: pot.set.commitment_id.clone(), node, amount }));
                }
            }
        }
    }
    covers
}
