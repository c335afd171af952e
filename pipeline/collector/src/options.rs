//! What is configured for one cluster.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::Text;
use prorata_schemas::event::names;
use prorata_schemas::ids::{ClusterId, OrganizationId};
use prorata_schemas::quantity::NVIDIA_GPU;
use prorata_schemas::time::Timestamp;

use crate::object::ObjectKind;

/// From when on a pod counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// It is bound to its node: from then on the scheduler keeps its requests free.
    #[default]
    Scheduled,
    /// The kubelet has accepted it.
    Started,
    /// A container of it runs.
    Running,
}

/// Which end of the span in which an unseen stop lies is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedStop {
    /// The earlier one: nothing is charged that cannot be shown.
    #[default]
    Earliest,
    /// The later one.
    Latest,
}

/// What is configured for one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorOptions {
    /// Whose cluster it is.
    pub organization_id: OrganizationId,
    /// Its id in events.
    pub cluster_id: ClusterId,
    /// The organization's currency, in which every price is.
    pub currency: Text,
    /// Provider of nodes that name none.
    pub provider: Text,
    /// Region of nodes that name none.
    pub region: Text,
    /// Instance type of nodes that name none.
    pub instance_type: Text,
    /// Nothing is sent of what was before this instant: objects that are older begin here. None: the instant
    /// of the first input, which the state then keeps.
    pub since: Option<Timestamp>,
    /// From when on a pod counts.
    pub start: StartAt,
    /// When an unseen stop is said to have been.
    pub missed_stop: MissedStop,
    /// Labels of pods that are sent, by name; a name that ends in `*` stands for all that begin so.
    pub labels: Vec<Text>,
    /// Label, and its value, of virtual nodes: their pods are serverless.
    pub virtual_node_label: (Text, Text),
    /// Label of pods that names their quality of service.
    pub qos_label: Option<Text>,
    /// Label of pods that names the GPU model they ask for.
    pub gpu_model_label: Option<Text>,
    /// Label of pods and nodes that names their GPU pool.
    pub pool_label: Option<Text>,
    /// Annotation of nodes with their price for an hour.
    pub price_annotation: Text,
    /// Domain of TensorFusion's labels and annotations.
    pub tensor_fusion_domain: Text,
    /// Names of GPU models as objects have them, and as events have them.
    pub gpu_models: BTreeMap<Text, Text>,
    /// Resource names of which each unit is a GPU.
    pub gpu_resources: Vec<Text>,
    /// Resource names of device classes that name none themselves.
    pub device_classes: BTreeMap<Text, Text>,
    /// Kinds that are watched: a pod waits for its claims only if claims are.
    pub watched: BTreeSet<ObjectKind>,
    /// Share of what runs that one list may end, in percent. A list that would end more is not believed until
    /// as many lists agree as `mass_stop_confirmations` says.
    pub mass_stop_percent: u32,
    /// How many lists must agree before very many stops, or a list without any node, are believed.
    pub mass_stop_confirmations: u32,
}

impl CollectorOptions {
    /// Defaults for a cluster.
    pub fn new(organization_id: OrganizationId, cluster_id: ClusterId, currency: Text) -> Self {
        Self {
            organization_id,
            cluster_id,
            currency,
            provider: "on-premises".into(),
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
            watched: [ObjectKind::Node, ObjectKind::Pod].into(),
            mass_stop_percent: 50,
            mass_stop_confirmations: 3,
        }
    }

    /// Whether the label of this name is sent.
    pub fn sends_label(&self, name: &str) -> bool {
        self.labels.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => **wanted == *name,
        })
    }

    /// The name that events have for this GPU model: the configured one, else its canonical name.
    pub fn gpu_model(&self, text: &str) -> Text {
        self.gpu_models.get(text).cloned().unwrap_or_else(|| names::gpu_model(text).into())
    }
}
