//! Properties of nodes and pods that the rules read, computed once when a description takes effect.

use std::collections::BTreeSet;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::Text;
use prorata_schemas::event::{BillSet, NodeStarted, PodStarted, Quantities, RateSet, names};
use prorata_schemas::quantity::GPU_MEMORY;
use prorata_schemas::rules::Rules;
use prorata_schemas::size::{self, Size};

use crate::exact::{atoms, ratio};
use crate::model::named_nodes::NodeNumber;
use crate::model::per_resource::{PARTS_PER_UNIT, PerResource};
use crate::model::state::{BillingAccount, RateKey};

/// Amounts at one instant: thousandths of a vCPU, bytes of memory, thousandths of a GPU.
pub(crate) type Amounts = PerResource<u128>;

/// Returns the amounts of quantities. GPUs of every kind count alike (RULES.md, section 1).
pub(crate) fn amounts(quantities: &Quantities, rules: &Rules) -> Amounts {
    of_size(Size::of(quantities, &rules.gpu_resources))
}

fn of_size(size: Size) -> Amounts {
    PerResource { cpu: size.cpu_millis, memory: size.memory_bytes, gpu: size.gpu_millis }
}

/// The canonical name of a provider and the key of one of its resources, by which lines of bills find nodes.
pub(crate) type BillKey = (Text, Text);

/// Returns the key of the nodes that a set of a bill may be for. `None` if it is for no resource.
pub(crate) fn bill_key(set: &BillSet) -> Option<BillKey> {
    let provider = names::shared(&set.provider, names::provider);
    (!set.resource_key.is_empty()).then(|| (provider, set.resource_key.clone()))
}

/// Returns the account of a provider's bill.
pub(crate) fn billing_account(provider: &Text, billing_account_id: &Text) -> BillingAccount {
    (names::shared(provider, names::provider), billing_account_id.clone())
}

/// A description of a running node.
#[derive(Debug)]
pub(crate) struct NodeSpec {
    /// The description as delivered.
    pub(crate) description: Arc<NodeStarted>,
    /// The key under which bills of the hour have lines for the node; `None` if they have none.
    pub(crate) bill: Option<BillKey>,
    pub(crate) capacity: Amounts,
    /// The canonical name of the GPU model.
    pub(crate) gpu_model: Option<Text>,
}

/// A description of a running pod.
#[derive(Debug)]
pub(crate) struct PodSpec {
    /// The description as delivered.
    pub(crate) description: Arc<PodStarted>,
    pub(crate) requests: Amounts,
    /// Whether the pod's part of shared GPUs is unknown.
    pub(crate) has_unknown_share: bool,
    /// The number of GPUs, in thousandths, of the units that may serve the pod. It is counted by resource
    /// name, whatever the number of physical GPUs. `None` if the pod holds a part of a GPU, so that no unit
    /// serves it.
    pub(crate) unit_gpus: Option<u128>,
    /// The amount of `nos.nebuly.com/gpu-memory` in thousandths of a GB: RULES.md, section 4.
    pub(crate) gpu_memory: u128,
    /// The node that the pod names, running or not; `None` if the pod names none.
    pub(crate) node: Option<NodeNumber>,
}

impl NodeSpec {
    /// Reads a description. `billed` has all keys for which bills of the hour have lines.
    pub(crate) fn new(description: Arc<NodeStarted>, billed: &BTreeSet<BillKey>, rules: &Rules) -> Self {
        let capacity = of_size(description.size(&rules.gpu_resources));
        let gpu_model = gpu_model(description.gpu_model.as_ref());
        let bill = description.resource_key.as_ref().filter(|_| !billed.is_empty());
        let bill = bill.map(|key| (names::shared(&description.provider, names::provider), key.clone()));
        let bill = bill.filter(|key| billed.contains(key));
        Self { description, bill, capacity, gpu_model }
    }
}

impl PodSpec {
    /// Reads a description, which names this node.
    pub(crate) fn new(description: Arc<PodStarted>, node: Option<NodeNumber>, rules: &Rules) -> Self {
        let requests = of_size(description.size(&rules.gpu_resources));
        let named = || amounts(&description.requests, rules).gpu;
        let unit_gpus = description.holds_whole_gpus().then(named);
        let gpu_memory = size::gpu_memory(&description.requests, rules.gpu_memory_gb);
        let has_unknown_share = description.holds_unknown_share(&rules.gpu_resources);
        Self { requests, has_unknown_share, unit_gpus, gpu_memory, node, description }
    }

    /// Returns the amount of a resource that a quota counts, in bytes or thousandths.
    pub(crate) fn quota_amount(&self, resource: &str) -> u128 {
        if resource == GPU_MEMORY {
            self.gpu_memory
        } else {
            size::amount(&self.description.requests, resource)
        }
    }

    /// Returns whether the pod names no node and no pool, so that the rate card prices it.
    pub(crate) fn is_serverless(&self) -> bool {
        self.description.node_id.is_none() && self.description.pool_id.is_none()
    }

    /// Returns the hourly cost of the requests at a rate, in atoms.
    pub(crate) fn hourly_cost(&self, rate: &RateSet) -> PerResource<RBig> {
        let prices =
            PerResource { cpu: rate.per_vcpu_hour, memory: rate.per_gib_hour, gpu: rate.per_gpu_hour };
        prices
            .zip(self.requests)
            .zip(PARTS_PER_UNIT)
            .map(|((price, amount), parts)| ratio(atoms(price) * UBig::from(amount), UBig::from(parts)))
    }

    /// Returns the key of the rate that prices the pod; `None` if no rate can price it.
    pub(crate) fn rate_key(&self) -> Option<RateKey> {
        let pod = Some(&self.description).filter(|_| self.is_serverless())?;
        Some(canonical(pod.region.as_ref()?, pod.gpu_model.as_ref(), &pod.qos))
    }
}

/// Returns the key by which pods find a rate.
pub(crate) fn rate_key(rate: &RateSet) -> RateKey {
    canonical(&rate.region, rate.gpu_model.as_ref(), &rate.qos)
}

/// Returns the key of a rate in canonical names.
fn canonical(region: &Text, model: Option<&Text>, qos: &Text) -> RateKey {
    (names::shared(region, names::place), gpu_model(model), qos.clone())
}

/// Returns the canonical name of a GPU model; `None` if there is no name.
pub(crate) fn gpu_model(name: Option<&Text>) -> Option<Text> {
    name.map(|name| names::shared(name, names::gpu_model))
}
