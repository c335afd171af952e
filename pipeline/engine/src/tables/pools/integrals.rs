//! Integrals of a pool over the hour: capacity of its nodes, requests of its pods, and measured use.

use std::collections::BTreeMap;

use dashu_int::{IBig, UBig};
use dashu_ratio::RBig;
use prorata_schemas::ids::PoolId;
use prorata_schemas::quantity::{EPHEMERAL_STORAGE, MEMORY, TFLOPS, VRAM};
use prorata_schemas::size::amount;
use prorata_schemas::time::Timestamp;

use super::PoolHour;
use crate::currency::counted;
use crate::exact::{HOUR_MICROS, atoms, ratio};
use crate::model::samples::Samples;
use crate::model::slices::{NodeSlice, PodSlice, PoolSlice};
use crate::model::span::Span;
use crate::model::state::NodeKey;
use crate::rows::group::overlapping;
use crate::rules::pool::{PerGpu, PerPoolResource};

/// Integrals over the hour. TFLOPs are in thousandths and VRAM in bytes, times microseconds. Requested and
/// limited amounts are also multiplied by thousandths of a GPU.
#[derive(Debug, Default)]
pub(super) struct PoolIntegrals {
    /// Time of nodes in microseconds.
    pub(super) nodes: u128,
    /// GPUs of nodes in thousandths, times microseconds.
    pub(super) gpus: UBig,
    pub(super) total: PerPoolResource<UBig>,
    /// Capacity with overselling, and with host disk and memory as VRAM.
    pub(super) expanded: PerPoolResource<UBig>,
    pub(super) requested: PerPoolResource<UBig>,
    pub(super) limited: PerPoolResource<UBig>,
    /// Capacity that is not requested, up to the warm capacity and above it. Both amounts are multiplied by
    /// thousandths of a GPU.
    pub(super) idle_warm: PerPoolResource<UBig>,
    pub(super) idle_other: PerPoolResource<UBig>,
    changes: FreeChanges,
    /// Use of the pool's nodes by any pod. `None` if it was never measured.
    pub(super) used: PerPoolResource<Option<RBig>>,
    /// The cost of the pods' GPUs at their nodes' prices, in atoms.
    pub(super) gpu_cost: RBig,
}

/// Changes of the capacity that is not requested, at their instants. The amounts have the unit of `idle_warm`
/// without time.
type FreeChanges = BTreeMap<Timestamp, PerPoolResource<IBig>>;

/// Returns the integrals of every pool. One walk over nodes and pods is enough, even if there are many pools.
pub(super) fn integrals<'a>(hour: &PoolHour<'a>) -> BTreeMap<&'a PoolId, PoolIntegrals> {
    let slices = hour.slices;
    let mut integrals: BTreeMap<&PoolId, PoolIntegrals> =
        slices.pools.keys().map(|id| (id, PoolIntegrals::default())).collect();
    for slice in slices.nodes.values().flatten() {
        let Some(id) = &slice.spec.description.pool_id else { continue };
        let (Some(pool), Some(descriptions)) = (integrals.get_mut(id), slices.pools.get(id)) else {
            continue;
        };
        add_node(pool, slice, descriptions);
    }
    let mut samples = hour.samples.iter().peekable();
    for (uid, pod) in &slices.pods {
        for slice in pod {
            let pool = slice.spec.description.pool_id.as_ref().and_then(|id| integrals.get_mut(id));
            pool.into_iter().for_each(|pool| add_pod(pool, slice, &slices.nodes));
        }
        // Both are sorted by pod.
        while samples.next_if(|(of, _)| of < uid).is_some() {}
        if let Some((_, samples)) = samples.next_if(|(of, _)| of == uid) {
            add_use(&mut integrals, pod, samples, &slices.nodes);
        }
    }
    for (id, pool) in &mut integrals {
        add_idle(pool, slices.pools.get(*id).map_or(&[], Vec::as_slice));
    }
    integrals
}

/// Adds an amount to the free capacity in a span. The amount is multiplied by thousandths of a GPU.
fn change(changes: &mut FreeChanges, span: Span, amounts: PerPoolResource<IBig>) {
    let mut add = |at: Timestamp, amounts: PerPoolResource<IBig>| {
        let sums = changes.entry(at).or_default();
        sums.tflops += amounts.tflops;
        sums.vram += amounts.vram;
    };
    add(span.to, amounts.clone().map(|amount| -amount));
    add(span.from, amounts);
}

/// Adds up the idle capacity at each instant: first up to the warm capacity of the descriptions, then the
/// rest.
fn add_idle(pool: &mut PoolIntegrals, descriptions: &[PoolSlice]) {
    let mut changes = std::mem::take(&mut pool.changes);
    for description in descriptions {
        changes.entry(description.span.from).or_default();
    }
    let mut free = PerPoolResource::<IBig>::default();
    let mut changes = changes.into_iter().peekable();
    while let Some((from, change)) = changes.next() {
        free.tflops += change.tflops;
        free.vram += change.vram;
        let Some(span) = changes.peek().and_then(|(to, _)| Span::new(from, *to)) else { continue };
        // The first description also counts for the time before it. Each counts until the next.
        let after = descriptions.partition_point(|description| description.span.from <= from);
        let Some(description) = descriptions.get(after.saturating_sub(1)) else { continue };
        let warm = &description.description.warm_capacity;
        let micros = UBig::from(span.micros());
        let idle = |free: &IBig, resource: &str| {
            let free = UBig::try_from(free.clone()).unwrap_or_default();
            let warm = free.clone().min(UBig::from(amount(warm, resource)) * 1000_u32);
            ((&warm * &micros), (free - warm) * &micros)
        };
        let (tflops, vram) = (idle(&free.tflops, TFLOPS), idle(&free.vram, VRAM));
        pool.idle_warm.tflops += tflops.0;
        pool.idle_other.tflops += tflops.1;
        pool.idle_warm.vram += vram.0;
        pool.idle_other.vram += vram.1;
    }
}

fn add_node(integrals: &mut PoolIntegrals, slice: &NodeSlice, descriptions: &[PoolSlice]) {
    let capacity = &slice.spec.description.capacity;
    let total = PerPoolResource { tflops: amount(capacity, TFLOPS), vram: amount(capacity, VRAM) };
    add(&mut integrals.total, total, &UBig::from(slice.span.micros()));
    integrals.nodes += slice.span.micros();
    integrals.gpus += UBig::from(slice.spec.capacity.gpu) * slice.span.micros();
    change(&mut integrals.changes, slice.span, total.map(|amount| IBig::from(amount) * 1000));
    for (index, description) in descriptions.iter().enumerate() {
        // The first description also counts for the time before it. Each counts until the next.
        let from = if index == 0 { slice.span.from } else { description.span.from };
        let next = descriptions.get(index + 1);
        let to = next.map_or(slice.span.to, |next| next.span.from);
        let span = Span::new(from.max(slice.span.from), to.min(slice.span.to));
        let Some(span) = span else { continue };
        let pool = &description.description;
        let part = |amount: u128, percent: i32| amount * u128::try_from(percent).unwrap_or(0) / 100;
        // Only whole TFLOPs count, and an amount is in thousandths. Bytes are whole anyway.
        let tflops = part(total.tflops, pool.tflops_oversell_percent) / 1000 * 1000;
        let disk = part(amount(capacity, EPHEMERAL_STORAGE), pool.vram_expand_to_host_disk_percent);
        let memory = part(amount(capacity, MEMORY), pool.vram_expand_to_host_mem_percent);
        let expanded = PerPoolResource { tflops, vram: total.vram + disk + memory };
        add(&mut integrals.expanded, expanded, &UBig::from(span.micros()));
    }
}

fn add_pod(integrals: &mut PoolIntegrals, slice: &PodSlice, nodes: &BTreeMap<NodeKey, Vec<NodeSlice>>) {
    let pod = PerGpu::of(&slice.spec.description);
    let gpu_micros = UBig::from(slice.span.micros()) * UBig::from(pod.count);
    add(&mut integrals.requested, pod.requests, &gpu_micros);
    add(&mut integrals.limited, pod.limits, &gpu_micros);
    let requested = pod.requests.map(|amount| -(IBig::from(amount) * IBig::from(pod.count)));
    change(&mut integrals.changes, slice.span, requested);
    for (node, span) in nodes_of(slice, nodes) {
        // Thousandths of GPUs cancel: the pod's count is divided by the node's GPUs.
        let gpus = UBig::from(node.spec.capacity.gpu) * UBig::from(HOUR_MICROS);
        let set = &node.spec.description;
        let price = atoms(counted(set.hourly_cost, &set.currency));
        integrals.gpu_cost += ratio(UBig::from(pod.count) * UBig::from(span.micros()) * price, gpus);
    }
}

/// Adds the measured use of a pod to the pools whose nodes it runs on.
fn add_use(
    integrals: &mut BTreeMap<&PoolId, PoolIntegrals>,
    pod: &[PodSlice],
    samples: &Samples,
    nodes: &BTreeMap<NodeKey, Vec<NodeSlice>>,
) {
    let mut parts = None;
    for (node, span) in pod.iter().flat_map(|slice| nodes_of(slice, nodes)) {
        let pool = node.spec.description.pool_id.as_ref().and_then(|id| integrals.get_mut(id));
        let Some(pool) = pool else { continue };
        let (mut gpu, mut memory) = (None::<UBig>, None::<UBig>);
        for part in overlapping(parts.get_or_insert_with(|| samples.parts()), span) {
            let Some(here) = Span::new(part.from, part.to).and_then(|part| part.overlap(span)) else {
                continue;
            };
            let micros = UBig::from(here.micros());
            *gpu.get_or_insert_default() += UBig::from(part.use_amounts.gpu) * &micros;
            if let Some(bytes) = part.gpu_memory {
                *memory.get_or_insert_default() += UBig::from(bytes) * micros;
            }
        }
        if let Some(gpu) = gpu {
            // Thousandths of GPUs cancel.
            let tflops = UBig::from(amount(&node.spec.description.capacity, TFLOPS));
            let used = ratio(gpu * tflops, UBig::from(node.spec.capacity.gpu));
            *pool.used.tflops.get_or_insert_default() += used;
        }
        if let Some(memory) = memory {
            *pool.used.vram.get_or_insert_default() += RBig::from(memory);
        }
    }
}

/// Returns the slices of the running node that a pod names, each with the time in which the pod is there.
fn nodes_of<'n>(
    pod: &PodSlice,
    nodes: &'n BTreeMap<NodeKey, Vec<NodeSlice>>,
) -> impl Iterator<Item = (&'n NodeSlice, Span)> {
    let (description, span) = (&pod.spec.description, pod.span);
    let node = description.node_id.clone().filter(|_| pod.status.node_runs);
    let slices = node.and_then(|node| nodes.get(&(description.cluster_id.clone(), node)));
    slices.into_iter().flatten().filter_map(move |slice| Some((slice, slice.span.overlap(span)?)))
}

fn add(sums: &mut PerPoolResource<UBig>, amounts: PerPoolResource<u128>, factor: &UBig) {
    sums.tflops += UBig::from(amounts.tflops) * factor;
    sums.vram += UBig::from(amounts.vram) * factor;
}
