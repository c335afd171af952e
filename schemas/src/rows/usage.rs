//! Rows of the other five tables: reservations, commitments, quotas and pools in an hour, and what the hour
//! adds up to.

use std::collections::BTreeMap;

use super::cost::ResourceHours;
use crate::Text;
use crate::decimal::Decimal12;
use crate::event::QuotaKind;
use crate::ids::{ClusterId, CommitmentId, PodUid, PoolId, QuotaId, ReservationId};
use crate::time::Timestamp;

/// One row of `reservation_usage`: a reservation that was effective in the hour.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationUsageRow {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// Its name.
    pub name: Text,
    /// Its region.
    pub region: Text,
    /// Its zone.
    pub zone: Option<Text>,
    /// GPU model of its units.
    pub gpu_model: Text,
    /// Mean number of units over the hour: unit-seconds / 3600.
    pub units: Decimal12,
    /// Seconds of units matched by pods.
    pub used_unit_seconds: Decimal12,
    /// Seconds of units matched by none.
    pub unused_unit_seconds: Decimal12,
    /// Used over all unit-seconds; none without units.
    pub utilization: Option<Decimal12>,
    /// Matched seconds by pod uid.
    pub used_by: BTreeMap<PodUid, Decimal12>,
    /// What the unused units cost.
    pub unused_cost: Decimal12,
}

/// State of a commitment at the hour's end: the first that holds, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitmentState {
    /// Deleted.
    Deleted,
    /// Past its end.
    Expired,
    /// Before its start.
    Pending,
    /// Not enabled.
    Disabled,
    /// None of these.
    Active,
}

impl CommitmentState {
    /// Its name in column `state`.
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

/// Resource hours that a commitment covered in one cluster, and what they received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterCover {
    /// Covered vCPU-hours.
    pub vcpu_hours: Decimal12,
    /// Covered GiB-hours.
    pub gib_hours: Decimal12,
    /// Used cost.
    pub cost: Decimal12,
}

/// One row of `commitment_utilization`.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitmentUtilizationRow {
    /// The commitment.
    pub commitment_id: CommitmentId,
    /// Its name.
    pub name: Text,
    /// Committed hours over its effective time.
    pub committed: ResourceHours,
    /// Covered hours.
    pub covered: ResourceHours,
    /// Hours of all matching nodes.
    pub provisioned: ResourceHours,
    /// Covered over committed, weighed as RULES.md, section 3 says.
    pub utilization: Decimal12,
    /// Provisioned over committed: over-use shows above 1.
    pub raw_utilization: Decimal12,
    /// Cost of the Used rows.
    pub used_cost: Decimal12,
    /// Cost of the Unused rows.
    pub unused_cost: Decimal12,
    /// ListCost of the Used rows: what the covered capacity would have cost at the nodes' own prices.
    pub list_cost_avoided: Decimal12,
    /// Cover by cluster id.
    pub clusters: BTreeMap<ClusterId, ClusterCover>,
    /// State at the hour's end.
    pub state: CommitmentState,
}

/// One row of `quota_usage`: a resource of the quota's `min` at any time in the hour. Amounts are in units of
/// the resource (vCPU, bytes, GB of gpu-memory, units); means are over the whole hour.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaUsageRow {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The quota.
    pub quota_id: QuotaId,
    /// Elastic or composite.
    pub kind: QuotaKind,
    /// Its namespaces, as last set.
    pub namespaces: Vec<Text>,
    /// The resource.
    pub resource: Text,
    /// Mean guaranteed amount.
    pub min: Decimal12,
    /// Mean upper bound over the time it was set; none if never.
    pub max: Option<Decimal12>,
    /// Mean use.
    pub used_mean: Decimal12,
    /// Peak use.
    pub used_peak: Decimal12,
    /// Hours of the resource used by in-quota pods.
    pub in_quota_amount_hours: Decimal12,
    /// Hours of the resource used by over-quota pods.
    pub over_quota_amount_hours: Decimal12,
    /// EffectiveCost of its pods' in-quota rows.
    pub in_quota_cost: Decimal12,
    /// EffectiveCost of its pods' over-quota rows.
    pub over_quota_cost: Decimal12,
    /// Mean pool of unused minima in the cluster.
    pub over_quota_pool: Decimal12,
    /// Mean guaranteed part of it.
    pub guaranteed_over_quota: Decimal12,
    /// Amount-hours used above min.
    pub borrowed_hours: Decimal12,
    /// Amount-hours lent to others.
    pub lent_hours: Decimal12,
    /// Over-quota cost while more was borrowed than guaranteed.
    pub preemptible_cost: Decimal12,
    /// Peak number of over-quota pods.
    pub over_quota_pods_peak: i64,
}

/// One row of `pool_usage`: a pool that was set at any time in the hour. Means are over the whole hour.
/// RULES.md, section 5.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolUsageRow {
    /// The pool.
    pub pool_id: PoolId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Mean FP16 TFLOPs of its nodes.
    pub tflops_total: Decimal12,
    /// Mean VRAM of its nodes, in bytes.
    pub vram_bytes_total: Decimal12,
    /// The same after overselling.
    pub tflops_virtual: Decimal12,
    /// The same after expansion to host disk and host memory.
    pub vram_bytes_virtual: Decimal12,
    /// Mean TFLOPs that its pods request, times their GPUs.
    pub tflops_requested: Decimal12,
    /// Mean VRAM that its pods request, times their GPUs, in bytes.
    pub vram_bytes_requested: Decimal12,
    /// Mean TFLOPs that its pods are limited to, times their GPUs.
    pub tflops_limited: Decimal12,
    /// Mean VRAM that its pods are limited to, times their GPUs, in bytes.
    pub vram_bytes_limited: Decimal12,
    /// Requested TFLOPs over the total, in percent; 0 without nodes.
    pub allocated_tflops_percent: Decimal12,
    /// Requested VRAM over the total, in percent; 0 without nodes.
    pub allocated_vram_percent: Decimal12,
    /// Sum of `x_PoolCharge` of its pods.
    pub charges: Decimal12,
    /// EffectiveCost of its nodes, idle included; a node belongs to the pool it named last in the hour.
    pub node_cost: Decimal12,
    /// Charges less the cost of its nodes.
    pub margin: Decimal12,
    /// Cost of its nodes since the start of the UTC day, this hour included.
    pub spend_day: Decimal12,
    /// Cost of its nodes since the start of the UTC month.
    pub spend_month: Decimal12,
    /// Cost of its nodes since the start of the UTC quarter.
    pub spend_quarter: Decimal12,
    /// Those of `day,month,quarter` whose spend is strictly above the budget; none when none is.
    pub budget_exceeded: Option<Text>,
    /// What its pods' GPUs would cost at their nodes' prices, less the cost of its nodes, times 730.
    pub saved_costs_per_month: Decimal12,
    /// Cost of its nodes for what is not requested, times 730.
    pub potential_savings_per_month: Decimal12,
}

/// One row of `hours`: what an organization's hour adds up to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HourRow {
    /// Own-price cost of nodes, uncovered.
    pub node_cost: Decimal12,
    /// Cost of serverless pods.
    pub serverless_cost: Decimal12,
    /// Cost of unused reservation units.
    pub reservation_unused_cost: Decimal12,
    /// Cost of commitments.
    pub commitment_cost: Decimal12,
    /// Charges of pool pods on no node.
    pub pool_cost: Decimal12,
    /// The sum of the five: what there is to allocate.
    pub supply_cost: Decimal12,
    /// Sum of EffectiveCost over the hour's rows.
    pub allocated_cost: Decimal12,
    /// Supply less allocated: always 0.
    pub difference: Decimal12,
    /// Rows of `cost_allocation`.
    pub rows: i64,
    /// Distinct valid events with event_time in the hour.
    pub events: i64,
    /// Pods with an unpriced row.
    pub unpriced_pods: i64,
    /// Latest event time in the hour's events.
    pub max_event_time: Option<Timestamp>,
}
