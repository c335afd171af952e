//! `pool_usage`: capacity of a GPU pool, requests and charges of its pods, and cost of its nodes against its
//! budgets (RULES.md, section 5).
//!
//! Figures of nodes and pods cover the whole hour, even if the pool was not set at every instant. The
//! percentages and the warm capacity of the first description in the hour also count for the time before it.
//! After a deletion, the last description counts. Spend is the node cost since the start of the UTC day,
//! month and quarter, over every hour of these periods.

mod integrals;

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::PoolSet;
use prorata_schemas::ids::{PodUid, PoolId};
use prorata_schemas::rows::{CostRow, PoolUsageRow, RowKind};
use prorata_schemas::time::Hour;

use crate::currency::{is_other, unmark_pool};
use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, HOUR_MICROS, hours, ratio, round, round_estimate, signed, sum};
use crate::model::samples::Samples;
use crate::model::slices::Slices;
use crate::model::state::Spend;
use crate::rows::Nodes;
use crate::rules::pool::PerPoolResource;
use crate::tables::sum_by;
use integrals::{PoolIntegrals, integrals};

/// Hours in a month, as cloud price lists count them.
const MONTH_HOURS: u32 = 730;

/// The input of the pools' rows.
pub(crate) struct PoolHour<'a> {
    pub(crate) slices: &'a Slices,
    /// Samples by pod, in the order of pods.
    pub(crate) samples: &'a [(PodUid, Samples)],
    pub(crate) nodes: &'a Nodes<'a>,
    pub(crate) rows: &'a [Box<CostRow>],
    pub(crate) hour: Hour,
}

/// The charges of the pods of a pool, the cost of its nodes, and the sums of this cost over the budget
/// periods.
struct PoolMoney {
    charges: Decimal12,
    node_cost: Decimal12,
    spend: Spend,
}

/// Returns the rows in order of pool id, and adds this hour to the spend of every pool.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn pool_usage(
    hour: &PoolHour<'_>,
    spend: &mut BTreeMap<PoolId, Spend>,
) -> Result<Vec<PoolUsageRow>, EngineError> {
    let node_costs = node_costs(hour)?;
    update_spend(spend, &node_costs, hour.hour)?;
    if hour.slices.pools.is_empty() {
        return Ok(Vec::new());
    }
    let (charges, mut integrals) = (charges(hour.rows)?, integrals(hour));
    let mut rows = Vec::new();
    for (id, slices) in &hour.slices.pools {
        let Some(last) = slices.last() else { continue };
        let money = PoolMoney {
            charges: charges.get(id).copied().unwrap_or_default(),
            node_cost: node_costs.get(id).copied().unwrap_or_default(),
            spend: spend.get(id).cloned().unwrap_or_default(),
        };
        rows.push(row(last.description.clone(), &integrals.remove(id).unwrap_or_default(), money)?);
    }
    Ok(rows)
}

/// Returns the charges of the pods of each pool.
fn charges(rows: &[Box<CostRow>]) -> Result<BTreeMap<&PoolId, Decimal12>, EngineError> {
    sum_by(rows.iter().filter_map(|row| {
        let charge = row.pool_charge?;
        Some((row.pod.as_ref()?.pool_id.as_ref()?, charge))
    }))
}

/// Returns the effective cost of the nodes of each pool, idle included. A node belongs to its last pool in
/// the hour.
fn node_costs<'a>(hour: &PoolHour<'a>) -> Result<BTreeMap<&'a PoolId, Decimal12>, EngineError> {
    if hour.nodes.values().all(|node| node.description.pool_id.is_none()) {
        return Ok(BTreeMap::new());
    }
    let of_nodes = hour.rows.iter().filter(|row| matches!(row.kind, RowKind::PodNode | RowKind::NodeIdle));
    sum_by(of_nodes.filter_map(|row| Some((row.node.as_ref()?.pool_id.as_ref()?, row.effective_cost))))
}

fn update_spend(
    spend: &mut BTreeMap<PoolId, Spend>,
    node_costs: &BTreeMap<&PoolId, Decimal12>,
    hour: Hour,
) -> Result<(), EngineError> {
    let date = hour.date();
    let starts = [date.days(), date.month_start().days(), date.quarter_start().days()];
    spend.retain(|_, spend| spend.quarter.0 == starts[2]);
    for id in node_costs.keys() {
        spend.entry((*id).clone()).or_default();
    }
    for (id, spend) in spend {
        let cost = node_costs.get(id).copied().unwrap_or_default();
        for (period, start) in [&mut spend.day, &mut spend.month, &mut spend.quarter].into_iter().zip(starts)
        {
            if period.0 != start {
                *period = (start, Decimal12::ZERO);
            }
            period.1 = sum([period.1, cost])?;
        }
    }
    Ok(())
}

fn row(
    mut pool: Arc<PoolSet>,
    integrals: &PoolIntegrals,
    money: PoolMoney,
) -> Result<PoolUsageRow, EngineError> {
    let PoolMoney { charges, node_cost, spend } = money;
    let budgets = budgets(&pool);
    unmark_pool(&mut pool);
    // Requested amounts are also multiplied by thousandths of a GPU.
    let percent = |requested: &UBig, total: &UBig| ratio(requested * 100_u32, total * 1000_u32);
    let tflops_percent = percent(&integrals.requested.tflops, &integrals.total.tflops);
    let vram_percent = percent(&integrals.requested.vram, &integrals.total.vram);
    let utilized = |used: &Option<RBig>, total: &UBig| {
        let percent = |used: &RBig| round(&(used * UBig::from(100_u32) * ratio(UBig::ONE, total.clone())));
        used.as_ref().map(percent).transpose()
    };
    let margin = sum([charges, Decimal12::from_atoms(-node_cost.atoms())])?;
    let exact_cost = signed(node_cost);
    // Converts atoms in the hour to units in a month.
    let monthly = ratio(UBig::from(MONTH_HOURS), ATOMS_IN_ONE);
    let saved = (&integrals.gpu_cost - &exact_cost) * &monthly;
    let allocated = (&tflops_percent).max(&vram_percent) / RBig::from(UBig::from(100_u32));
    let potential = exact_cost * (RBig::ONE - allocated) * monthly;
    let total = means(&integrals.total, 1)?;
    let expanded = means(&integrals.expanded, 1)?;
    let requested = means(&integrals.requested, 1000)?;
    let limited = means(&integrals.limited, 1000)?;
    let idle_warm = means(&integrals.idle_warm, 1000)?;
    let idle_other = means(&integrals.idle_other, 1000)?;
    Ok(PoolUsageRow {
        pool_id: pool.pool_id.clone(),
        cluster_id: pool.cluster_id.clone(),
        nodes: round(&hours(integrals.nodes))?,
        gpus: round(&ratio(integrals.gpus.clone(), UBig::from(HOUR_MICROS) * 1000_u32))?,
        tflops_total: total.tflops,
        vram_bytes_total: total.vram,
        tflops_virtual: expanded.tflops,
        vram_bytes_virtual: expanded.vram,
        tflops_requested: requested.tflops,
        vram_bytes_requested: requested.vram,
        tflops_limited: limited.tflops,
        vram_bytes_limited: limited.vram,
        tflops_idle_warm: idle_warm.tflops,
        vram_bytes_idle_warm: idle_warm.vram,
        tflops_idle_other: idle_other.tflops,
        vram_bytes_idle_other: idle_other.vram,
        allocated_tflops_percent: round(&tflops_percent)?,
        allocated_vram_percent: round(&vram_percent)?,
        utilized_tflops_percent: utilized(&integrals.used.tflops, &integrals.total.tflops)?,
        utilized_vram_percent: utilized(&integrals.used.vram, &integrals.total.vram)?,
        charges,
        node_cost,
        margin,
        spend_day: spend.day.1,
        spend_month: spend.month.1,
        spend_quarter: spend.quarter.1,
        budget_day: budgets[0],
        budget_month: budgets[1],
        budget_quarter: budgets[2],
        budget_exceeded: exceeded(budgets, &spend),
        saved_costs_per_month: round_estimate(&saved),
        potential_savings_per_month: round_estimate(&potential),
        description: pool,
    })
}

/// Returns TFLOPs and bytes as means over the hour. `per` divides amounts that are multiplied by thousandths
/// of a GPU.
fn means(integrals: &PerPoolResource<UBig>, per: u32) -> Result<PerPoolResource<Decimal12>, EngineError> {
    let mean = |integral: &UBig, parts: u32| {
        round(&ratio(integral.clone(), UBig::from(parts) * UBig::from(per) * UBig::from(HOUR_MICROS)))
    };
    Ok(PerPoolResource { tflops: mean(&integrals.tflops, 1000)?, vram: mean(&integrals.vram, 1)? })
}

/// Returns the budgets of the day, the month and the quarter. A budget is `None` if it is not set, or not in
/// the hour's currency.
fn budgets(pool: &PoolSet) -> [Option<Decimal12>; 3] {
    let budgets = [pool.budget_per_day, pool.budget_per_month, pool.budget_per_quarter];
    budgets.map(|budget| budget.filter(|_| !is_other(&pool.currency)).map(Decimal12::from))
}

/// Returns the names of the budgets that the spend exceeds, separated by commas; `None` if it exceeds none.
fn exceeded(budgets: [Option<Decimal12>; 3], spend: &Spend) -> Option<Text> {
    let spent = [spend.day.1, spend.month.1, spend.quarter.1];
    let periods = ["day", "month", "quarter"].into_iter().zip(budgets).zip(spent);
    let over = periods.filter(|((_, budget), spent)| budget.is_some_and(|budget| *spent > budget));
    let names: Vec<&str> = over.map(|((name, _), _)| name).collect();
    if names.is_empty() { None } else { Some(names.join(",").as_str().into()) }
}
