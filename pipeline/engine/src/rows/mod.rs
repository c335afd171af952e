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
use crate::rows::draft::{ChargeTotals, Draft};
use crate::rows::group::{Placement, PodHours};
use crate::rows::node::NodeRows;
use crate::rules::split::{NodeHour, WeightScale};
use crate::timeline::Timeline;
use crate::timeline::slices::PodSlice;
use crate::timeline::state::{NodeKey, Sample};

/// All rows of an hour before rounding, with the totals of shared charges.
#[derive(Debug, Default)]
pub(crate) struct Drafts {
    pub(crate) rows: Vec<Draft>,
    pub(crate) totals: ChargeTotals,
    /// The nodes that ran, for the tables.
    pub(crate) nodes: BTreeMap<NodeKey, NodeHour>,
}

/// Drafts all rows of an hour.
///
/// # Errors
/// When an amount passes its column.
pub(crate) fn draft(timeline: &Timeline, rules: &Rules) -> Result<Drafts, EngineError> {
    let slices = &timeline.slices;
    let Placement { mut on_nodes, on_unknown_nodes, nodeless } = Placement::new(&slices.pods);
    let samples = |uid: &PodUid| -> &[Sample] { timeline.samples.get(uid).map_or(&[], Vec::as_slice) };
    let gather = |pods: Vec<(&PodUid, Vec<&PodSlice>)>| -> Vec<(PodUid, PodHours)> {
        let hours = pods
            .into_iter()
            .filter_map(|(uid, slices)| Some((uid.clone(), PodHours::gather(&slices, samples(uid), rules)?)));
        hours.collect()
    };
    let mut drafts = Drafts::default();
    let scale = WeightScale::new(&rules.weights);
    let mut idle = Vec::new();
    for (key, node_slices) in &slices.nodes {
        let Some(node) = NodeHour::new(node_slices, &scale) else { continue };
        let pods = gather(on_nodes.remove(key).unwrap_or_default());
        let rows = NodeRows { key, node: &node, pods: &pods, rules };
        rows.draft(&mut drafts.rows, &mut idle, &mut drafts.totals)?;
        drafts.nodes.insert(key.clone(), node);
    }
    for (key, pods) in on_unknown_nodes {
        for (uid, pod) in gather(pods) {
            drafts.rows.extend(unknown_node::draft(key, &uid, &pod, rules)?);
        }
    }
    drafts.rows.append(&mut idle);
    for (uid, slices) in nodeless {
        drafts.rows.extend(nodeless::draft(uid, &slices, samples(uid), rules)?);
    }
    for slices in slices.reservations.values() {
        drafts.rows.extend(reservation::draft(slices)?);
    }
    for hour in slices.commitments.values() {
        drafts.rows.extend(commitment::draft(hour, &mut drafts.totals)?);
    }
    Ok(drafts)
}
