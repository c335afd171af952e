//! Reserved instances (RULES.md, section 3, "The clock hour").
//!
//! **Decides** how much of the use of a clock hour each reserved instance covers. Under one description, it
//! has its totals times its effective time, and covers nodes with that until nothing is left.
//!
//! **Precedence**: after the discounts of the same family, in the order of (starts_at, id). Each walks the
//! runs of nodes as a discount does. It covers all that is left of a run's use. For the last run, it covers
//! the same part at every instant.
//!
//! **Rounding**: none. A covered part is a fraction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::time::Timestamp;

use crate::error::EngineError;
use crate::exact::HOUR_MICROS;
use crate::model::per_resource::PerResource;
use crate::model::slices::{CommitmentHour, Coverage, NodeSlice};
use crate::model::span::Span;
use crate::model::spec::{NodeSpec, gpu_model};
use crate::model::state::NodeKey;
use crate::rules::commitment::cover::matches_gpus;
use crate::rules::commitment::family::{FamilyKey, family_of_commitment, family_of_node};
use crate::rules::commitment::place::{NodeRun, Place};
use crate::rules::commitment::pot::{Pot, edges, parts, pots};
use crate::rules::commitment::{TotalAmounts, committed, is_hourly, planned, quotient, scaled};
use crate::trace::{Recorder, WalkStep, covered_units};
use crate::work::Work;

/// A slice of a node, and the amounts of it that nothing covers yet, in the scale of coverage.
#[derive(Clone, Debug)]
struct Use {
    span: Span,
    /// The index among the slices of the node.
    slice: usize,
    spec: Arc<NodeSpec>,
    left: PerResource<RBig>,
}

/// The use of a family's nodes by run, each in order of time.
type Uses = BTreeMap<NodeRun, Vec<Use>>;

/// One step of the walk of a pot. Amounts are in the scale of coverage, times microseconds.
struct PotStep<'a> {
    place: &'a Place,
    run: &'a NodeRun,
    /// The position on the walk, from 1.
    position: usize,
    pot_left: PerResource<RBig>,
    node_left: PerResource<RBig>,
    covered: PerResource<RBig>,
    /// The amounts that the pot covers of each slice, by the slice's index.
    slices: Vec<(usize, PerResource<RBig>)>,
}

/// Covers the slices of nodes by reserved instances, and sets the amounts in `hours`. Cuts the slices of
/// nodes where a description of their family becomes effective or stops being effective.
///
/// # Errors
/// If reserved instances and nodes make too many pairs.
pub(super) fn cover(
    hours: &mut BTreeMap<CommitmentId, CommitmentHour>,
    nodes: &mut BTreeMap<NodeKey, Vec<NodeSlice>>,
    pairs: &Work,
    trace: &mut Recorder<WalkStep>,
) -> Result<(), EngineError> {
    let mut families: BTreeMap<FamilyKey, Vec<Pot>> = BTreeMap::new();
    for pot in pots(hours, is_hourly) {
        families.entry(family_of_commitment(&pot.description)).or_default().push(pot);
    }
    if families.is_empty() {
        return Ok(());
    }
    let mut uses = cut(nodes, &families, pairs)?;
    let positions = positions(hours);
    for (family, pots) in families {
        let mut uses = uses.remove(&family).unwrap_or_default();
        let is_planned_in_full = |pot: &Pot| planned(&pot.description) == committed(&pot.description);
        let mut uses_by_plan = (!pots.iter().all(is_planned_in_full)).then(|| uses.clone());
        for pot in pots {
            let id = &pot.description.commitment_id;
            let covered = pot.walk(committed, &mut uses, pairs, |step| {
                let key = &step.run.0;
                if trace.wants(|focus| focus.has_walk(id, key)) {
                    trace.push(pot.trace(&step, positions.get(id).copied().unwrap_or_default()));
                }
                let slices = nodes.get_mut(key).map(Vec::as_mut_slice).unwrap_or_default();
                for (slice, amounts) in step.slices {
                    if let Some(slice) = slices.get_mut(slice) {
                        let coverage = Coverage { commitment: Arc::clone(&pot.description), amounts };
                        Arc::make_mut(&mut slice.coverage).push(coverage);
                    }
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
    }
    Ok(())
}

/// Cuts the slices of nodes where pots of their family start and end. Returns the use of each family.
fn cut(
    nodes: &mut BTreeMap<NodeKey, Vec<NodeSlice>>,
    families: &BTreeMap<FamilyKey, Vec<Pot>>,
    pairs: &Work,
) -> Result<BTreeMap<FamilyKey, Uses>, EngineError> {
    let edges: BTreeMap<&FamilyKey, BTreeSet<Timestamp>> =
        families.iter().map(|(family, pots)| (family, edges(pots))).collect();
    let mut uses: BTreeMap<FamilyKey, Uses> = BTreeMap::new();
    for (key, slices) in nodes {
        let mut cut = Vec::with_capacity(slices.len());
        for slice in std::mem::take(slices) {
            let family = family_of_node(&slice.spec.description);
            let Some((family, edges)) = family.and_then(|key| edges.get_key_value(&key)) else {
                cut.push(slice);
                continue;
            };
            let spans = parts(slice.span, edges);
            pairs.add(spans.len() - 1)?;
            let uses =
                uses.entry((*family).clone()).or_default().entry((key.clone(), slice.start)).or_default();
            for span in spans {
                uses.push(Use { span, slice: cut.len(), spec: slice.spec.clone(), left: left(&slice) });
                cut.push(NodeSlice { span, ..slice.clone() });
            }
        }
        *slices = cut;
    }
    Ok(uses)
}

/// Returns the amounts of a slice that no discount covers.
fn left(slice: &NodeSlice) -> PerResource<RBig> {
    let capacity = scaled(slice.spec.capacity).map(RBig::from);
    let covers = slice.coverage.iter();
    covers
        .fold(capacity, |left, cover| left.zip(cover.amounts.as_ref()).map(|(left, covered)| left - covered))
}

/// Returns the place of each commitment among all commitments, from 1.
fn positions(hours: &BTreeMap<CommitmentId, CommitmentHour>) -> BTreeMap<CommitmentId, usize> {
    let mut ids: Vec<_> = hours.iter().map(|(id, hour)| (hour.description.starts_at, id)).collect();
    ids.sort();
    ids.into_iter().map(|(_, id)| id.clone()).zip(1..).collect()
}

impl Pot {
    /// Returns the indexes of the use within the effective time. Use that is cut at its edges is wholly in it
    /// or wholly out of it.
    fn within(&self, uses: &[Use]) -> Vec<usize> {
        let ranges = self.spans.iter().map(|span| {
            let first = uses.partition_point(|one| one.span.from < span.from);
            first..uses.partition_point(|one| one.span.from < span.to)
        });
        ranges.flatten().collect()
    }

    /// Walks the runs of nodes with these totals, and takes what it covers from their use. Calls `covered`
    /// for each run that it covers at least in part. Returns the covered amounts on average over the
    /// effective time.
    ///
    /// # Errors
    /// If that makes too many pairs.
    fn walk(
        &self,
        totals: TotalAmounts,
        uses: &mut Uses,
        pairs: &Work,
        mut covered: impl FnMut(PotStep<'_>),
    ) -> Result<PerResource<RBig>, EngineError> {
        let micros = UBig::from(self.micros());
        let total = totals(&self.description).map(|total| RBig::from(total * &micros));
        let mut pot_left = total.clone();
        let gpu_model = gpu_model(self.description.gpu_model.as_ref());
        let mut places: Vec<Place> = uses.keys().map(|run| Place::new(&self.description, run)).collect();
        places.sort();
        for (place, position) in places.iter().zip(1..) {
            if pot_left.iter().all(RBig::is_zero) {
                break;
            }
            let run = place.run();
            let Some(uses) = uses.get_mut(&run) else { continue };
            let within = self.within(uses);
            pairs.add(within.len())?;
            let mine = |one: &Use| {
                let gpu = if matches_gpus(gpu_model.as_ref(), &one.spec) {
                    one.left.gpu.clone()
                } else {
                    RBig::ZERO
                };
                PerResource { gpu, ..one.left.clone() }
            };
            let mut node_left = PerResource::<RBig>::default();
            for one in within.iter().filter_map(|index| uses.get(*index)) {
                let micros = UBig::from(one.span.micros());
                node_left += mine(one).map(|amount| amount * &micros);
            }
            let taken = node_left.as_ref().zip(pot_left.as_ref()).map(|(node, pot)| node.min(pot).clone());
            if taken.iter().all(RBig::is_zero) {
                continue;
            }
            let part = taken.as_ref().zip(node_left.as_ref()).map(|(taken, left)| quotient(taken, left));
            let mut slices = Vec::with_capacity(within.len());
            for index in within {
                let Some(one) = uses.get_mut(index) else { continue };
                let amounts = mine(one).zip(part.as_ref()).map(|(amount, part)| amount * part);
                if amounts.iter().any(|amount| !amount.is_zero()) {
                    one.left = one.left.as_ref().zip(amounts.as_ref()).map(|(left, amount)| left - amount);
                    slices.push((one.slice, amounts));
                }
            }
            let before = pot_left.clone();
            pot_left = pot_left.zip(taken.as_ref()).map(|(left, taken)| left - taken);
            covered(PotStep {
                place,
                run: &run,
                position,
                pot_left: before,
                node_left,
                covered: taken,
                slices,
            });
        }
        Ok(total.zip(pot_left).map(|(total, left)| (total - left) / &micros))
    }

    /// Returns the step for a trace.
    fn trace(&self, step: &PotStep<'_>, commitment_position: usize) -> WalkStep {
        let (cluster_id, node_id) = step.run.0.clone();
        let hours = |amounts: &PerResource<RBig>| {
            covered_units(amounts.as_ref().map(|amount| amount / UBig::from(HOUR_MICROS)))
        };
        WalkStep {
            at: self.spans.first().map_or(self.description.starts_at, |span| span.from),
            until: self.spans.last().map(|span| span.to),
            commitment_id: self.description.commitment_id.clone(),
            commitment_position,
            cluster_id,
            node_id,
            position: step.position,
            rank: step.place.rank.to_string(),
            node_start: step.place.start,
            commitment_remaining: hours(&step.pot_left),
            node_remaining: hours(&step.node_left),
            covered: hours(&step.covered),
        }
    }
}
