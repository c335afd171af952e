//! Events of agreements: capacity reservations, commitments and quotas.

use serde::{Deserialize, Serialize};

use super::Quantities;
use crate::Text;
use crate::ids::{ClusterId, CommitmentId, QuotaId, ReservationId};
use crate::money::{Amount, Ratio, UnitPrice};
use crate::time::Timestamp;

/// A capacity reservation: `quantity` equal units. Each unit serves at most one serverless pod at a time.
///
/// Natural key: reservation_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationSet {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// Display name; may be empty.
    pub name: Text,
    /// The cloud provider that bills the unused units. It is reported and never compared.
    pub provider: Text,
    /// Region of the units: a unit serves only pods of this region.
    pub region: Text,
    /// Availability zone of the units; `None` if they serve pods of every zone of the region.
    pub zone: Option<Text>,
    /// GPU model of the units: a unit serves only pods that ask for this model.
    pub gpu_model: Text,
    /// Capacity of one unit. A unit serves a pod with the same number of GPUs, and with no more vCPU and
    /// memory.
    pub capacity: Quantities,
    /// Number of units; zero or more.
    pub quantity: i32,
    /// Price per hour of one unit that no pod uses, in `currency`; zero or more.
    pub unit_hourly_price: UnitPrice,
    /// Currency of the price (ISO 4217), which must be the organization's configured currency.
    pub currency: Text,
    /// The time at which the reservation was bought. Among units of one size, the oldest serves first.
    pub created_at: Timestamp,
    /// The first instant at which the reservation is effective.
    pub starts_at: Timestamp,
    /// The first instant at which the reservation is no longer effective; `None` if it does not end. It is
    /// never before `starts_at`. A reservation that ends at its start is never effective.
    pub ends_at: Option<Timestamp>,
}

/// A reservation is released: its units cost nothing from now on. Natural key: reservation_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationReleased {
    /// The reservation that ends. Nothing happens if it does not exist.
    pub reservation_id: ReservationId,
}

/// The provider's name for this kind of commitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CommitmentKind {
    /// Reserved instances.
    ReservedInstance,
    /// A committed-use discount.
    CommittedUseDiscount,
    /// A savings plan: a committed spend at discounted rates.
    SavingsPlan,
}

/// The kind of usage that a discounted price of a savings plan applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DiscountTarget {
    /// On-demand nodes at their own price.
    Node,
    /// Serverless pods at their rate.
    Pod,
    /// Unused units of capacity reservations.
    Reservation,
}

/// A discounted price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiscountedPrice {
    /// The part of the list price that is saved, from 0 to below 1.
    Saving(Ratio),
    /// The price per hour of a node or a reserved unit, above zero.
    Rate(UnitPrice),
}

/// A discounted price of a savings plan, and the usage that it applies to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanDiscount {
    /// The kind of usage.
    pub applies_to: DiscountTarget,
    /// Region of the usage; `None` for any region.
    pub region: Option<Text>,
    /// Instance family of the nodes; `None` for any family.
    pub instance_family: Option<Text>,
    /// Instance type of the nodes; `None` for any type.
    pub instance_type: Option<Text>,
    /// GPU model of the usage; `None` for any model, and for usage without GPUs.
    pub gpu_model: Option<Text>,
    /// The price.
    pub price: DiscountedPrice,
}

/// A cluster that a commitment is assigned to. The commitment covers it before clusters that are not
/// assigned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Assignment {
    /// The assigned cluster.
    pub cluster_id: ClusterId,
    /// Rank of the cluster, from 1, which is covered first; `None` if it follows every cluster with a rank.
    pub priority: Option<i32>,
}

/// A commitment to pay for an amount of capacity, or for an amount of spend. Natural key: commitment_id.
///
/// For a savings plan, `region`, `instance_family`, the four capacity fields and `assignments` mean nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitmentSet {
    /// The commitment.
    pub commitment_id: CommitmentId,
    /// Display name; may be empty.
    pub name: Text,
    /// The cloud provider: the commitment covers only nodes of this provider.
    pub provider: Text,
    /// The provider's kind of commitment. A reserved instance covers use over the clock hour. A committed-use
    /// discount covers use at every instant. A savings plan covers spend over the clock hour.
    pub kind: CommitmentKind,
    /// The region: the commitment covers only nodes of this region.
    pub region: Text,
    /// The instance family: the commitment covers only nodes of this family, of any size.
    pub instance_family: Text,
    /// Committed vCPUs; zero or more.
    pub vcpu: Amount,
    /// Committed memory in GiB; zero or more.
    pub memory_gib: Amount,
    /// Committed number of GPUs; zero or more.
    pub gpu: i32,
    /// GPU model that the commitment covers; `None` if it covers any model.
    pub gpu_model: Option<Text>,
    /// Amortized cost of the whole commitment per hour, used or unused, in `currency`; zero or more.
    pub hourly_cost: UnitPrice,
    /// Currency of the cost (ISO 4217), which must be the organization's configured currency.
    pub currency: Text,
    /// The first instant at which the commitment is effective.
    pub starts_at: Timestamp,
    /// The first instant at which the commitment is no longer effective; `None` if it does not end. It is
    /// never before `starts_at`. A commitment that ends at its start is never effective.
    pub ends_at: Option<Timestamp>,
    /// Whether an autoscaler plans with the commitment. The provider applies a disabled commitment all the
    /// same.
    pub enabled: bool,
    /// The part of the commitment's vCPU, memory and GPUs that an autoscaler plans with, 0 to 1; `None` means
    /// 1.
    pub allowed_utilization: Option<Ratio>,
    /// The clusters that the commitment covers before all others.
    pub assignments: Vec<Assignment>,
    /// Committed spend of a savings plan at discounted rates, in `currency` per hour; above zero. `None` for
    /// other kinds.
    pub hourly_commitment: Option<UnitPrice>,
    /// Discounted prices of a savings plan; the first price that matches a usage applies to it. Empty for
    /// other kinds.
    pub discounts: Vec<PlanDiscount>,
}

/// A commitment is deleted: it costs nothing and covers nothing from now on. Natural key: commitment_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitmentDeleted {
    /// The commitment that ends. Nothing happens if it does not exist.
    pub commitment_id: CommitmentId,
}

/// Kind of a quota. It decides which quota governs a namespace that several quotas name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QuotaKind {
    /// Governs the pods of its namespaces unless a composite quota governs them.
    ElasticQuota,
    /// Takes precedence over elastic quotas.
    CompositeElasticQuota,
}

/// An elastic quota over namespaces of one cluster. Natural key: cluster_id, quota_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaSet {
    /// The cluster whose pods the quota governs.
    pub cluster_id: ClusterId,
    /// The quota id, unique in the cluster.
    pub quota_id: QuotaId,
    /// Elastic or composite.
    pub kind: QuotaKind,
    /// The namespaces whose pods the quota governs. A quota without namespaces counts as absent.
    pub namespaces: Vec<Text>,
    /// The guaranteed amounts. Pods are in quota while they stay within all of them. A resource that `min`
    /// does not name does not count.
    pub min: Quantities,
    /// Upper bounds, reported and not enforced; `None` if there are none.
    pub max: Option<Quantities>,
}

/// A quota is deleted: other quotas, or none, govern its pods from now on. Natural key: cluster_id, quota_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaDeleted {
    /// The quota's cluster.
    pub cluster_id: ClusterId,
    /// The quota that ends. Nothing happens if it does not exist.
    pub quota_id: QuotaId,
}
