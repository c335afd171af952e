//! Events of pods.
//!
//! The place where a pod runs decides its cost. A pod that names a node costs a share of that node. A pod
//! that names only a GPU pool costs its charge there. A pod that names neither ("serverless") is priced by
//! the rate card.

use serde::{Deserialize, Serialize};

use super::{Labels, Quantities};
use crate::Text;
use crate::ids::{ClusterId, NodeId, PodUid, PoolId};
use crate::quantity::Quantity;
use crate::sharing::shared;
use crate::size::{Size, replicas};
use crate::time::Timestamp;

/// A pod runs, or its description changes. Natural key: pod_uid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStarted {
    /// The cluster that the pod belongs to.
    pub cluster_id: ClusterId,
    /// Kubernetes namespace, never empty. Quotas govern pods by namespace.
    #[serde(deserialize_with = "shared::text")]
    pub namespace: Text,
    /// Kubernetes name; may be empty, and need not be unique.
    #[serde(deserialize_with = "shared::text")]
    pub pod_name: Text,
    /// The uid that Kubernetes gave the pod.
    pub pod_uid: PodUid,
    /// The time at which the Kubernetes object was created. Pods count against a quota in order of this time,
    /// in whole seconds.
    pub created_at: Timestamp,
    /// Kubernetes priority; may be negative. Of pods created in the same second, the pod with the lower
    /// priority counts first against a quota.
    pub priority: i32,
    /// The node that the pod runs on; `None` if the pod names none. The pod is unpriced while that node is
    /// not running.
    pub node_id: Option<NodeId>,
    /// Region of a serverless pod. It selects the pod's rate and the reservations that can serve the pod.
    /// `None` if unknown; then no rate matches.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub region: Option<Text>,
    /// Availability zone of a serverless pod; `None` if unknown. A reservation in one zone serves only pods
    /// of that zone.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub zone: Option<Text>,
    /// The GPU pool that prices the pod; `None` if there is none.
    pub pool_id: Option<PoolId>,
    /// Quality of service. It selects the price in a pool and in the rate card, and is `default` unless the
    /// producer sets it. In a pool, `default` and the empty text mean the pool's own default.
    #[serde(deserialize_with = "shared::text")]
    pub qos: Text,
    /// The GPU model that the pod asks for; `None` if it asks for none. A rate or a reservation must name the
    /// same model.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub gpu_model: Option<Text>,
    /// Requested quantities. The producer has already combined the requests of containers and init
    /// containers. In a pool, TFLOPs and VRAM are per GPU.
    #[serde(deserialize_with = "shared::quantities")]
    pub requests: Quantities,
    /// Limits, combined like the requests. Only limits on TFLOPs and VRAM (per GPU) cost anything.
    #[serde(deserialize_with = "shared::quantities")]
    pub limits: Quantities,
    /// Kind of the workload that owns the pod, such as `Deployment`; `None` if no workload does. It is only
    /// reported.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub workload_kind: Option<Text>,
    /// Name of the workload that owns the pod; `None` if no workload does. It is only reported.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub workload_name: Option<Text>,
    /// Kubernetes labels, value by name. Reported only.
    #[serde(deserialize_with = "shared::labels")]
    pub labels: Labels,
    /// The instant at which the pod's protection from eviction ends, exclusive; `None` if the pod is not
    /// protected. Protection raises the pod's charge in a pool.
    pub eviction_protected_until: Option<Timestamp>,
    /// Number of physical GPUs that the pod holds, in thousandths. `None` if the GPUs are counted in
    /// `requests`, whose resources may stand for parts of a GPU.
    pub gpus: Option<Quantity>,
    /// The way in which the pod shares GPUs, such as `time-slicing`; `None` if it shares none. If a pod
    /// shares GPUs without `gpus`, the part that it holds is unknown. The way is only reported.
    #[serde(deserialize_with = "shared::text_or_null")]
    pub gpu_sharing: Option<Text>,
    /// The keys of the pod's volumes in the provider's bill, such as `vol-0123456789abcdef0`: see
    /// [`resource_key`](super::resource_key). Lines of a bill for such a key go to the pod.
    #[serde(default)]
    pub volume_keys: Vec<Text>,
}

impl PodStarted {
    /// Returns the size of the pod: its requests, but with `gpus` as the number of GPUs if it is given.
    /// Otherwise each requested replica counts as one GPU, so that pods share the GPUs of a node in
    /// proportion to the replicas that they request.
    pub fn size(&self, gpu_resources: &[Text]) -> Size {
        let mut size = Size::of(&self.requests, gpu_resources);
        size.gpu_millis = size.gpu_millis.saturating_add(replicas(&self.requests, gpu_resources));
        size.with_gpus(self.gpus.as_ref())
    }

    /// Returns whether the pod shares GPUs and holds an unknown part of them.
    pub fn holds_unknown_share(&self, gpu_resources: &[Text]) -> bool {
        let shares = || self.gpu_sharing.is_some() || replicas(&self.requests, gpu_resources) > 0;
        self.gpus.is_none() && shares()
    }

    /// Returns whether the pod holds whole GPUs. Only then can a unit of a reservation serve it.
    pub fn holds_whole_gpus(&self) -> bool {
        self.gpus.as_ref().is_none_or(|gpus| gpus.amount.is_multiple_of(1000))
    }
}

/// A pod stops. Natural key: pod_uid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStopped {
    /// The pod's cluster. It is not compared, because the uid alone identifies the pod.
    pub cluster_id: ClusterId,
    /// The pod's namespace; may be empty. It is not compared.
    pub namespace: Text,
    /// The pod that stops. Nothing happens if it is not running.
    pub pod_uid: PodUid,
    /// The reason for which the pod stopped, such as `Completed` or `Evicted`; `None` if unknown. It is not
    /// used.
    pub reason: Option<Text>,
}

/// Measured use of a pod over [event_time, interval_end). Natural key: pod_uid, event_time.
///
/// If several samples cover an instant, the sample that started last counts. Time without a sample counts as
/// no use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUsage {
    /// The pod that was measured. Only the time in which the pod runs counts.
    pub pod_uid: PodUid,
    /// End of the interval, exclusive: between `event_time` and one hour after it.
    pub interval_end: Timestamp,
    /// Average CPU use over the interval, in thousandths of a vCPU; zero or more.
    pub cpu_millis: i64,
    /// Average memory use over the interval, in bytes; zero or more.
    pub memory_bytes: i64,
    /// Average GPU use over the interval, in thousandths of a GPU; zero or more. For a shared GPU, this is
    /// only the pod's part.
    pub gpu_millis: i64,
    /// Average use of GPU memory over the interval, in bytes; zero or more; `None` if it was not measured.
    /// For a shared GPU, this is only the pod's part.
    pub gpu_memory_bytes: Option<i64>,
}
