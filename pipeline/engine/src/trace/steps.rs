//! The steps of a trace. Amounts are vCPUs, GiB and GPUs, or hours of them; money is in the hour's currency.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use dashu_ratio::RBig;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{CommitmentSet, Labels, NodeStarted, PodStarted, ReservationSet};
use prorata_schemas::ids::{ClusterId, CommitmentId, NodeId, PodUid, PoolId, QuotaId, ReservationId};
use prorata_schemas::time::Timestamp;
use serde::{Serialize, Serializer};

use crate::model::per_resource::PerResource;
use crate::trace::ExactNumber;

pub(super) fn as_text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_optional_text<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// A stretch of a node, with its cost by resource and the amounts that its pods were allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStep {
    /// The node's cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// The last description in the stretch.
    #[serde(skip)]
    pub description: Arc<NodeStarted>,
    /// The key under which a bill has lines for the node; `None` if the cost is an estimate.
    pub resource_key: Option<Text>,
    /// The node's price for an hour; zero if the node is billed.
    pub unit_price: ExactNumber,
    /// The time of the stretch, cut where capacity, description or coverage change.
    pub spans: Vec<NodeSpan>,
    /// Weights of a vCPU, a GiB and a GPU.
    pub weights: PerResource<ExactNumber>,
    /// The price components, each with its part of the node's cost.
    pub components: Vec<ComponentStep>,
    /// Resource-hours of capacity: `A`.
    pub available: PerResource<ExactNumber>,
    /// Resource-hours that all pods were allocated: `S`.
    pub allocated: PerResource<ExactNumber>,
    /// The split part of the cost that pods bear: `min(1, S / A)`. The rest is unused.
    pub split_part: PerResource<ExactNumber>,
    /// The pods that ran in the stretch.
    pub pods: Vec<NodePod>,
}

/// A node under one description and coverage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeSpan {
    /// The first instant.
    #[serde(serialize_with = "as_text")]
    pub from: Timestamp,
    /// The first instant after it.
    #[serde(serialize_with = "as_text")]
    pub to: Timestamp,
    /// The length in hours.
    pub hours: ExactNumber,
    /// The capacity in vCPUs, GiB and GPUs.
    pub capacity: PerResource<ExactNumber>,
    /// The node's price for an hour.
    pub hourly_cost: ExactNumber,
    /// The amounts that each commitment covers.
    pub covered: Vec<(CommitmentId, PerResource<ExactNumber>)>,
}

/// One price component of a stretch: the node's own price, or a commitment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentStep {
    /// The commitment that pays. `None` for the node's own price.
    pub commitment_id: Option<CommitmentId>,
    /// The node's price for an hour.
    pub unit_price: ExactNumber,
    /// The reason if there is no price.
    pub unpriced: Option<&'static str>,
    /// Node hours that the component pays for, by resource.
    pub hours: PerResource<ExactNumber>,
    /// Commitment hours that the node receives, by resource.
    pub commitment_quantity: PerResource<ExactNumber>,
    /// Cost by resource.
    pub cost: PerResource<ExactNumber>,
    /// Cost of a resource-hour: the cost divided by the hours of capacity. Zero if there is no capacity.
    pub unit_cost: PerResource<ExactNumber>,
    /// Cost of the time in which no resource had a weight. It is all idle.
    pub weightless_cost: ExactNumber,
    /// The total cost of the component.
    pub total: ExactNumber,
}

impl ComponentStep {
    /// Returns the step with all costs below zero.
    pub(crate) fn negated(self) -> Self {
        let negated = |number: &ExactNumber| number.times(&-RBig::ONE);
        Self {
            cost: self.cost.as_ref().map(negated),
            unit_cost: self.unit_cost.as_ref().map(negated),
            weightless_cost: negated(&self.weightless_cost),
            total: negated(&self.total),
            ..self
        }
    }
}

/// The time of one pod in a stretch of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodePod {
    /// The pod.
    pub pod_uid: PodUid,
    /// The pod's namespace.
    pub namespace: Text,
    /// The pod's name.
    pub pod_name: Text,
    /// Seconds for which the pod ran in the stretch.
    pub seconds: ExactNumber,
    /// Resource-hours that the pod requested.
    pub requested: PerResource<ExactNumber>,
    /// Resource-hours that the pod used. `None` without a sample.
    pub used: Option<PerResource<ExactNumber>>,
    /// Resource-hours that the pod was allocated.
    pub allocated: PerResource<ExactNumber>,
    /// The pod's share of the amounts that all pods were allocated: `a / S`.
    pub share: PerResource<ExactNumber>,
    /// The pod's time by label, each with its part of the time.
    pub labels: Vec<NodePodLabel>,
}

/// Time of a pod on a node under one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodePodLabel {
    /// The pod's quota.
    pub quota_id: Option<QuotaId>,
    /// The pod's label.
    pub state: Option<&'static str>,
    /// The reason for which the pod lacks a price of its pool or for its GPUs; `None` if it lacks none.
    pub unpriced: Option<&'static str>,
    /// The pod's Kubernetes labels.
    pub labels: Labels,
    /// The length in seconds.
    pub seconds: ExactNumber,
    /// Share of the pod's time.
    pub share: ExactNumber,
    /// The charge of the pool for this time; `None` if no pool prices the pod.
    pub pool_charge: Option<ExactNumber>,
}

/// A step of a commitment's walk: the commitment reaches a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WalkStep {
    /// The instant at which coverage was decided.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// The end of the effective time of a reserved instance, whose amounts are resource-hours from `at` on.
    /// `None` if the amounts hold at the instant `at`.
    #[serde(serialize_with = "as_optional_text")]
    pub until: Option<Timestamp>,
    /// The commitment.
    pub commitment_id: CommitmentId,
    /// Position of the commitment among all commitments, from 1.
    pub commitment_position: usize,
    /// The node's cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// Position of the node on the walk, from 1.
    pub position: usize,
    /// The rank of the node's cluster, in words.
    pub rank: String,
    /// The start of the node.
    #[serde(serialize_with = "as_text")]
    pub node_start: Timestamp,
    /// The amounts that the commitment may still cover.
    pub commitment_remaining: PerResource<ExactNumber>,
    /// The amounts of the node that are not covered yet.
    pub node_remaining: PerResource<ExactNumber>,
    /// The amounts that the commitment covers.
    pub covered: PerResource<ExactNumber>,
}

/// The usage of one object that a savings plan may cover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanUsage {
    /// A node at its own price.
    Node {
        /// The node's cluster.
        cluster_id: ClusterId,
        /// The node.
        node_id: NodeId,
    },
    /// A serverless pod at its rate.
    Pod {
        /// The pod.
        pod_uid: PodUid,
    },
    /// Unused units of a reservation.
    Reservation {
        /// The reservation.
        reservation_id: ReservationId,
    },
}

/// One step of the walk of savings plans over usage: the usage of one object at one discounted price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanStep {
    /// The start of the plan's effective time in the hour.
    #[serde(serialize_with = "as_text")]
    pub from: Timestamp,
    /// The end of the plan's effective time in the hour.
    #[serde(serialize_with = "as_text")]
    pub to: Timestamp,
    /// The plan.
    pub commitment_id: CommitmentId,
    /// The usage.
    pub usage: PlanUsage,
    /// The part of the list price that is saved.
    pub saving: ExactNumber,
    /// The discounted price per hour.
    pub rate: ExactNumber,
    /// The spend that the plan may still cover.
    pub plan_remaining: ExactNumber,
    /// The discounted price of the usage that is not covered yet.
    pub usage_remaining: ExactNumber,
    /// The spend that the plan covers.
    pub covered: ExactNumber,
}

/// The result of matching one pod with units of reservations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchStep {
    /// The instant of the result.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// The pod.
    pub pod_uid: PodUid,
    /// The result.
    pub outcome: MatchOutcome,
    /// The reservation whose unit the pod holds, takes or loses; `None` if there is none.
    pub reservation_id: Option<ReservationId>,
    /// The units that matching looked at.
    pub units: Vec<UnitStep>,
}

/// The result for a pod that could use a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchOutcome {
    /// The pod has held a unit since before the hour.
    Held,
    /// The pod takes a unit.
    Taken,
    /// No free unit fits.
    None,
    /// The pod loses its unit.
    Lost,
}

/// A unit of a reservation, as matching sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnitStep {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The size of the unit.
    pub size: PerResource<ExactNumber>,
    /// The creation time of the reservation.
    #[serde(serialize_with = "as_text")]
    pub created_at: Timestamp,
    /// The reason why the unit cannot serve the pod. `None` if it can.
    pub refused: Option<&'static str>,
}

/// The order and the labels of a quota's pods at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LabelStep {
    /// The instant.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// The quota's cluster.
    pub cluster_id: ClusterId,
    /// The quota.
    pub quota_id: QuotaId,
    /// Guaranteed amounts of the quota, in the unit of each resource.
    pub min: BTreeMap<Text, ExactNumber>,
    /// The running pods of the quota, in the order in which they count.
    pub pods: Vec<RankedPod>,
}

/// A pod in the order of its quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankedPod {
    /// Position in the order, from 1.
    pub position: usize,
    /// The pod.
    pub pod_uid: PodUid,
    /// The pod's namespace.
    pub namespace: Text,
    /// The pod's name.
    pub pod_name: Text,
    /// The creation time in whole seconds, the first key of the order.
    #[serde(serialize_with = "as_text")]
    pub created_at: Timestamp,
    /// The pod's requests of the resources in `min`.
    pub requests: BTreeMap<Text, ExactNumber>,
    /// The running sum, this pod included.
    pub sum: BTreeMap<Text, ExactNumber>,
    /// The pod's label.
    pub state: &'static str,
}

/// Time of a pod under one description and status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodSpan {
    /// The pod.
    pub pod_uid: PodUid,
    /// The pod's description.
    #[serde(skip)]
    pub description: Arc<PodStarted>,
    /// The first instant.
    #[serde(serialize_with = "as_text")]
    pub from: Timestamp,
    /// The first instant after it.
    #[serde(serialize_with = "as_text")]
    pub to: Timestamp,
    /// The length in hours.
    pub hours: ExactNumber,
    /// The node that the pod names, and whether the node runs; `None` if the pod names none.
    pub node: Option<(NodeId, bool)>,
    /// The pod's requests.
    pub requests: PerResource<ExactNumber>,
    /// The reservation whose unit the pod holds.
    pub reservation_id: Option<ReservationId>,
    /// The pod's quota and label.
    pub label: Option<(QuotaId, &'static str)>,
    /// The reason for which the pod lacks a price of its pool or node; `None` if it lacks none. Ignores the
    /// rate card.
    pub unpriced: Option<&'static str>,
    /// The rate in force; `None` if the pod is not serverless or no rate matches.
    pub rate: Option<RateStep>,
    /// The price of the pod's pool.
    pub pool: Option<PoolStep>,
    /// The pod's own price over time. Empty if the pod names a node and no pool prices it.
    pub priced: Vec<PricedTime>,
}

/// A rate of the rate card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RateStep {
    /// Prices of a vCPU-hour, a GiB-hour and a GPU-hour.
    pub prices: PerResource<ExactNumber>,
    /// The cost of the pod's requests in an hour.
    pub hourly: PerResource<ExactNumber>,
}

/// The prices by which a pool charges a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolStep {
    /// The pool.
    pub pool_id: PoolId,
    /// The quality of service that has the price.
    pub qos: Text,
    /// Price of an FP16-TFLOP-hour.
    pub per_tflop_hour: ExactNumber,
    /// Price of a GiB-hour of VRAM.
    pub per_vram_gib_hour: ExactNumber,
    /// The part of the price that limits above requests cost (rho).
    pub limits_over_requests: ExactNumber,
    /// The pod's number of GPUs.
    pub count: ExactNumber,
    /// Requested TFLOPs and GiB of VRAM, for each GPU.
    pub requests: [ExactNumber; 2],
    /// TFLOPs and GiB of VRAM up to the limits, at least the requests, for each GPU.
    pub limits: [ExactNumber; 2],
    /// The factor of the price under eviction protection (e).
    pub protection: ExactNumber,
}

/// Time at one price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PricedTime {
    /// The length in hours.
    pub hours: ExactNumber,
    /// The price of an hour.
    pub hourly: ExactNumber,
    /// The length times the price.
    pub cost: ExactNumber,
}

/// A span of an effective reservation in which pods hold a constant number of units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationSpan {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The reservation's description.
    #[serde(skip)]
    pub description: Arc<ReservationSet>,
    /// The first instant.
    #[serde(serialize_with = "as_text")]
    pub from: Timestamp,
    /// The first instant after it.
    #[serde(serialize_with = "as_text")]
    pub to: Timestamp,
    /// The length in hours.
    pub hours: ExactNumber,
    /// The number of units of the reservation.
    pub units: i32,
    /// The number of units that pods hold.
    pub used_units: u64,
    /// Unit-hours that no pod held.
    pub unused_hours: ExactNumber,
    /// The price of a unit-hour.
    pub unit_hourly_price: ExactNumber,
    /// The cost of the unused unit-hours.
    pub cost: ExactNumber,
}

/// A span of an effective commitment with the amounts that it covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommitmentSpan {
    /// The commitment.
    pub commitment_id: CommitmentId,
    /// The commitment's description.
    #[serde(skip)]
    pub description: Arc<CommitmentSet>,
    /// The first instant.
    #[serde(serialize_with = "as_text")]
    pub from: Timestamp,
    /// The first instant after it.
    #[serde(serialize_with = "as_text")]
    pub to: Timestamp,
    /// The length in hours.
    pub hours: ExactNumber,
    /// Whether the commitment is enabled. This is only a plan: a disabled commitment covers nodes all the
    /// same.
    pub enabled: bool,
    /// The commitment's cost in an hour.
    pub hourly_cost: ExactNumber,
    /// The committed amounts.
    pub committed: PerResource<ExactNumber>,
    /// The covered amounts.
    pub covered: PerResource<ExactNumber>,
    /// The spend that a savings plan commits to in an hour; `None` for other commitments.
    pub hourly_commitment: Option<ExactNumber>,
    /// The spend that a savings plan covers in an hour, on average.
    pub spend: ExactNumber,
    /// The part of the commitment that is used.
    pub utilization: ExactNumber,
    /// The cost of the part that covers nothing.
    pub unused_cost: ExactNumber,
}

/// The cost of a row before it is rounded. The first fields are the row's grain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowStep {
    /// The kind of the row.
    pub kind: &'static str,
    /// The first line of the bill that decides the row's cost; `None` if the cost is an estimate.
    pub line_id: Option<Text>,
    /// The row's cluster.
    pub cluster_id: Option<ClusterId>,
    /// The row's resource.
    pub resource_id: Text,
    /// The row's pod.
    pub pod_uid: Option<PodUid>,
    /// The row's commitment.
    pub commitment_id: Option<CommitmentId>,
    /// The row's reservation.
    pub reservation_id: Option<ReservationId>,
    /// The row's quota.
    pub quota_id: Option<QuotaId>,
    /// The row's label.
    pub quota_state: Option<&'static str>,
    /// The list price of an hour.
    #[serde(serialize_with = "as_text")]
    pub list_unit_price: Decimal12,
    /// The reason for which the row has no price; `None` if it has one.
    pub unpriced: Option<&'static str>,
    /// The Kubernetes labels of the row's pod.
    pub labels: Option<Labels>,
    /// The row's cost.
    pub cost: ExactNumber,
    /// Split and unused cost; `None` if none of the cost is unused.
    pub split_and_unused: Option<[ExactNumber; 2]>,
    /// Cost by resource; `None` if rows of this kind do not have it.
    pub by_resource: Option<PerResource<ExactNumber>>,
    /// The quantity of the row in hours; `None` if it is not a row of a node.
    pub quantity: Option<ExactNumber>,
}
