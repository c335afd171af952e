//! Configuration of one cluster.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::Text;
use prorata_schemas::event::names;
use prorata_schemas::ids::{ClusterId, OrganizationId};
use prorata_schemas::quantity::NVIDIA_GPU;
use prorata_schemas::time::Timestamp;

use crate::object::ObjectKind;
use crate::sharing::{GpuOptions, GpuScheme, schemes};

/// The instant from which a pod counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// The pod is bound to its node: from then on, the scheduler reserves its requests.
    #[default]
    Scheduled,
    /// The kubelet has accepted the pod.
    Started,
    /// One of the pod's containers runs.
    Running,
}

/// The choice of the time that is sent for a missed stop: one of the two ends of its span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedStop {
    /// The earlier end, so that only time is charged that can be proved.
    #[default]
    Earliest,
    /// The later end.
    Latest,
}

/// Configuration of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorOptions {
    /// Organization that owns the cluster.
    pub organization_id: OrganizationId,
    /// Id of the cluster in events.
    pub cluster_id: ClusterId,
    /// The organization's currency. All prices are in this currency.
    pub currency: Text,
    /// Default for nodes that do not name a provider.
    pub provider: Text,
    /// Default for nodes that do not name the account that is billed; `None` if it is unknown.
    pub account_id: Option<Text>,
    /// Default for nodes that do not name a region.
    pub region: Text,
    /// Default for nodes that do not name an instance type.
    pub instance_type: Text,
    /// The instant before which nothing is sent. Older objects start at this instant. If `None`, the instant
    /// of the first input counts, and is stored in the state.
    pub since: Option<Timestamp>,
    /// The instant from which a pod counts.
    pub start: StartAt,
    /// Event time of a missed stop.
    pub missed_stop: MissedStop,
    /// Names of the pod labels that are sent; a name that ends in `*` matches every name with that prefix.
    pub labels: Vec<Text>,
    /// Name and value of the label that marks virtual nodes: their pods are serverless.
    pub virtual_node_label: (Text, Text),
    /// Label of pods that names their quality of service.
    pub qos_label: Option<Text>,
    /// Label of pods that names the requested GPU model.
    pub gpu_model_label: Option<Text>,
    /// Label of pods and nodes that names their GPU pool.
    pub pool_label: Option<Text>,
    /// Annotation of nodes that gives their price per hour.
    pub price_annotation: Text,
    /// Domain of the labels and annotations of TensorFusion.
    pub tensor_fusion_domain: Text,
    /// Names of GPU models in objects, mapped to the names in events.
    pub gpu_models: BTreeMap<Text, Text>,
    /// Resource names whose units are GPUs.
    pub gpu_resources: Vec<Text>,
    /// Resource names of device classes that do not name a resource themselves.
    pub device_classes: BTreeMap<Text, Text>,
    /// Schemes by which pods share GPUs, in the order in which they are tried.
    pub gpu_sharing: Vec<GpuScheme>,
    /// Name patterns of resources that look like parts of GPUs. A pod that requests such a resource is
    /// reported if no scheme knows the resource. A `*` at the beginning or the end stands for any text.
    pub gpu_share_names: Vec<Text>,
    /// Kinds that are watched: a pod waits for its claims only if claims are watched.
    pub watched: BTreeSet<ObjectKind>,
    /// Share of the running objects that one list may end, in percent. A list that would end more is not
    /// believed until `mass_stop_confirmations` lists agree.
    pub mass_stop_percent: u32,
    /// Number of lists that must agree before a mass stop, or a list without any node, is believed.
    pub mass_stop_confirmations: u32,
}

impl CollectorOptions {
    /// Returns the options that decide about parts of GPUs.
    pub(crate) fn gpus(&self) -> GpuOptions<'_> {
        GpuOptions {
            gpu_resources: &self.gpu_resources,
            gpu_sharing: &self.gpu_sharing,
            gpu_share_names: &self.gpu_share_names,
            tensor_fusion_domain: &self.tensor_fusion_domain,
        }
    }

    /// Returns the defaults for a cluster.
    pub fn new(organization_id: OrganizationId, cluster_id: ClusterId, currency: Text) -> Self {
        Self {
            organization_id,
            cluster_id,
            currency,
            provider: "on-premises".into(),
            account_id: None,
            region: "default".into(),
            instance_type: "unknown".into(),
            since: None,
            start: StartAt::default(),
            missed_stop: MissedStop::default(),
            labels: vec!["app".into(), "app.kubernetes.io/*".into()],
            virtual_node_label: ("type".into(), "virtual-kubelet".into()),
            qos_label: None,
            gpu_model_label: None,
            pool_label: None,
            price_annotation: "prorata.dev/hourly-cost".into(),
            tensor_fusion_domain: "tensor-fusion.ai".into(),
            gpu_models: BTreeMap::new(),
            gpu_resources: [NVIDIA_GPU, "amd.com/gpu", "aws.amazon.com/neuron", "google.com/tpu"]
                .map(Text::from)
                .into(),
            device_classes: [("gpu.nvidia.com".into(), NVIDIA_GPU.into())].into(),
            gpu_sharing: schemes(),
            gpu_share_names: ["*gpu*", "*vcuda*"].map(Text::from).into(),
            watched: [ObjectKind::Node, ObjectKind::Pod].into(),
            mass_stop_percent: 50,
            mass_stop_confirmations: 3,
        }
    }

    /// Returns whether the label with this name is sent.
    pub fn sends_label(&self, name: &str) -> bool {
        self.labels.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => **wanted == *name,
        })
    }

    /// Returns the name of this GPU model in events: the configured name, or else its canonical name.
    pub fn gpu_model(&self, text: &str) -> Text {
        self.gpu_models.get(text).cloned().unwrap_or_else(|| names::gpu_model(text).into())
    }
}
