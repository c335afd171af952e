//! The infrastructure of every generated organization: clusters in three clouds with their node groups, a
//! serverless cluster, and two GPU pools.

pub mod catalogue;

/// A cluster that every organization has.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    pub id: &'static str,
    pub provider: &'static str,
    /// Prefix of the ids of the accounts that are billed for the cluster's nodes.
    pub account: &'static str,
    pub region: &'static str,
    pub zones: &'static [&'static str],
    /// Number of pods in a million whose use is measured; 0 if the cluster has no agent.
    pub sampled: u32,
}

/// A group of nodes that start when pods need them.
#[derive(Clone, Copy, Debug)]
pub struct NodeGroup {
    /// Index into [`CLUSTERS`].
    pub cluster: usize,
    /// Instance types of new nodes; one is drawn at random.
    pub instances: &'static [&'static str],
    pub spot: bool,
    /// Resource name of the group's accelerators.
    pub accelerator: &'static str,
    /// GPU pool of the group's nodes.
    pub pool: Option<&'static str>,
    /// Number of GPUs of each node that are divided into MIG slices.
    pub mig_gpus: u64,
}

/// Index of the serverless cluster in [`CLUSTERS`].
pub const SERVERLESS: usize = 4;

/// The clusters.
pub const CLUSTERS: &[Cluster] = &[
    Cluster {
        id: "prod-aws",
        provider: "aws",
        account: "111",
        region: "us-east-1",
        zones: &["us-east-1a", "us-east-1b", "us-east-1c"],
        sampled: 700_000,
    },
    Cluster {
        id: "dev-aws",
        provider: "aws",
        account: "111",
        region: "us-east-1",
        zones: &["us-east-1a", "us-east-1d"],
        sampled: 500_000,
    },
    Cluster {
        id: "train-gcp",
        provider: "gcp",
        account: "project-",
        region: "us-central1",
        zones: &["us-central1-a", "us-central1-c"],
        sampled: 600_000,
    },
    Cluster {
        id: "burst-azure",
        provider: "azure",
        account: "subscription-",
        region: "eastus",
        zones: &["eastus-1", "eastus-2"],
        sampled: 0,
    },
    Cluster {
        id: "acs-wulanchabu",
        provider: "alibaba",
        account: "222",
        region: "cn-wulanchabu",
        zones: &["cn-wulanchabu-a", "cn-wulanchabu-c"],
        sampled: 300_000,
    },
];

/// Pool of L40S GPUs in `prod-aws`, with budgets.
pub const POOL_L40S: &str = "pool-l40s";
/// Pool of L4 GPUs in `train-gcp`, without budgets.
pub const POOL_L4: &str = "pool-l4";

const NVIDIA: &str = "nvidia.com/gpu";
const NEURON: &str = "aws.amazon.com/neuron";

const fn group(cluster: usize, instances: &'static [&'static str], spot: bool) -> NodeGroup {
    NodeGroup { cluster, instances, spot, accelerator: NVIDIA, pool: None, mig_gpus: 0 }
}

/// Web services of `prod-aws`.
pub const PROD_GENERAL: usize = 0;
/// Caches of `prod-aws`.
pub const PROD_MEMORY: usize = 1;
/// Inference of `prod-aws`.
pub const PROD_GPU: usize = 2;
/// Neuron chips of `prod-aws`.
pub const PROD_NEURON: usize = 3;
/// Nodes of the pool of `prod-aws`.
pub const PROD_POOL: usize = 4;
/// Teams of `dev-aws`.
pub const DEV_GENERAL: usize = 5;
/// Batch of `dev-aws`.
pub const DEV_SPOT: usize = 6;
/// Experiments of `dev-aws`.
pub const DEV_GPU: usize = 7;
/// Training in `dev-aws`, with price cuts during the run.
pub const DEV_TRAIN: usize = 8;
/// Batch of `train-gcp`.
pub const GCP_GENERAL: usize = 9;
/// Spot batch of `train-gcp`.
pub const GCP_SPOT: usize = 10;
/// Training of `train-gcp`.
pub const GCP_TRAIN: usize = 11;
/// Spot training of `train-gcp`.
pub const GCP_TRAIN_SPOT: usize = 12;
/// Notebooks of `train-gcp`, on MIG slices.
pub const GCP_MIG: usize = 13;
/// Nodes of the pool of `train-gcp`.
pub const GCP_POOL: usize = 14;
/// Web services of `burst-azure`.
pub const AZURE_GENERAL: usize = 15;
/// Inference of `burst-azure`.
pub const AZURE_GPU: usize = 16;
/// Spot training of `burst-azure`.
pub const AZURE_SPOT: usize = 17;

/// The node groups, by the indices above.
pub const GROUPS: &[NodeGroup] = &[
    group(0, &["m6i.4xlarge", "m6i.4xlarge", "m7i.4xlarge", "m5.xlarge"], false),
    group(0, &["r6i.8xlarge"], false),
    group(0, &["g5.12xlarge", "g5.xlarge", "g5.48xlarge", "g6.12xlarge", "g6.xlarge"], false),
    NodeGroup { accelerator: NEURON, ..group(0, &["inf2.24xlarge", "trn1.32xlarge"], false) },
    NodeGroup { pool: Some(POOL_L40S), ..group(0, &["g6e.12xlarge", "g6e.xlarge"], false) },
    group(1, &["m6i.4xlarge", "m5.xlarge"], false),
    group(1, &["c6i.8xlarge", "m6i.4xlarge"], true),
    group(1, &["g4dn.12xlarge", "g4dn.xlarge"], true),
    group(1, &["p5.48xlarge", "p4d.24xlarge", "p4de.24xlarge", "p5en.48xlarge", "p6-b200.48xlarge"], false),
    group(2, &["n2-standard-16", "e2-standard-8"], false),
    group(2, &["c2d-highcpu-16", "n2-standard-16"], true),
    group(2, &["a3-highgpu-8g", "a2-highgpu-8g"], false),
    group(2, &["a2-highgpu-8g", "a2-highgpu-1g", "a3-highgpu-8g"], true),
    NodeGroup { mig_gpus: 2, ..group(2, &["a2-ultragpu-8g"], false) },
    NodeGroup {
        pool: Some(POOL_L4),
        ..group(2, &["g2-standard-48", "g2-standard-96", "g2-standard-4"], true)
    },
    group(3, &["Standard_D16as_v4", "Standard_D32as_v4"], false),
    group(3, &["Standard_NC40ads_H100_v5", "Standard_NC24ads_A100_v4", "Standard_ND96isr_H100_v5"], false),
    group(3, &["Standard_NC96ads_A100_v4", "Standard_NC48ads_A100_v4"], true),
];

#[cfg(test)]
mod tests {
    use super::catalogue::{POOL_GPUS, instance};
    use super::*;

    #[test]
    fn every_group_runs_instances_with_a_price() {
        for group in GROUPS {
            for name in group.instances {
                assert!(instance(name).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn every_pool_node_has_a_gpu_with_known_tflops() {
        for group in GROUPS.iter().filter(|group| group.pool.is_some()) {
            for name in group.instances {
                let model = instance(name).and_then(|instance| instance.gpu_model);
                assert!(POOL_GPUS.iter().any(|gpu| Some(gpu.name) == model), "{name}");
            }
        }
    }

    #[test]
    fn every_index_names_its_group() {
        assert_eq!(GROUPS.len(), AZURE_SPOT + 1);
        assert_eq!(GROUPS[GCP_POOL].pool, Some(POOL_L4));
        assert_eq!(GROUPS[PROD_POOL].pool, Some(POOL_L40S));
        assert_eq!(GROUPS[PROD_NEURON].accelerator, NEURON);
        assert_eq!(GROUPS[GCP_MIG].mig_gpus, 2);
        assert_eq!(GROUPS[AZURE_GENERAL].cluster, 3);
        assert_eq!(CLUSTERS[SERVERLESS].provider, "alibaba");
    }
}
