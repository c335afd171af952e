//! Reserved instances (RULES.md, section 3, "The clock hour").
//!
//! **Decides** how much of the use of a clock hour each reserved instance covers. Under one description, a
//! reserved instance has its totals times its effective time. It covers nodes until nothing of this is left.
//!
//! **Precedence**: after the discounts of the same family, in the order of (starts_at, id). Each reserved
//! instance walks the runs of nodes as a discount does. It covers all that is left of a run's use. For the
//! last run, it covers the same part at every instant.
//!
//! A walk skips runs of which earlier walks have left nothing, and a slice is cut only where its coverage
//! changes. So a walk begins about where the walk before it ended.
//!
//! **Rounding**: none. A covered part is a fraction.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::Text;
use prorata_schemas::event::CommitmentSet;
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::time::Timestamp;

use crate::error::EngineError;
use crate::exact::HOUR_MICROS;
use crate::model::per_resource::PerResource;
use crate::model::slices::{CommitmentHour, Coverage, NodeSlice};
use crate::model::span::Span;
use crate::model::spec::gpu_model;
use crate::model::state::NodeKey;
use crate::rules::commitment::cover::matches_gpus;
use crate::rules::commitment::family::{FamilyKey, family_of_commitment, family_of_node};
use crate::rules::commitment::place::{ClusterRank, Place};
use crate::rules::commitment::pot::{Pot, pots};
use crate::rules::commitment::{TotalAmounts, committed, is_hourly, planned, quotient, scaled};
use crate::trace::{Recorder, WalkStep, covered_units};
use crate::work::Work;

/// A slice of a node, and the amounts of the slice that nothing covers yet, in the scale of coverage.
#[derive(Clone, Debug)]
struct Use {
    slice: NodeSlice,
    left: PerResource<RBig>,
}

/// The use of a family's nodes.
#[derive(Clone, Debug, Default)]
struct Uses {
    /// Use that is not wholly covered, in order of time for each run.
    runs: BTreeMap<Place, Vec<Use>>,
    /// For each resource, the runs in which some of it is left.
    open: PerResource<BTreeSet<Place>>,
    /// Slices that are wholly covered.
    done: Vec<(Place, NodeSlice)>,
}

/// A pot on its walk. Amounts are in the scale of coverage, times microseconds.
struct PotWalk<'a> {
    pot: &'a Pot,
    gpu_model: Option<Text>,
    /// The amounts that the pot has left.
    left: PerResource<RBig>,
}

/// One step of the walk of a pot. Amounts are in the scale of coverage, times microseconds.
struct PotStep<'a> {
    place: &'a Place,
    pot_left: &'a PerResource<RBig>,
    node_left: &'a PerResource<RBig>,
    covered: &'a PerResource<RBig>,
}

/// Covers the slices of nodes with reserved instances, and sets the amounts in `hours`. Cuts the slices of
/// nodes where coverage changes.
///
/// # Errors
/// If reserved instances and nodes form too many pairs.
pub(super) fn cover(
    hours: &mut BTreeMap<CommitmentId, CommitmentHour>,
    nodes: &mut BTreeMap<NodeKey, Vec<NodeSlice>>,
    pairs: &Work,
    trace: &mut Recorder<WalkStep>,
) -> Result<(), EngineError> {
    let mut families: BTreeMap<FamilyKey, Vec<Pot>> = BTreeMap::new();
    for pot in pots(hours, is_hourly).into_iter().filter(|pot| !pot.is_billed) {
        families.entry(family_of_commitment(&pot.description)).or_default().push(pot);
    }
    if families.is_empty() {
        return Ok(());
    }
    let mut uses = take_uses(nodes, &families);
    let positions = positions(hours);
    for (family, pots) in families {
        let mut uses = uses.remove(&family).unwrap_or_default();
        let runs: Vec<Place> = uses.runs.keys().cloned().collect();
        let is_planned_in_full = |pot: &Pot| planned(&pot.description) == committed(&pot.description);
        let mut uses_by_plan = (!pots.iter().all(is_planned_in_full)).then(|| uses.clone());
        for pot in pots {
            let id = &pot.description.commitment_id;
            let covered = pot.walk(committed, &mut uses, pairs, |step| {
                if trace.wants(|focus| focus.has_walk(id, &step.place.run().0)) {
                    trace.push(pot.trace(&step, positions.get(id).copied().unwrap_or_default(), &runs));
                }
            })?;
            let planned = match &mut uses_by_plan {
                Some(uses) => pot.walk(planned, uses, pairs, |_| {})?,
                None => covered.clone(),
            };
            for slice in pot.slices_in(hours) {
                (slice.covered, slice.planned) = (covered.clone(), planned.clone());
            }
        }
        uses.give_back(nodes);
    }
    nodes.values_mut().for_each(|slices| slices.sort_by_key(|slice| slice.span.from));
    Ok(())
}

/// Takes the slices of nodes in families with reserved instances, and returns them by family.
fn take_uses(
    nodes: &mut BTreeMap<NodeKey, Vec<NodeSlice>>,
    families: &BTreeMap<FamilyKey, Vec<Pot>>,
) -> BTreeMap<FamilyKey, Uses> {
    let mut taken: BTreeMap<FamilyKey, Uses> = BTreeMap::new();
    for (key, slices) in nodes {
        for slice in std::mem::take(slices) {
            let family = family_of_node(&slice.spec.description).filter(|_| slice.spec.bill.is_none());
            let Some(family) = family.filter(|family| families.contains_key(family)) else {
                slices.push(slice);
                continue;
            };
            let place = Place::unassigned(&(key.clone(), slice.start));
            let one = Use { left: left(&slice), slice };
            taken.entry(family).or_default().add(place, one);
        }
    }
    taken
}

/// Returns the amounts of a slice that no discount covers.
fn left(slice: &NodeSlice) -> PerResource<RBig> {
    let capacity = scaled(slice.spec.capacity).map(RBig::from);
    let covers = slice.coverage.iter();
    covers
        .fold(capacity, |left, cover| left.zip(cover.amounts.as_ref()).map(|(left, covered)| left - covered))
}

/// Functions that return the amount that is left of each resource.
const LEFT: PerResource<fn(&Use) -> &RBig> =
    PerResource { cpu: |one| &one.left.cpu, memory: |one| &one.left.memory, gpu: |one| &one.left.gpu };

impl Use {
    /// Returns the part of the use between two instants; `None` if it is empty.
    fn part(&self, from: Timestamp, to: Timestamp) -> Option<Self> {
        let slice = NodeSlice { span: Span::new(from, to)?, ..self.slice.clone() };
        Some(Self { slice, left: self.left.clone() })
    }

    /// Returns the amounts that a commitment to this GPU model may cover.
    fn matching(&self, gpu_model: Option<&Text>) -> PerResource<RBig> {
        let is_matched = matches_gpus(gpu_model, &self.slice.spec);
        let gpu = if is_matched { self.left.gpu.clone() } else { RBig::ZERO };
        PerResource { gpu, ..self.left.clone() }
    }

    /// Covers these amounts.
    fn cover(&mut self, commitment: &Arc<CommitmentSet>, amounts: PerResource<RBig>) {
        self.left = std::mem::take(&mut self.left).zip(amounts.as_ref()).map(|(left, amount)| left - amount);
        let coverage = Coverage { commitment: Arc::clone(commitment), amounts };
        Arc::make_mut(&mut self.slice.coverage).push(coverage);
    }

    fn is_open(&self) -> bool {
        self.left.iter().any(|left| !left.is_zero())
    }
}

impl Uses {
    /// Adds use of a run. The use of one run must be added in order of time.
    fn add(&mut self, place: Place, one: Use) {
        let runs = self.runs.entry(place.clone()).or_default();
        for (open, left) in self.open.as_mut().zip(one.left.as_ref()) {
            if !left.is_zero() {
                open.insert(place.clone());
            }
        }
        if one.is_open() { runs.push(one) } else { self.done.push((place, one.slice)) }
    }

    /// Returns the first run after `after` for which `is_walked` returns true; `None` if there is none.
    /// Considers only runs in which something is left that a pot with these amounts may cover.
    fn next(
        &self,
        after: Option<&Place>,
        pot_left: &PerResource<RBig>,
        is_walked: impl Fn(&Place) -> bool,
    ) -> Option<Place> {
        let after = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let open = self.open.as_ref().zip(pot_left.as_ref()).into_iter().filter(|(_, left)| !left.is_zero());
        open.filter_map(|(open, _)| open.range(after).find(|run| is_walked(run))).min().cloned()
    }

    /// Gives the slices back to their nodes, in any order.
    fn give_back(self, nodes: &mut BTreeMap<NodeKey, Vec<NodeSlice>>) {
        let open = self.runs.into_iter();
        let open = open.flat_map(|(place, uses)| uses.into_iter().map(move |one| (place.clone(), one.slice)));
        for (place, slice) in open.chain(self.done) {
            nodes.entry(place.into_run().0).or_default().push(slice);
        }
    }
}

/// Returns the place of each commitment among all commitments, from 1.
fn positions(hours: &BTreeMap<CommitmentId, CommitmentHour>) -> BTreeMap<CommitmentId, usize> {
    let mut ids: Vec<_> = hours.iter().map(|(id, hour)| (hour.description.starts_at, id)).collect();
    ids.sort();
    ids.into_iter().map(|(_, id)| id.clone()).zip(1..).collect()
}

impl Pot {
    /// Returns the parts of use within the effective time, in order of time. Each part comes with the index
    /// of the use.
    fn within(&self, uses: &[Use]) -> Vec<(usize, Span)> {
        let parts = self.spans.iter().flat_map(|span| {
            let first = uses.partition_point(|one| one.slice.span.to <= span.from);
            let rest = uses.iter().enumerate().skip(first);
            rest.map_while(|(index, one)| Some((index, one.slice.span.overlap(*span)?)))
        });
        parts.collect()
    }

    /// Walks the runs of nodes with these totals, and covers the use of the runs. Calls `covered` for each
    /// run that it covers at least in part. Returns the covered amounts averaged over the effective time.
    ///
    /// # Errors
    /// If there are too many pairs.
    fn walk(
        &self,
        totals: TotalAmounts,
        uses: &mut Uses,
        pairs: &Work,
        mut covered: impl FnMut(PotStep<'_>),
    ) -> Result<PerResource<RBig>, EngineError> {
        let set = &*self.description;
        let micros = UBig::from(self.micros());
        let total = totals(set).map(|total| RBig::from(total * &micros));
        let gpu_model = gpu_model(set.gpu_model.as_ref());
        let mut walk = PotWalk { pot: self, gpu_model, left: total.clone() };
        let runs = uses.runs.keys().filter(|_| !set.assignments.is_empty());
        let assigned = runs.map(|run| run.on_walk_of(set)).filter(|place| place.rank != ClusterRank::Other);
        let mut assigned: Vec<Place> = assigned.collect();
        assigned.sort();
        let is_other = |run: &Place| assigned.is_empty() || run.on_walk_of(set).rank == ClusterRank::Other;
        let (mut first, mut last) = (assigned.iter(), None);
        while walk.left.iter().any(|left| !left.is_zero()) {
            if let Some(place) = first.next() {
                walk.visit(place, uses, pairs, &mut covered)?;
                continue;
            }
            let Some(place) = uses.next(last.as_ref(), &walk.left, is_other) else { break };
            walk.visit(&place, uses, pairs, &mut covered)?;
            last = Some(place);
        }
        Ok(total.zip(walk.left).map(|(total, left)| (total - left) / &micros))
    }

    /// Returns the step for a trace. `runs` are all runs of the family.
    fn trace(&self, step: &PotStep<'_>, commitment_position: usize, runs: &[Place]) -> WalkStep {
        let (cluster_id, node_id) = step.place.run().0;
        let hours = |amounts: &PerResource<RBig>| {
            covered_units(amounts.as_ref().map(|amount| amount / UBig::from(HOUR_MICROS)))
        };
        let on_walk = runs.iter().map(|run| run.on_walk_of(&self.description));
        WalkStep {
            at: self.spans.first().map_or(self.description.starts_at, |span| span.from),
            until: self.spans.last().map(|span| span.to),
            commitment_id: self.description.commitment_id.clone(),
            commitment_position,
            cluster_id,
            node_id,
            position: on_walk.filter(|place| place <= step.place).count(),
            rank: step.place.rank.to_string(),
            node_start: step.place.start,
            commitment_remaining: hours(step.pot_left),
            node_remaining: hours(step.node_left),
            covered: hours(step.covered),
        }
    }
}

impl PotWalk<'_> {
    /// Covers the use of one run.
    ///
    /// # Errors
    /// If there are too many pairs.
    fn visit(
        &mut self,
        place: &Place,
        Uses { runs, open, done }: &mut Uses,
        pairs: &Work,
        covered: &mut impl FnMut(PotStep<'_>),
    ) -> Result<(), EngineError> {
        let run = Place::unassigned(&place.run());
        let Some(uses) = runs.get_mut(&run) else { return Ok(()) };
        let parts = self.pot.within(uses);
        pairs.add(parts.len())?;
        let mut node_left = PerResource::<RBig>::default();
        for (index, span) in &parts {
            let micros = UBig::from(span.micros());
            node_left += uses[*index].matching(self.gpu_model.as_ref()).map(|amount| amount * &micros);
        }
        let taken = node_left.as_ref().zip(self.left.as_ref()).map(|(node, pot)| node.min(pot).clone());
        if taken.iter().all(RBig::is_zero) {
            return Ok(());
        }
        let part = taken.as_ref().zip(node_left.as_ref()).map(|(taken, left)| quotient(taken, left));
        let finished = self.cover(uses, parts, &part);
        done.extend(finished.into_iter().map(|slice| (run.clone(), slice)));
        for (open, left) in open.as_mut().zip(LEFT) {
            if uses.iter().all(|one| left(one).is_zero()) {
                open.remove(&run);
            }
        }
        covered(PotStep { place, pot_left: &self.left, node_left: &node_left, covered: &taken });
        self.left = std::mem::take(&mut self.left).zip(taken).map(|(left, taken)| left - taken);
        Ok(())
    }

    /// Covers a part of what is left in some spans of a run. Removes and returns the slices that are then
    /// wholly covered.
    fn cover(
        &self,
        uses: &mut Vec<Use>,
        spans: Vec<(usize, Span)>,
        part: &PerResource<RBig>,
    ) -> Vec<NodeSlice> {
        let (Some((first, _)), Some((last, _))) = (spans.first(), spans.last()) else { return Vec::new() };
        let (first, last) = (*first, *last);
        let mut spans = spans.into_iter().peekable();
        let (mut open, mut finished) = (Vec::new(), Vec::new());
        let before: Vec<Use> = uses.splice(first..=last, []).collect();
        for (index, one) in (first..).zip(before) {
            let amounts = one.matching(self.gpu_model.as_ref()).zip(part.as_ref());
            let amounts = amounts.map(|(amount, part)| amount * part);
            let covers = amounts.iter().any(|amount| !amount.is_zero());
            let mut rest = Some(one);
            while let Some((_, span)) = spans.next_if(|(of, _)| *of == index) {
                let Some(one) = rest.take_if(|_| covers) else { continue };
                open.extend(one.part(one.slice.span.from, span.from));
                rest = one.part(span.to, one.slice.span.to);
                let Some(mut here) = one.part(span.from, span.to) else { continue };
                here.cover(&self.pot.description, amounts.clone());
                if here.is_open() { open.push(here) } else { finished.push(here.slice) }
            }
            open.extend(rest);
        }
        uses.splice(first..first, open);
        finished
    }
}
