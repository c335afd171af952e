//! Columns by name, in units of the tables.

use prorata_reference::text::resource;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::{CostRow, HourRow, HourTables, ResourceHours};

/// One cell.
pub enum Cell {
    /// A decimal.
    Number(Decimal12),
    /// A text; `-` for null.
    Text(String),
}

fn maybe(value: Option<Decimal12>) -> Cell {
    value.map_or_else(|| Cell::Text("-".into()), Cell::Number)
}

fn unknown<T>(column: &str) -> Result<T, String> {
    Err(format!("'{column}' is not a column"))
}

/// Returns the value of a row of `cost_allocation` in a column; `None` if the cell is null.
pub fn cost(row: &CostRow, column: &str) -> Result<Option<Decimal12>, String> {
    let hours = |hours: Option<ResourceHours>, of: fn(ResourceHours) -> Decimal12| hours.map(of);
    Ok(match column {
        "total" => Some(row.effective_cost),
        "billed" => Some(row.billed_cost),
        "list" => Some(row.list_cost),
        "estimate" => row.estimated_cost,
        "price" => Some(row.list_unit_price),
        "quantity" => Some(row.pricing_quantity),
        "commitment-quantity" => row.commitment_quantity,
        "ratio" => row.allocated_ratio,
        "split" => row.split_cost,
        "unused" => row.unused_cost,
        "cpu" => row.cpu_cost,
        "memory" => row.memory_cost,
        "gpu" => row.gpu_cost,
        "cpu-split-usage" => row.split_usage.cpu,
        "gib-split-usage" => row.split_usage.memory,
        "gpu-split-usage" => row.split_usage.gpu,
        "cpu-unused-ratio" => row.unused.cpu,
        "gib-unused-ratio" => row.unused.memory,
        "gpu-unused-ratio" => row.unused.gpu,
        "cpu-hours" => hours(row.allocated, |hours| hours.cpu_core_hours),
        "gib-hours" => hours(row.allocated, |hours| hours.memory_gib_hours),
        "gpu-hours" => hours(row.allocated, |hours| hours.gpu_hours),
        "requested-cpu-hours" => hours(row.requested, |hours| hours.cpu_core_hours),
        "requested-gpu-hours" => hours(row.requested, |hours| hours.gpu_hours),
        "used-cpu-hours" => hours(row.used, |hours| hours.cpu_core_hours),
        "used-gib-hours" => hours(row.used, |hours| hours.memory_gib_hours),
        "used-gpu-hours" => hours(row.used, |hours| hours.gpu_hours),
        "time" => row.running_seconds,
        "charge" => row.pool_charge,
        other => return unknown(other),
    })
}

/// Returns a reservation's cell in a column of `reservation_usage`; `None` if there is no row.
/// `used-by <pod>` is one pod's seconds.
pub fn reservation(tables: &HourTables, id: &str, column: &[&str]) -> Result<Option<Cell>, String> {
    let Some(row) = tables.reservation_usage.iter().find(|row| *row.reservation_id == *id) else {
        return Ok(None);
    };
    Ok(Some(match column {
        ["units"] => Cell::Number(row.units),
        ["used"] => Cell::Number(row.used_unit_seconds),
        ["unused"] => Cell::Number(row.unused_unit_seconds),
        ["utilization"] => maybe(row.utilization),
        ["unused-cost"] => Cell::Number(row.unused_cost),
        ["used-by", pod] => maybe(row.used_by.get(*pod).copied()),
        other => return unknown(&other.join(" ")),
    }))
}

/// Returns a commitment's cell in a column of `commitment_utilization`; `None` if there is no row.
/// `in <cluster> <column>` is one cluster's cover.
pub fn commitment(tables: &HourTables, id: &str, column: &[&str]) -> Result<Option<Cell>, String> {
    let found = tables.commitment_utilization.iter().find(|row| *row.commitment_id == *id);
    let Some(row) = found else { return Ok(None) };
    let cover = |cluster: &str| row.clusters.get(cluster).copied().unwrap_or_default();
    Ok(Some(match column {
        ["committed-vcpu-hours"] => Cell::Number(row.committed.cpu_core_hours),
        ["covered-vcpu-hours"] => Cell::Number(row.covered.cpu_core_hours),
        ["provisioned-vcpu-hours"] => Cell::Number(row.provisioned.cpu_core_hours),
        ["committed-gib-hours"] => Cell::Number(row.committed.memory_gib_hours),
        ["covered-gib-hours"] => Cell::Number(row.covered.memory_gib_hours),
        ["covered-gpu-hours"] => Cell::Number(row.covered.gpu_hours),
        ["utilization"] => Cell::Number(row.utilization),
        ["planned-vcpu-hours"] => Cell::Number(row.planned.cpu_core_hours),
        ["planned-utilization"] => Cell::Number(row.planned_utilization),
        ["raw-utilization"] => Cell::Number(row.raw_utilization),
        ["covered-spend"] => Cell::Number(row.spend.unwrap_or_default().covered),
        ["planned-spend"] => Cell::Number(row.spend.unwrap_or_default().planned),
        ["used-cost"] => Cell::Number(row.used_cost),
        ["unused-cost"] => Cell::Number(row.unused_cost),
        ["list-cost-avoided"] => Cell::Number(row.list_cost_avoided),
        ["state"] => Cell::Text(row.state.name().into()),
        ["clusters"] if row.clusters.is_empty() => Cell::Text("-".into()),
        ["clusters"] => Cell::Text(row.clusters.keys().map(|id| &**id).collect::<Vec<_>>().join(",")),
        ["in", cluster, "vcpu-hours"] => Cell::Number(cover(cluster).vcpu_hours),
        ["in", cluster, "gib-hours"] => Cell::Number(cover(cluster).gib_hours),
        ["in", cluster, "cost"] => Cell::Number(cover(cluster).cost),
        other => return unknown(&other.join(" ")),
    }))
}

/// Returns a column of `quota_usage`.
pub fn quota(tables: &HourTables, id: &str, of: &str, column: &str) -> Result<Option<Cell>, String> {
    let of = resource(of);
    let found = tables.quota_usage.iter().find(|row| *row.quota_id == *id && *row.resource == *of);
    let Some(row) = found else { return Ok(None) };
    Ok(Some(match column {
        "min" => Cell::Number(row.min),
        "max" => maybe(row.max),
        "used-mean" => Cell::Number(row.used_mean),
        "used-peak" => Cell::Number(row.used_peak),
        "in-quota-hours" => Cell::Number(row.in_quota_amount_hours),
        "over-quota-hours" => Cell::Number(row.over_quota_amount_hours),
        "in-quota-cost" => Cell::Number(row.in_quota_cost),
        "over-quota-cost" => Cell::Number(row.over_quota_cost),
        "over-quota-pool" => Cell::Number(row.over_quota_pool),
        "guaranteed" => Cell::Number(row.guaranteed_over_quota),
        "borrowed" => Cell::Number(row.borrowed_hours),
        "lent" => Cell::Number(row.lent_hours),
        "preemptible-cost" => Cell::Number(row.preemptible_cost),
        "over-quota-pods" => Cell::Number(Decimal12::from_int(row.over_quota_pods_peak)),
        other => return unknown(other),
    }))
}

/// Returns a column of `pool_usage`.
pub fn pool(tables: &HourTables, id: &str, column: &str) -> Result<Option<Cell>, String> {
    let Some(row) = tables.pool_usage.iter().find(|row| *row.pool_id == *id) else { return Ok(None) };
    Ok(Some(match column {
        "tflops-total" => Cell::Number(row.tflops_total),
        "vram-total" => Cell::Number(row.vram_bytes_total),
        "tflops-virtual" => Cell::Number(row.tflops_virtual),
        "vram-virtual" => Cell::Number(row.vram_bytes_virtual),
        "tflops-requested" => Cell::Number(row.tflops_requested),
        "tflops-limited" => Cell::Number(row.tflops_limited),
        "vram-requested" => Cell::Number(row.vram_bytes_requested),
        "vram-limited" => Cell::Number(row.vram_bytes_limited),
        "nodes" => Cell::Number(row.nodes),
        "gpus" => Cell::Number(row.gpus),
        "tflops-idle-warm" => Cell::Number(row.tflops_idle_warm),
        "vram-idle-warm" => Cell::Number(row.vram_bytes_idle_warm),
        "tflops-idle-other" => Cell::Number(row.tflops_idle_other),
        "vram-idle-other" => Cell::Number(row.vram_bytes_idle_other),
        "strategy" => Cell::Text(row.description.budget_exceed_strategy.name().into()),
        "tflops-percent" => Cell::Number(row.allocated_tflops_percent),
        "vram-percent" => Cell::Number(row.allocated_vram_percent),
        "tflops-utilized" => maybe(row.utilized_tflops_percent),
        "vram-utilized" => maybe(row.utilized_vram_percent),
        "charges" => Cell::Number(row.charges),
        "node-cost" => Cell::Number(row.node_cost),
        "margin" => Cell::Number(row.margin),
        "spend-day" => Cell::Number(row.spend_day),
        "spend-month" => Cell::Number(row.spend_month),
        "spend-quarter" => Cell::Number(row.spend_quarter),
        "budget-day" => maybe(row.budget_day),
        "budget-month" => maybe(row.budget_month),
        "budget-quarter" => maybe(row.budget_quarter),
        "exceeded" => Cell::Text(row.budget_exceeded.as_deref().unwrap_or("-").into()),
        "saved" => Cell::Number(row.saved_costs_per_month),
        "potential" => Cell::Number(row.potential_savings_per_month),
        other => return unknown(other),
    }))
}

/// Returns a column of `hours`.
pub fn hours(row: &HourRow, column: &str) -> Result<Option<Cell>, String> {
    let count = |count: i64| Cell::Number(Decimal12::from_int(count));
    Ok(Some(match column {
        "node-cost" => Cell::Number(row.node_cost),
        "serverless-cost" => Cell::Number(row.serverless_cost),
        "reservation-unused-cost" => Cell::Number(row.reservation_unused_cost),
        "commitment-cost" => Cell::Number(row.commitment_cost),
        "pool-cost" => Cell::Number(row.pool_cost),
        "bill-cost" => Cell::Number(row.bill_cost),
        "bill-billed-cost" => Cell::Number(row.bill_billed_cost),
        "basis" => Cell::Text(row.basis.name().into()),
        "supply-cost" => Cell::Number(row.supply_cost),
        "allocated-cost" => Cell::Number(row.allocated_cost),
        "difference" => Cell::Number(row.difference),
        "rows" => count(row.rows),
        "events" => count(row.events),
        "unpriced-pods" => count(row.unpriced_pods),
        other => return unknown(other),
    }))
}
