//! Rows of the hourly tables, as the engine makes them: rounded, complete, in table order.
//!
//! `cost_allocation` carries the descriptions that its text columns are taken from; turning rows into columns
//! is the table writer's work. Costs and quantities are [`Decimal12`]; `None` is SQL null.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Text;
use crate::decimal::Decimal12;
use crate::event::{CommitmentSet, NodeStarted, PodStarted, PoolSet, QuotaKind, RateSet, ReservationSet};
use crate::ids::{ClusterId, CommitmentId, OrganizationId, PodUid, PoolId, QuotaId, ReservationId};
use crate::time::{Hour, Timestamp};

/// Kind of a `cost_allocation` row (`x_RowKind`), in table order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKind {
    /// A pod's share of its node.
    PodNode,
    /// What of a node no pod was allocated.
    NodeIdle,
    /// A pod on no node, at its own rate.
    PodServerless,
    /// A pool pod on no node, at its charge.
    PodPool,
    /// Unused units of a reservation.
    ReservationUnused,
    /// What of a commitment reached no node.
    CommitmentUnused,
    /// The recurring purchase of a commitment.
    CommitmentPurchase,
}

impl RowKind {
    /// Its name in column `x_RowKind`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PodNode => "pod_node",
            Self::NodeIdle => "node_idle",
            Self::PodServerless => "pod_serverless",
            Self::PodPool => "pod_pool",
            Self::ReservationUnused => "reservation_unused",
            Self::CommitmentUnused => "commitment_unused",
            Self::CommitmentPurchase => "commitment_purchase",
        }
    }
}

/// Label of a pod under a quota (`x_QuotaState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaState {
    /// Within the guaranteed amounts.
    InQuota,
    /// Above them.
    OverQuota,
}

impl QuotaState {
    /// Its name in column `x_QuotaState`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InQuota => "in-quota",
            Self::OverQuota => "over-quota",
        }
    }
}

/// Why a row has no price (`x_Unpriced`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unpriced {
    /// The node that the pod names is not running.
    UnknownNode,
    /// The pool that the pod names is not set.
    UnknownPool,
    /// The pool has no price for the pod's quality of service.
    NoQosPrice,
    /// No rate matches yet.
    NoRate,
}

impl Unpriced {
    /// Its name in column `x_Unpriced`. Rows sort by this text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownNode => "unknown_node",
            Self::UnknownPool => "unknown_pool",
            Self::NoQosPrice => "no_qos_price",
            Self::NoRate => "no_rate",
        }
    }
}

/// One row of `cost_allocation`. Its grain, after organization and hour, is the first eleven fields in this
/// order, null first; a file is sorted by it.
#[derive(Clone, Debug, PartialEq)]
pub struct CostRow {
    /// Kind of row.
    pub kind: RowKind,
    /// The cluster (`SubAccountId`); none for reservations and commitments.
    pub cluster_id: Option<ClusterId>,
    /// Node id, pod uid, reservation id or commitment id (`ResourceId`).
    pub resource_id: Text,
    /// The pod that bears the cost.
    pub pod_uid: Option<PodUid>,
    /// The commitment that pays (`CommitmentDiscountId`).
    pub commitment_id: Option<CommitmentId>,
    /// The reservation matched or unused (`CapacityReservationId`).
    pub reservation_id: Option<ReservationId>,
    /// Quota that governs the pod (`x_QuotaId`).
    pub quota_id: Option<QuotaId>,
    /// The pod's label under it.
    pub quota_state: Option<QuotaState>,
    /// Price per hour (`ListUnitPrice`); for a commitment's rows its hourly cost, on nodes the node's.
    pub list_unit_price: Decimal12,
    /// Why there is no price.
    pub unpriced: Option<Unpriced>,

    /// Who bills it; `unknown` where there is no price.
    pub provider: Text,
    /// Hours of the resource that the row stands for (`PricingQuantity`).
    pub pricing_quantity: Decimal12,
    /// `BilledCost`.
    pub billed_cost: Decimal12,
    /// `EffectiveCost`.
    pub effective_cost: Decimal12,
    /// `ListCost`: price times quantity before rounding either.
    pub list_cost: Decimal12,
    /// `CommitmentDiscountQuantity`: hours of the commitment.
    pub commitment_quantity: Option<Decimal12>,
    /// The row's part of its origin (node, hour, commitment, unit price): on `pod_node` and `node_idle` of a
    /// running node. The ratios of one origin sum to exactly 1.
    pub allocated_ratio: Option<Decimal12>,

    /// `x_SplitCost`, on `pod_node`.
    pub split_cost: Option<Decimal12>,
    /// `x_UnusedCost`, on `pod_node`.
    pub unused_cost: Option<Decimal12>,
    /// `x_CpuCost`, on `pod_node` and `pod_serverless`.
    pub cpu_cost: Option<Decimal12>,
    /// `x_MemoryCost`, likewise.
    pub memory_cost: Option<Decimal12>,
    /// `x_GpuCost`, likewise.
    pub gpu_cost: Option<Decimal12>,
    /// Allocated `x_CpuCoreHours`, `x_MemoryGibHours`, `x_GpuHours`, on pod rows.
    pub allocated: Option<ResourceHours>,
    /// Requested hours, on pod rows.
    pub requested: Option<ResourceHours>,
    /// Used hours; none when no usage came.
    pub used: Option<ResourceHours>,
    /// `x_RunningSeconds`, on pod rows.
    pub running_seconds: Option<Decimal12>,
    /// `x_PoolCharge`, on every pool pod's rows that have a price in the pool.
    pub pool_charge: Option<Decimal12>,

    /// The node as last described inside the hour.
    pub node: Option<Arc<NodeStarted>>,
    /// The pod as last described inside the hour.
    pub pod: Option<Arc<PodStarted>>,
    /// The reservation, on `reservation_unused`.
    pub reservation: Option<Arc<ReservationSet>>,
    /// The commitment, on every row that has one.
    pub commitment: Option<Arc<CommitmentSet>>,
    /// The pool, on priced `pod_pool` rows.
    pub pool: Option<Arc<PoolSet>>,
    /// The rate, on priced `pod_serverless` rows.
    pub rate: Option<Arc<RateSet>>,
}

impl CostRow {
    /// A row of a kind with nothing else filled in.
    pub fn new(kind: RowKind, resource_id: Text, provider: Text) -> Self {
        Self {
            kind,
            cluster_id: None,
            resource_id,
            pod_uid: None,
            commitment_id: None,
            reservation_id: None,
            quota_id: None,
            quota_state: None,
            list_unit_price: Decimal12::ZERO,
            unpriced: None,
            provider,
            pricing_quantity: Decimal12::ZERO,
            billed_cost: Decimal12::ZERO,
            effective_cost: Decimal12::ZERO,
            list_cost: Decimal12::ZERO,
            commitment_quantity: None,
            allocated_ratio: None,
            split_cost: None,
            unused_cost: None,
            cpu_cost: None,
            memory_cost: None,
            gpu_cost: None,
            allocated: None,
            requested: None,
            used: None,
            running_seconds: None,
            pool_charge: None,
            node: None,
            pod: None,
            reservation: None,
            commitment: None,
            pool: None,
            rate: None,
        }
    }
}

/// Hours of the three resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceHours {
    /// vCPU-hours.
    pub cpu_core_hours: Decimal12,
    /// GiB-hours.
    pub memory_gib_hours: Decimal12,
    /// GPU-hours.
    pub gpu_hours: Decimal12,
}

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

/// One row of `pool_usage`. TFLOPs and bytes are means over the hour.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "RULES.md, section 5 defines them; the README of the tables describes them")]
pub struct PoolUsageRow {
    pub pool_id: PoolId,
    pub cluster_id: ClusterId,
    pub tflops_total: Decimal12,
    pub vram_bytes_total: Decimal12,
    pub tflops_virtual: Decimal12,
    pub vram_bytes_virtual: Decimal12,
    pub tflops_requested: Decimal12,
    pub vram_bytes_requested: Decimal12,
    pub tflops_limited: Decimal12,
    pub vram_bytes_limited: Decimal12,
    pub allocated_tflops_percent: Decimal12,
    pub allocated_vram_percent: Decimal12,
    pub charges: Decimal12,
    pub node_cost: Decimal12,
    pub margin: Decimal12,
    pub spend_day: Decimal12,
    pub spend_month: Decimal12,
    pub spend_quarter: Decimal12,
    pub budget_exceeded: Option<Text>,
    pub saved_costs_per_month: Decimal12,
    pub potential_savings_per_month: Decimal12,
}

/// One row of `hours`: what an organization's hour adds up to.
#[derive(Clone, Debug, PartialEq)]
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

/// All rows of one organization and hour.
#[derive(Clone, Debug, PartialEq)]
pub struct HourTables {
    /// The organization.
    pub organization_id: OrganizationId,
    /// Its currency.
    pub currency: Text,
    /// Version of the rules it was folded under.
    pub rules_version: Text,
    /// Resources that these rules count as GPUs, for the sizes that `cost_allocation` tells.
    pub gpu_resources: Vec<Text>,
    /// The hour.
    pub hour: Hour,
    /// `cost_allocation`, sorted by grain.
    pub cost_allocation: Vec<CostRow>,
    /// `reservation_usage`, by reservation.
    pub reservation_usage: Vec<ReservationUsageRow>,
    /// `commitment_utilization`, by commitment.
    pub commitment_utilization: Vec<CommitmentUtilizationRow>,
    /// `quota_usage`, by cluster, quota and resource.
    pub quota_usage: Vec<QuotaUsageRow>,
    /// `pool_usage`, by pool.
    pub pool_usage: Vec<PoolUsageRow>,
    /// `hours`.
    pub totals: HourRow,
}
