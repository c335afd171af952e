//! Custom resources: elastic quotas of nos, and GPU pools and GPU nodes of TensorFusion.

use prorata_schemas::Text;
use serde::Deserialize;

use super::{ObjectMeta, QuantityText, ResourceList, or_default};

/// An elastic quota, or a composite elastic quota, which lists its namespaces.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ElasticQuotaObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The specification of the quota.
    pub spec: CompositeQuotaSpec,
}

/// The specification of a quota.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CompositeQuotaSpec {
    /// Namespaces of a composite quota.
    #[serde(deserialize_with = "or_default")]
    pub namespaces: Vec<Text>,
    /// Guaranteed amounts.
    #[serde(deserialize_with = "or_default")]
    pub min: ResourceList,
    /// Upper bounds. `None` if there are no bounds.
    pub max: Option<ResourceList>,
}

/// A GPU pool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GpuPoolObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The specification of the pool.
    pub spec: GpuPoolSpec,
}

/// The specification of a pool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuPoolSpec {
    /// Capacity and overselling.
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
#[serde(rename_all = "camelCase", default)]
pub struct CapacityConfig {
    /// Maximum capacity to which the pool may grow. The keys of this field and of the next two are `cpu`,
    /// `memory`, `tflops` and `vram`.
    #[serde(deserialize_with = "or_default")]
    pub max_resources: ResourceList,
    /// Minimum capacity that the pool keeps.
    #[serde(deserialize_with = "or_default")]
    pub min_resources: ResourceList,
    /// The capacity that the pool keeps free for future pods.
    #[serde(deserialize_with = "or_default")]
    pub warm_resources: ResourceList,
    /// Overselling.
    #[serde(deserialize_with = "or_default")]
    pub oversubscription: Oversubscription,
}

/// Overselling, in percent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Oversubscription {
    /// TFLOPs that are sold, in percent of the TFLOPs that exist.
    pub tflops_oversell_ratio: Option<i32>,
    /// Part of the host's disk that counts as additional VRAM, in percent.
    pub vram_expand_to_host_disk: Option<i32>,
    /// Part of the host's memory that counts as additional VRAM, in percent.
    pub vram_expand_to_host_mem: Option<i32>,
}

/// Settings by which a pool obtains its nodes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeManagerConfig {
    /// Budgets for the nodes.
    #[serde(deserialize_with = "or_default")]
    pub node_provisioner: NodeProvisioner,
}

/// Budgets for the nodes of a pool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeProvisioner {
    /// The budgets.
    #[serde(deserialize_with = "or_default")]
    pub budget: Budget,
}

/// Budgets of a pool, as text that may begin with `$`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// Budget for a day.
    pub budget_per_day: Option<String>,
    /// Budget for a month.
    pub budget_per_month: Option<String>,
    /// Budget for a quarter.
    pub budget_per_quarter: Option<String>,
    /// The action when a budget is exceeded: `AlertOnly` or `AlertAndTerminateVM`.
    pub budget_exceed_strategy: Option<String>,
}

/// Prices of a pool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QosConfig {
    /// Default quality of service, for pods that do not name a quality.
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
    /// Prices of requested resources.
    #[serde(deserialize_with = "or_default")]
    pub requests: PricedRequests,
    /// The price of the amount between request and limit, as a fraction of the price of requests.
    pub limits_over_requests: Option<String>,
}

/// Prices of requested resources, as text that may begin with `$`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PricedRequests {
    /// Price of a TFLOP per hour.
    #[serde(rename = "perFP16TFlopsPerHour")]
    pub per_tflop: Option<String>,
    /// Price of a GiB of VRAM per hour.
    #[serde(rename = "perGBOfVRAMPerHour")]
    pub per_vram_gib: Option<String>,
}

/// A GPU node, which has the name of its node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GpuNodeObject {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The price of the GPU node.
    #[serde(deserialize_with = "or_default")]
    pub spec: GpuNodeSpec,
    /// The capacity of the GPU node.
    #[serde(deserialize_with = "or_default")]
    pub status: GpuNodeStatus,
}

/// The price of a GPU node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuNodeSpec {
    /// Price per hour, as text that may begin with `$`.
    pub cost_per_hour: Option<String>,
}

/// The capacity of a GPU node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuNodeStatus {
    /// All TFLOPs of the GPU node.
    #[serde(rename = "totalTFlops")]
    pub total_tflops: Option<QuantityText>,
    /// All VRAM of the GPU node.
    #[serde(rename = "totalVRAM")]
    pub total_vram: Option<QuantityText>,
    /// The GPUs of the GPU node.
    #[serde(deserialize_with = "or_default")]
    pub node_info: GpuNodeInfo,
}

/// The GPUs of a GPU node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GpuNodeInfo {
    /// Model of the GPUs.
    #[serde(rename = "gpuModel")]
    pub gpu_model: Option<Text>,
}
