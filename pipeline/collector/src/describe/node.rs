//! Descriptions of nodes, from labels, provider id and capacity.

use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, NodeStarted, Quantities, names};
use prorata_schemas::ids::NodeId;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::quantity::{CPU, NVIDIA_GPU, Quantity, TFLOPS, VRAM};
use prorata_schemas::time::Timestamp;

use super::billed::BilledAs;
use super::pod::pool_id;
use super::price;
use crate::object::quantities;
use crate::object::{GpuNodeObject, NodeObject, ObjectMeta};
use crate::options::CollectorOptions;
use crate::prices::PricedNode;
use crate::sharing::NodeGpus;

/// The taint of a node that its cloud has not described yet.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Facts from a node object.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Uid of the node.
    pub uid: Text,
    /// Name of the node, which its pods refer to.
    pub name: Text,
    /// Id of the node's instance at the provider, or else the name of the node.
    pub node_id: Text,
    /// Time at which the object was created.
    pub created: Timestamp,
    /// Time at which the object last changed.
    pub changed: Option<Timestamp>,
    /// Whether the description is complete: the cloud has labelled the node, and the kubelet has reported its
    /// capacity.
    pub is_initialized: bool,
    /// Whether the node stands for another service, so that its pods are serverless.
    pub is_virtual: bool,
    /// The price in the node's annotation.
    pub annotated_price: Option<UnitPrice>,
    /// Operating system, for the price list.
    pub os: Text,
    /// The description, without the price and without additions from the GPU node.
    pub description: NodeStarted,
    /// The cards of the node, and the values on which the parts of its pods depend.
    pub gpus: NodeGpus,
    /// Values that could not be read, for messages.
    pub faults: Vec<String>,
}

impl NodeFacts {
    /// Reads a node.
    pub fn read(node: &NodeObject, options: &CollectorOptions) -> Self {
        let meta = &node.metadata;
        let mut faults = Vec::new();
        let capacity = quantities::parse(&node.status.capacity).unwrap_or_else(|error| {
            faults.push(error.to_string());
            Quantities::new()
        });
        let provider_id = node.spec.provider_id.as_str();
        let node_id = if provider_id.is_empty() { meta.name.as_str() } else { provider_id };
        let billed = BilledAs::read(provider_id);
        let label = |names: &[&str]| names.iter().find_map(|name| meta.labels.get(*name)).cloned();
        let provider = provider_id.split_once("://").map_or(&*options.provider, |(name, _)| name);
        let provider = Text::from(names::provider(provider));
        let instance_type = label(&["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"])
            .unwrap_or_else(|| options.instance_type.clone());
        let model = label(&[
            "nvidia.com/gpu.product",
            "karpenter.k8s.aws/instance-gpu-name",
            "cloud.google.com/gke-accelerator",
        ]);
        let annotation = meta.annotations.get(&options.price_annotation);
        let annotated_price = annotation.and_then(|text| price(text));
        if let (Some(text), None) = (annotation, annotated_price) {
            faults.push(format!(
                "annotation {}: '{text}' is not a price such as \"1.25\"",
                options.price_annotation
            ));
        }
        let is_initialized = node.spec.taints.iter().all(|taint| taint.key != UNINITIALIZED)
            && capacity.get(CPU).is_some_and(|cpu| cpu.amount > 0);
        let gpus = NodeGpus::read(node, &capacity, options.gpus());
        let (virtual_label, virtual_value) = &options.virtual_node_label;
        let description = NodeStarted {
            cluster_id: options.cluster_id.clone(),
            node_id: NodeId::from(node_id),
            node_name: meta.name.as_str().into(),
            region: label(&["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"])
                .unwrap_or_else(|| options.region.clone()),
            zone: label(&["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]),
            instance_family: label(&["karpenter.k8s.aws/instance-family"])
                .unwrap_or_else(|| family(&provider, &instance_type)),
            provider,
            instance_type,
            capacity_type: capacity_type(meta),
            capacity,
            gpu_model: model.map(|model| options.gpu_model(&model)),
            hourly_cost: UnitPrice::ZERO,
            currency: options.currency.clone(),
            pool_id: pool_of(meta, options).map(Into::into),
            gpus: gpus.cards.clone(),
            resource_key: billed.resource_key,
            account_id: billed.account_id.or_else(|| options.account_id.clone()),
        };
        Self {
            uid: meta.uid.as_str().into(),
            name: meta.name.as_str().into(),
            node_id: node_id.into(),
            created: meta.creation_timestamp.map_or(Timestamp(0), |time| time.0),
            changed: meta.changed(),
            is_initialized,
            is_virtual: meta.labels.get(virtual_label).is_some_and(|value| value == virtual_value),
            annotated_price,
            os: label(&["kubernetes.io/os"]).unwrap_or_else(|| "linux".into()),
            description,
            gpus,
            faults,
        }
    }

    /// Returns whether the node itself reports GPUs.
    pub fn has_gpus(&self, options: &CollectorOptions) -> bool {
        self.description.size(&options.gpu_resources).gpu_millis > 0
    }

    /// Returns the properties that determine the node's price.
    pub fn priced<'n>(&'n self, options: &CollectorOptions) -> PricedNode<'n> {
        let node = &self.description;
        let named = options.gpu_resources.iter().filter_map(|name| node.capacity.get(name));
        let counted = || named.map(|quantity| quantity.amount).sum();
        PricedNode {
            provider: &node.provider,
            region: &node.region,
            zone: node.zone.as_ref(),
            instance_type: &node.instance_type,
            os: &self.os,
            capacity_type: node.capacity_type,
            capacity: &node.capacity,
            gpu_millis: node.gpus.as_ref().map_or_else(counted, |gpus| gpus.amount),
        }
    }
}

/// Facts that a GPU node adds to the description of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuNodeFacts {
    /// Price of the node.
    pub price: Option<UnitPrice>,
    tflops: Option<Quantity>,
    vram: Option<Quantity>,
    model: Option<Text>,
}

impl GpuNodeFacts {
    /// Reads a GPU node. Also returns the values that could not be read.
    pub fn read(node: &GpuNodeObject, options: &CollectorOptions) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        let text = node.spec.cost_per_hour.as_deref().filter(|text| !text.is_empty());
        let cost = text.and_then(price);
        if let (Some(text), None) = (text, cost) {
            faults.push(format!("spec.costPerHour: '{text}' is not a price such as \"1.25\""));
        }
        let mut quantity = |name: &str, text: &Option<crate::object::QuantityText>| {
            let parsed = Quantity::parse(name, &text.as_ref()?.0);
            parsed.map_err(|error| faults.push(error.to_string())).ok().filter(|parsed| parsed.amount > 0)
        };
        let tflops = quantity(TFLOPS, &node.status.total_tflops);
        let vram = quantity(VRAM, &node.status.total_vram);
        let model = node.status.node_info.gpu_model.as_ref().filter(|model| !model.is_empty());
        (Self { price: cost, tflops, vram, model: model.map(|model| options.gpu_model(model)) }, faults)
    }

    /// Adds the facts to a node's description.
    pub fn apply(&self, node: &mut NodeStarted) {
        let amounts = [(TFLOPS, &self.tflops), (VRAM, &self.vram)];
        for (name, quantity) in amounts.into_iter().filter_map(|(name, found)| Some((name, found.as_ref()?)))
        {
            node.capacity.entry(name.into()).or_insert_with(|| quantity.clone());
        }
        if node.gpu_model.is_none() && node.capacity.contains_key(NVIDIA_GPU) {
            node.gpu_model.clone_from(&self.model);
        }
    }
}

/// Returns the pool that a label names: `<domain>/pool-<name>: "true"`, or the configured label. Returns
/// `None` if no label names a pool.
fn pool_of(meta: &ObjectMeta, options: &CollectorOptions) -> Option<Text> {
    let beginning = format!("{}/pool-", options.tensor_fusion_domain);
    let named = meta.labels.iter().find_map(|(label, value)| {
        let name = label.strip_prefix(beginning.as_str()).filter(|name| !name.is_empty())?;
        (**value == *"true").then(|| pool_id(options, name))
    });
    named.or_else(|| meta.labels.get(options.pool_label.as_ref()?).cloned())
}

/// Returns `Spot` if a label of the tool that bought the node says so, otherwise `OnDemand`.
fn capacity_type(meta: &ObjectMeta) -> CapacityType {
    const SPOT: &[(&str, &str)] = &[
        ("karpenter.sh/capacity-type", "spot"),
        ("eks.amazonaws.com/capacityType", "SPOT"),
        ("cloud.google.com/gke-spot", "true"),
        ("cloud.google.com/gke-preemptible", "true"),
        ("kubernetes.azure.com/scalesetpriority", "spot"),
        ("node.kubernetes.io/lifecycle", "spot"),
    ];
    let has = |(label, value): &(&str, &str)| meta.labels.get(*label).is_some_and(|found| **found == **value);
    if SPOT.iter().any(has) { CapacityType::Spot } else { CapacityType::OnDemand }
}

/// Returns the family of an instance type; `provider` is a canonical name. Examples: `p5` of `p5.48xlarge`,
/// `n2d` of `n2d-standard-8`, `NCads_A100_v4` of `Standard_NC24ads_A100_v4`.
pub fn family(provider: &str, instance_type: &str) -> Text {
    match provider {
        "aws" => instance_type.split('.').next().unwrap_or(instance_type).into(),
        "gcp" => instance_type.split('-').next().unwrap_or(instance_type).into(),
        "azure" => azure_family(instance_type),
        _ => instance_type.into(),
    }
}

/// Returns the letters before the size and the text after it: `NCads_A100_v4` of `Standard_NC24ads_A100_v4`.
/// The size is the first run of digits, and may continue with the count of active cores after a dash
/// (`E64-16s`).
fn azure_family(instance_type: &str) -> Text {
    let name = instance_type.split_once('_').map_or(instance_type, |(_, name)| name);
    let Some(start) = name.find(|c: char| c.is_ascii_digit()) else { return name.into() };
    let (letters, rest) = name.split_at(start);
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let cores = rest.strip_prefix('-').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    format!("{letters}{}", cores.unwrap_or(rest)).into()
}
