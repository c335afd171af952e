//! Rows of the other five tables: reservations, commitments, quotas and pools in an hour, and the hour's
//! totals.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cost::ResourceHours;
use crate::Text;
use crate::decimal::Decimal12;
use crate::event::{CommitmentSet, PoolSet, QuotaKind, ReservationSet};
use crate::ids::{ClusterId, CommitmentId, PodUid, PoolId, QuotaId, ReservationId};
use crate::money::UnitPrice;
use crate::time::Timestamp;

/// One row of `reservation_usage`: a reservation that was effective in the hour.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationUsageRow {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The last description under which it was effective.
    pub description: Arc<ReservationSet>,
    /// Mean number of units over the hour: unit-seconds / 3600.
    pub units: Decimal12,
    /// Seconds of units matched by pods.
    pub used_unit_seconds: Decimal12,
    /// Seconds of units that no pod matched.
    pub unused_unit_seconds: Decimal12,
    /// Used unit-seconds divided by all unit-seconds; `None` if there are no units.
    pub utilization: Option<Decimal12>,
    /// Matched seconds by pod uid.
    pub used_by: BTreeMap<PodUid, Decimal12>,
    /// Cost of the unused units.
    pub unused_cost: Decimal12,
}

/// The origin of the costs of an hour (`basis` in `hours`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CostBasis {
    /// All rows are estimates by the prices of producers.
    #[default]
    Estimated,
    /// Some rows are billed, others are estimates.
    Partial,
    /// All rows are billed.
    Billed,
    /// The bills that cover the hour are complete, whether rows are billed or estimates.
    Final,
}

impl CostBasis {
    /// Returns the name in column `basis`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Estimated => "estimated",
            Self::Partial => "partial",
            Self::Billed => "billed",
            Self::Final => "final",
        }
    }
}

/// State of a commitment at the hour's end. If several states apply, the first in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitmentState {
    /// Deleted.
    Deleted,
    /// The commitment has ended.
    Expired,
    /// The commitment has not started.
    Pending,
    /// Not enabled.
    Disabled,
    /// None of the states above.
    Active,
}

impl CommitmentState {
    /// Returns the name in column `state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::Pending => "pending",
            Self::Disabled => "disabled",
            Self::Active => "active",
        }
    }
}

/// Resource hours that a commitment covered in one cluster, and the cost that they received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterCover {
    /// Covered vCPU-hours.
    pub vcpu_hours: Decimal12,
    /// Covered GiB-hours.
    pub gib_hours: Decimal12,
    /// Used cost.
    pub cost: Decimal12,
}

/// Spend of a savings plan in an hour at discounted rates, in the plan's currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanSpend {
    /// Committed spend over the time in which the plan is effective.
    pub committed: Decimal12,
    /// Covered spend.
    pub covered: Decimal12,
    /// Spend that the plan would cover if the provider followed `enabled` and `allowed_utilization`.
    pub planned: Decimal12,
    /// Spend of all matching usage, whether other plans cover it or not.
    pub provisioned: Decimal12,
}

/// One row of `commitment_utilization`.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitmentUtilizationRow {
    /// The commitment.
    pub commitment_id: CommitmentId,
    /// The last description.
    pub description: Arc<CommitmentSet>,
    /// The cost per hour in the last description; `None` if it is not in the hour's currency.
    pub hourly_cost: Option<UnitPrice>,
    /// Committed resource hours over the time in which the commitment is effective.
    pub committed: ResourceHours,
    /// Covered resource hours.
    pub covered: ResourceHours,
    /// Resource hours that the commitment would cover if the provider followed `enabled` and
    /// `allowed_utilization`.
    pub planned: ResourceHours,
    /// Resource hours of all matching nodes.
    pub provisioned: ResourceHours,
    /// Covered hours divided by committed hours, weighted as RULES.md, section 3 says.
    pub utilization: Decimal12,
    /// Planned hours divided by committed hours.
    pub planned_utilization: Decimal12,
    /// Provisioned hours divided by committed hours; above 1 if the nodes exceed the commitment.
    pub raw_utilization: Decimal12,
    /// Spend of a savings plan; `None` if the commitment has another kind in the last description.
    pub spend: Option<PlanSpend>,
    /// Cost of the Used rows.
    pub used_cost: Decimal12,
    /// Cost of the Unused rows.
    pub unused_cost: Decimal12,
    /// ListCost of the Used rows: the cost of the covered usage at its own prices.
    pub list_cost_avoided: Decimal12,
    /// Coverage by cluster id.
    pub clusters: BTreeMap<ClusterId, ClusterCover>,
    /// State at the hour's end.
    pub state: CommitmentState,
}

/// One row of `quota_usage`: a resource that the quota's `min` names at any time in the hour. Amounts are in
/// units of the resource (vCPU, bytes, GB of gpu-memory, units). Means are over the whole hour.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaUsageRow {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The quota.
    pub quota_id: QuotaId,
    /// Elastic or composite.
    pub kind: QuotaKind,
    /// The quota's namespaces, as last set.
    pub namespaces: Vec<Text>,
    /// The resource.
    pub resource: Text,
    /// Mean guaranteed amount.
    pub min: Decimal12,
    /// Mean upper bound over the time in which it was set; `None` if it never was.
    pub max: Option<Decimal12>,
    /// Mean use.
    pub used_mean: Decimal12,
    /// Peak use.
    pub used_peak: Decimal12,
    /// Hours of the resource used by in-quota pods.
    pub in_quota_amount_hours: Decimal12,
    /// Hours of the resource used by over-quota pods.
    pub over_quota_amount_hours: Decimal12,
    /// EffectiveCost of the in-quota rows of the quota's pods.
    pub in_quota_cost: Decimal12,
    /// EffectiveCost of the over-quota rows of the quota's pods.
    pub over_quota_cost: Decimal12,
    /// Mean sum of unused guaranteed amounts in the cluster: the amount that over-quota pods may borrow.
    pub over_quota_pool: Decimal12,
    /// Mean part of `over_quota_pool` that is guaranteed to this quota.
    pub guaranteed_over_quota: Decimal12,
    /// Amount-hours used above `min`.
    pub borrowed_hours: Decimal12,
    /// Amount-hours lent to other quotas.
    pub lent_hours: Decimal12,
    /// Over-quota cost while the quota borrowed more than its guaranteed part.
    pub preemptible_cost: Decimal12,
    /// Peak number of over-quota pods.
    pub over_quota_pods_peak: i64,
}

/// One row of `pool_usage`: a pool that was set at any time in the hour. Means are over the whole hour
/// (RULES.md, section 5).
#[derive(Clone, Debug, PartialEq)]
pub struct PoolUsageRow {
    /// The pool.
    pub pool_id: PoolId,
    /// The cluster under which the pool is reported.
    pub cluster_id: ClusterId,
    /// The last description.
    pub description: Arc<PoolSet>,
    /// Mean number of the pool's nodes.
    pub nodes: Decimal12,
    /// Mean number of GPUs of the pool's nodes; the physical GPUs if they are given.
    pub gpus: Decimal12,
    /// Mean FP16 TFLOPs of the pool's nodes.
    pub tflops_total: Decimal12,
    /// Mean VRAM of the pool's nodes, in bytes.
    pub vram_bytes_total: Decimal12,
    /// Mean virtual TFLOPs: `tflops_total` after overselling.
    pub tflops_virtual: Decimal12,
    /// Mean virtual VRAM in bytes: `vram_bytes_total` expanded to host disk and host memory.
    pub vram_bytes_virtual: Decimal12,
    /// Mean TFLOPs that the pool's pods request, multiplied by the GPUs of each pod.
    pub tflops_requested: Decimal12,
    /// Mean VRAM in bytes that the pool's pods request, multiplied by the GPUs of each pod.
    pub vram_bytes_requested: Decimal12,
    /// Mean TFLOPs limit of the pool's pods, multiplied by the GPUs of each pod.
    pub tflops_limited: Decimal12,
    /// Mean VRAM limit of the pool's pods in bytes, multiplied by the GPUs of each pod.
    pub vram_bytes_limited: Decimal12,
    /// Mean TFLOPs that no pod requests, up to the warm capacity.
    pub tflops_idle_warm: Decimal12,
    /// Mean VRAM that no pod requests, up to the warm capacity, in bytes.
    pub vram_bytes_idle_warm: Decimal12,
    /// Mean TFLOPs that no pod requests, above the warm capacity.
    pub tflops_idle_other: Decimal12,
    /// Mean VRAM that no pod requests, above the warm capacity, in bytes.
    pub vram_bytes_idle_other: Decimal12,
    /// Requested TFLOPs in percent of the total; 0 without nodes.
    pub allocated_tflops_percent: Decimal12,
    /// Requested VRAM in percent of the total; 0 without nodes.
    pub allocated_vram_percent: Decimal12,
    /// Used TFLOPs of the pool's nodes in percent of the total. The measured use of each GPU counts at the
    /// GPU's part of its node's TFLOPs. `None` if no use of these nodes was measured.
    pub utilized_tflops_percent: Option<Decimal12>,
    /// Used VRAM of the pool's nodes in percent of the total. `None` if no use of GPU memory was measured.
    pub utilized_vram_percent: Option<Decimal12>,
    /// Sum of `x_PoolCharge` over the pool's pods.
    pub charges: Decimal12,
    /// EffectiveCost of the pool's nodes, idle included. A node belongs to the pool that it named last in the
    /// hour.
    pub node_cost: Decimal12,
    /// Charges minus node cost.
    pub margin: Decimal12,
    /// Node cost since the start of the UTC day, this hour included.
    pub spend_day: Decimal12,
    /// Node cost since the start of the UTC month, this hour included.
    pub spend_month: Decimal12,
    /// Node cost since the start of the UTC quarter, this hour included.
    pub spend_quarter: Decimal12,
    /// Budget of the day; `None` if there is none, or it is not in the hour's currency.
    pub budget_day: Option<Decimal12>,
    /// Budget of the month; `None` as for `budget_day`.
    pub budget_month: Option<Decimal12>,
    /// Budget of the quarter; `None` as for `budget_day`.
    pub budget_quarter: Option<Decimal12>,
    /// The names from `day,month,quarter` whose spend is strictly above the budget; `None` if no spend is.
    pub budget_exceeded: Option<Text>,
    /// Cost of the pods' GPUs at their nodes' prices, minus node cost, times 730.
    pub saved_costs_per_month: Decimal12,
    /// Node cost of capacity that no pod requests, times 730.
    pub potential_savings_per_month: Decimal12,
}

/// One row of `hours`: the totals of an organization's hour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HourRow {
    /// Cost of nodes at their own prices, for capacity that no commitment covers.
    pub node_cost: Decimal12,
    /// Cost of serverless pods.
    pub serverless_cost: Decimal12,
    /// Cost of unused reservation units.
    pub reservation_unused_cost: Decimal12,
    /// Cost of commitments.
    pub commitment_cost: Decimal12,
    /// Charges of pool pods on no node.
    pub pool_cost: Decimal12,
    /// Effective cost of all lines of bills that cover the hour.
    pub bill_cost: Decimal12,
    /// The sum of the six costs above: everything to allocate.
    pub supply_cost: Decimal12,
    /// Billed cost of all lines of bills that cover the hour.
    pub bill_billed_cost: Decimal12,
    /// Whether the hour's costs are estimates, billed or final.
    pub basis: CostBasis,
    /// Sum of EffectiveCost over the hour's rows.
    pub allocated_cost: Decimal12,
    /// Supply minus allocated cost: always 0.
    pub difference: Decimal12,
    /// Number of `cost_allocation` rows.
    pub rows: i64,
    /// Number of distinct valid events whose event time is in the hour.
    pub events: i64,
    /// Number of pods with an unpriced row.
    pub unpriced_pods: i64,
    /// Latest event time among the hour's events.
    pub max_event_time: Option<Timestamp>,
}
