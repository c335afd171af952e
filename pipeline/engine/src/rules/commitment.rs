//! Commitments (RULES.md, section 3): reserved instances and committed-use discounts.
//!
//! **Decides** how much of which node each commitment covers, and which part of its money each covered part
//! earns. Discounts cover at every instant. Reserved instances cover the use of the clock hour, once its
//! slices are known: see `hourly.rs`.
//!
//! **Precedence**: commitments cover in the order of (starts_at, id). Each commitment walks the on-demand
//! nodes of its provider, region and family. Clusters assigned with a priority come first (1 is highest),
//! then clusters assigned without a priority, then all others. Within a rank, nodes are ordered by start,
//! node id, cluster id. A commitment covers what is left of a node's vCPU, memory and GPU, each up to what is
//! left of its total. The next commitment does not find capacity that is already covered. `enabled` and
//! `allowed_utilization` are plans, and decide nothing. Reserved instances find what discounts leave.
//!
//! **Interval ends**: a commitment is effective on [starts_at, ends_at), from its first `CommitmentSet` until
//! it is deleted. The current description of a commitment always holds.
//!
//! **Rounding**: none. An amount that is covered at an instant is a whole number of 10^-24 thousandths or
//! bytes ([`COVERAGE_SCALE`]).

mod cover;
mod family;
mod hourly;
mod place;
pub(crate) mod pot;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::event::{CommitmentKind, CommitmentSet};
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::time::Timestamp;

use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, atoms};
use crate::model::per_resource::{PARTS_PER_UNIT, PerResource};
use crate::model::slices::{
    COVERAGE_SCALE, CommitmentHour, CommitmentSlice, Coverage, CoveredSpend, NodeSlice,
};
use crate::model::span::Span;
use crate::model::spec::{Amounts, NodeSpec};
use crate::model::state::NodeKey;
use crate::trace::{Recorder, WalkStep};
use crate::work::Work;
use cover::{CommitmentOrder, Cover};
use family::{Family, FamilyKey, family_of_commitment, family_of_node};
use place::NodeRun;

pub(crate) use place::FamilyNode;

/// A commitment since its last slice ended.
#[derive(Debug)]
struct LiveCommitment {
    description: Arc<CommitmentSet>,
    since: Timestamp,
    /// Whether the commitment is effective. This and the amounts are as of the last decision about coverage.
    effective: bool,
    covered: PerResource<UBig>,
    planned: PerResource<UBig>,
    provisioned: Amounts,
}

/// The commitments at the end of an hour.
#[derive(Debug)]
pub(crate) struct FinishedCommitments {
    /// The state for the next hour.
    pub(crate) states: BTreeMap<CommitmentId, Arc<CommitmentSet>>,
    /// The commitments of this hour.
    pub(crate) hours: BTreeMap<CommitmentId, CommitmentHour>,
}

/// All commitments and the amounts that they cover.
#[derive(Debug)]
pub(crate) struct Commitments {
    hour_start: Timestamp,
    /// Commitments with lines of bills in the hour, which cover nothing.
    billed: BTreeSet<CommitmentId>,
    live: BTreeMap<CommitmentId, LiveCommitment>,
    hours: BTreeMap<CommitmentId, CommitmentHour>,
    /// All on-demand nodes with their cover. `None` until there is a commitment.
    families: Option<BTreeMap<FamilyKey, Family>>,
    /// The commitments of each family, in the order in which they cover.
    by_family: BTreeMap<FamilyKey, BTreeSet<CommitmentOrder>>,
    /// Families that have changed since coverage was decided, and whether their commitments have changed.
    stale: BTreeMap<FamilyKey, bool>,
    pairs: Work,
    pub(crate) trace: Recorder<WalkStep>,
}

impl Commitments {
    /// Creates the commitments at the hour's start from a state. `billed` are commitments with lines of bills
    /// in the hour.
    pub(crate) fn restore(
        states: BTreeMap<CommitmentId, Arc<CommitmentSet>>,
        billed: &BTreeSet<CommitmentId>,
        hour_start: Timestamp,
    ) -> Self {
        let mut commitments = Self {
            hour_start,
            billed: billed.clone(),
            live: BTreeMap::new(),
            hours: BTreeMap::new(),
            families: None,
            by_family: BTreeMap::new(),
            stale: BTreeMap::new(),
            pairs: Work::of_pairs(),
            trace: Recorder::default(),
        };
        for description in states.into_values() {
            commitments.set(description, hour_start);
        }
        commitments
    }

    /// Returns the instants at which commitments start or end.
    pub(crate) fn edges(&self) -> impl Iterator<Item = Timestamp> {
        self.live.values().flat_map(|live| edges(&live.description))
    }

    /// Marks as stale the families whose commitments start or end at this instant.
    pub(crate) fn edge(&mut self, now: Timestamp) {
        let at_edge = self.live.values().map(|live| &live.description);
        let at_edge = at_edge.filter(|set| set.starts_at == now || set.ends_at == Some(now));
        self.stale.extend(at_edge.map(|set| (family_of_commitment(set), true)));
    }

    /// Marks as stale the families of a node that starts, ends or is described again.
    pub(crate) fn node_changed(&mut self, key: &NodeKey, before: Option<&NodeSpec>, now: Option<FamilyNode>) {
        let Some(families) = &mut self.families else { return };
        if let Some(family_key) = before.and_then(|spec| family_of_node(&spec.description)) {
            families.entry(family_key.clone()).or_default().node_left(key);
            self.stale.entry(family_key).or_default();
        }
        if let Some(node) = now
            && let Some(family_key) = family_of_node(&node.spec.description)
        {
            families.entry(family_key.clone()).or_default().node_runs(key, node);
            self.stale.entry(family_key).or_default();
        }
    }

    /// Applies a `CommitmentSet`.
    pub(crate) fn set(&mut self, description: Arc<CommitmentSet>, now: Timestamp) {
        let id = description.commitment_id.clone();
        self.close_slice(&id, now);
        let live = LiveCommitment {
            description: description.clone(),
            since: now,
            effective: false,
            covered: PerResource::default(),
            planned: PerResource::default(),
            provisioned: Amounts::default(),
        };
        if let Some(before) = self.live.insert(id.clone(), live) {
            self.leave_family(&before.description);
        }
        let family = family_of_commitment(&description);
        self.by_family.entry(family.clone()).or_default().insert((description.starts_at, id.clone()));
        self.stale.insert(family, true);
        let is_billed = self.billed.contains(&id);
        let hour = self.hours.entry(id).or_insert_with(|| CommitmentHour {
            description: description.clone(),
            existed_micros: 0,
            unexpired: false,
            deleted: false,
            is_billed,
            slices: Vec::new(),
        });
        hour.description = description;
        hour.deleted = false;
    }

    /// Applies a `CommitmentDeleted`.
    pub(crate) fn delete(&mut self, id: &CommitmentId, now: Timestamp) {
        self.close_slice(id, now);
        if let Some(before) = self.live.remove(id) {
            self.leave_family(&before.description);
            if let Some(hour) = self.hours.get_mut(id) {
                hour.deleted = true;
            }
        }
    }

    /// Removes from its family a commitment that is deleted or described again.
    fn leave_family(&mut self, description: &CommitmentSet) {
        let family = family_of_commitment(description);
        if let Some(commitments) = self.by_family.get_mut(&family) {
            commitments.remove(&(description.starts_at, description.commitment_id.clone()));
        }
        self.stale.insert(family, true);
    }

    /// Decides the coverage of the families that have changed since the last decision. Returns the nodes
    /// whose coverage may have changed. `nodes` are all running nodes.
    ///
    /// # Errors
    /// If commitments and nodes form more pairs than an hour may have.
    pub(crate) fn decide<'a>(
        &mut self,
        nodes: impl Iterator<Item = (&'a NodeKey, FamilyNode)>,
        now: Timestamp,
    ) -> Result<BTreeSet<NodeKey>, EngineError> {
        let stale = std::mem::take(&mut self.stale);
        if stale.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mut families = self.families.take().unwrap_or_else(|| families_of(nodes));
        let mut changed = BTreeSet::new();
        for (key, have_changed) in stale {
            let family = families.entry(key.clone()).or_default();
            if have_changed {
                family.set_commitments(self.effective(&key, now), &self.billed, &self.pairs)?;
            }
            changed.extend(family.decide(&self.pairs)?);
            self.note(&key, family, have_changed, now);
        }
        self.families = Some(families);
        Ok(changed)
    }

    /// Returns the coverage of a node, in the order of the commitments.
    pub(crate) fn coverage_of(&self, node: &NodeSpec, run: &NodeRun) -> Vec<Coverage> {
        let family = family_of_node(&node.description).and_then(|key| self.families.as_ref()?.get(&key));
        family.map(|family| family.coverage_of(run)).unwrap_or_default()
    }

    /// Returns the effective commitments of a family, in the order in which they cover.
    fn effective(&self, family: &FamilyKey, now: Timestamp) -> Vec<Arc<CommitmentSet>> {
        let is_effective =
            |set: &CommitmentSet| set.starts_at <= now && set.ends_at.is_none_or(|end| now < end);
        let ids = self.by_family.get(family).into_iter().flatten();
        let sets = ids.filter_map(|(_, id)| Some(&self.live.get(id)?.description));
        sets.filter(|set| is_effective(set)).cloned().collect()
    }

    /// Returns all commitments in their order.
    fn in_order(&self) -> Vec<&Arc<CommitmentSet>> {
        let mut sets: Vec<_> = self.live.values().map(|live| &live.description).collect();
        sets.sort_by_key(|set| (set.starts_at, &set.commitment_id));
        sets
    }

    /// Records the amounts that the commitments of a family cover from now on.
    fn note(&mut self, key: &FamilyKey, family: &Family, have_changed: bool, now: Timestamp) {
        if self.trace.focus().is_some() {
            let ids = self.in_order().into_iter().map(|set| set.commitment_id.clone());
            let places = ids.zip(1..).collect();
            family.record(now, &places, &mut self.trace);
        }
        for (cover, planned) in family.covers() {
            self.set_cover(&cover.commitment.commitment_id, Some((cover, planned)), now);
        }
        if !have_changed {
            return;
        }
        let effective: BTreeSet<_> =
            family.covers().map(|(cover, _)| &cover.commitment.commitment_id).collect();
        let ids = self.by_family.get(key).into_iter().flatten().map(|(_, id)| id);
        for id in ids.filter(|id| !effective.contains(id)).cloned().collect::<Vec<_>>() {
            self.set_cover(&id, None, now);
        }
    }

    /// Ends the slice of a commitment whose cover, as billed or as planned, changes now, and sets the new
    /// cover. `cover` is `None` if the commitment is not effective.
    fn set_cover(&mut self, id: &CommitmentId, cover: Option<(&Cover, &PerResource<UBig>)>, now: Timestamp) {
        let is_as_before = self.live.get(id).is_some_and(|live| match cover {
            None => !live.effective,
            Some((cover, planned)) => {
                let is_covered = live.covered == cover.covered && live.planned == *planned;
                live.effective && is_covered && live.provisioned == cover.provisioned
            }
        });
        if is_as_before {
            return;
        }
        self.close_slice(id, now);
        if let Some(live) = self.live.get_mut(id) {
            live.effective = cover.is_some();
            (live.covered, live.planned, live.provisioned) = cover
                .map(|(cover, planned)| (cover.covered.clone(), planned.clone(), cover.provisioned))
                .unwrap_or_default();
        }
    }

    /// Ends all slices at the hour's end, and covers the use of nodes with reserved instances. `nodes` are
    /// all slices of nodes. Returns the state for the next hour, and the commitments of this hour.
    ///
    /// # Errors
    /// If commitments and nodes form more pairs than an hour may have.
    pub(crate) fn finish(
        &mut self,
        end: Timestamp,
        nodes: &mut BTreeMap<NodeKey, Vec<NodeSlice>>,
    ) -> Result<FinishedCommitments, EngineError> {
        self.close_slices(end);
        let mut hours = std::mem::take(&mut self.hours);
        hourly::cover(&mut hours, nodes, &self.pairs, &mut self.trace)?;
        let states = std::mem::take(&mut self.live).into_iter();
        Ok(FinishedCommitments { states: states.map(|(id, live)| (id, live.description)).collect(), hours })
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
                hour.slices.push(CommitmentSlice {
                    span,
                    description: live.description.clone(),
                    covered: live.covered.clone().map(RBig::from),
                    planned: live.planned.clone().map(RBig::from),
                    provisioned: live.provisioned,
                    spend: CoveredSpend::default(),
                });
            }
        }
        live.since = now;
    }
}

/// Groups running nodes by their families.
fn families_of<'a>(nodes: impl Iterator<Item = (&'a NodeKey, FamilyNode)>) -> BTreeMap<FamilyKey, Family> {
    let mut families: BTreeMap<FamilyKey, Family> = BTreeMap::new();
    for (key, node) in nodes {
        if let Some(family) = family_of_node(&node.spec.description) {
            families.entry(family).or_default().node_runs(key, node);
        }
    }
    families
}

/// Returns the instants at which a commitment starts and ends.
pub(crate) fn edges(commitment: &CommitmentSet) -> impl Iterator<Item = Timestamp> + use<> {
    std::iter::once(commitment.starts_at).chain(commitment.ends_at)
}

/// A function that returns the totals of a commitment in the scale of coverage.
type TotalAmounts = fn(&CommitmentSet) -> PerResource<UBig>;

/// Returns the amounts of a node that commitments may cover, in the scale of coverage: nothing of a billed
/// node.
pub(crate) fn coverable(node: &NodeSpec) -> PerResource<UBig> {
    if node.bill.is_some() { PerResource::default() } else { scaled(node.capacity) }
}

/// Converts amounts to the scale of coverage.
pub(crate) fn scaled(amounts: Amounts) -> PerResource<UBig> {
    amounts.map(|amount| UBig::from(amount) * COVERAGE_SCALE)
}

/// Returns the committed totals in the scale of coverage. A savings plan commits to no capacity.
pub(crate) fn committed(commitment: &CommitmentSet) -> PerResource<UBig> {
    if commitment.kind == CommitmentKind::SavingsPlan {
        return PerResource::default();
    }
    let gpus = UBig::from(u128::try_from(commitment.gpu).unwrap_or(0)) * ATOMS_IN_ONE;
    let totals = PerResource { cpu: atoms(commitment.vcpu), memory: atoms(commitment.memory_gib), gpu: gpus };
    // Atoms of a unit times its parts are atoms of a part. Twelve more places give 10^-24.
    totals.zip(PARTS_PER_UNIT).map(|(total, parts)| total * parts * ATOMS_IN_ONE)
}

/// Returns the totals that an autoscaler may plan with. They are the committed totals times
/// `allowed_utilization`, not rounded, and zero for a disabled commitment.
pub(crate) fn planned(commitment: &CommitmentSet) -> PerResource<UBig> {
    if !commitment.enabled {
        return PerResource::default();
    }
    let allowed = commitment.allowed_utilization.map_or(ATOMS_IN_ONE, atoms);
    committed(commitment).map(|total| total / ATOMS_IN_ONE * &allowed)
}

/// Returns whether the provider counts the commitment by the clock hour. The provider counts other
/// commitments at every instant.
pub(crate) fn is_hourly(commitment: &CommitmentSet) -> bool {
    commitment.kind == CommitmentKind::ReservedInstance
}

/// Returns the part of a commitment's hourly cost that covers anything.
pub(crate) fn used_part(slice: &CommitmentSlice) -> RBig {
    match slice.description.hourly_commitment {
        Some(commitment) => quotient(&slice.spend.covered, &RBig::from(atoms(commitment))),
        None => money_parts(&slice.description, &slice.covered).sum(),
    }
}

/// Returns the parts of a commitment's hourly cost that covered amounts earn, by resource.
pub(crate) fn money_parts(commitment: &CommitmentSet, covered: &PerResource<RBig>) -> PerResource<RBig> {
    utilization_parts(&committed(commitment).map(RBig::from), covered)
}

/// Returns the part of the totals that the amounts use, by resource. vCPU and memory count half each. If one
/// of the two totals is zero, the other counts alone. If both are zero, GPUs count alone. If all three are
/// zero, nothing counts.
pub(crate) fn utilization_parts(
    totals: &PerResource<RBig>,
    amounts: &PerResource<RBig>,
) -> PerResource<RBig> {
    let parts = amounts.as_ref().zip(totals.as_ref()).map(|(amount, total)| quotient(amount, total));
    let PerResource { cpu, memory, gpu } = parts;
    let none = PerResource::<RBig>::default();
    let half = RBig::from_parts(1.into(), 2_u8.into());
    match (totals.cpu.is_zero(), totals.memory.is_zero()) {
        (false, false) => PerResource { cpu: cpu * &half, memory: memory * half, ..none },
        (false, true) => PerResource { cpu, ..none },
        (true, false) => PerResource { memory, ..none },
        (true, true) => PerResource { gpu, ..none },
    }
}

/// Returns `amount / total`; 0 over 0.
pub(crate) fn quotient(amount: &RBig, total: &RBig) -> RBig {
    if total.is_zero() { RBig::ZERO } else { amount / total }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::ratio;

    fn amounts(cpu: u64, memory: u64, gpu: u64) -> PerResource<RBig> {
        PerResource { cpu, memory, gpu }.map(RBig::from)
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
}
