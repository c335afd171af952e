//! Nodes.

use serde::Deserialize;

use super::{ObjectMeta, ResourceList, or_default};

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it is.
    pub spec: NodeSpec,
    /// What it has.
    pub status: NodeStatus,
}

/// What a node is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Its instance at the provider, such as `aws:///us-east-1a/i-0abc`.
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
    /// Its key.
    pub key: String,
}

/// What a node has.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Its whole capacity, of which some is not allocatable.
    #[serde(deserialize_with = "or_default")]
    pub capacity: ResourceList,
}
