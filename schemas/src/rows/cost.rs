//! Rows of `cost_allocation`: the cost of each pod, idle node, unused reservation and commitment in an hour.
//! RULES.md, section 10 lists the rows. Section 8 lists the amounts that are rounded.

use std::sync::Arc;

use crate::Text;
use crate::decimal::Decimal12;
use crate::event::{
    BillLine, BillSet, CommitmentSet, NodeStarted, PodStarted, PoolSet, RateSet, ReservationSet, names,
};
use crate::ids::{ClusterId, CommitmentId, PodUid, QuotaId, ReservationId};
use crate::time::Timestamp;

/// Kind of a `cost_allocation` row (`x_RowKind`), in table order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKind {
    /// A pod's share of its node.
    PodNode,
    /// The part of a node that is allocated to no pod.
    NodeIdle,
    /// A pod on no node, at its own rate.
    PodServerless,
    /// A pool pod on no node, which costs its charge in the pool.
    PodPool,
    /// Unused units of a reservation.
    ReservationUnused,
    /// The part of a commitment that covered no node.
    CommitmentUnused,
    /// The recurring purchase of a commitment.
    CommitmentPurchase,
    /// A line of a bill that belongs to no node and no agreement, or a pod's part of such lines.
    SharedCharge,
}

impl RowKind {
    /// Returns the name in column `x_RowKind`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PodNode => "pod_node",
            Self::NodeIdle => "node_idle",
            Self::PodServerless => "pod_serverless",
            Self::PodPool => "pod_pool",
            Self::ReservationUnused => "reservation_unused",
            Self::CommitmentUnused => "commitment_unused",
            Self::CommitmentPurchase => "commitment_purchase",
            Self::SharedCharge => "shared_charge",
        }
    }
}

/// Label of a pod under a quota (`x_QuotaState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaState {
    /// Within the guaranteed amounts.
    InQuota,
    /// Above the guaranteed amounts.
    OverQuota,
}

impl QuotaState {
    /// Returns the name in column `x_QuotaState`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InQuota => "in-quota",
            Self::OverQuota => "over-quota",
        }
    }
}

/// The reason that a row has no price (`x_Unpriced`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unpriced {
    /// The node that the pod names is not running.
    UnknownNode,
    /// The pool that the pod names is not set.
    UnknownPool,
    /// The pool has no price for the pod's quality of service.
    NoQosPrice,
    /// No rate matches the pod yet.
    NoRate,
    /// The pod shares an unknown part of GPUs, so the row's cost lacks the GPUs.
    UnknownGpuShare,
    /// The currency of the price differs from the hour's currency.
    OtherCurrency,
}

impl Unpriced {
    /// Returns the name in column `x_Unpriced`. Rows sort by this text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownNode => "unknown_node",
            Self::UnknownPool => "unknown_pool",
            Self::NoQosPrice => "no_qos_price",
            Self::NoRate => "no_rate",
            Self::UnknownGpuShare => "unknown_gpu_share",
            Self::OtherCurrency => "other_currency",
        }
    }
}

/// A line of a bill on a row.
#[derive(Clone, Debug, PartialEq)]
pub struct BilledLine {
    /// The set that holds the line.
    pub set: Arc<BillSet>,
    /// The event time of the set, at which the charge period begins.
    pub begins_at: Timestamp,
    /// The index of the line in the set.
    pub index: usize,
}

impl BilledLine {
    /// Returns the line.
    pub fn line(&self) -> &BillLine {
        &self.set.lines[self.index]
    }

    /// Returns the key by which lines sort.
    pub fn key(&self) -> (&Text, &Text, &Text, Timestamp, &Text) {
        let set = &*self.set;
        (&set.provider, &set.billing_account_id, &set.resource_key, self.begins_at, &self.line().line_id)
    }
}

/// One row of `cost_allocation`. The grain is the organization, the hour and the first eleven fields, in this
/// order, null first, then the labels of the pod and the first of `lines`. A file is sorted by the grain.
#[derive(Clone, Debug, PartialEq)]
pub struct CostRow {
    /// Kind of row.
    pub kind: RowKind,
    /// The cluster (`SubAccountId`); `None` for reservations and commitments.
    pub cluster_id: Option<ClusterId>,
    /// Node id, pod uid, reservation id, commitment id or id in the bill (`ResourceId`); empty if there is
    /// none.
    pub resource_id: Text,
    /// The pod that bears the cost.
    pub pod_uid: Option<PodUid>,
    /// The commitment that pays (`CommitmentDiscountId`).
    pub commitment_id: Option<CommitmentId>,
    /// The reservation that the pod matches, or whose units are unused (`CapacityReservationId`); `None` on
    /// other rows.
    pub reservation_id: Option<ReservationId>,
    /// The quota that governs the pod (`x_QuotaId`).
    pub quota_id: Option<QuotaId>,
    /// The pod's label under the quota.
    pub quota_state: Option<QuotaState>,
    /// Price per hour (`ListUnitPrice`). On a commitment's own rows, it is the commitment's hourly cost. On
    /// rows of a node, it is the node's price.
    pub list_unit_price: Decimal12,
    /// The reason for which the row has no price; `None` if it has one.
    pub unpriced: Option<Unpriced>,

    /// The lines of bills that decide the row's cost, in order of their keys; empty if the cost is an
    /// estimate.
    pub lines: Arc<[BilledLine]>,
    /// The cost that the row would have by the node's own price (`x_EstimatedCost`), on billed rows of nodes.
    pub estimated_cost: Option<Decimal12>,
    /// The provider that bills the resource; `unknown` if there is no price.
    pub provider: Text,
    /// Hours of the resource that the row stands for (`PricingQuantity`).
    pub pricing_quantity: Decimal12,
    /// `BilledCost`.
    pub billed_cost: Decimal12,
    /// `EffectiveCost`.
    pub effective_cost: Decimal12,
    /// `ListCost`: price times quantity, computed before either is rounded.
    pub list_cost: Decimal12,
    /// `CommitmentDiscountQuantity`: hours of the commitment.
    pub commitment_quantity: Option<Decimal12>,
    /// The row's part of its origin: of a node, hour, commitment and unit price on `pod_node` and `node_idle`
    /// rows of a running node, and of a charge on `shared_charge` rows of pods. `None` on other rows. The
    /// ratios of one origin sum to exactly 1.
    pub allocated_ratio: Option<Decimal12>,

    /// `x_SplitCost`, on `pod_node`.
    pub split_cost: Option<Decimal12>,
    /// `x_UnusedCost`, on `pod_node`.
    pub unused_cost: Option<Decimal12>,
    /// `x_CpuCost`, on `pod_node` and `pod_serverless`.
    pub cpu_cost: Option<Decimal12>,
    /// `x_MemoryCost`, on `pod_node` and `pod_serverless`.
    pub memory_cost: Option<Decimal12>,
    /// `x_GpuCost`, on `pod_node` and `pod_serverless`.
    pub gpu_cost: Option<Decimal12>,
    /// Allocated `x_CpuCoreHours`, `x_MemoryGibHours`, `x_GpuHours`, on pod rows.
    pub allocated: Option<ResourceHours>,
    /// Requested hours, on pod rows.
    pub requested: Option<ResourceHours>,
    /// Used hours; `None` if there was no usage event.
    pub used: Option<ResourceHours>,
    /// The row's part of the node's amount of each resource (`x_CpuSplitUsageRatio` and the like). If the
    /// node's pods were allocated more than the node has, it is the row's part of the allocated amount. It is
    /// set on `pod_node` rows of a running node.
    pub split_usage: ResourceRatios,
    /// The row's part of the amount of each resource that all pods were allocated (`x_CpuUnusedRatio` and the
    /// like). It is set on `pod_node` rows of a running node, and is 0 if nothing of the resource is unused.
    pub unused: ResourceRatios,
    /// `x_RunningSeconds`, on pod rows.
    pub running_seconds: Option<Decimal12>,
    /// `x_PoolCharge`, on the rows of every pool pod that has a price in the pool; `None` on other rows.
    pub pool_charge: Option<Decimal12>,

    /// The node as last described inside the hour.
    pub node: Option<Arc<NodeStarted>>,
    /// The pod as last described inside the hour.
    pub pod: Option<Arc<PodStarted>>,
    /// The reservation, on `reservation_unused`.
    pub reservation: Option<Arc<ReservationSet>>,
    /// The commitment; `None` if the row has none.
    pub commitment: Option<Arc<CommitmentSet>>,
    /// The pool, on priced `pod_pool` rows.
    pub pool: Option<Arc<PoolSet>>,
    /// The rate, on priced `pod_serverless` rows.
    pub rate: Option<Arc<RateSet>>,
}

impl CostRow {
    /// Returns the resource key that all lines of the row have; `None` if they have several, or there are no
    /// lines. The key is empty for charges of no resource.
    pub fn resource_key(&self) -> Option<&Text> {
        // The lines of a charge have one provider and one account, so they are in order of resource keys.
        let (first, last) = (self.lines.first()?, self.lines.last()?);
        Some(&first.set.resource_key).filter(|key| **key == last.set.resource_key)
    }

    /// Creates a row with a kind, a resource and the canonical name of a provider. All other fields are empty
    /// or zero.
    pub fn new(kind: RowKind, resource_id: Text, provider: Text) -> Self {
        let provider = names::shared(&provider, names::provider);
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
            lines: Arc::default(),
            estimated_cost: None,
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
            split_usage: ResourceRatios::default(),
            unused: ResourceRatios::default(),
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

/// Ratios of the three resources; `None` where there is nothing to divide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceRatios {
    /// Ratio of vCPU.
    pub cpu: Option<Decimal12>,
    /// Ratio of memory.
    pub memory: Option<Decimal12>,
    /// Ratio of GPUs.
    pub gpu: Option<Decimal12>,
}
