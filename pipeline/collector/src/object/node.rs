//! Nodes.

use serde::Deserialize;

use super::{ObjectMeta, ResourceList, or_default};

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The specification of the node.
    pub spec: NodeSpec,
    /// The status of the node.
    pub status: NodeStatus,
}

/// The specification of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// The node's instance at the provider, such as `aws:///us-east-1a/i-0abc`.
    #[serde(rename = "providerID", deserialize_with = "or_default")]
    pub provider_id: String,
    /// Taints.
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
}

/// A taint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Key of the taint.
    pub key: String,
}

/// The status of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// The whole capacity of the node, including the part that is not allocatable.
    #[serde(deserialize_with = "or_default")]
    pub capacity: ResourceList,
}
