//! Events of agreements: capacity reservations, commitments and quotas.

use serde::{Deserialize, Serialize};

use super::Quantities;
use crate::Text;
use crate::ids::{ClusterId, CommitmentId, QuotaId, ReservationId};
use crate::money::{Amount, Ratio, UnitPrice};
use crate::time::Timestamp;

/// A capacity reservation: `quantity` equal units, each of which can serve one serverless pod at a time.
/// Natural key: reservation_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationSet {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// Its name for people; may be empty.
    pub name: Text,
    /// The cloud provider that bills its unused units. Reported, never compared.
    pub provider: Text,
    /// Region of its units: a unit serves only pods of this region.
    pub region: Text,
    /// Availability zone of its units; null: they serve pods of any zone of the region.
    pub zone: Option<Text>,
    /// GPU model of its units: a unit serves only pods that ask for this model.
    pub gpu_model: Text,
    /// Capacity of one unit. It serves a pod with as many GPUs and with no more vCPU and memory.
    pub capacity: Quantities,
    /// Number of units; zero or more.
    pub quantity: i32,
    /// What one unit costs per hour while no pod uses it, in `currency`; zero or more.
    pub unit_hourly_price: UnitPrice,
    /// Currency of the price (ISO 4217); must be the organization's configured one.
    pub currency: Text,
    /// When it was bought: among units of one size the oldest serves first.
    pub created_at: Timestamp,
    /// The first instant at which it is effective.
    pub starts_at: Timestamp,
    /// The first instant at which it is no longer effective, never before `starts_at`; null: it does not end.
    /// A reservation that ends where it starts is never effective.
    pub ends_at: Option<Timestamp>,
}

/// A reservation is released: its units cost nothing from now on. Natural key: reservation_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationReleased {
    /// The reservation that ends. Nothing happens if it does not exist.
    pub reservation_id: ReservationId,
}

/// What a commitment is called by its provider. All kinds are computed alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CommitmentKind {
    /// Reserved instances.
    ReservedInstance,
    /// A committed-use discount.
    CommittedUseDiscount,
}

/// A cluster that a commitment is assigned to, and so covers before clusters that are not assigned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Assignment {
    /// The cluster whose nodes come first.
    pub cluster_id: ClusterId,
    /// Its rank, 1 or more, 1 the first; null: after every cluster with a rank.
    pub priority: Option<i32>,
}

/// A commitment to pay for an amount of capacity. Natural key: commitment_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitmentSet {
    /// The commitment.
    pub commitment_id: CommitmentId,
    /// Its name for people; may be empty.
    pub name: Text,
    /// The cloud provider: it covers only nodes of this provider.
    pub provider: Text,
    /// What its provider calls it. Reported only.
    pub kind: CommitmentKind,
    /// It covers only nodes of this region.
    pub region: Text,
    /// It covers only nodes of this instance family, of any size.
    pub instance_family: Text,
    /// Committed vCPUs; zero or more.
    pub vcpu: Amount,
    /// Committed memory in GiB; zero or more.
    pub memory_gib: Amount,
    /// Committed number of GPUs; zero or more.
    pub gpu: i32,
    /// Model of the GPUs that it covers; null: any.
    pub gpu_model: Option<Text>,
    /// Amortized cost of the whole commitment per hour, used or not, in `currency`; zero or more.
    pub hourly_cost: UnitPrice,
    /// Currency of the cost (ISO 4217); must be the organization's configured one.
    pub currency: Text,
    /// The first instant at which it is effective.
    pub starts_at: Timestamp,
    /// The first instant at which it is no longer effective, never before `starts_at`; null: it does not end.
    /// A commitment that ends where it starts is never effective.
    pub ends_at: Option<Timestamp>,
    /// Whether it covers nodes. A disabled one costs as much and covers nothing.
    pub enabled: bool,
    /// The part of its vCPU, memory and GPUs that may cover nodes, 0 to 1; null: 1.
    pub allowed_utilization: Option<Ratio>,
    /// The clusters that it covers before all others.
    pub assignments: Vec<Assignment>,
}

/// A commitment is deleted: it costs nothing and covers nothing from now on. Natural key: commitment_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitmentDeleted {
    /// The commitment that ends. Nothing happens if it does not exist.
    pub commitment_id: CommitmentId,
}

/// Kind of a quota: decides which quota governs a namespace that several name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QuotaKind {
    /// Governs the pods of its namespaces unless a composite quota does.
    ElasticQuota,
    /// Wins over elastic quotas.
    CompositeElasticQuota,
}

/// An elastic quota over namespaces of one cluster. Natural key: cluster_id, quota_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaSet {
    /// The cluster whose pods it governs.
    pub cluster_id: ClusterId,
    /// The quota, unique in its cluster.
    pub quota_id: QuotaId,
    /// Elastic or composite.
    pub kind: QuotaKind,
    /// The namespaces whose pods it governs. A quota without namespaces is as if absent.
    pub namespaces: Vec<Text>,
    /// The guaranteed amounts. Pods are in quota while they stay within all of them; a resource that is not
    /// named does not count.
    pub min: Quantities,
    /// Upper bounds, reported and not enforced; null: none.
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
