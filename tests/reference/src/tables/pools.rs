//! `pool_usage`: capacity, requests, charges, costs and budgets of pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{NodeStarted, PodStarted, PoolSet};
use prorata_schemas::ids::{PodUid, PoolId};
use prorata_schemas::quantity::{EPHEMERAL_STORAGE, MEMORY, TFLOPS, VRAM};
use prorata_schemas::rows::{CostRow, PoolUsageRow, RowKind};
use prorata_schemas::time::{Date, Hour};

use crate::hour::{HourView, Slice, counted};
use crate::resources::{amount, of_node, pool_amounts, pool_count};
use crate::rounding::{Exact, estimate, exact, fraction, half_even, hours, larger, ratio, whole, zero};
use crate::rules::pool::limits;
use crate::tables::sum;
use crate::usage;
use crate::world::{Billing, NodeKey};

/// Node cost of every pool id in every hour so far.
pub type Spend = BTreeMap<PoolId, Vec<(Hour, Decimal12)>>;

/// Adds the hour's node cost of each pool id that a node names. The node cost is the effective cost of the
/// rows of nodes whose last description in the hour names the pool, idle included.
pub fn spend(view: &HourView, rows: &[CostRow], spend: &mut Spend) {
    let mut last: BTreeMap<&NodeKey, &NodeStarted> = BTreeMap::new();
    for slice in view.slices {
        last.extend(slice.world.nodes.iter().map(|(key, node)| (key, &*node.set)));
    }
    let mut costs: BTreeMap<PoolId, Exact> = BTreeMap::new();
    for row in rows.iter().filter(|row| matches!(row.kind, RowKind::PodNode | RowKind::NodeIdle)) {
        let Some(cluster_id) = row.cluster_id.clone() else { continue };
        // Rows of a node that does not run cost nothing.
        let node = last.get(&(cluster_id, row.resource_id.clone().into()));
        if let Some(pool_id) = node.and_then(|node| node.pool_id.as_ref()) {
            *costs.entry(pool_id.clone()).or_default() += exact(row.effective_cost);
        }
    }
    for (pool_id, cost) in costs {
        spend.entry(pool_id).or_default().push((view.hour, half_even(&cost)));
    }
}

/// Returns the rows of `pool_usage`, by pool.
pub fn pool_usage(view: &HourView, rows: &[CostRow], spend: &Spend) -> Vec<PoolUsageRow> {
    let mut last: BTreeMap<&PoolId, &Arc<PoolSet>> = BTreeMap::new();
    for slice in view.slices {
        last.extend(&slice.world.pools);
    }
    last.into_iter().map(|(id, set)| row(view, rows, spend, id, set)).collect()
}

/// Integrals over the hour.
#[derive(Default)]
struct PoolSums {
    nodes: Exact,
    gpus: Exact,
    total: (Exact, Exact),
    virtually: (Exact, Exact),
    requested: (Exact, Exact),
    limited: (Exact, Exact),
    /// TFLOPs and bytes that no pod requests, up to the warm capacity.
    idle_warm: (Exact, Exact),
    /// TFLOPs and bytes that no pod requests, above the warm capacity.
    idle_other: (Exact, Exact),
    /// TFLOPs and bytes in use; `None` if no use was measured.
    used: (Option<Exact>, Option<Exact>),
    /// The cost of whole GPUs in place of shares of them.
    full_price: Exact,
}

fn accrue(to: &mut (Exact, Exact), more: (Exact, Exact), factor: &Exact) {
    to.0 += more.0 * factor;
    to.1 += more.1 * factor;
}

fn sums(view: &HourView, id: &PoolId) -> PoolSums {
    let mut sums = PoolSums::default();
    for (index, slice) in view.slices.iter().enumerate() {
        let time = hours(slice.to - slice.from);
        let Some(set) = in_force(view.slices, index, id) else { continue };
        add_idle(&mut sums, slice, id, set);
        for node in slice.world.nodes.values().filter(|node| node.set.pool_id.as_ref() == Some(id)) {
            let (tflops, vram) = pool_amounts(&node.set.capacity);
            let percent = |of: u128, percent: i32| (whole(of) * ratio(percent, 100)).floor();
            let tflops_virtual = (ratio(amount(&node.set.capacity, TFLOPS), 1000)
                * ratio(set.tflops_oversell_percent, 100))
            .floor();
            let disk = amount(&node.set.capacity, EPHEMERAL_STORAGE);
            let memory = amount(&node.set.capacity, MEMORY);
            let vram_virtual = whole(amount(&node.set.capacity, VRAM))
                + percent(disk, set.vram_expand_to_host_disk_percent)
                + percent(memory, set.vram_expand_to_host_mem_percent);
            let [_, _, gpus] = of_node(&node.set, view.rules);
            sums.nodes += &time;
            sums.gpus += gpus * &time;
            accrue(&mut sums.total, (tflops, vram), &time);
            accrue(&mut sums.virtually, (tflops_virtual, vram_virtual), &time);
        }
        for (uid, pod) in &slice.world.pods {
            add_use(&mut sums.used, view, slice, id, (uid, &pod.set));
        }
        for pod in slice.world.pods.values().filter(|pod| pod.set.pool_id.as_ref() == Some(id)) {
            let count = pool_count(&pod.set.requests);
            accrue(&mut sums.requested, pool_amounts(&pod.set.requests), &(&count * &time));
            accrue(&mut sums.limited, limits(&pod.set), &(&count * &time));
            if let Billing::Node(key) = slice.world.billing(&pod.set)
                && let Some(node) = slice.world.nodes.get(&key)
            {
                let [_, _, gpus] = of_node(&node.set, view.rules);
                sums.full_price += count
                    * &time
                    * fraction(&exact(counted(view, node.set.hourly_cost, &node.set.currency).0), &gpus);
            }
        }
    }
    sums
}

/// Adds the amounts that nobody requests in a slice: the amounts that the pool keeps warm, and the rest.
fn add_idle(sums: &mut PoolSums, slice: &Slice, id: &PoolId, set: &PoolSet) {
    let mut free = (zero(), zero());
    for node in slice.world.nodes.values().filter(|node| node.set.pool_id.as_ref() == Some(id)) {
        accrue(&mut free, pool_amounts(&node.set.capacity), &whole(1));
    }
    for pod in slice.world.pods.values().filter(|pod| pod.set.pool_id.as_ref() == Some(id)) {
        accrue(&mut free, pool_amounts(&pod.set.requests), &-pool_count(&pod.set.requests));
    }
    let split = |free: Exact, warm: Exact| {
        let free = larger(free, zero());
        let other = larger(&free - &warm, zero());
        (free - &other, other)
    };
    let (warm_tflops, warm_vram) = pool_amounts(&set.warm_capacity);
    let (tflops, vram) = (split(free.0, warm_tflops), split(free.1, warm_vram));
    let time = hours(slice.to - slice.from);
    accrue(&mut sums.idle_warm, (tflops.0, vram.0), &time);
    accrue(&mut sums.idle_other, (tflops.1, vram.1), &time);
}

/// Adds a pod's use of a node of the pool. A GPU in use counts as its part of the node's TFLOPs.
fn add_use(
    used: &mut (Option<Exact>, Option<Exact>),
    view: &HourView,
    slice: &Slice,
    id: &PoolId,
    (uid, pod): (&PodUid, &PodStarted),
) {
    let Billing::Node(key) = slice.world.billing(pod) else { return };
    let Some(node) = slice.world.nodes.get(&key).filter(|node| node.set.pool_id.as_ref() == Some(id)) else {
        return;
    };
    if let Some([_, _, gpu_hours]) = usage::used(view.samples, uid, slice.from, slice.to) {
        let [_, _, gpus] = of_node(&node.set, view.rules);
        let (tflops, _) = pool_amounts(&node.set.capacity);
        *used.0.get_or_insert_with(zero) += gpu_hours * fraction(&tflops, &gpus);
    }
    if let Some(bytes) = usage::used_gpu_memory(view.samples, uid, slice.from, slice.to) {
        *used.1.get_or_insert_with(zero) += bytes;
    }
}

/// Returns the pool's description in force at a slice. Before the first Set of the hour, the description of
/// that Set counts; after a deletion, the last description counts. `None` if the pool is not set in the hour.
fn in_force<'a>(slices: &'a [Slice], index: usize, id: &PoolId) -> Option<&'a Arc<PoolSet>> {
    let before = slices.iter().take(index + 1).rev().find_map(|slice| slice.world.pools.get(id));
    before.or_else(|| slices.iter().find_map(|slice| slice.world.pools.get(id)))
}

fn row(view: &HourView, rows: &[CostRow], spend: &Spend, id: &PoolId, set: &Arc<PoolSet>) -> PoolUsageRow {
    let sums = sums(view, id);
    let spent = |from: Date| {
        let hours = spend.get(id).into_iter().flatten();
        half_even(&hours.filter(|(hour, _)| hour.start() >= from.start()).map(|(_, cost)| exact(*cost)).sum())
    };
    let today = view.hour.date();
    let now = spend.get(id).into_iter().flatten().filter(|(hour, _)| *hour == view.hour);
    let node_cost = half_even(&now.map(|(_, cost)| exact(*cost)).sum());
    let (day, month, quarter) = (spent(today), spent(today.month_start()), spent(today.quarter_start()));
    let budgets = [
        ("day", day, set.budget_per_day),
        ("month", month, set.budget_per_month),
        ("quarter", quarter, set.budget_per_quarter),
    ];
    let comparable = *set.currency == **view.rules.currency_of(view.organization_id);
    let budgets = budgets
        .map(|(period, spent, budget)| (period, spent, budget.filter(|_| comparable).map(Decimal12::from)));
    let exceeded: Vec<&str> = budgets
        .into_iter()
        .filter(|(_, spent, budget)| budget.is_some_and(|budget| *spent > budget))
        .map(|(period, _, _)| period)
        .collect();
    let of_pool = |row: &&CostRow| row.pod.as_ref().is_some_and(|pod| pod.pool_id.as_ref() == Some(id));
    let charges = sum(rows.iter().filter(of_pool), |row| row.pool_charge.unwrap_or_default());
    let percent = |part: &Exact, of: &Exact| fraction(part, of) * whole(100);
    let tflops_percent = percent(&sums.requested.0, &sums.total.0);
    let vram_percent = percent(&sums.requested.1, &sums.total.1);
    let allocated = larger(tflops_percent.clone(), vram_percent.clone());
    let cost = exact(node_cost);
    PoolUsageRow {
        pool_id: id.clone(),
        cluster_id: set.cluster_id.clone(),
        description: Arc::clone(set),
        nodes: half_even(&sums.nodes),
        gpus: half_even(&sums.gpus),
        tflops_total: half_even(&sums.total.0),
        vram_bytes_total: half_even(&sums.total.1),
        tflops_virtual: half_even(&sums.virtually.0),
        vram_bytes_virtual: half_even(&sums.virtually.1),
        tflops_requested: half_even(&sums.requested.0),
        vram_bytes_requested: half_even(&sums.requested.1),
        tflops_limited: half_even(&sums.limited.0),
        vram_bytes_limited: half_even(&sums.limited.1),
        tflops_idle_warm: half_even(&sums.idle_warm.0),
        vram_bytes_idle_warm: half_even(&sums.idle_warm.1),
        tflops_idle_other: half_even(&sums.idle_other.0),
        vram_bytes_idle_other: half_even(&sums.idle_other.1),
        allocated_tflops_percent: half_even(&tflops_percent),
        allocated_vram_percent: half_even(&vram_percent),
        utilized_tflops_percent: sums.used.0.map(|used| half_even(&percent(&used, &sums.total.0))),
        utilized_vram_percent: sums.used.1.map(|used| half_even(&percent(&used, &sums.total.1))),
        charges,
        node_cost,
        margin: half_even(&(exact(charges) - &cost)),
        spend_day: day,
        spend_month: month,
        spend_quarter: quarter,
        budget_day: budgets[0].2,
        budget_month: budgets[1].2,
        budget_quarter: budgets[2].2,
        budget_exceeded: (!exceeded.is_empty()).then(|| exceeded.join(",").into()),
        saved_costs_per_month: estimate(&((sums.full_price - &cost) * whole(730))),
        potential_savings_per_month: estimate(&(cost * (whole(1) - allocated * ratio(1, 100)) * whole(730))),
    }
}
