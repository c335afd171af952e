//! Nodes: the room for pods, the type and price of a new node, and the pods that end with a node.

use std::collections::BTreeMap;

use prorata_schemas::event::{CapacityType, NodeStarted, NodeStopped, Payload, Quantities};
use prorata_schemas::money::UnitPrice;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::clusters::catalogue::{Instance, POOL_GPUS, instance, percent, price_before_cut};
use crate::clusters::{CLUSTERS, Cluster, GROUPS, NodeGroup};
use crate::quantities::{put_mib, put_millis};
use crate::random::{chance, pick};

/// Amounts that a scheduler counts: thousandths of a vCPU, MiB, accelerators, and MIG slices of 1/7 and 3/7
/// of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub cpu_millis: u64,
    pub memory_mib: u64,
    pub gpus: u64,
    pub mig_1g: u64,
    pub mig_3g: u64,
}

/// A running node.
#[derive(Clone, Debug)]
pub struct Node {
    pub group: usize,
    /// The node's last NodeStarted.
    pub described: NodeStarted,
    pub free: Amounts,
    /// Keys of the pods on the node.
    pub pods: Vec<u64>,
}

/// The nodes of one organization.
#[derive(Debug, Default)]
pub struct Fleet {
    nodes: BTreeMap<u64, Node>,
    by_group: Vec<Vec<u64>>,
    cursors: Vec<usize>,
    next_key: u64,
    /// Whether the price cuts of the catalogue have been applied.
    prices_are_cut: bool,
    /// The number of the organization, which is the last part of its account ids.
    number: u64,
}

/// Maximum number of nodes to try for a pod before a new node starts.
const NODES_TRIED_MAX: usize = 24;

impl Amounts {
    fn fits(self, other: Self) -> bool {
        self.cpu_millis >= other.cpu_millis
            && self.memory_mib >= other.memory_mib
            && self.gpus >= other.gpus
            && self.mig_1g >= other.mig_1g
            && self.mig_3g >= other.mig_3g
    }

    fn less(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_sub(other.cpu_millis),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
            gpus: self.gpus.saturating_sub(other.gpus),
            mig_1g: self.mig_1g.saturating_sub(other.mig_1g),
            mig_3g: self.mig_3g.saturating_sub(other.mig_3g),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis + other.cpu_millis,
            memory_mib: self.memory_mib + other.memory_mib,
            gpus: self.gpus + other.gpus,
            mig_1g: self.mig_1g + other.mig_1g,
            mig_3g: self.mig_3g + other.mig_3g,
        }
    }
}

impl Node {
    /// Returns the event of the node's stop.
    pub fn stopped(&self) -> Payload {
        Payload::NodeStopped(NodeStopped {
            cluster_id: self.described.cluster_id.clone(),
            node_id: self.described.node_id.clone(),
        })
    }
}

impl Fleet {
    /// Creates a fleet without nodes for the organization with this number.
    pub fn new(number: u64) -> Self {
        let (by_group, cursors) = (vec![Vec::new(); GROUPS.len()], vec![0; GROUPS.len()]);
        Self { by_group, cursors, number, ..Self::default() }
    }

    /// Returns the number of running nodes.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the running node with this key.
    pub fn node(&self, key: u64) -> Option<&Node> {
        self.nodes.get(&key)
    }

    /// Returns the keys of the running nodes of a group.
    pub fn of_group(&self, group: usize) -> &[u64] {
        self.by_group.get(group).map_or(&[], Vec::as_slice)
    }

    /// Finds a running node of the group with room, among at most [`NODES_TRIED_MAX`] nodes. The search
    /// begins at the node that was found last.
    pub fn find_room(&mut self, group: usize, need: Amounts) -> Option<u64> {
        let keys = self.by_group.get(group)?;
        let cursor = self.cursors.get_mut(group)?;
        for step in 0..keys.len().min(NODES_TRIED_MAX) {
            let index = (*cursor + step) % keys.len();
            let key = *keys.get(index)?;
            if self.nodes.get(&key).is_some_and(|node| node.free.fits(need)) {
                *cursor = index;
                return Some(key);
            }
        }
        *cursor = (*cursor + NODES_TRIED_MAX) % keys.len().max(1);
        None
    }

    /// Starts a node of the group that can hold `need`; `None` if no instance type of the group can.
    pub fn start(&mut self, rng: &mut ChaCha8Rng, group_index: usize, need: Amounts) -> Option<u64> {
        let group = GROUPS.get(group_index)?;
        let cluster = CLUSTERS.get(group.cluster)?;
        let candidates: Vec<&Instance> = group
            .instances
            .iter()
            .filter_map(|name| instance(name))
            .filter(|instance| capacity(instance, group).fits(need))
            .collect();
        let instance = *pick(rng, &candidates)?;
        let described = self.describe(rng, group, cluster, instance);
        let key = self.next_key;
        self.next_key += 1;
        let free = capacity(instance, group);
        self.nodes.insert(key, Node { group: group_index, described, free, pods: Vec::new() });
        self.by_group.get_mut(group_index)?.push(key);
        Some(key)
    }

    /// Starts a stopped node again under its old id, without pods. Returns its new key; `None` if its group
    /// or instance type is not known.
    pub fn bring_back(&mut self, node: &Node) -> Option<u64> {
        let group = GROUPS.get(node.group)?;
        let free = capacity(instance(&node.described.instance_type)?, group);
        let key = self.next_key;
        self.next_key += 1;
        self.nodes.insert(key, Node { free, pods: Vec::new(), ..node.clone() });
        self.by_group.get_mut(node.group)?.push(key);
        Some(key)
    }

    /// Places a pod on a node.
    pub fn place(&mut self, key: u64, pod: u64, need: Amounts) {
        if let Some(node) = self.nodes.get_mut(&key) {
            node.free = node.free.less(need);
            node.pods.push(pod);
        }
    }

    /// Removes a pod from a node. Returns `true` if the node is empty now.
    pub fn remove_pod(&mut self, key: u64, pod: u64, need: Amounts) -> bool {
        let Some(node) = self.nodes.get_mut(&key) else { return false };
        if let Some(index) = node.pods.iter().position(|&other| other == pod) {
            node.pods.swap_remove(index);
            node.free = node.free.plus(need);
        }
        node.pods.is_empty()
    }

    /// Removes a node.
    pub fn remove(&mut self, key: u64) -> Option<Node> {
        let node = self.nodes.remove(&key)?;
        if let Some(keys) = self.by_group.get_mut(node.group)
            && let Some(index) = keys.iter().position(|&other| other == key)
        {
            keys.swap_remove(index);
        }
        Some(node)
    }

    /// Changes the price of a spot node and returns its new description; `None` if the node does not run.
    pub fn reprice(&mut self, rng: &mut ChaCha8Rng, key: u64) -> Option<NodeStarted> {
        let node = self.nodes.get_mut(&key)?;
        let instance = instance(&node.described.instance_type)?;
        node.described.hourly_cost = spot_price(rng, instance);
        Some(node.described.clone())
    }

    /// Applies the price cuts of the catalogue. Returns new descriptions of the nodes whose price falls.
    pub fn cut_prices(&mut self) -> Vec<NodeStarted> {
        self.prices_are_cut = true;
        let mut changed = Vec::new();
        for node in self.nodes.values_mut() {
            let on_demand = node.described.capacity_type == CapacityType::OnDemand;
            if on_demand && price_before_cut(&node.described.instance_type).is_some() {
                if let Some(instance) = instance(&node.described.instance_type) {
                    node.described.hourly_cost = instance.on_demand;
                }
                changed.push(node.described.clone());
            }
        }
        changed
    }

    fn price(&self, rng: &mut ChaCha8Rng, group: &NodeGroup, instance: &Instance) -> UnitPrice {
        if group.spot {
            return spot_price(rng, instance);
        }
        match price_before_cut(instance.name) {
            Some(before) if !self.prices_are_cut => before,
            _ => instance.on_demand,
        }
    }

    fn describe(
        &self,
        rng: &mut ChaCha8Rng,
        group: &NodeGroup,
        cluster: &Cluster,
        instance: &Instance,
    ) -> NodeStarted {
        let random: u64 = rng.random();
        let zone = pick(rng, cluster.zones).map(|&zone| zone.into());
        let (node_id, node_name) = match cluster.provider {
            "aws" => {
                let [a, b, c, ..] = random.to_be_bytes();
                (format!("i-0{random:016x}"), format!("ip-10-{a}-{b}-{c}.ec2.internal"))
            }
            "gcp" => (format!("{:019}", random >> 1), format!("gke-{}-{:08x}", cluster.id, random >> 32)),
            _ => (format!("vmss-{random:016x}"), format!("aks-{}-vmss{:06x}", cluster.id, random >> 40)),
        };
        let resource_key = match (cluster.provider, &zone) {
            ("gcp", Some(zone)) => format!("{zone}/{node_name}"),
            _ => node_id.clone(),
        };
        NodeStarted {
            cluster_id: cluster.id.into(),
            node_id: node_id.into(),
            node_name: node_name.into(),
            provider: cluster.provider.into(),
            region: cluster.region.into(),
            zone,
            instance_type: instance.name.into(),
            instance_family: instance.family.into(),
            capacity_type: if group.spot { CapacityType::Spot } else { CapacityType::OnDemand },
            capacity: quantities(instance, group),
            gpu_model: instance.gpu_model.map(Into::into),
            hourly_cost: self.price(rng, group, instance),
            currency: "USD".into(),
            pool_id: group.pool.map(Into::into),
            gpus: None,
            resource_key: Some(resource_key.into()),
            account_id: Some(format!("{}{:09}", cluster.account, self.number).into()),
        }
    }
}

/// Draws a spot price of this instance type: near the published price, or 25 to 40 % of on-demand if there is
/// none.
fn spot_price(rng: &mut ChaCha8Rng, instance: &Instance) -> UnitPrice {
    match instance.spot {
        Some(published) if chance(rng, 500_000) => published,
        Some(published) => percent(published, i128::from(rng.random_range(90..=110_u32))),
        None => percent(instance.on_demand, i128::from(rng.random_range(25..=40_u32))),
    }
}

/// Returns the allocatable amounts of an instance.
fn capacity(instance: &Instance, group: &NodeGroup) -> Amounts {
    Amounts {
        cpu_millis: instance.vcpu * 1000,
        memory_mib: instance.memory_gib * 1024,
        gpus: instance.gpus.saturating_sub(group.mig_gpus),
        mig_1g: group.mig_gpus * 4,
        mig_3g: group.mig_gpus,
    }
}

/// Returns the capacity that the node reports.
fn quantities(instance: &Instance, group: &NodeGroup) -> Quantities {
    let mut reported = Quantities::new();
    let free = capacity(instance, group);
    put_millis(&mut reported, "cpu", free.cpu_millis);
    put_mib(&mut reported, "memory", free.memory_mib);
    put_millis(&mut reported, "pods", 110_000);
    if free.gpus > 0 {
        put_millis(&mut reported, group.accelerator, free.gpus * 1000);
    }
    if free.mig_1g > 0 {
        put_millis(&mut reported, "nvidia.com/mig-1g.10gb", free.mig_1g * 1000);
        put_millis(&mut reported, "nvidia.com/mig-3g.40gb", free.mig_3g * 1000);
    }
    let pool_gpu = POOL_GPUS.iter().find(|gpu| group.pool.is_some() && Some(gpu.name) == instance.gpu_model);
    if let Some(gpu) = pool_gpu {
        put_mib(&mut reported, "ephemeral-storage", 512 * 1024);
        put_millis(&mut reported, "tensor-fusion.ai/tflops", gpu.fp16_tflops * instance.gpus * 1000);
        put_mib(&mut reported, "tensor-fusion.ai/vram", gpu.vram_gib * instance.gpus * 1024);
    }
    reported
}
