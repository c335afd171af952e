//! The fourteen event types of `EVENTS.md`, typed and valid: a value of these types has passed every check of
//! "Rejected input" that needs no configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Text;
use crate::ids::{ClusterId, CommitmentId, NodeId, OrganizationId, PodUid, PoolId, QuotaId, ReservationId};
use crate::money::{Amount, Money, Ratio, UnitPrice};
use crate::quantity::Quantity;
use crate::time::Timestamp;

/// Quantities by Kubernetes resource name.
pub type Quantities = BTreeMap<Text, Quantity>;

/// One event: something that became true of one organization at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Whose event it is; the message key.
    pub organization_id: OrganizationId,
    /// When it became true.
    pub event_time: Timestamp,
    /// What became true.
    pub payload: Payload,
}

/// An event with its canonical body: the Avro bytes of our newest schema, map entries sorted by key in one
/// block. Two events are the same event exactly when kind and body are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The typed event.
    pub event: Event,
    /// Its canonical body.
    pub body: Box<[u8]>,
}

/// The event types, in the order in which `EVENTS.md` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is documented by the payload of the same name")]
pub enum EventKind {
    NodeStarted,
    NodeStopped,
    PodStarted,
    PodStopped,
    PodUsage,
    ReservationSet,
    ReservationReleased,
    CommitmentSet,
    CommitmentDeleted,
    QuotaSet,
    QuotaDeleted,
    PoolSet,
    PoolDeleted,
    RateSet,
}

impl EventKind {
    /// Every kind, in the order of `EVENTS.md`; also the order of branches in the archive's union schema.
    pub const ALL: [Self; 14] = [
        Self::NodeStarted,
        Self::NodeStopped,
        Self::PodStarted,
        Self::PodStopped,
        Self::PodUsage,
        Self::ReservationSet,
        Self::ReservationReleased,
        Self::CommitmentSet,
        Self::CommitmentDeleted,
        Self::QuotaSet,
        Self::QuotaDeleted,
        Self::PoolSet,
        Self::PoolDeleted,
        Self::RateSet,
    ];

    /// The record's name without its namespace.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeStarted => "NodeStarted",
            Self::NodeStopped => "NodeStopped",
            Self::PodStarted => "PodStarted",
            Self::PodStopped => "PodStopped",
            Self::PodUsage => "PodUsage",
            Self::ReservationSet => "ReservationSet",
            Self::ReservationReleased => "ReservationReleased",
            Self::CommitmentSet => "CommitmentSet",
            Self::CommitmentDeleted => "CommitmentDeleted",
            Self::QuotaSet => "QuotaSet",
            Self::QuotaDeleted => "QuotaDeleted",
            Self::PoolSet => "PoolSet",
            Self::PoolDeleted => "PoolDeleted",
            Self::RateSet => "RateSet",
        }
    }
}

/// What an event says, by type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is documented by the payload of the same name")]
pub enum Payload {
    NodeStarted(NodeStarted),
    NodeStopped(NodeStopped),
    PodStarted(Box<PodStarted>),
    PodStopped(PodStopped),
    PodUsage(PodUsage),
    ReservationSet(ReservationSet),
    ReservationReleased(ReservationReleased),
    CommitmentSet(CommitmentSet),
    CommitmentDeleted(CommitmentDeleted),
    QuotaSet(QuotaSet),
    QuotaDeleted(QuotaDeleted),
    PoolSet(PoolSet),
    PoolDeleted(PoolDeleted),
    RateSet(RateSet),
}

impl Payload {
    /// Its kind.
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::NodeStarted(_) => EventKind::NodeStarted,
            Self::NodeStopped(_) => EventKind::NodeStopped,
            Self::PodStarted(_) => EventKind::PodStarted,
            Self::PodStopped(_) => EventKind::PodStopped,
            Self::PodUsage(_) => EventKind::PodUsage,
            Self::ReservationSet(_) => EventKind::ReservationSet,
            Self::ReservationReleased(_) => EventKind::ReservationReleased,
            Self::CommitmentSet(_) => EventKind::CommitmentSet,
            Self::CommitmentDeleted(_) => EventKind::CommitmentDeleted,
            Self::QuotaSet(_) => EventKind::QuotaSet,
            Self::QuotaDeleted(_) => EventKind::QuotaDeleted,
            Self::PoolSet(_) => EventKind::PoolSet,
            Self::PoolDeleted(_) => EventKind::PoolDeleted,
            Self::RateSet(_) => EventKind::RateSet,
        }
    }

    /// The currency its prices are in, where it has any.
    pub const fn currency(&self) -> Option<&Text> {
        match self {
            Self::NodeStarted(node) => Some(&node.currency),
            Self::ReservationSet(reservation) => Some(&reservation.currency),
            Self::CommitmentSet(commitment) => Some(&commitment.currency),
            Self::PoolSet(pool) => Some(&pool.currency),
            Self::RateSet(rate) => Some(&rate.currency),
            Self::NodeStopped(_)
            | Self::PodStarted(_)
            | Self::PodStopped(_)
            | Self::PodUsage(_)
            | Self::ReservationReleased(_)
            | Self::CommitmentDeleted(_)
            | Self::QuotaSet(_)
            | Self::QuotaDeleted(_)
            | Self::PoolDeleted(_) => None,
        }
    }
}

/// How a node's capacity was bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CapacityType {
    /// On demand; commitments may cover it.
    OnDemand,
    /// Spot; never covered.
    Spot,
}

/// A node runs, or its description changes. Natural key: cluster_id, node_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStarted {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The node, unique in its cluster.
    pub node_id: NodeId,
    /// Its name.
    pub node_name: Text,
    /// Who bills it, such as `aws`.
    pub provider: Text,
    /// Its region.
    pub region: Text,
    /// Its availability zone.
    pub zone: Option<Text>,
    /// Its instance type, such as `p5.48xlarge`.
    pub instance_type: Text,
    /// Its instance family, such as `p5`.
    pub instance_family: Text,
    /// On demand or spot.
    pub capacity_type: CapacityType,
    /// Capacity of the whole node.
    pub capacity: Quantities,
    /// Model of its GPUs.
    pub gpu_model: Option<Text>,
    /// Price of the whole node per hour, before any commitment.
    pub hourly_cost: UnitPrice,
    /// Currency of the price.
    pub currency: Text,
    /// GPU pool it belongs to.
    pub pool_id: Option<PoolId>,
}

/// A node stops, and its pods with it. Natural key: cluster_id, node_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStopped {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
}

/// A pod runs, or its description changes. Natural key: pod_uid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStarted {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// Its namespace.
    pub namespace: Text,
    /// Its name.
    pub pod_name: Text,
    /// Its uid.
    pub pod_uid: PodUid,
    /// When the object was created; orders pods under a quota.
    pub created_at: Timestamp,
    /// Kubernetes priority.
    pub priority: i32,
    /// Node it runs on, if any.
    pub node_id: Option<NodeId>,
    /// Region of a pod on no node.
    pub region: Option<Text>,
    /// Zone of a pod on no node.
    pub zone: Option<Text>,
    /// GPU pool that prices it.
    pub pool_id: Option<PoolId>,
    /// Quality of service, `default` unless set.
    pub qos: Text,
    /// GPU model it asks for.
    pub gpu_model: Option<Text>,
    /// Requests, containers and init containers folded by the producer.
    pub requests: Quantities,
    /// Limits.
    pub limits: Quantities,
    /// Kind of its workload, such as `Deployment`.
    pub workload_kind: Option<Text>,
    /// Name of its workload.
    pub workload_name: Option<Text>,
    /// Kubernetes labels.
    pub labels: BTreeMap<Text, Text>,
    /// Until when it is protected from eviction.
    pub eviction_protected_until: Option<Timestamp>,
}

/// A pod stops. Natural key: pod_uid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStopped {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// Its namespace.
    pub namespace: Text,
    /// Its uid.
    pub pod_uid: PodUid,
    /// Why it stopped.
    pub reason: Option<Text>,
}

/// Measured use of a pod over [event_time, interval_end). Natural key: pod_uid, event_time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUsage {
    /// The pod.
    pub pod_uid: PodUid,
    /// End of the interval, at most one hour after the event time.
    pub interval_end: Timestamp,
    /// Average use in thousandths of a vCPU.
    pub cpu_millis: i64,
    /// Average use in bytes.
    pub memory_bytes: i64,
    /// Average use in thousandths of a GPU.
    pub gpu_millis: i64,
}

/// A capacity reservation of `quantity` equal units. Natural key: reservation_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationSet {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// Its name.
    pub name: Text,
    /// Who bills it.
    pub provider: Text,
    /// Its region.
    pub region: Text,
    /// Its zone; none: any zone of the region.
    pub zone: Option<Text>,
    /// GPU model of its units.
    pub gpu_model: Text,
    /// Capacity of one unit.
    pub capacity: Quantities,
    /// Number of units.
    pub quantity: i32,
    /// What one unused unit costs per hour.
    pub unit_hourly_price: UnitPrice,
    /// Currency of the price.
    pub currency: Text,
    /// When it was bought; orders equal units (FIFO).
    pub created_at: Timestamp,
    /// First instant at which it is effective.
    pub starts_at: Timestamp,
    /// First instant at which it is effective no more.
    pub ends_at: Option<Timestamp>,
}

/// A reservation is released. Natural key: reservation_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationReleased {
    /// The reservation.
    pub reservation_id: ReservationId,
}

/// What a commitment is called by its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CommitmentKind {
    /// Reserved instances.
    ReservedInstance,
    /// A committed-use discount.
    CommittedUseDiscount,
}

/// A cluster that a commitment is assigned to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Assignment {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// Its priority, 1 the highest; none: after every cluster with one.
    pub priority: Option<i32>,
}

/// A commitment to an amount of capacity. Natural key: commitment_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitmentSet {
    /// The commitment.
    pub commitment_id: CommitmentId,
    /// Its name.
    pub name: Text,
    /// Provider of the nodes that it covers.
    pub provider: Text,
    /// What its provider calls it.
    pub kind: CommitmentKind,
    /// Region of the nodes that it covers.
    pub region: Text,
    /// Instance family of the nodes that it covers.
    pub instance_family: Text,
    /// Committed vCPU.
    pub vcpu: Amount,
    /// Committed memory in GiB.
    pub memory_gib: Amount,
    /// Committed GPUs.
    pub gpu: i32,
    /// Model of the GPUs that it covers; none: any.
    pub gpu_model: Option<Text>,
    /// Amortized cost per hour.
    pub hourly_cost: UnitPrice,
    /// Currency of the cost.
    pub currency: Text,
    /// First instant at which it is effective.
    pub starts_at: Timestamp,
    /// First instant at which it is effective no more.
    pub ends_at: Option<Timestamp>,
    /// Whether it covers nodes; a disabled one is tracked and paid only.
    pub enabled: bool,
    /// Fraction of its totals that may be used, 0 to 1; none: 1.
    pub allowed_utilization: Option<Ratio>,
    /// Clusters that it is assigned to.
    pub assignments: Vec<Assignment>,
}

/// A commitment is deleted. Natural key: commitment_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitmentDeleted {
    /// The commitment.
    pub commitment_id: CommitmentId,
}

/// Kind of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QuotaKind {
    /// Governs the pods of its namespaces unless a composite quota does.
    ElasticQuota,
    /// Wins over elastic quotas.
    CompositeElasticQuota,
}

/// An elastic quota. Natural key: cluster_id, quota_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaSet {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The quota, unique in its cluster.
    pub quota_id: QuotaId,
    /// Elastic or composite.
    pub kind: QuotaKind,
    /// Namespaces whose pods it governs.
    pub namespaces: Vec<Text>,
    /// Guaranteed amounts.
    pub min: Quantities,
    /// Upper bounds; reported, not enforced.
    pub max: Option<Quantities>,
}

/// A quota is deleted. Natural key: cluster_id, quota_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaDeleted {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The quota.
    pub quota_id: QuotaId,
}

/// Prices of one quality of service in a GPU pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosPrice {
    /// The quality of service.
    pub qos: Text,
    /// Price of one FP16 TFLOP for an hour.
    pub per_fp16_tflop_hour: UnitPrice,
    /// Price of one GiB of VRAM for an hour.
    pub per_vram_gib_hour: UnitPrice,
    /// Share of the price that the span between request and limit costs.
    pub limits_over_requests: Ratio,
}

/// A pool of GPUs with prices and budgets. Natural key: pool_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSet {
    /// The pool.
    pub pool_id: PoolId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Who bills it.
    pub provider: Text,
    /// Quality of service of pods that name none.
    pub default_qos: Text,
    /// Prices by quality of service.
    pub qos_pricing: Vec<QosPrice>,
    /// Virtual TFLOPs in percent of the physical ones.
    pub tflops_oversell_percent: i32,
    /// Percent of ephemeral storage that expands VRAM.
    pub vram_expand_to_host_disk_percent: i32,
    /// Percent of memory that expands VRAM.
    pub vram_expand_to_host_mem_percent: i32,
    /// Budget for a UTC day.
    pub budget_per_day: Option<Money>,
    /// Budget for a calendar month.
    pub budget_per_month: Option<Money>,
    /// Budget for a calendar quarter.
    pub budget_per_quarter: Option<Money>,
    /// Currency of prices and budgets.
    pub currency: Text,
}

/// A pool is deleted. Natural key: pool_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDeleted {
    /// The pool.
    pub pool_id: PoolId,
}

/// Rate card of pods that run on no node of their own. Natural key: region, gpu_model, qos.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateSet {
    /// Who bills it.
    pub provider: Text,
    /// The region.
    pub region: Text,
    /// The GPU model; none matches pods that ask for none.
    pub gpu_model: Option<Text>,
    /// Quality of service, `default` unless set.
    pub qos: Text,
    /// Price of one vCPU for an hour.
    pub per_vcpu_hour: UnitPrice,
    /// Price of one GiB of memory for an hour.
    pub per_gib_hour: UnitPrice,
    /// Price of one GPU for an hour.
    pub per_gpu_hour: UnitPrice,
    /// Currency of the prices.
    pub currency: Text,
}
