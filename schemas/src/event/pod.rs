//! Events of pods.
//!
//! Where a pod runs decides what it costs: a pod that names a node costs a share of that node; one that names
//! only a GPU pool costs its charge there; one that names neither ("serverless") is priced by the rate card.

use serde::{Deserialize, Serialize};

use super::{Labels, Quantities, shared};
use crate::Text;
use crate::ids::{ClusterId, NodeId, PodUid, PoolId};
use crate::time::Timestamp;

/// A pod runs, or its description changes. Natural key: pod_uid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStarted {
    /// The cluster that the pod belongs to.
    pub cluster_id: ClusterId,
    /// Its Kubernetes namespace, never empty; quotas govern pods by namespace.
    #[serde(deserialize_with = "shared::text")]
    pub namespace: Text,
    /// Its Kubernetes name; may be empty, and need not be unique.
    #[serde(deserialize_with = "shared::text")]
    pub pod_name: Text,
    /// The uid that Kubernetes gave it.
    pub pod_uid: PodUid,
    /// When the Kubernetes object was created. Under a quota, pods are counted in this order, in whole
    /// seconds.
    pub created_at: Timestamp,
    /// Its Kubernetes priority, which may be negative. Under a quota, a lower one counts first among pods
    /// created in the same second.
    pub priority: i32,
    /// The node that it runs on; null: none of its own. It is unpriced while that node is not running.
    pub node_id: Option<NodeId>,
    /// Region of a serverless pod: selects its rate and the reservations that can serve it. Null: not known,
    /// and so without a rate.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub region: Option<Text>,
    /// Availability zone of a serverless pod: a reservation in one zone serves only pods of that zone. Null:
    /// not known.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub zone: Option<Text>,
    /// The GPU pool that prices it; null: none.
    pub pool_id: Option<PoolId>,
    /// Quality of service: selects the price in a pool and in the rate card. `default` unless the producer
    /// sets it; in a pool, `default` and the empty text mean the pool's own default.
    #[serde(deserialize_with = "shared::text")]
    pub qos: Text,
    /// The GPU model that it asks for; null: none. A rate or a reservation must name the same one.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub gpu_model: Option<Text>,
    /// What it requests. The producer has already folded its containers and init containers. In a pool,
    /// TFLOPs and VRAM are per GPU.
    #[serde(deserialize_with = "shared::quantities")]
    pub requests: Quantities,
    /// Its limits, folded in the same way; only those on TFLOPs and VRAM (per GPU) cost anything.
    #[serde(deserialize_with = "shared::quantities")]
    pub limits: Quantities,
    /// Kind of the workload that owns it, such as `Deployment`; null: none. Reported only.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub workload_kind: Option<Text>,
    /// Name of the workload that owns it; null: none. Reported only.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub workload_name: Option<Text>,
    /// Its Kubernetes labels, value by name. Reported only.
    #[serde(deserialize_with = "shared::labels")]
    pub labels: Labels,
    /// Until when, exclusive, it is protected from eviction, which raises its charge in a pool; null: not
    /// protected.
    pub eviction_protected_until: Option<Timestamp>,
}

/// A pod stops. Natural key: pod_uid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStopped {
    /// The pod's cluster. Not compared: the uid alone names the pod.
    pub cluster_id: ClusterId,
    /// The pod's namespace; may be empty. Not compared.
    pub namespace: Text,
    /// The pod that stops. Nothing happens if it is not running.
    pub pod_uid: PodUid,
    /// Why it stopped, such as `Completed` or `Evicted`; null: not known. Not used.
    pub reason: Option<Text>,
}

/// Measured use of a pod over [event_time, interval_end). Natural key: pod_uid, event_time.
///
/// At each instant, of the samples that cover it, the one that started last counts. Time without a sample
/// counts as no use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUsage {
    /// The pod that was measured. Only the time in which it runs counts.
    pub pod_uid: PodUid,
    /// End of the interval, exclusive: from `event_time` to one hour after it.
    pub interval_end: Timestamp,
    /// Average CPU use over the interval, in thousandths of a vCPU; zero or more.
    pub cpu_millis: i64,
    /// Average memory use over the interval, in bytes; zero or more.
    pub memory_bytes: i64,
    /// Average GPU use over the interval, in thousandths of a GPU; zero or more. Of a shared GPU, the pod's
    /// part.
    pub gpu_millis: i64,
}
