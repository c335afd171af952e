//! Custom resources: elastic quotas of nos, GPU pools and GPU nodes of TensorFusion.

use prorata_schemas::Text;
use serde::Deserialize;

use super::{ObjectMeta, QuantityText, ResourceList, or_default};

/// An elastic quota, or a composite one, which names its namespaces.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ElasticQuotaObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it grants.
    pub spec: CompositeQuotaSpec,
}

/// What a quota grants.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CompositeQuotaSpec {
    /// Namespaces of a composite quota.
    #[serde(deserialize_with = "or_default")]
    pub namespaces: Vec<Text>,
    /// Guaranteed amounts.
    #[serde(deserialize_with = "or_default")]
    pub min: ResourceList,
    /// Upper bounds; none: no bound.
    pub max: Option<ResourceList>,
}

/// A GPU pool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GpuPoolObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it is.
    pub spec: GpuPoolSpec,
}

/// What a pool is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuPoolSpec {
    /// Overselling.
    #[serde(deserialize_with = "or_default")]
    pub capacity_config: CapacityConfig,
    /// Budgets.
    #[serde(deserialize_with = "or_default")]
    pub node_manager_config: NodeManagerConfig,
    /// Prices.
    #[serde(deserialize_with = "or_default")]
    pub qos_config: QosConfig,
}

/// Capacity of a pool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CapacityConfig {
    /// Overselling.
    #[serde(deserialize_with = "or_default")]
    pub oversubscription: Oversubscription,
}

/// Overselling, in percent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Oversubscription {
    /// TFLOPs sold in percent of those there are.
    pub tflops_oversell_ratio: Option<i32>,
    /// Percent of the disk that adds to VRAM.
    pub vram_expand_to_host_disk: Option<i32>,
    /// Percent of the memory that adds to VRAM.
    pub vram_expand_to_host_mem: Option<i32>,
}

/// How a pool gets its nodes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeManagerConfig {
    /// What it may spend on them.
    #[serde(deserialize_with = "or_default")]
    pub node_provisioner: NodeProvisioner,
}

/// What a pool may spend on its nodes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeProvisioner {
    /// Budgets.
    #[serde(deserialize_with = "or_default")]
    pub budget: Budget,
}

/// Budgets of a pool, as text that may begin with `$`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// For a day.
    pub budget_per_day: Option<String>,
    /// For a month.
    pub budget_per_month: Option<String>,
    /// For a quarter.
    pub budget_per_quarter: Option<String>,
}

/// Prices of a pool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QosConfig {
    /// Quality of service of pods that name none.
    #[serde(rename = "defaultQoS", deserialize_with = "or_default")]
    pub default_qos: String,
    /// Prices by quality of service.
    #[serde(deserialize_with = "or_default")]
    pub pricing: Vec<QosPricing>,
}

/// Prices of one quality of service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QosPricing {
    /// The quality of service.
    pub qos: Text,
    /// Prices of what is requested.
    #[serde(deserialize_with = "or_default")]
    pub requests: PricedRequests,
    /// The part of them that the span up to the limit costs.
    pub limits_over_requests: Option<String>,
}

/// Prices of what is requested, as text that may begin with `$`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PricedRequests {
    /// Of a TFLOP for an hour.
    #[serde(rename = "perFP16TFlopsPerHour")]
    pub per_tflop: Option<String>,
    /// Of a GiB of VRAM for an hour.
    #[serde(rename = "perGBOfVRAMPerHour")]
    pub per_vram_gib: Option<String>,
}

/// A GPU node, named as its node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GpuNodeObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it costs.
    #[serde(deserialize_with = "or_default")]
    pub spec: GpuNodeSpec,
    /// What it has.
    #[serde(deserialize_with = "or_default")]
    pub status: GpuNodeStatus,
}

/// What a GPU node costs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuNodeSpec {
    /// Its price for an hour, as text that may begin with `$`.
    pub cost_per_hour: Option<String>,
}

/// What a GPU node has.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuNodeStatus {
    /// All its TFLOPs.
    #[serde(rename = "totalTFlops")]
    pub total_tflops: Option<QuantityText>,
    /// All its VRAM.
    #[serde(rename = "totalVRAM")]
    pub total_vram: Option<QuantityText>,
    /// About its GPUs.
    #[serde(deserialize_with = "or_default")]
    pub node_info: GpuNodeInfo,
}

/// About the GPUs of a GPU node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GpuNodeInfo {
    /// Their model.
    #[serde(rename = "gpuModel")]
    pub gpu_model: Option<Text>,
}
