//! Places of nodes on the walk of a commitment (RULES.md, section 3).
//!
//! **Precedence**: clusters assigned with a priority come first (1 is highest), then clusters assigned
//! without a priority, then all others. Within a rank, nodes are ordered by start, node id, cluster id.

use std::sync::Arc;

use prorata_schemas::event::CommitmentSet;
use prorata_schemas::ids::{ClusterId, NodeId};
use prorata_schemas::time::Timestamp;

use crate::model::spec::NodeSpec;
use crate::model::state::NodeKey;

/// A running node of a family.
#[derive(Clone, Debug)]
pub(crate) struct FamilyNode {
    pub(crate) spec: Arc<NodeSpec>,
    pub(crate) start: Timestamp,
}

/// A node and its start.
pub(crate) type NodeRun = (NodeKey, Timestamp);

/// The place of a node on the walk of a commitment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) rank: ClusterRank,
    pub(crate) start: Timestamp,
    node_id: NodeId,
    cluster_id: ClusterId,
}

impl Place {
    /// Returns the place of a node on the walk of this commitment.
    pub(crate) fn new(commitment: &CommitmentSet, run: &NodeRun) -> Self {
        Self::unassigned(run).on_walk_of(commitment)
    }

    /// Returns the place of a node on the walk of a commitment without assignments.
    pub(crate) fn unassigned(((cluster_id, node_id), start): &NodeRun) -> Self {
        let (node_id, cluster_id) = (node_id.clone(), cluster_id.clone());
        Self { rank: ClusterRank::Other, start: *start, node_id, cluster_id }
    }

    /// Returns the place of the same node on the walk of this commitment.
    pub(crate) fn on_walk_of(&self, commitment: &CommitmentSet) -> Self {
        Self { rank: rank(commitment, &self.cluster_id), ..self.clone() }
    }

    /// Returns the node and its start.
    pub(crate) fn run(&self) -> NodeRun {
        self.clone().into_run()
    }

    /// Converts the place to the node and its start.
    pub(crate) fn into_run(self) -> NodeRun {
        ((self.cluster_id, self.node_id), self.start)
    }
}

/// The rank of a cluster, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClusterRank {
    /// Assigned with a priority; 1 is the highest.
    Priority(i32),
    /// Assigned without a priority.
    Assigned,
    /// Not assigned.
    Other,
}

/// Returns the best rank that the assignments give a cluster.
fn rank(commitment: &CommitmentSet, cluster: &str) -> ClusterRank {
    let assigned = commitment.assignments.iter().filter(|assignment| &*assignment.cluster_id == cluster);
    let ranks =
        assigned.map(|assignment| assignment.priority.map_or(ClusterRank::Assigned, ClusterRank::Priority));
    ranks.min().unwrap_or(ClusterRank::Other)
}

impl std::fmt::Display for ClusterRank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Priority(priority) => write!(f, "assigned with priority {priority}"),
            Self::Assigned => f.write_str("assigned without priority"),
            Self::Other => f.write_str("not assigned"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_with_a_priority_come_before_assigned_ones_and_those_before_others() {
        use ClusterRank::{Assigned, Other, Priority};
        assert!([Priority(1), Priority(2), Priority(i32::MAX), Assigned, Other].is_sorted());
    }
}
