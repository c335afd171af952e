//! Pods.

use prorata_schemas::Text;
use serde::Deserialize;

use super::{ObjectMeta, ResourceList, or_default};
use crate::instant::Instant;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What was asked for.
    pub spec: PodSpec,
    /// What is.
    pub status: PodStatus,
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Name of its node; empty: not bound.
    #[serde(deserialize_with = "or_default")]
    pub node_name: String,
    /// Its priority.
    pub priority: Option<i32>,
    /// Containers.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Init containers, in their order.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    /// What its runtime class adds.
    #[serde(deserialize_with = "or_default")]
    pub overhead: ResourceList,
    /// Resources of the pod as a whole.
    pub resources: Option<Resources>,
    /// Claims of devices.
    #[serde(deserialize_with = "or_default")]
    pub resource_claims: Vec<PodClaim>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name, by which its status is found.
    pub name: String,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
    /// Requests and limits.
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Requests.
    #[serde(deserialize_with = "or_default")]
    pub requests: ResourceList,
    /// Limits.
    #[serde(deserialize_with = "or_default")]
    pub limits: ResourceList,
}

/// A claim that a pod names, directly or by a template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaim {
    /// Its name within the pod.
    pub name: String,
    /// Name of the claim; none: made from a template, and the status names it.
    pub resource_claim_name: Option<Text>,
}

/// What a pod is doing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
    /// Why it failed, such as `Evicted`.
    pub reason: Option<Text>,
    /// When the kubelet accepted it.
    pub start_time: Option<Instant>,
    /// Conditions.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<PodCondition>,
    /// Statuses of its containers.
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Statuses of its init containers.
    #[serde(deserialize_with = "or_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Names of the claims made from templates.
    #[serde(deserialize_with = "or_default")]
    pub resource_claim_statuses: Vec<ClaimNameStatus>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// Its type, such as `PodScheduled`.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why.
    pub reason: Option<Text>,
    /// When its status last changed.
    pub last_transition_time: Option<Instant>,
}

/// Status of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its container.
    pub name: String,
    /// What it is doing.
    #[serde(deserialize_with = "or_default")]
    pub state: ContainerState,
    /// What it did before its last restart.
    #[serde(deserialize_with = "or_default")]
    pub last_state: ContainerState,
    /// What the kubelet has set aside for it.
    #[serde(deserialize_with = "or_default")]
    pub allocated_resources: ResourceList,
    /// What the runtime has set; none: not known, and so without a resize.
    pub resources: Option<Resources>,
}

/// What a container is doing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It runs.
    pub running: Option<Running>,
    /// It has ended.
    pub terminated: Option<Terminated>,
}

/// A container that runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Since when.
    pub started_at: Option<Instant>,
}

/// A container that has ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Why, such as `Completed` or `OOMKilled`.
    pub reason: Option<Text>,
    /// When it started.
    pub started_at: Option<Instant>,
    /// When it ended.
    pub finished_at: Option<Instant>,
}

/// Name of a claim that was made from a template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimNameStatus {
    /// Its name within the pod.
    pub name: String,
    /// Name of the claim; none: the pod needs none.
    pub resource_claim_name: Option<Text>,
}
