//! Devices of dynamic resource allocation (`resource.k8s.io/v1`): claims, slices and classes.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use serde::Deserialize;

use super::{ObjectMeta, QuantityText, ResourceList, or_default};

/// A claim for devices.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceClaimObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The requested devices.
    pub spec: ClaimSpec,
    /// The allocated devices.
    pub status: ClaimStatus,
}

/// The specification of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimSpec {
    /// The requested devices.
    pub devices: ClaimDevices,
}

/// Devices that a claim requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimDevices {
    /// Requests, each with a name that results refer to.
    #[serde(deserialize_with = "or_default")]
    pub requests: Vec<ClaimRequest>,
}

/// A request: one class, or alternatives.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRequest {
    /// Name of the request.
    pub name: String,
    /// The request, if it has no alternatives.
    pub exactly: Option<SubRequest>,
    /// Alternatives. The first available one is allocated, and a result names it as `request/alternative`.
    #[serde(deserialize_with = "or_default")]
    pub first_available: Vec<SubRequest>,
}

/// A request of one class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubRequest {
    /// Name of the alternative.
    pub name: String,
    /// The requested device class.
    pub device_class_name: Text,
}

/// The status of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// The allocated devices. `None` if the claim is not allocated yet.
    pub allocation: Option<ClaimAllocation>,
    /// The pods that use the claim; only their number is kept.
    #[serde(deserialize_with = "or_default")]
    pub reserved_for: Vec<serde::de::IgnoredAny>,
}

/// Devices allocated to a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimAllocation {
    /// The allocated devices.
    pub devices: ClaimResults,
}

/// Devices allocated to a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimResults {
    /// One entry for each device.
    #[serde(deserialize_with = "or_default")]
    pub results: Vec<AllocatedDevice>,
}

/// A device, which its driver, its pool and its name identify.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDevice {
    /// The request that the device satisfies.
    pub request: String,
    /// Driver of the device.
    pub driver: Text,
    /// Pool of the device.
    pub pool: Text,
    /// Name of the device within the pool.
    pub device: Text,
    /// Whether the device is claimed only for administration, so that the claim occupies nothing.
    pub admin_access: Option<bool>,
    /// The capacity that the claim takes from a device that several claims may share.
    #[serde(deserialize_with = "or_default")]
    pub consumed_capacity: ResourceList,
}

/// Devices that a driver offers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceSliceObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The offered devices.
    pub spec: SliceSpec,
}

/// The specification of a slice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceSpec {
    /// Name of the node that has the devices; empty if several nodes can use them.
    #[serde(deserialize_with = "or_default")]
    pub node_name: Text,
    /// Counters that partitions of a device share.
    #[serde(deserialize_with = "or_default")]
    pub shared_counters: Vec<CounterSet>,
    /// Driver of the devices.
    pub driver: Text,
    /// Pool of the devices.
    pub pool: SlicePool,
    /// The devices.
    #[serde(deserialize_with = "or_default")]
    pub devices: Vec<SliceDevice>,
}

/// The pool of a slice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SlicePool {
    /// Name of the pool.
    pub name: Text,
}

/// A set of counters: the available amounts, or the amounts that a device takes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterSet {
    /// Name of the set, if this is the set of available amounts.
    #[serde(deserialize_with = "or_default")]
    pub name: Text,
    /// Name of the set, if these are the amounts that a device takes.
    #[serde(deserialize_with = "or_default")]
    pub counter_set: Text,
    /// Values by the names of counters.
    #[serde(deserialize_with = "or_default")]
    pub counters: BTreeMap<Text, DeviceValue>,
}

/// A capacity or a counter of a device.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceValue {
    /// The value.
    pub value: QuantityText,
}

/// A device of a slice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceDevice {
    /// Name of the device within the pool.
    pub name: Text,
    /// Attributes of the device.
    #[serde(deserialize_with = "or_default")]
    pub attributes: BTreeMap<Text, DeviceAttribute>,
    /// Capacity of the device.
    #[serde(deserialize_with = "or_default")]
    pub capacity: BTreeMap<Text, DeviceValue>,
    /// Counters that the device takes while it is allocated.
    #[serde(deserialize_with = "or_default")]
    pub consumes_counters: Vec<CounterSet>,
}

/// An attribute of a device; only text values are kept.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceAttribute {
    /// The value, if it is text.
    pub string: Option<Text>,
}

/// A class of devices.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceClassObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The specification of the class.
    pub spec: DeviceClassSpec,
}

/// The specification of a device class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    /// The extended resource by which pods may request the class.
    pub extended_resource_name: Option<Text>,
}
