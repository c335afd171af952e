//! Section `collect` of the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use prorata_collector::{CollectorOptions, GpuScheme, MissedStop, StartAt};
use prorata_schemas::Text;
use serde::{Deserialize, Serialize};

use super::duration;

/// Settings of `prorata collect`: the cluster that it watches, and the events that it writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CollectConfig {
    /// Organization that owns the cluster.
    pub organization_id: String,
    /// Id of the cluster in events. If empty, the uid of the namespace `kube-system` is used.
    pub cluster_id: String,
    /// Path of the kubeconfig. If empty, kubectl's default kubeconfig is used, or else the pod's service
    /// account.
    pub kubeconfig: String,
    /// Context of the kubeconfig. If empty, the current context is used.
    pub context: String,
    /// Compacted topic with the collector's state.
    pub state_topic: String,
    /// File with the price list. If empty, there is none.
    pub price_list: String,
    /// Price of a vCPU for an hour, for nodes without a price in the list. If empty, there is none.
    pub price_per_vcpu_hour: String,
    /// Price of a GiB of memory for an hour.
    pub price_per_gib_hour: String,
    /// Price of a GPU for an hour.
    pub price_per_gpu_hour: String,
    /// Provider of nodes that do not name their provider.
    pub provider: String,
    /// Account that is billed for nodes that do not name their account. If empty, the account is unknown.
    pub account_id: String,
    /// Region of nodes that do not name their region.
    pub region: String,
    /// Instance type of nodes that do not name their instance type.
    pub instance_type: String,
    /// Time before which nothing is sent. If empty, the time of the first start is used.
    pub since: String,
    /// Moment from which a pod counts.
    pub pod_start: PodStart,
    /// Time that is reported for a stop that was not seen.
    pub missed_stop: MissedStopTime,
    /// Labels of pods that go into events.
    pub labels: Vec<Text>,
    /// Label of virtual nodes, as `name=value`.
    pub virtual_node_label: String,
    /// Name of the pod label that holds the quality of service. If empty, there is none.
    pub qos_label: String,
    /// Name of the pod label that holds the requested GPU model. If empty, there is none.
    pub gpu_model_label: String,
    /// Name of the label of pods and nodes that holds their GPU pool. If empty, there is none.
    pub pool_label: String,
    /// Name of the node annotation that holds the price for an hour.
    pub price_annotation: String,
    /// Domain of TensorFusion's labels and annotations.
    pub tensor_fusion_domain: String,
    /// Names of GPU models in events, by their names in Kubernetes objects.
    pub gpu_models: BTreeMap<Text, Text>,
    /// Names of resources whose units are GPUs.
    pub gpu_resources: Vec<Text>,
    /// Resource names of device classes.
    pub device_classes: BTreeMap<Text, Text>,
    /// Ways in which pods share GPUs.
    pub gpu_sharing: Vec<GpuScheme>,
    /// Patterns for names of resources that look like parts of GPUs.
    pub gpu_share_names: Vec<Text>,
    /// Maximum share of running objects, in percent, that one list may end.
    pub mass_stop_percent: u32,
    /// Number of lists that must agree before a larger share is believed.
    pub mass_stop_confirmations: u32,
    /// Source of measured use.
    pub usage_source: MeasuredBy,
    /// Time between two reads of measured use.
    #[serde(with = "duration")]
    pub usage_interval: Duration,
    /// Selector of the pods of the DCGM exporter. If empty, GPUs are not measured.
    pub dcgm_selector: String,
    /// Namespace of the exporter's pods. If empty, all namespaces are searched.
    pub dcgm_namespace: String,
    /// Port of these pods that serves `/metrics`.
    pub dcgm_port: u16,
    /// Time between two checks of a kind. A check lists the kind and compares it with the events that were
    /// sent.
    #[serde(with = "duration")]
    pub relist_interval: Duration,
    /// Time between two files of events.
    #[serde(with = "duration")]
    pub file_rotation_interval: Duration,
}

/// Source of measured use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredBy {
    /// Measured use is not read.
    None,
    /// The source is `metrics.k8s.io`.
    MetricsApi,
    /// The source is each node's kubelet, through the API server.
    Kubelet,
}

/// Moment from which a pod counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodStart {
    /// The pod is bound to its node.
    Scheduled,
    /// The kubelet has accepted the pod.
    Started,
    /// A container of the pod runs.
    Running,
}

/// Time that is reported for a stop that was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissedStopTime {
    /// The beginning of the span in which the stop lies.
    Earliest,
    /// The end of that span.
    Latest,
}

impl From<PodStart> for StartAt {
    fn from(start: PodStart) -> Self {
        match start {
            PodStart::Scheduled => Self::Scheduled,
            PodStart::Started => Self::Started,
            PodStart::Running => Self::Running,
        }
    }
}

impl From<MissedStopTime> for MissedStop {
    fn from(stop: MissedStopTime) -> Self {
        match stop {
            MissedStopTime::Earliest => Self::Earliest,
            MissedStopTime::Latest => Self::Latest,
        }
    }
}

impl Default for CollectConfig {
    fn default() -> Self {
        let options = CollectorOptions::new("".into(), "".into(), "".into());
        let (label, value) = &options.virtual_node_label;
        Self {
            organization_id: String::new(),
            cluster_id: String::new(),
            kubeconfig: String::new(),
            context: String::new(),
            state_topic: String::new(),
            price_list: String::new(),
            price_per_vcpu_hour: String::new(),
            price_per_gib_hour: String::new(),
            price_per_gpu_hour: String::new(),
            provider: options.provider.to_string(),
            account_id: String::new(),
            region: options.region.to_string(),
            instance_type: options.instance_type.to_string(),
            since: String::new(),
            pod_start: PodStart::Scheduled,
            missed_stop: MissedStopTime::Earliest,
            virtual_node_label: format!("{label}={value}"),
            qos_label: String::new(),
            gpu_model_label: String::new(),
            pool_label: String::new(),
            price_annotation: options.price_annotation.to_string(),
            tensor_fusion_domain: options.tensor_fusion_domain.to_string(),
            labels: options.labels,
            gpu_models: options.gpu_models,
            gpu_resources: options.gpu_resources,
            device_classes: options.device_classes,
            gpu_sharing: options.gpu_sharing,
            gpu_share_names: options.gpu_share_names,
            mass_stop_percent: options.mass_stop_percent,
            mass_stop_confirmations: options.mass_stop_confirmations,
            usage_source: MeasuredBy::None,
            usage_interval: Duration::from_secs(60),
            dcgm_selector: String::new(),
            dcgm_namespace: String::new(),
            dcgm_port: 9400,
            relist_interval: Duration::from_secs(6 * 3_600),
            file_rotation_interval: Duration::from_secs(60),
        }
    }
}
