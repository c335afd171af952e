//! What the rules read from a description of a node or a pod, computed once when it takes effect.

use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{NodeStarted, PodStarted, Quantities, RateSet, names};
use prorata_schemas::quantity::GPU_MEMORY;
use prorata_schemas::rules::Rules;
use prorata_schemas::size::{self, Size};

use crate::per_resource::PerResource;
use crate::timeline::named_nodes::NodeNumber;
use crate::timeline::state::RateKey;

/// Amounts at one instant: thousandths of a vCPU, bytes of memory, thousandths of a GPU.
pub(crate) type Amounts = PerResource<u128>;

/// What quantities amount to: GPUs of every kind are counted alike (RULES.md, section 1).
pub(crate) fn amounts(quantities: &Quantities, rules: &Rules) -> Amounts {
    let size = Size::of(quantities, &rules.gpu_resources);
    PerResource { cpu: size.cpu_millis, memory: size.memory_bytes, gpu: size.gpu_millis }
}

/// A description of a running node.
#[derive(Debug)]
pub(crate) struct NodeSpec {
    /// As delivered.
    pub(crate) description: Arc<NodeStarted>,
    pub(crate) capacity: Amounts,
    /// Its GPU model's canonical name.
    pub(crate) gpu_model: Option<Text>,
}

/// A description of a running pod.
#[derive(Debug)]
pub(crate) struct PodSpec {
    /// As delivered.
    pub(crate) description: Arc<PodStarted>,
    pub(crate) requests: Amounts,
    /// Its `nos.nebuly.com/gpu-memory` in thousandths of a GB: RULES.md, section 4.
    pub(crate) gpu_memory: u128,
    /// The node that it names, running or not.
    pub(crate) node: Option<NodeNumber>,
}

impl NodeSpec {
    /// Reads a description.
    pub(crate) fn new(description: Arc<NodeStarted>, rules: &Rules) -> Self {
        let capacity = amounts(&description.capacity, rules);
        let gpu_model = gpu_model(description.gpu_model.as_ref());
        Self { description, capacity, gpu_model }
    }
}

impl PodSpec {
    /// Reads a description, which names this node.
    pub(crate) fn new(description: Arc<PodStarted>, node: Option<NodeNumber>, rules: &Rules) -> Self {
        let requests = amounts(&description.requests, rules);
        let gpu_memory = size::gpu_memory(&description.requests, rules.gpu_memory_gb);
        Self { requests, gpu_memory, node, description }
    }

    /// What a quota counts of a resource, in bytes or thousandths.
    pub(crate) fn quota_amount(&self, resource: &str) -> u128 {
        if resource == GPU_MEMORY {
            self.gpu_memory
        } else {
            size::amount(&self.description.requests, resource)
        }
    }

    /// Whether it runs on no node and in no pool: priced by the rate card.
    pub(crate) fn is_serverless(&self) -> bool {
        self.description.node_id.is_none() && self.description.pool_id.is_none()
    }

    /// The rate that prices it, if one does.
    pub(crate) fn rate_key(&self) -> Option<RateKey> {
        let pod = Some(&self.description).filter(|_| self.is_serverless())?;
        Some(canonical(pod.region.as_ref()?, pod.gpu_model.as_ref(), &pod.qos))
    }
}

/// The key by which pods find a rate.
pub(crate) fn rate_key(rate: &RateSet) -> RateKey {
    canonical(&rate.region, rate.gpu_model.as_ref(), &rate.qos)
}

/// The key of a rate by canonical names.
fn canonical(region: &Text, model: Option<&Text>, qos: &Text) -> RateKey {
    (names::shared(region, names::place), gpu_model(model), qos.clone())
}

/// A GPU model's canonical name.
pub(crate) fn gpu_model(name: Option<&Text>) -> Option<Text> {
    name.map(|name| names::shared(name, names::gpu_model))
}
