//! Section `collect` of the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use prorata_collector::{CollectorOptions, MissedStop, StartAt};
use prorata_schemas::Text;
use serde::{Deserialize, Serialize};

use super::duration;

/// What `prorata collect` watches, and what it makes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CollectConfig {
    /// Whose cluster it is.
    pub organization_id: String,
    /// Its id in events. Empty: uid of the namespace kube-system.
    pub cluster_id: String,
    /// The kubeconfig. Empty: as kubectl finds it, else as a pod of the cluster.
    pub kubeconfig: String,
    /// Its context. Empty: the current one.
    pub context: String,
    /// Compacted topic with the collector's state.
    pub state_topic: String,
    /// File with the price list. Empty: none.
    pub price_list: String,
    /// Price of a vCPU for an hour, where the list has none. Empty: none.
    pub price_per_vcpu_hour: String,
    /// Price of a GiB of memory for an hour.
    pub price_per_gib_hour: String,
    /// Price of a GPU for an hour.
    pub price_per_gpu_hour: String,
    /// Provider of nodes that name none.
    pub provider: String,
    /// Region of nodes that name none.
    pub region: String,
    /// Instance type of nodes that name none.
    pub instance_type: String,
    /// Nothing is sent of what was before. Empty: since the first start.
    pub since: String,
    /// From when on a pod counts.
    pub pod_start: PodStart,
    /// When an unseen stop is said to have been.
    pub missed_stop: MissedStopTime,
    /// Labels of pods that are sent.
    pub labels: Vec<Text>,
    /// Label of virtual nodes, as `name=value`.
    pub virtual_node_label: String,
    /// Label of pods with their quality of service. Empty: none.
    pub qos_label: String,
    /// Label of pods with the GPU model that they ask for. Empty: none.
    pub gpu_model_label: String,
    /// Label of pods and nodes with their GPU pool. Empty: none.
    pub pool_label: String,
    /// Annotation of nodes with their price for an hour.
    pub price_annotation: String,
    /// Domain of TensorFusion's labels and annotations.
    pub tensor_fusion_domain: String,
    /// Names of GPU models in events, by what objects have.
    pub gpu_models: BTreeMap<Text, Text>,
    /// Resource names of which each unit is a GPU.
    pub gpu_resources: Vec<Text>,
    /// Resource names of device classes.
    pub device_classes: BTreeMap<Text, Text>,
    /// Share of what runs that one list may end.
    pub mass_stop_percent: u32,
    /// Lists that must agree before more is believed.
    pub mass_stop_confirmations: u32,
    /// Where measured use is read.
    pub usage_source: MeasuredBy,
    /// How often it is read.
    #[serde(with = "duration")]
    pub usage_interval: Duration,
    /// Selector of DCGM exporter's pods. Empty: GPUs are not measured.
    pub dcgm_selector: String,
    /// Namespace of these pods. Empty: any.
    pub dcgm_namespace: String,
    /// Port of these pods that serves `/metrics`.
    pub dcgm_port: u16,
    /// Time between two checks of a kind: it is listed and compared with what was told.
    #[serde(with = "duration")]
    pub relist_interval: Duration,
    /// How long a file is written to.
    #[serde(with = "duration")]
    pub file_rotation_interval: Duration,
}

/// Where measured use is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredBy {
    /// Nowhere.
    None,
    /// From `metrics.k8s.io`.
    MetricsApi,
    /// From each node's kubelet, through the API server.
    Kubelet,
}

/// From when on a pod counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodStart {
    /// It is bound to its node.
    Scheduled,
    /// The kubelet has accepted it.
    Started,
    /// A container of it runs.
    Running,
}

/// When an unseen stop is said to have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissedStopTime {
    /// At the beginning of the span in which it lies.
    Earliest,
    /// At its end.
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
