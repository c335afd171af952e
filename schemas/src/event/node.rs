//! Events of nodes.

use serde::{Deserialize, Serialize};

use super::Quantities;
use crate::Text;
use crate::ids::{ClusterId, NodeId, PoolId};
use crate::money::UnitPrice;
use crate::quantity::Quantity;
use crate::sharing::shared;
use crate::size::{Size, replicas};

/// The way in which a node's capacity was bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CapacityType {
    /// On demand: commitments may cover the node.
    OnDemand,
    /// Spot: commitments never cover the node.
    Spot,
}

/// A node runs, or its description changes. Natural key: cluster_id, node_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStarted {
    /// The cluster that the node belongs to.
    pub cluster_id: ClusterId,
    /// The node id, unique in the cluster. Pods refer to it in their `node_id`.
    pub node_id: NodeId,
    /// Display name; may be empty, and need not be unique.
    #[serde(deserialize_with = "shared::text")]
    pub node_name: Text,
    /// The cloud provider that bills the node, such as `aws`. A commitment covers only nodes of its own
    /// provider.
    #[serde(deserialize_with = "shared::text")]
    pub provider: Text,
    /// The provider's region, such as `us-east-1`. A commitment covers only nodes of its own region.
    #[serde(deserialize_with = "shared::text")]
    pub region: Text,
    /// The provider's availability zone; `None` if unknown. It is reported and never compared.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub zone: Option<Text>,
    /// The provider's instance type, such as `p5.48xlarge`. It is reported and never compared.
    #[serde(deserialize_with = "shared::text")]
    pub instance_type: Text,
    /// The provider's instance family, such as `p5`. A commitment covers only nodes of its own family.
    #[serde(deserialize_with = "shared::text")]
    pub instance_family: Text,
    /// Whether the node is on demand or spot. Commitments cover only on-demand nodes.
    pub capacity_type: CapacityType,
    /// Capacity of the whole node. The node's cost is split over its vCPU, memory and GPUs.
    #[serde(deserialize_with = "shared::quantities")]
    pub capacity: Quantities,
    /// Model of the node's GPUs; `None` if it has no GPU or the model is unknown. A commitment that names a
    /// model covers only GPUs of that model.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub gpu_model: Option<Text>,
    /// Price of the whole node per hour before any commitment, in `currency`; zero or more.
    pub hourly_cost: UnitPrice,
    /// Currency of the price (ISO 4217), which must be the organization's configured currency.
    #[serde(deserialize_with = "shared::text")]
    pub currency: Text,
    /// The GPU pool that the node provides capacity to; `None` if there is none.
    pub pool_id: Option<PoolId>,
    /// Number of physical GPUs of the node, in thousandths. `None` if the GPUs are counted in `capacity`,
    /// whose resources may stand for parts of a GPU.
    pub gpus: Option<Quantity>,
    /// Id under which the provider bills the node, such as `i-0123456789abcdef0`; `None` if it is unknown.
    /// Lines of bills with this key replace the node's price.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub resource_key: Option<Text>,
    /// The provider's account, project or subscription that is billed for the node; `None` if it is unknown.
    /// It is only reported.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub account_id: Option<Text>,
}

impl NodeStarted {
    /// Returns the size of the node: its capacity, with its physical GPUs if they are given. A node whose
    /// capacity lists only replicas of GPUs counts as one GPU, the least that it can have.
    pub fn size(&self, gpu_resources: &[Text]) -> Size {
        let mut size = Size::of(&self.capacity, gpu_resources);
        if size.gpu_millis == 0 && replicas(&self.capacity, gpu_resources) > 0 {
            size.gpu_millis = 1000;
        }
        size.with_gpus(self.gpus.as_ref())
    }
}

/// A node stops, and every pod on it stops with it. Natural key: cluster_id, node_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStopped {
    /// The node's cluster.
    pub cluster_id: ClusterId,
    /// The node that stops. Nothing happens if it is not running.
    pub node_id: NodeId,
}
