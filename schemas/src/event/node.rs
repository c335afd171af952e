//! Events of nodes.

use serde::{Deserialize, Serialize};

use super::{Quantities, shared};
use crate::Text;
use crate::ids::{ClusterId, NodeId, PoolId};
use crate::money::UnitPrice;

/// How a node's capacity was bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CapacityType {
    /// On demand: commitments may cover it.
    OnDemand,
    /// Spot: commitments never cover it.
    Spot,
}

/// A node runs, or its description changes. Natural key: cluster_id, node_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStarted {
    /// The cluster that the node belongs to.
    pub cluster_id: ClusterId,
    /// The node, unique in its cluster; pods name it in their `node_id`.
    pub node_id: NodeId,
    /// Its name for people; may be empty, and need not be unique.
    #[serde(deserialize_with = "shared::text")]
    pub node_name: Text,
    /// The cloud provider that bills it, such as `aws`. A commitment covers only nodes of its own provider.
    #[serde(deserialize_with = "shared::text")]
    pub provider: Text,
    /// The provider's region, such as `us-east-1`. A commitment covers only nodes of its own region.
    #[serde(deserialize_with = "shared::text")]
    pub region: Text,
    /// The provider's availability zone; null: not known. Reported, never compared.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub zone: Option<Text>,
    /// The provider's instance type, such as `p5.48xlarge`. Reported, never compared.
    #[serde(deserialize_with = "shared::text")]
    pub instance_type: Text,
    /// The provider's instance family, such as `p5`. A commitment covers only nodes of its own family.
    #[serde(deserialize_with = "shared::text")]
    pub instance_family: Text,
    /// Whether commitments may cover it.
    pub capacity_type: CapacityType,
    /// Capacity of the whole node. Its cost is split over its vCPU, memory and GPUs.
    #[serde(deserialize_with = "shared::quantities")]
    pub capacity: Quantities,
    /// Model of its GPUs; null: it has none, or the model is not known. A commitment that names a model
    /// covers only GPUs of that model.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub gpu_model: Option<Text>,
    /// Price of the whole node per hour before any commitment, in `currency`; zero or more.
    pub hourly_cost: UnitPrice,
    /// Currency of the price (ISO 4217); must be the organization's configured one.
    #[serde(deserialize_with = "shared::text")]
    pub currency: Text,
    /// The GPU pool that the node provides capacity to; null: none.
    pub pool_id: Option<PoolId>,
}

/// A node stops, and every pod on it stops with it. Natural key: cluster_id, node_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStopped {
    /// The node's cluster.
    pub cluster_id: ClusterId,
    /// The node that stops. Nothing happens if it is not running.
    pub node_id: NodeId,
}
