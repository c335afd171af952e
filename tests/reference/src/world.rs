//! All objects of one organization as they are at one instant.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{
    BillSet, CommitmentSet, NodeStarted, PodStarted, PoolSet, QuotaSet, RateSet, ReservationSet,
};
use prorata_schemas::ids::{ClusterId, CommitmentId, NodeId, PodUid, PoolId, QuotaId, ReservationId};

use crate::names;

/// Cluster and node.
pub type NodeKey = (ClusterId, NodeId);

/// Cluster and quota.
pub type QuotaKey = (ClusterId, QuotaId);

/// Region, GPU model and quality of service. Region and GPU model are canonical names.
pub type RateKey = (String, Option<String>, Text);

/// Returns the key of rates, and of the pods that they price.
pub fn rate_key(region: &Text, gpu_model: Option<&Text>, qos: &Text) -> RateKey {
    (names::place(region), names::optional_gpu_model(gpu_model), qos.clone())
}

/// The provider's canonical name, and the key under which the provider bills nodes.
pub type BillKey = (String, Text);

/// Everything that is true at one instant.
#[derive(Clone, Default)]
pub struct World {
    /// Rates by key; never deleted.
    pub rates: BTreeMap<RateKey, Arc<RateSet>>,
    /// Pools that are set.
    pub pools: BTreeMap<PoolId, Arc<PoolSet>>,
    /// Quotas that exist.
    pub quotas: BTreeMap<QuotaKey, Quota>,
    /// Commitments from their first Set to their deletion.
    pub commitments: BTreeMap<CommitmentId, Arc<CommitmentSet>>,
    /// The last description of every commitment, including deleted commitments.
    pub last_commitments: BTreeMap<CommitmentId, Arc<CommitmentSet>>,
    /// Reservations from their first Set to their release.
    pub reservations: BTreeMap<ReservationId, Reservation>,
    /// Running nodes.
    pub nodes: BTreeMap<NodeKey, Node>,
    /// Running pods.
    pub pods: BTreeMap<PodUid, Pod>,
    /// Matches of pods, by pod uid.
    pub matches: BTreeMap<PodUid, Match>,
    /// Bills with a line that has not ended.
    pub bills: Vec<Bill>,
}

/// Lines of a bill that begin together.
#[derive(Clone)]
pub struct Bill {
    /// The start of all lines, in microseconds.
    pub start: i64,
    /// The lines.
    pub set: Arc<BillSet>,
    /// Whether the lines count: their currency is the organization's.
    pub counts: bool,
}

impl Bill {
    /// Returns the end of the last line, in microseconds.
    pub fn end(&self) -> i64 {
        self.set.lines.iter().map(|line| line.period_end.0).max().unwrap_or(self.start)
    }
}

/// A quota that exists.
#[derive(Clone)]
pub struct Quota {
    /// The time of the first Set since the quota last did not exist, in microseconds.
    pub first_set: i64,
    /// The description.
    pub set: Arc<QuotaSet>,
}

/// A reservation that exists.
#[derive(Clone)]
pub struct Reservation {
    /// The description.
    pub set: Arc<ReservationSet>,
    /// Whether the reservation is effective.
    pub effective: bool,
}

/// A running node.
#[derive(Clone)]
pub struct Node {
    /// The start in microseconds.
    pub start: i64,
    /// The description.
    pub set: Arc<NodeStarted>,
}

/// A running pod.
#[derive(Clone)]
pub struct Pod {
    /// The start in microseconds.
    pub start: i64,
    /// The description.
    pub set: Arc<PodStarted>,
}

/// The unit of a reservation that a pod holds.
#[derive(Clone)]
pub struct Match {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The start of the match in microseconds.
    pub since: i64,
}

/// The way in which a pod is billed at an instant.
pub enum Billing {
    /// A share of a running node.
    Node(NodeKey),
    /// A pod that names a node that is not running.
    UnknownNode(NodeKey),
    /// A pool pod that names no node.
    Pool,
    /// A pod that names neither pool nor node.
    Serverless,
}

impl World {
    /// Returns whether nothing but bills exists now that could matter later.
    pub fn is_empty(&self) -> bool {
        let set = self.rates.is_empty() && self.pools.is_empty() && self.quotas.is_empty();
        let bought = self.commitments.is_empty() && self.reservations.is_empty();
        set && bought && self.nodes.is_empty() && self.pods.is_empty()
    }

    /// Returns how this pod is billed now.
    pub fn billing(&self, pod: &PodStarted) -> Billing {
        match (&pod.node_id, &pod.pool_id) {
            (Some(node_id), _) => {
                let key = (pod.cluster_id.clone(), node_id.clone());
                if self.nodes.contains_key(&key) { Billing::Node(key) } else { Billing::UnknownNode(key) }
            }
            (None, Some(_)) => Billing::Pool,
            (None, None) => Billing::Serverless,
        }
    }
}
