//! Columns of our own tables; each starts with the organization and the hour.

use std::borrow::Borrow;
use std::fmt::Display;

use prorata_schemas::decimal::{Decimal12, ONE};
use prorata_schemas::event::{CommitmentKind, Quantities, QuotaKind};
use prorata_schemas::quantity::{AmountUnit, TFLOPS, VRAM};
use prorata_schemas::rows::{
    CommitmentUtilizationRow, HourTables, PoolUsageRow, QuotaUsageRow, ReservationUsageRow,
};
use prorata_schemas::tables::HourClock;

use super::Kind::{Bool, Decimal, Int, Json, Text, Time};
use super::{Cell, Column, optional, required};
use crate::json::{Object, array};

/// A row of one organization's hour.
pub struct Line<'a, R> {
    /// The organization's hour.
    pub tables: &'a HourTables,
    /// The row.
    pub row: &'a R,
}

/// The totals of one organization's hour, with its clock columns.
pub struct HourLine<'a> {
    /// The organization's hour.
    pub tables: &'a HourTables,
    /// The columns that depend on when events arrived.
    pub clock: &'a HourClock,
}

impl<R> Borrow<HourTables> for Line<'_, R> {
    fn borrow(&self) -> &HourTables {
        self.tables
    }
}

impl Borrow<HourTables> for HourLine<'_> {
    fn borrow(&self) -> &HourTables {
        self.tables
    }
}

/// Returns the grain, which orders the rows of `quota_usage`.
pub fn quota_grain(row: &QuotaUsageRow) -> (&str, &str, &str) {
    (&row.cluster_id, &row.quota_id, &row.resource)
}

/// Returns the columns `organization_id` and `hour`, followed by `rest`.
fn with_hour<L: Borrow<HourTables>>(rest: Vec<Column<L>>) -> Vec<Column<L>> {
    let mut columns = vec![
        required("organization_id", Text, |line: &L| {
            let tables: &HourTables = line.borrow();
            Cell::text(&*tables.organization_id)
        }),
        required("hour", Time, |line: &L| {
            let tables: &HourTables = line.borrow();
            tables.hour.into()
        }),
    ];
    columns.extend(rest);
    columns
}

/// Returns the columns of `reservation_usage`.
pub fn reservation_columns<'a>() -> Vec<Column<Line<'a, ReservationUsageRow>>> {
    with_hour(vec![
        required("reservation_id", Text, |line: &Line<'_, ReservationUsageRow>| {
            Cell::text(&*line.row.reservation_id)
        }),
        optional("name", Text, |line| Cell::text(&*line.row.description.name)),
        required("provider", Text, |line| Cell::Text(known(&line.row.description.provider))),
        optional("region", Text, |line| Cell::text(&*line.row.description.region)),
        optional("zone", Text, |line| Cell::text(line.row.description.zone.as_deref())),
        optional("gpu_model", Text, |line| Cell::text(&*line.row.description.gpu_model)),
        required("quantity", Int, |line| i64::from(line.row.description.quantity).into()),
        required("starts_at", Time, |line| line.row.description.starts_at.into()),
        optional("ends_at", Time, |line| line.row.description.ends_at.map_or(Cell::Null, Cell::Time)),
        required("currency", Text, |line| Cell::text(&*line.tables.currency)),
        required("units", Decimal, |line| line.row.units.into()),
        required("used_unit_seconds", Decimal, |line| line.row.used_unit_seconds.into()),
        required("unused_unit_seconds", Decimal, |line| line.row.unused_unit_seconds.into()),
        optional("utilization", Decimal, |line| line.row.utilization.into()),
        required("used_by", Json, |line| Cell::Made(numbers(&line.row.used_by))),
        required("unused_cost", Decimal, |line| line.row.unused_cost.into()),
    ])
}

/// Returns the columns of `commitment_utilization`.
pub fn commitment_columns<'a>() -> Vec<Column<Line<'a, CommitmentUtilizationRow>>> {
    with_hour(vec![
        required("commitment_id", Text, |line: &Line<'_, CommitmentUtilizationRow>| {
            Cell::text(&*line.row.commitment_id)
        }),
        optional("name", Text, |line| Cell::text(&*line.row.description.name)),
        required("provider", Text, |line| Cell::Text(known(&line.row.description.provider))),
        required("kind", Text, |line| {
            Cell::Text(match line.row.description.kind {
                CommitmentKind::ReservedInstance => "RESERVED_INSTANCE",
                CommitmentKind::CommittedUseDiscount => "COMMITTED_USE_DISCOUNT",
                CommitmentKind::SavingsPlan => "SAVINGS_PLAN",
            })
        }),
        optional("region", Text, |line| Cell::text(&*line.row.description.region)),
        optional("instance_family", Text, |line| Cell::text(&*line.row.description.instance_family)),
        optional("gpu_model", Text, |line| Cell::text(line.row.description.gpu_model.as_deref())),
        required("starts_at", Time, |line| line.row.description.starts_at.into()),
        optional("ends_at", Time, |line| line.row.description.ends_at.map_or(Cell::Null, Cell::Time)),
        required("currency", Text, |line| Cell::text(&*line.tables.currency)),
        optional("hourly_cost", Decimal, |line| line.row.hourly_cost.map(Decimal12::from).into()),
        required("enabled", Bool, |line| Cell::Bool(line.row.description.enabled)),
        required("allowed_utilization", Decimal, |line| {
            line.row.description.allowed_utilization.map_or(Decimal12::ONE, Decimal12::from).into()
        }),
        required("committed_vcpu_hours", Decimal, |line| line.row.committed.cpu_core_hours.into()),
        required("covered_vcpu_hours", Decimal, |line| line.row.covered.cpu_core_hours.into()),
        required("planned_vcpu_hours", Decimal, |line| line.row.planned.cpu_core_hours.into()),
        required("provisioned_vcpu_hours", Decimal, |line| line.row.provisioned.cpu_core_hours.into()),
        required("committed_gib_hours", Decimal, |line| line.row.committed.memory_gib_hours.into()),
        required("covered_gib_hours", Decimal, |line| line.row.covered.memory_gib_hours.into()),
        required("planned_gib_hours", Decimal, |line| line.row.planned.memory_gib_hours.into()),
        required("provisioned_gib_hours", Decimal, |line| line.row.provisioned.memory_gib_hours.into()),
        required("committed_gpu_hours", Decimal, |line| line.row.committed.gpu_hours.into()),
        required("covered_gpu_hours", Decimal, |line| line.row.covered.gpu_hours.into()),
        required("planned_gpu_hours", Decimal, |line| line.row.planned.gpu_hours.into()),
        required("provisioned_gpu_hours", Decimal, |line| line.row.provisioned.gpu_hours.into()),
        optional("committed_spend", Decimal, |line| line.row.spend.map(|spend| spend.committed).into()),
        optional("covered_spend", Decimal, |line| line.row.spend.map(|spend| spend.covered).into()),
        optional("planned_spend", Decimal, |line| line.row.spend.map(|spend| spend.planned).into()),
        optional("provisioned_spend", Decimal, |line| line.row.spend.map(|spend| spend.provisioned).into()),
        required("utilization", Decimal, |line| line.row.utilization.into()),
        required("planned_utilization", Decimal, |line| line.row.planned_utilization.into()),
        required("raw_utilization", Decimal, |line| line.row.raw_utilization.into()),
        required("used_cost", Decimal, |line| line.row.used_cost.into()),
        required("unused_cost", Decimal, |line| line.row.unused_cost.into()),
        required("list_cost_avoided", Decimal, |line| line.row.list_cost_avoided.into()),
        required("clusters", Json, |line| Cell::Made(clusters(line.row))),
        required("state", Text, |line| Cell::Text(line.row.state.name())),
    ])
}

/// Returns the columns of `quota_usage`.
pub fn quota_columns<'a>() -> Vec<Column<Line<'a, QuotaUsageRow>>> {
    with_hour(vec![
        required("cluster_id", Text, |line: &Line<'_, QuotaUsageRow>| Cell::text(&*line.row.cluster_id)),
        required("quota_id", Text, |line| Cell::text(&*line.row.quota_id)),
        required("kind", Text, |line| {
            Cell::Text(match line.row.kind {
                QuotaKind::ElasticQuota => "ELASTIC_QUOTA",
                QuotaKind::CompositeElasticQuota => "COMPOSITE_ELASTIC_QUOTA",
            })
        }),
        required("namespaces", Json, |line| {
            Cell::Made(array(line.row.namespaces.iter().map(|name| &**name)))
        }),
        required("resource", Text, |line| Cell::text(&*line.row.resource)),
        required("min", Decimal, |line| line.row.min.into()),
        optional("max", Decimal, |line| line.row.max.into()),
        required("used_mean", Decimal, |line| line.row.used_mean.into()),
        required("used_peak", Decimal, |line| line.row.used_peak.into()),
        required("in_quota_amount_hours", Decimal, |line| line.row.in_quota_amount_hours.into()),
        required("over_quota_amount_hours", Decimal, |line| line.row.over_quota_amount_hours.into()),
        required("in_quota_cost", Decimal, |line| line.row.in_quota_cost.into()),
        required("over_quota_cost", Decimal, |line| line.row.over_quota_cost.into()),
        required("over_quota_pool", Decimal, |line| line.row.over_quota_pool.into()),
        required("guaranteed_over_quota", Decimal, |line| line.row.guaranteed_over_quota.into()),
        required("borrowed_hours", Decimal, |line| line.row.borrowed_hours.into()),
        required("lent_hours", Decimal, |line| line.row.lent_hours.into()),
        required("preemptible_cost", Decimal, |line| line.row.preemptible_cost.into()),
        required("over_quota_pods_peak", Int, |line| line.row.over_quota_pods_peak.into()),
    ])
}

/// Returns the columns of `pool_usage`.
pub fn pool_columns<'a>() -> Vec<Column<Line<'a, PoolUsageRow>>> {
    with_hour(vec![
        required("pool_id", Text, |line: &Line<'_, PoolUsageRow>| Cell::text(&*line.row.pool_id)),
        required("cluster_id", Text, |line| Cell::text(&*line.row.cluster_id)),
        required("nodes", Decimal, |line| line.row.nodes.into()),
        required("gpus", Decimal, |line| line.row.gpus.into()),
        optional("tflops_max", Decimal, |line| capacity(&line.row.description.max_capacity, TFLOPS)),
        optional("vram_bytes_max", Decimal, |line| capacity(&line.row.description.max_capacity, VRAM)),
        optional("tflops_min", Decimal, |line| capacity(&line.row.description.min_capacity, TFLOPS)),
        optional("vram_bytes_min", Decimal, |line| capacity(&line.row.description.min_capacity, VRAM)),
        optional("tflops_warm", Decimal, |line| capacity(&line.row.description.warm_capacity, TFLOPS)),
        optional("vram_bytes_warm", Decimal, |line| capacity(&line.row.description.warm_capacity, VRAM)),
        required("tflops_total", Decimal, |line| line.row.tflops_total.into()),
        required("vram_bytes_total", Decimal, |line| line.row.vram_bytes_total.into()),
        required("tflops_virtual", Decimal, |line| line.row.tflops_virtual.into()),
        required("vram_bytes_virtual", Decimal, |line| line.row.vram_bytes_virtual.into()),
        required("tflops_requested", Decimal, |line| line.row.tflops_requested.into()),
        required("vram_bytes_requested", Decimal, |line| line.row.vram_bytes_requested.into()),
        required("tflops_limited", Decimal, |line| line.row.tflops_limited.into()),
        required("vram_bytes_limited", Decimal, |line| line.row.vram_bytes_limited.into()),
        required("tflops_idle_warm", Decimal, |line| line.row.tflops_idle_warm.into()),
        required("vram_bytes_idle_warm", Decimal, |line| line.row.vram_bytes_idle_warm.into()),
        required("tflops_idle_other", Decimal, |line| line.row.tflops_idle_other.into()),
        required("vram_bytes_idle_other", Decimal, |line| line.row.vram_bytes_idle_other.into()),
        required("allocated_tflops_percent", Decimal, |line| line.row.allocated_tflops_percent.into()),
        required("allocated_vram_percent", Decimal, |line| line.row.allocated_vram_percent.into()),
        optional("utilized_tflops_percent", Decimal, |line| line.row.utilized_tflops_percent.into()),
        optional("utilized_vram_percent", Decimal, |line| line.row.utilized_vram_percent.into()),
        required("charges", Decimal, |line| line.row.charges.into()),
        required("node_cost", Decimal, |line| line.row.node_cost.into()),
        required("margin", Decimal, |line| line.row.margin.into()),
        required("spend_day", Decimal, |line| line.row.spend_day.into()),
        required("spend_month", Decimal, |line| line.row.spend_month.into()),
        required("spend_quarter", Decimal, |line| line.row.spend_quarter.into()),
        optional("budget_day", Decimal, |line| line.row.budget_day.into()),
        optional("budget_month", Decimal, |line| line.row.budget_month.into()),
        optional("budget_quarter", Decimal, |line| line.row.budget_quarter.into()),
        optional("budget_exceeded", Text, |line| Cell::text(line.row.budget_exceeded.as_deref())),
        required("budget_exceed_strategy", Text, |line| {
            Cell::Text(line.row.description.budget_exceed_strategy.name())
        }),
        required("saved_costs_per_month", Decimal, |line| line.row.saved_costs_per_month.into()),
        required("potential_savings_per_month", Decimal, |line| line.row.potential_savings_per_month.into()),
    ])
}

/// Returns an amount of a pool's capacity, in TFLOPs or bytes; null if the capacity does not name the
/// resource.
fn capacity(of: &Quantities, resource: &str) -> Cell<'static> {
    let per_one = i128::from(AmountUnit::of(resource).per_one());
    let atoms = of
        .get(resource)
        .map(|quantity| i128::try_from(quantity.amount).unwrap_or(i128::MAX).saturating_mul(ONE / per_one));
    atoms.map(Decimal12::from_atoms).into()
}

/// Returns the columns of `hours`; the last five are the clock columns.
pub fn hour_columns<'a>() -> Vec<Column<HourLine<'a>>> {
    let mut columns = total_columns();
    columns.extend([
        required("late_events", Int, |line: &HourLine<'_>| line.clock.late_events.into()),
        optional("max_event_time_seen", Time, |line| {
            line.clock.max_event_time_seen.map_or(Cell::Null, Cell::Time)
        }),
        required("complete", Bool, |line| Cell::Bool(line.clock.complete)),
        required("revision", Int, |line| line.clock.revision.into()),
        required("last_updated", Time, |line| line.clock.last_updated.event_time().into()),
    ]);
    columns
}

/// Returns the columns of `hours` that depend on the events alone.
pub fn total_columns<'a>() -> Vec<Column<HourLine<'a>>> {
    with_hour(vec![
        required("node_cost", Decimal, |line: &HourLine<'_>| line.tables.totals.node_cost.into()),
        required("serverless_cost", Decimal, |line| line.tables.totals.serverless_cost.into()),
        required("reservation_unused_cost", Decimal, |line| {
            line.tables.totals.reservation_unused_cost.into()
        }),
        required("commitment_cost", Decimal, |line| line.tables.totals.commitment_cost.into()),
        required("pool_cost", Decimal, |line| line.tables.totals.pool_cost.into()),
        required("bill_cost", Decimal, |line| line.tables.totals.bill_cost.into()),
        required("supply_cost", Decimal, |line| line.tables.totals.supply_cost.into()),
        required("bill_billed_cost", Decimal, |line| line.tables.totals.bill_billed_cost.into()),
        required("basis", Text, |line| Cell::Text(line.tables.totals.basis.name())),
        required("allocated_cost", Decimal, |line| line.tables.totals.allocated_cost.into()),
        required("difference", Decimal, |line| line.tables.totals.difference.into()),
        required("rows", Int, |line| line.tables.totals.rows.into()),
        required("events", Int, |line| line.tables.totals.events.into()),
        required("unpriced_pods", Int, |line| line.tables.totals.unpriced_pods.into()),
    ])
}

/// Returns the provider as the event names it; `unknown` if the event names none.
const fn known(provider: &str) -> &str {
    if provider.is_empty() { "unknown" } else { provider }
}

/// Returns decimals by id as a JSON object of numbers.
fn numbers<'a, K: AsRef<str> + 'a, V: Display + 'a>(map: impl IntoIterator<Item = (&'a K, &'a V)>) -> String {
    map.into_iter().fold(Object::default(), |object, (key, value)| object.raw(key.as_ref(), value)).finish()
}

fn clusters(row: &CommitmentUtilizationRow) -> String {
    let object = row.clusters.iter().fold(Object::default(), |object, (cluster, cover)| {
        let covered = Object::default()
            .raw("vcpu_hours", cover.vcpu_hours)
            .raw("gib_hours", cover.gib_hours)
            .raw("cost", cover.cost);
        object.raw(cluster, covered.finish())
    });
    object.finish()
}
