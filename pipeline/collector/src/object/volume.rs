//! Persistent volumes.

use serde::Deserialize;

use super::{ObjectMeta, or_default};

/// A persistent volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The specification of the volume.
    pub spec: VolumeSpec,
    /// The status of the volume.
    pub status: VolumeStatus,
}

/// The specification of a volume: its claim, and one source.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    /// The claim that has the volume, had it, or will have it.
    pub claim_ref: Option<VolumeClaim>,
    /// A volume of a driver.
    pub csi: Option<DriverVolume>,
    /// A volume of EBS without a driver.
    pub aws_elastic_block_store: Option<ElasticBlockStore>,
    /// A disk of Azure without a driver.
    pub azure_disk: Option<AzureDisk>,
    /// A disk of Google without a driver.
    pub gce_persistent_disk: Option<GooglePersistentDisk>,
}

/// The claim of a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeClaim {
    /// Namespace of the claim.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// Name of the claim.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// A volume of a driver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DriverVolume {
    /// Name of the driver, such as `ebs.csi.aws.com`.
    pub driver: String,
    /// Id that the driver gave the volume.
    pub volume_handle: String,
}

/// A volume of EBS.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ElasticBlockStore {
    /// Id of the volume, such as `vol-0abc` or `aws://us-east-1a/vol-0abc`.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
}

/// A disk of Azure.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AzureDisk {
    /// Path of the disk.
    #[serde(rename = "diskURI")]
    pub disk_uri: String,
}

/// A disk of Google. Labels of the object name its zone.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GooglePersistentDisk {
    /// Name of the disk.
    pub pd_name: String,
}

/// The status of a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    /// `Bound` while the claim has the volume.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
}
