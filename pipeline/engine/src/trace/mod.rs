//! The engine's steps to some rows: every step that a person needs to follow them, in exact numbers.
//!
//! [`Focus`] selects the rows. The engine records a step where it takes it, or reads it from the input and
//! the output of the rules. Nothing here computes a cost. Without a focus, nothing is recorded.

mod bills;
mod number;
mod steps;

use std::collections::BTreeSet;
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::ids::{CommitmentId, PodUid, ReservationId};
use prorata_schemas::rows::{CostRow, RowKind};
use serde::Serialize;

use crate::model::state::{NodeKey, QuotaKey};

pub use bills::{BillFigures, BillStep, DivisionStep};
pub use number::ExactNumber;
pub use steps::{
    CommitmentSpan, ComponentStep, LabelStep, MatchOutcome, MatchStep, NodePod, NodePodLabel, NodeSpan,
    NodeStep, PlanStep, PlanUsage, PodSpan, PoolStep, PricedTime, RankedPod, RateStep, ReservationSpan,
    RowStep, UnitStep, WalkStep,
};

pub(crate) use number::{covered_units, exact, in_hours, in_units, money};

/// The pods, nodes and agreements whose steps a trace holds.
#[derive(Clone, Debug, Default)]
pub struct Focus {
    /// Pods, with their time and their matches.
    pub pods: BTreeSet<PodUid>,
    /// Nodes, with their costs and all their rows.
    pub nodes: BTreeSet<NodeKey>,
    /// Reservations.
    pub reservations: BTreeSet<ReservationId>,
    /// Commitments.
    pub commitments: BTreeSet<CommitmentId>,
    /// Resources of bills, by the key in the bill, whose lines are recorded.
    pub bills: BTreeSet<Text>,
    /// Quotas, whose order of pods is recorded whenever the label of a pod in focus changes.
    pub quotas: BTreeSet<QuotaKey>,
}

impl Focus {
    /// Returns whether the focus includes the walk of a commitment to a node.
    pub(crate) fn has_walk(&self, id: &CommitmentId, node: &NodeKey) -> bool {
        self.nodes.contains(node) || self.commitments.contains(id)
    }

    /// Returns whether the focus includes a row.
    pub fn has_row(&self, row: &CostRow) -> bool {
        let has_pod = row.pod_uid.as_ref().is_some_and(|uid| self.pods.contains(uid));
        let has_node = || match (row.kind, &row.cluster_id) {
            (RowKind::PodNode | RowKind::NodeIdle, Some(cluster_id)) => {
                self.nodes.contains(&(cluster_id.clone(), row.resource_id.clone().into()))
            }
            _ => false,
        };
        let has_reservation = || match (row.kind, &row.reservation_id) {
            (RowKind::ReservationUnused, Some(id)) => self.reservations.contains(id),
            _ => false,
        };
        let has_commitment = || row.commitment_id.as_ref().is_some_and(|id| self.commitments.contains(id));
        let has_line = || row.lines.iter().any(|line| self.bills.contains(&line.set.resource_key));
        has_pod || has_node() || has_reservation() || has_commitment() || has_line()
    }
}

/// The steps to the rows in focus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// Stretches of nodes, by key and price.
    pub nodes: Vec<NodeStep>,
    /// Walks of commitments over nodes, in order of time and of the walk. Walks of reserved instances, which
    /// cover the clock hour, come last.
    pub walks: Vec<WalkStep>,
    /// Walks of savings plans over usage, in the order of the walk.
    pub plans: Vec<PlanStep>,
    /// Matches of pods with units of reservations, in order of time.
    pub matches: Vec<MatchStep>,
    /// Orders and labels of the pods of quotas, in order of time.
    pub labels: Vec<LabelStep>,
    /// Time of pods, by pod and time.
    pub pods: Vec<PodSpan>,
    /// Time of reservations, by reservation and time.
    pub reservations: Vec<ReservationSpan>,
    /// Time of commitments, by commitment and time.
    pub commitments: Vec<CommitmentSpan>,
    /// Parts of lines of bills, in order of the lines.
    pub bills: Vec<BillStep>,
    /// Charges of bills that pods divide, in order of volume or entry.
    pub divisions: Vec<DivisionStep>,
    /// Costs of all rows in focus before rounding.
    pub rows: Vec<RowStep>,
}

/// A recorder of steps of one kind. Without a focus, it records nothing.
#[derive(Debug)]
pub(crate) struct Recorder<T>(Option<(Arc<Focus>, Vec<T>)>);

impl<T> Default for Recorder<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Recorder<T> {
    pub(crate) fn new(focus: Option<&Arc<Focus>>) -> Self {
        Self(focus.map(|focus| (Arc::clone(focus), Vec::new())))
    }

    /// Returns the focus. `None` if nothing is recorded.
    pub(crate) fn focus(&self) -> Option<&Focus> {
        self.0.as_ref().map(|(focus, _)| &**focus)
    }

    /// Returns whether there is a focus that satisfies `wanted`.
    pub(crate) fn wants(&self, wanted: impl FnOnce(&Focus) -> bool) -> bool {
        self.focus().is_some_and(wanted)
    }

    pub(crate) fn push(&mut self, step: T) {
        if let Some((_, steps)) = &mut self.0 {
            steps.push(step);
        }
    }

    pub(crate) fn steps(&self) -> &[T] {
        self.0.as_ref().map(|(_, steps)| steps.as_slice()).unwrap_or_default()
    }

    pub(crate) fn finish(self) -> Vec<T> {
        self.0.map(|(_, steps)| steps).unwrap_or_default()
    }
}
