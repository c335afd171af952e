//! Pods.

use prorata_schemas::Text;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{ObjectMeta, ResourceList, or_default};
use crate::instant::Instant;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The specification of the pod.
    pub spec: PodSpec,
    /// The status of the pod.
    pub status: PodStatus,
}

/// The specification of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Name of the pod's node; empty if the pod is not bound.
    #[serde(deserialize_with = "or_default")]
    pub node_name: String,
    /// Priority of the pod.
    pub priority: Option<i32>,
    /// Containers.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Init containers, in order.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    /// Resources that the runtime class adds.
    #[serde(deserialize_with = "or_default")]
    pub overhead: ResourceList,
    /// Resources of the pod as a whole.
    pub resources: Option<Resources>,
    /// Claims for devices.
    #[serde(deserialize_with = "or_default")]
    pub resource_claims: Vec<PodClaim>,
    /// Volumes.
    #[serde(deserialize_with = "or_default")]
    pub volumes: Vec<PodVolume>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name of the container, which its status refers to.
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

/// A claim that a pod names directly or by a template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaim {
    /// Name of the claim within the pod.
    pub name: String,
    /// Name of the claim. `None` if it is made from a template, and the status names it.
    pub resource_claim_name: Option<Text>,
}

/// A volume of a pod. Neither field but the name is set if it is no persistent volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVolume {
    /// Name of the volume within the pod.
    pub name: String,
    /// The claim for the volume.
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// The template of a claim that is made for the pod; only its presence is kept.
    pub ephemeral: Option<IgnoredAny>,
}

/// The claim of a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    /// Name of the claim.
    pub claim_name: String,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
    /// Reason for a failure, such as `Evicted`.
    pub reason: Option<Text>,
    /// Time at which the kubelet accepted the pod.
    pub start_time: Option<Instant>,
    /// Conditions.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<PodCondition>,
    /// Statuses of the containers.
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Statuses of the init containers.
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
    /// Type of the condition, such as `PodScheduled`.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason for the status.
    pub reason: Option<Text>,
    /// Time at which the status last changed.
    pub last_transition_time: Option<Instant>,
}

/// Status of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Name of the container.
    pub name: String,
    /// The present state.
    #[serde(deserialize_with = "or_default")]
    pub state: ContainerState,
    /// The state before the last restart.
    #[serde(deserialize_with = "or_default")]
    pub last_state: ContainerState,
    /// Resources that the kubelet has allocated.
    #[serde(deserialize_with = "or_default")]
    pub allocated_resources: ResourceList,
    /// Resources that the runtime has set. `None` if they are not known; resizes are then ignored.
    pub resources: Option<Resources>,
}

/// The state of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Set if the container runs.
    pub running: Option<Running>,
    /// Set if the container has ended.
    pub terminated: Option<Terminated>,
}

/// The state of a running container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Time of the start.
    pub started_at: Option<Instant>,
}

/// The state of a container that has ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Reason for the end, such as `Completed` or `OOMKilled`.
    pub reason: Option<Text>,
    /// Time of the start.
    pub started_at: Option<Instant>,
    /// Time of the end.
    pub finished_at: Option<Instant>,
}

/// Name of a claim that was made from a template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimNameStatus {
    /// Name of the claim within the pod.
    pub name: String,
    /// Name of the claim. `None` if the pod needs no claim.
    pub resource_claim_name: Option<Text>,
}
