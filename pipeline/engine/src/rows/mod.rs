//! The step from slices to the hour's rows of `cost_allocation` (RULES.md, section 10).

pub(crate) mod bill;
pub(crate) mod commitment;
pub(crate) mod draft;
pub(crate) mod group;
pub(crate) mod node;
mod node_step;
pub(crate) mod nodeless;
pub(crate) mod ratios;
pub(crate) mod reservation;
mod shared;
pub(crate) mod slice_steps;
pub(crate) mod unknown_node;

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::ids::PodUid;
use prorata_schemas::rules::Rules;
use rayon::prelude::{ParallelIterator, ParallelSlice};

use crate::error::EngineError;
use crate::model::slices::{NodeSlice, Slices};
use crate::model::state::NodeKey;
use crate::rows::draft::{RoundedRows, RowBook};
use crate::rows::group::{PlacedPod, Placement, PodHours};
use crate::rows::node::StretchRows;
use crate::rules::bill::HourBills;
use crate::rules::split::{NodeBills, NodeHour, WeightScale};
use crate::timeline::Timeline;
use crate::trace::{DivisionStep, Focus, NodeStep, RowStep};
use crate::work::Work;

/// The nodes that ran, for the tables.
pub(crate) type Nodes<'a> = BTreeMap<&'a NodeKey, NodeHour>;

/// Steps to the rows in focus.
#[derive(Debug, Default)]
pub(crate) struct RowsTrace {
    pub(crate) nodes: Vec<NodeStep>,
    pub(crate) rows: Vec<RowStep>,
    pub(crate) divisions: Vec<DivisionStep>,
}

/// The number of nodes in one part of the work. Smaller organizations are drafted in one part.
const NODES_OF_A_PART: usize = 64;

/// The number of pods on no node in one part of the work.
const PODS_OF_A_PART: usize = 1024;

/// A node with its pods.
struct PlacedNode<'a> {
    key: &'a NodeKey,
    slices: &'a [NodeSlice],
    pods: Vec<PlacedPod<'a>>,
}

/// Gathers the hours of pods in one place, in the order of the pods.
fn gather(pods: &[PlacedPod<'_>], rules: &Rules) -> Vec<(PodUid, PodHours)> {
    pods.iter().filter_map(|pod| Some((pod.uid.clone(), PodHours::gather(pod, rules)?))).collect()
}

/// Gathers the pods of each stretch of a node, in the order of the pods. Each stretch of a pod after the
/// first is counted in `further`.
///
/// # Errors
/// If the pods have too many rows.
fn gather_by_stretch(
    pods: &[PlacedPod<'_>],
    node: &NodeHour,
    rules: &Rules,
    further: &Work,
) -> Result<Vec<Vec<(PodUid, PodHours)>>, EngineError> {
    if node.stretches.len() == 1 {
        return Ok(vec![gather(pods, rules)]);
    }
    let mut by_stretch: Vec<_> = node.stretches.iter().map(|_| Vec::new()).collect();
    for pod in pods {
        let of_pod = PodHours::by_stretch(pod, &node.times, rules);
        further.add(of_pod.len().saturating_sub(1))?;
        for (stretch, hours) in of_pod {
            by_stretch[stretch].push((pod.uid.clone(), hours));
        }
    }
    Ok(by_stretch)
}

/// Applies `work` to parts of a list on all cores. Returns the results in the order of the list. `part` is
/// the number of items in a part.
fn in_order<T: Sync, U: Send>(
    list: &[T],
    part: usize,
    work: impl Fn(&[T]) -> Result<U, EngineError> + Send + Sync,
) -> Result<Vec<U>, EngineError> {
    let done: Vec<Result<U, EngineError>> = list.par_chunks(part).map(work).collect();
    done.into_iter().collect()
}

/// Returns the rounded rows of an hour, the hours of its nodes, and the steps to the rows in focus.
///
/// # Errors
/// If an amount does not fit its column, pods have too many rows, or the rows of a charge do not add up to
/// it.
pub(crate) fn rows<'a>(
    timeline: &'a Timeline,
    bills: &HourBills,
    rules: &Rules,
    focus: Option<&Arc<Focus>>,
) -> Result<(RoundedRows, Nodes<'a>, RowsTrace), EngineError> {
    let slices = &timeline.slices;
    let Placement { mut on_nodes, on_unknown_nodes, nodeless } =
        Placement::new(&slices.pods, &timeline.samples, &timeline.named_nodes);
    let mut nodes = Nodes::new();
    let scale = WeightScale::new(&rules.weights);
    let commitments = &slices.commitments;
    let further = Work::of_rows(slices.pods.len());
    let placed = slices.nodes.iter().map(|(key, node)| {
        let pods = on_nodes.take(key);
        PlacedNode { key, slices: node, pods }
    });
    let placed: Vec<PlacedNode<'_>> = placed.collect();
    // Nodes share nothing, so parts of them are drafted on all cores and taken in their order.
    let part = |part: &[PlacedNode<'a>]| {
        // Most pods have one row, and most nodes have one idle row.
        let rows = part.iter().map(|node| node.pods.len() + 1).sum();
        let mut book = RowBook::with_capacity(rows).traced(focus);
        let (mut nodes, mut steps) = (Vec::new(), Vec::new());
        for PlacedNode { key, slices, pods } in part {
            let bills = NodeBills { parts: bills.nodes.get(*key), commitments };
            let Some(node) = NodeHour::new(slices, &bills, &scale)? else { continue };
            let trace = focus.filter(|focus| focus.nodes.contains(*key)).map(|_| *slices);
            let by_stretch = gather_by_stretch(pods, &node, rules, &further)?;
            for (stretch, pods) in node.stretches.iter().zip(&by_stretch) {
                let description = &node.description;
                let rows = StretchRows { key, description, stretch, pods, rules, trace };
                further.add(rows.further_rows())?;
                steps.extend(rows.draft(&mut book)?);
            }
            nodes.push((*key, node));
        }
        Ok((book, nodes, steps))
    };
    let (mut books, mut node_steps) = (Vec::new(), Vec::new());
    let drafted = in_order(&placed, NODES_OF_A_PART, part);
    // The part that reaches the bound first depends on chance, so no other error comes before this one.
    further.within()?;
    for (part, drafted, steps) in drafted? {
        books.push(part);
        nodes.extend(drafted);
        node_steps.extend(steps);
    }
    let mut unknown = RowBook::default().traced(focus);
    for (key, pods) in on_unknown_nodes {
        for (uid, pod) in gather(&pods, rules) {
            let drafts = unknown_node::draft(key, &uid, &pod, rules)?;
            drafts.into_iter().try_for_each(|draft| unknown.add(draft))?;
        }
    }
    books.push(unknown);
    let part = |pods: &[PlacedPod<'_>]| {
        let mut book = RowBook::with_capacity(pods.len()).traced(focus);
        for pod in pods {
            nodeless::draft(pod, rules)?.into_iter().try_for_each(|draft| book.add_paid(draft))?;
        }
        Ok(book)
    };
    books.extend(in_order(&nodeless, PODS_OF_A_PART, part)?);
    books.push(bought(slices, bills, focus)?);
    let mut book = RowBook::of(books, focus)?;
    let mut steps = book.take_trace();
    let mut rounded = book.finish()?;
    let shared = shared::rows(timeline, bills, rules, &rounded.rows, focus)?;
    rounded.append(shared.rounded)?;
    steps.extend(shared.steps);
    Ok((rounded, nodes, RowsTrace { nodes: node_steps, rows: steps, divisions: shared.divisions }))
}

/// Drafts the rows of agreements, and of lines of bills for agreements.
///
/// # Errors
/// If an amount does not fit its column.
fn bought(slices: &Slices, bills: &HourBills, focus: Option<&Arc<Focus>>) -> Result<RowBook, EngineError> {
    let mut book = RowBook::default().traced(focus);
    for slices in slices.reservations.values() {
        reservation::draft(slices)?.into_iter().try_for_each(|draft| book.add_paid(draft))?;
    }
    for hour in slices.commitments.values() {
        commitment::draft(hour, &mut book)?;
    }
    bill::draft(bills, &mut book)?;
    Ok(book)
}
