//! Kubernetes objects with the fields that affect events, and no others.
//!
//! A pod of 13 kB of JSON becomes a few hundred bytes. The types of a full client need thirty times the
//! memory and four times the processor time. Field names match the Kubernetes API. A field that is missing or
//! null takes its default, and fields without a name here are skipped and not kept.

mod claim;
mod node;
mod pod;
pub(crate) mod quantities;
mod sets;
mod volume;

use std::collections::BTreeMap;
use std::fmt;

use prorata_schemas::Text;
use serde::{Deserialize, Deserializer, Serialize};

use crate::instant::Instant;

pub use claim::{
    AllocatedDevice, ClaimAllocation, ClaimDevices, ClaimRequest, ClaimResults, ClaimSpec, ClaimStatus,
    CounterSet, DeviceAttribute, DeviceClassObject, DeviceClassSpec, DeviceValue, ResourceClaimObject,
    ResourceSliceObject, SliceDevice, SlicePool, SliceSpec, SubRequest,
};
pub use node::{NodeObject, NodeSpec, NodeStatus, Taint};
pub use pod::{
    ClaimNameStatus, ClaimVolume, Container, ContainerState, ContainerStatus, PodClaim, PodCondition,
    PodObject, PodSpec, PodStatus, PodVolume, Resources, Running, Terminated,
};
pub use sets::{
    Budget, CapacityConfig, CompositeQuotaSpec, ElasticQuotaObject, GpuNodeInfo, GpuNodeObject, GpuNodeSpec,
    GpuNodeStatus, GpuPoolObject, GpuPoolSpec, NodeManagerConfig, NodeProvisioner, Oversubscription,
    PricedRequests, QosConfig, QosPricing,
};
pub use volume::{
    AzureDisk, DriverVolume, ElasticBlockStore, GooglePersistentDisk, PersistentVolumeObject, VolumeClaim,
    VolumeSpec, VolumeStatus,
};

/// Quantities by resource name, as the API writes them.
pub type ResourceList = BTreeMap<Text, QuantityText>;

/// Kinds of objects that a collector watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// `v1` nodes.
    Node,
    /// `v1` pods.
    Pod,
    /// `nos.nebuly.com` elastic quotas.
    ElasticQuota,
    /// `nos.nebuly.com` composite elastic quotas.
    CompositeElasticQuota,
    /// TensorFusion's GPU pools.
    GpuPool,
    /// TensorFusion's GPU nodes, which have the names of their nodes.
    GpuNode,
    /// `resource.k8s.io` claims.
    ResourceClaim,
    /// `resource.k8s.io` slices.
    ResourceSlice,
    /// `resource.k8s.io` device classes.
    DeviceClass,
    /// `v1` persistent volumes.
    PersistentVolume,
}

/// An object of any watched kind.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is documented by the kind of the same name")]
pub enum KubeObject {
    Node(Box<NodeObject>),
    Pod(Box<PodObject>),
    ElasticQuota(ElasticQuotaObject),
    CompositeElasticQuota(ElasticQuotaObject),
    GpuPool(Box<GpuPoolObject>),
    GpuNode(GpuNodeObject),
    ResourceClaim(Box<ResourceClaimObject>),
    ResourceSlice(Box<ResourceSliceObject>),
    DeviceClass(DeviceClassObject),
    PersistentVolume(Box<PersistentVolumeObject>),
}

impl KubeObject {
    /// Returns the kind of the object.
    pub const fn kind(&self) -> ObjectKind {
        match self {
            Self::Node(_) => ObjectKind::Node,
            Self::Pod(_) => ObjectKind::Pod,
            Self::ElasticQuota(_) => ObjectKind::ElasticQuota,
            Self::CompositeElasticQuota(_) => ObjectKind::CompositeElasticQuota,
            Self::GpuPool(_) => ObjectKind::GpuPool,
            Self::GpuNode(_) => ObjectKind::GpuNode,
            Self::ResourceClaim(_) => ObjectKind::ResourceClaim,
            Self::ResourceSlice(_) => ObjectKind::ResourceSlice,
            Self::DeviceClass(_) => ObjectKind::DeviceClass,
            Self::PersistentVolume(_) => ObjectKind::PersistentVolume,
        }
    }

    /// Returns the metadata of the object.
    pub const fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Node(node) => &node.metadata,
            Self::Pod(pod) => &pod.metadata,
            Self::ElasticQuota(quota) | Self::CompositeElasticQuota(quota) => &quota.metadata,
            Self::GpuPool(pool) => &pool.metadata,
            Self::GpuNode(node) => &node.metadata,
            Self::ResourceClaim(claim) => &claim.metadata,
            Self::ResourceSlice(slice) => &slice.metadata,
            Self::DeviceClass(class) => &class.metadata,
            Self::PersistentVolume(volume) => &volume.metadata,
        }
    }
}

/// Metadata of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Identity of the object, which is never given to another object.
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    /// Name of the object, which another object may have later.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Namespace of the object; empty for kinds without namespaces.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// The revision of the whole store at the last change of the object.
    #[serde(deserialize_with = "or_default")]
    pub resource_version: String,
    /// Time of creation.
    pub creation_timestamp: Option<Instant>,
    /// Time of removal, if the grace period is 0; otherwise a planned time in the future.
    pub deletion_timestamp: Option<Instant>,
    /// Grace period of a deletion, in seconds.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<Text, Text>,
    /// Annotations.
    #[serde(deserialize_with = "or_default")]
    pub annotations: BTreeMap<Text, Text>,
    /// Owners.
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Vec<OwnerReference>,
    /// Managers of the object's fields; only their times are kept.
    #[serde(deserialize_with = "or_default")]
    pub managed_fields: Vec<ManagedFields>,
}

impl ObjectMeta {
    /// Returns the time at which any value last changed, in whole seconds; `None` if the object does not have
    /// it.
    pub fn changed(&self) -> Option<prorata_schemas::time::Timestamp> {
        self.managed_fields.iter().filter_map(|fields| fields.time).map(|time| time.0).max()
    }

    /// Returns the time of removal if this is the last revision, otherwise `None`. The final delete sets the
    /// grace period to 0, and the time to the instant of the delete. Before that, the time is in the future.
    pub fn removed(&self) -> Option<prorata_schemas::time::Timestamp> {
        let removed = self.deletion_grace_period_seconds == Some(0);
        self.deletion_timestamp.filter(|_| removed).map(|time| time.0)
    }
}

/// An owner of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// Whether this owner manages the object.
    pub controller: Option<bool>,
}

/// The entry of one manager; only the time is kept.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ManagedFields {
    /// Time at which this manager last changed a value.
    pub time: Option<Instant>,
}

/// A quantity as text. The API writes a string; custom resources may have a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuantityText(pub String);

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = QuantityText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as \"500m\" or 4")
            }

            fn visit_str<E>(self, text: &str) -> Result<QuantityText, E> {
                Ok(QuantityText(text.to_owned()))
            }

            fn visit_u64<E>(self, whole: u64) -> Result<QuantityText, E> {
                Ok(QuantityText(whole.to_string()))
            }

            fn visit_i64<E>(self, whole: i64) -> Result<QuantityText, E> {
                Ok(QuantityText(whole.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<QuantityText, E> {
                Ok(QuantityText(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Reads null as missing, because Go writes null for empty lists and maps.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}
