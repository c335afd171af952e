//! Amounts of resources: vCPU, GiB, GPUs, GB of GPU memory, and the amounts that quotas count.

use prorata_schemas::event::{NodeStarted, PodStarted, Quantities};
use prorata_schemas::quantity::{
    CPU, EPHEMERAL_STORAGE, GPU_MEMORY, MEMORY, NVIDIA_GPU, Quantity, TFLOPS, VRAM,
};
use prorata_schemas::rules::Rules;

use crate::rounding::{Exact, nearest, ratio, whole, zero};

/// vCPU, GiB of memory and GPUs, or the cost of each of the three.
pub type Three = [Exact; 3];

/// Returns three zeros.
pub fn none() -> Three {
    [zero(), zero(), zero()]
}

/// Adds `more` times `factor` to each.
pub fn add(to: &mut Three, more: &Three, factor: &Exact) {
    for (sum, part) in to.iter_mut().zip(more) {
        *sum += part * factor;
    }
}

/// Returns the amount of a resource as delivered, in bytes or thousandths; zero if the resource is missing.
pub fn amount(quantities: &Quantities, resource: &str) -> u128 {
    quantities.get(resource).map_or(0, |quantity| quantity.amount)
}

/// Bytes in one GiB.
pub const GIB: i64 = 1 << 30;

/// Returns vCPU, GiB and GPUs of a node. If only replicas of GPUs are known, the node has one GPU.
pub fn of_node(node: &NodeStarted, rules: &Rules) -> Three {
    let counted = match milli_gpus(&node.capacity, rules) {
        0 if milli_replicas(&node.capacity, rules) > 0 => 1000,
        milli => milli,
    };
    three(&node.capacity, node.gpus.as_ref(), counted)
}

/// Returns vCPU, GiB and GPUs of a pod. A replica counts as a GPU.
pub fn of_pod(pod: &PodStarted, rules: &Rules) -> Three {
    let counted = milli_gpus(&pod.requests, rules) + milli_replicas(&pod.requests, rules);
    three(&pod.requests, pod.gpus.as_ref(), counted)
}

/// Returns replicas of GPUs in thousandths; zero if the rules count replicas as GPUs.
fn milli_replicas(quantities: &Quantities, rules: &Rules) -> i128 {
    const REPLICAS: &str = "nvidia.com/gpu.shared";
    if rules.gpu_resources.iter().any(|name| **name == *REPLICAS) {
        return 0;
    }
    amount(quantities, REPLICAS) as i128
}

/// Returns vCPU, GiB and GPUs. The physical GPUs, if they are given, replace the counted GPUs.
fn three(quantities: &Quantities, gpus: Option<&Quantity>, counted: i128) -> Three {
    let milli = gpus.map_or(counted, |physical| physical.amount as i128);
    [ratio(amount(quantities, CPU), 1000), ratio(amount(quantities, MEMORY), GIB), ratio(milli, 1000)]
}

/// Returns whether the pod shares GPUs and holds an unknown part of them.
pub fn is_share_unknown(pod: &PodStarted, rules: &Rules) -> bool {
    pod.gpus.is_none() && (pod.gpu_sharing.is_some() || milli_replicas(&pod.requests, rules) > 0)
}

/// Returns GPUs in thousandths: the sum of the configured names, plus n/7 of a GPU for each MIG slice. The
/// slices of all profiles are added and then rounded once.
pub fn milli_gpus(quantities: &Quantities, rules: &Rules) -> i128 {
    let mut milli: i128 = 0;
    let mut sevenths = zero();
    for (resource, quantity) in quantities {
        if rules.gpu_resources.contains(resource) {
            milli += quantity.amount as i128;
        } else if let Some((slices, _)) = mig_profile(resource) {
            sevenths += whole(slices) * whole(quantity.amount);
        }
    }
    let mig: i128 = (&nearest(&(sevenths / whole(7)))).try_into().unwrap_or_default();
    milli + mig
}

/// Returns the slices and the GB of a resource name `nvidia.com/mig-<n>g.<m>gb`, with an optional `.suffix`.
/// `None` for any other name.
pub fn mig_profile(resource: &str) -> Option<(u64, u64)> {
    let profile = resource.strip_prefix("nvidia.com/mig-")?;
    let (slices, rest) = profile.split_once("g.")?;
    let (gigabytes, suffix) = rest.split_once("gb")?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = suffix.is_empty() || (suffix.starts_with('.') && suffix.len() > 1);
    if !plain || !digits(slices) || !digits(gigabytes) {
        return None;
    }
    Some((slices.parse().ok()?, gigabytes.parse().ok()?))
}

/// Computes `nos.nebuly.com/gpu-memory` of a pod in GB, whatever the pod requests under this name.
pub fn gpu_memory(requests: &Quantities, rules: &Rules) -> Exact {
    let mut gigabytes = whole(rules.gpu_memory_gb) * ratio(amount(requests, NVIDIA_GPU), 1000);
    for (resource, quantity) in requests {
        if let Some((_, size)) = mig_profile(resource) {
            gigabytes += whole(size) * ratio(quantity.amount, 1000);
        }
    }
    gigabytes
}

/// Returns a pod's request of a resource that a quota counts, in units of the resource.
pub fn requested(requests: &Quantities, resource: &str, rules: &Rules) -> Exact {
    if resource == GPU_MEMORY {
        gpu_memory(requests, rules)
    } else {
        units(amount(requests, resource), resource)
    }
}

/// Converts an amount in bytes or thousandths to the resource's own unit.
pub fn units(amount: u128, resource: &str) -> Exact {
    if matches!(resource, EPHEMERAL_STORAGE | MEMORY | VRAM) { whole(amount) } else { ratio(amount, 1000) }
}

/// Returns the number of GPUs that multiplies a pool pod's prices, requests and limits; 1 if the number is
/// missing or zero.
pub fn pool_count(requests: &Quantities) -> Exact {
    match amount(requests, NVIDIA_GPU) {
        0 => whole(1),
        milli => ratio(milli, 1000),
    }
}

/// Returns TFLOPs and bytes of VRAM.
pub fn pool_amounts(quantities: &Quantities) -> (Exact, Exact) {
    (ratio(amount(quantities, TFLOPS), 1000), whole(amount(quantities, VRAM)))
}
