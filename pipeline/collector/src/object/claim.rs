//! Devices of dynamic resource allocation (`resource.k8s.io/v1`): claims, slices and classes.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use serde::Deserialize;

use super::{ObjectMeta, or_default};

/// A claim of devices.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceClaimObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it asks for.
    pub spec: ClaimSpec,
    /// What it got.
    pub status: ClaimStatus,
}

/// What a claim asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimSpec {
    /// Devices.
    pub devices: ClaimDevices,
}

/// Devices that a claim asks for.
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
    /// Its name.
    pub name: String,
    /// Exactly this.
    pub exactly: Option<SubRequest>,
    /// The first of these that can be had; a result names it as `request/alternative`.
    #[serde(deserialize_with = "or_default")]
    pub first_available: Vec<SubRequest>,
}

/// A request of one class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubRequest {
    /// Its name, as an alternative.
    pub name: String,
    /// Its device class.
    pub device_class_name: Text,
}

/// What a claim got.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// Its devices; none: not allocated yet.
    pub allocation: Option<ClaimAllocation>,
    /// The pods that use it; only their number counts.
    #[serde(deserialize_with = "or_default")]
    pub reserved_for: Vec<serde::de::IgnoredAny>,
}

/// Devices allocated to a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimAllocation {
    /// Devices.
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

/// A device, named by driver, pool and device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDevice {
    /// The request that it satisfies.
    pub request: String,
    /// Its driver.
    pub driver: Text,
    /// Its pool.
    pub pool: Text,
    /// Its name within the pool.
    pub device: Text,
    /// Whether it is only looked at, and so occupies nothing.
    pub admin_access: Option<bool>,
}

/// Devices that a driver offers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceSliceObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it offers.
    pub spec: SliceSpec,
}

/// What a slice offers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SliceSpec {
    /// Its driver.
    pub driver: Text,
    /// Its pool.
    pub pool: SlicePool,
    /// Devices.
    #[serde(deserialize_with = "or_default")]
    pub devices: Vec<SliceDevice>,
}

/// The pool of a slice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SlicePool {
    /// Its name.
    pub name: Text,
}

/// A device of a slice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SliceDevice {
    /// Its name within the pool.
    pub name: Text,
    /// Its attributes.
    #[serde(deserialize_with = "or_default")]
    pub attributes: BTreeMap<Text, DeviceAttribute>,
}

/// An attribute of a device, of which only text is kept.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceAttribute {
    /// Its value, if that is text.
    pub string: Option<Text>,
}

/// A class of devices.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceClassObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it is.
    pub spec: DeviceClassSpec,
}

/// What a class is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    /// The extended resource by which pods may ask for it.
    pub extended_resource_name: Option<Text>,
}
