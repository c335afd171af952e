//! From slices to the hour's rows of `cost_allocation` (RULES.md, section 10).

pub(crate) mod commitment;
pub(crate) mod draft;
pub(crate) mod group;
pub(crate) mod node;
pub(crate) mod nodeless;
pub(crate) mod reservation;
pub(crate) mod unknown_node;

use std::collections::BTreeMap;

use prorata_schemas::ids::PodUid;
use prorata_schemas::rules::Rules;

use crate::error::EngineError;
use crate::rows::draft::{RoundedRows, RowBook};
use crate::rows::group::{Placement, PodHours};
use crate::rows::node::NodeRows;
use crate::rules::split::{NodeHour, WeightScale};
use crate::timeline::Timeline;
use crate::timeline::slices::PodSlice;
use crate::timeline::state::{NodeKey, Sample};

/// The nodes that ran, for the tables.
pub(crate) type Nodes<'a> = BTreeMap<&'a NodeKey, NodeHour>;

/// All rows of an hour, rounded.
///
/// # Errors
/// When an amount passes its column, or a charge's rows do not add up to it.
pub(crate) fn rows<'a>(
    timeline: &'a Timeline,
    rules: &Rules,
) -> Result<(RoundedRows, Nodes<'a>), EngineError> {
    let slices = &timeline.slices;
    let Placement { mut on_nodes, on_unknown_nodes, nodeless } = Placement::new(&slices.pods);
    let samples = |uid: &PodUid| -> &[Sample] { timeline.samples.get(uid).map_or(&[], Vec::as_slice) };
    let gather = |pods: Vec<(&PodUid, Vec<&PodSlice>)>| -> Vec<(PodUid, PodHours)> {
        let hours = pods
            .into_iter()
            .filter_map(|(uid, slices)| Some((uid.clone(), PodHours::gather(&slices, samples(uid), rules)?)));
        hours.collect()
    };
    // Most pods have one row, and some nodes an idle one.
    let mut book = RowBook::with_capacity(slices.pods.len() + slices.nodes.len());
    let mut nodes = Nodes::new();
    let scale = WeightScale::new(&rules.weights);
    for (key, node_slices) in &slices.nodes {
        let Some(node) = NodeHour::new(node_slices, &scale) else { continue };
        let pods = gather(on_nodes.remove(key).unwrap_or_default());
        let rows = NodeRows { key, node: &node, pods: &pods, rules };
        rows.draft(&mut book)?;
        nodes.insert(key, node);
    }
    for (key, pods) in on_unknown_nodes {
        for (uid, pod) in gather(pods) {
            unknown_node::draft(key, &uid, &pod, rules)?.into_iter().try_for_each(|draft| book.add(draft))?;
        }
    }
    for (uid, slices) in nodeless {
        let drafts = nodeless::draft(uid, &slices, samples(uid), rules)?;
        drafts.into_iter().try_for_each(|draft| book.add(draft))?;
    }
    for slices in slices.reservations.values() {
        reservation::draft(slices)?.into_iter().try_for_each(|draft| book.add(draft))?;
    }
    for hour in slices.commitments.values() {
        commitment::draft(hour, &mut book)?;
    }
    Ok((book.finish()?, nodes))
}
