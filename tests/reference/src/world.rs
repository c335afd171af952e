//! All objects of one organization as they are at one instant.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{
    CommitmentSet, NodeStarted, PodStarted, PoolSet, QuotaSet, RateSet, ReservationSet,
};

/// A cluster and the id of a node or quota in it.
pub type InCluster = (Text, Text);

/// Region, GPU model and quality of service.
pub type RateKey = (Text, Option<Text>, Text);

/// Everything that is true at one instant.
#[derive(Clone, Default)]
pub struct World {
    /// Rates by key; never deleted.
    pub rates: BTreeMap<RateKey, Arc<RateSet>>,
    /// Pools that are set.
    pub pools: BTreeMap<Text, Arc<PoolSet>>,
    /// Quotas that exist.
    pub quotas: BTreeMap<InCluster, Quota>,
    /// Commitments from their first Set to their deletion.
    pub commitments: BTreeMap<Text, Arc<CommitmentSet>>,
    /// The last description of every commitment, deleted ones too.
    pub last_commitments: BTreeMap<Text, Arc<CommitmentSet>>,
    /// Reservations from their first Set to their release.
    pub reservations: BTreeMap<Text, Reservation>,
    /// Running nodes.
    pub nodes: BTreeMap<InCluster, Node>,
    /// Running pods.
    pub pods: BTreeMap<Text, Pod>,
    /// Matches of pods, by pod uid.
    pub matches: BTreeMap<Text, Match>,
}

/// A quota that exists.
#[derive(Clone)]
pub struct Quota {
    /// Its first Set since it last did not exist, in microseconds.
    pub first_set: i64,
    /// Its description.
    pub set: Arc<QuotaSet>,
}

/// A reservation that exists.
#[derive(Clone)]
pub struct Reservation {
    /// Its description.
    pub set: Arc<ReservationSet>,
    /// Whether it is effective.
    pub effective: bool,
}

/// A running node.
#[derive(Clone)]
pub struct Node {
    /// When it started.
    pub start: i64,
    /// Its description.
    pub set: Arc<NodeStarted>,
}

/// A running pod.
#[derive(Clone)]
pub struct Pod {
    /// When it started.
    pub start: i64,
    /// Its description.
    pub set: Arc<PodStarted>,
}

/// The unit of a reservation that a pod holds.
#[derive(Clone)]
pub struct Match {
    /// The reservation.
    pub reservation_id: Text,
    /// Since when.
    pub since: i64,
}

/// How a pod is billed at an instant.
pub enum Billing {
    /// A share of a running node.
    Node(InCluster),
    /// It names a node that is not running.
    UnknownNode(InCluster),
    /// A pool pod that names no node.
    Pool,
    /// Neither pool nor node.
    Serverless,
}

impl World {
    /// How this pod is billed now.
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
