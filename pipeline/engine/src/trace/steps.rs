//! The steps of a trace. Amounts are vCPUs, GiB and GPUs, or hours of them; money is in the hour's currency.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{CommitmentSet, NodeStarted, PodStarted, ReservationSet};
use prorata_schemas::ids::{ClusterId, CommitmentId, NodeId, PodUid, PoolId, QuotaId, ReservationId};
use prorata_schemas::time::Timestamp;
use serde::{Serialize, Serializer};

use crate::per_resource::PerResource;
use crate::trace::ExactNumber;

fn as_text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// A stretch of a node, its time at one price: what it costs by resource, who was allocated what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStep {
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// As last described.
    #[serde(skip)]
    pub description: Arc<NodeStarted>,
    /// The node's price for an hour.
    pub unit_price: ExactNumber,
    /// Its time, cut where capacity, description or coverage change.
    pub spans: Vec<NodeSpan>,
    /// Weights of a vCPU, a GiB and a GPU.
    pub weights: PerResource<ExactNumber>,
    /// Who pays for what of it.
    pub components: Vec<ComponentStep>,
    /// Hours of its capacity: `A`.
    pub available: PerResource<ExactNumber>,
    /// Hours that all its pods were allocated: `S`.
    pub allocated: PerResource<ExactNumber>,
    /// The split part of what pods bear: `min(1, S / A)`. The rest is unused.
    pub split_part: PerResource<ExactNumber>,
    /// The pods that ran in it.
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
    /// Its length.
    pub hours: ExactNumber,
    /// vCPUs, GiB, GPUs.
    pub capacity: PerResource<ExactNumber>,
    /// The node's price for an hour.
    pub hourly_cost: ExactNumber,
    /// What commitments cover of it.
    pub covered: Vec<(CommitmentId, PerResource<ExactNumber>)>,
}

/// One price component of a stretch: the node's own price, or a commitment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentStep {
    /// The commitment that pays; none for the node's own price.
    pub commitment_id: Option<CommitmentId>,
    /// The node's price for an hour.
    pub unit_price: ExactNumber,
    /// Why there is no price.
    pub unpriced: Option<&'static str>,
    /// Hours of the node that it pays for, by resource.
    pub hours: PerResource<ExactNumber>,
    /// Hours of the commitment that the node receives, by resource.
    pub commitment_hours: PerResource<ExactNumber>,
    /// Cost by resource.
    pub cost: PerResource<ExactNumber>,
    /// Cost of an hour of a resource: its cost over the hours of capacity. Nothing where there are none.
    pub unit_cost: PerResource<ExactNumber>,
    /// Cost of time in which no resource had any weight: all idle.
    pub weightless_cost: ExactNumber,
    /// All its cost.
    pub total: ExactNumber,
}

/// One pod's time in a stretch of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodePod {
    /// The pod.
    pub pod_uid: PodUid,
    /// Its namespace.
    pub namespace: Text,
    /// Its name.
    pub pod_name: Text,
    /// Seconds for which it ran there.
    pub seconds: ExactNumber,
    /// Hours that it requested.
    pub requested: PerResource<ExactNumber>,
    /// Hours that it used; none without a sample.
    pub used: Option<PerResource<ExactNumber>>,
    /// Hours that it was allocated.
    pub allocated: PerResource<ExactNumber>,
    /// Its share of what all pods were allocated: `a / S`.
    pub share: PerResource<ExactNumber>,
    /// Its time by label, each with its part of the time.
    pub labels: Vec<NodePodLabel>,
}

/// Time of a pod on a node under one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodePodLabel {
    /// Its quota.
    pub quota_id: Option<QuotaId>,
    /// Its label.
    pub state: Option<&'static str>,
    /// Why the pool has no price for it.
    pub unpriced: Option<&'static str>,
    /// Seconds.
    pub seconds: ExactNumber,
    /// Share of the pod's time.
    pub share: ExactNumber,
    /// What its pool charges for them.
    pub pool_charge: Option<ExactNumber>,
}

/// A commitment comes to a node on its walk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WalkStep {
    /// When coverage was decided.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
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
    /// What puts its cluster there.
    pub rank: String,
    /// Since when it runs.
    #[serde(serialize_with = "as_text")]
    pub node_start: Timestamp,
    /// What the commitment may still cover.
    pub commitment_remaining: PerResource<ExactNumber>,
    /// What is not covered of the node yet.
    pub node_remaining: PerResource<ExactNumber>,
    /// What it covers.
    pub covered: PerResource<ExactNumber>,
}

/// A pod takes a unit of a reservation, or does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchStep {
    /// When.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// The pod.
    pub pod_uid: PodUid,
    /// What happened.
    pub outcome: MatchOutcome,
    /// The reservation that it is about.
    pub reservation_id: Option<ReservationId>,
    /// The units that were looked at.
    pub units: Vec<UnitStep>,
}

/// What became of a pod that could use a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchOutcome {
    /// It has held a unit since before the hour.
    Held,
    /// It takes a unit.
    Taken,
    /// No unit is free and fits.
    None,
    /// It loses its unit.
    Lost,
}

/// A unit of a reservation, as matching sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnitStep {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// Size of the unit.
    pub size: PerResource<ExactNumber>,
    /// When the reservation was created.
    #[serde(serialize_with = "as_text")]
    pub created_at: Timestamp,
    /// Why it cannot serve the pod; none: it can.
    pub refused: Option<&'static str>,
}

/// A quota sorts its pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LabelStep {
    /// When.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// The quota's cluster.
    pub cluster_id: ClusterId,
    /// The quota.
    pub quota_id: QuotaId,
    /// Its guaranteed amounts, in the unit of each resource.
    pub min: BTreeMap<Text, ExactNumber>,
    /// Its running pods, in their order.
    pub pods: Vec<RankedPod>,
}

/// A pod in the order of its quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankedPod {
    /// Position in the order, from 1.
    pub position: usize,
    /// The pod.
    pub pod_uid: PodUid,
    /// Its namespace.
    pub namespace: Text,
    /// Its name.
    pub pod_name: Text,
    /// What sorts it first: whole seconds of its creation.
    #[serde(serialize_with = "as_text")]
    pub created_at: Timestamp,
    /// What it requests of the resources in `min`.
    pub requests: BTreeMap<Text, ExactNumber>,
    /// The running sum, this pod included.
    pub sum: BTreeMap<Text, ExactNumber>,
    /// Its label.
    pub state: &'static str,
}

/// Time of a pod under one description and status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodSpan {
    /// The pod.
    pub pod_uid: PodUid,
    /// As described.
    #[serde(skip)]
    pub description: Arc<PodStarted>,
    /// The first instant.
    #[serde(serialize_with = "as_text")]
    pub from: Timestamp,
    /// The first instant after it.
    #[serde(serialize_with = "as_text")]
    pub to: Timestamp,
    /// Its length.
    pub hours: ExactNumber,
    /// The node that it names, and whether that runs.
    pub node: Option<(NodeId, bool)>,
    /// What it requests.
    pub requests: PerResource<ExactNumber>,
    /// The reservation of which it holds a unit.
    pub reservation_id: Option<ReservationId>,
    /// Its quota and label.
    pub label: Option<(QuotaId, &'static str)>,
    /// Why it has no price of its own.
    pub unpriced: Option<&'static str>,
    /// The rate in force, of a serverless pod.
    pub rate: Option<RateStep>,
    /// The price of its pool.
    pub pool: Option<PoolStep>,
    /// Its price over time, unless its node has one.
    pub priced: Vec<PricedTime>,
}

/// A rate of the rate card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RateStep {
    /// Prices of a vCPU-hour, a GiB-hour and a GPU-hour.
    pub prices: PerResource<ExactNumber>,
    /// What the pod's requests cost in an hour.
    pub hourly: PerResource<ExactNumber>,
}

/// What a pool charges a pod.
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
    /// Part of the price that limits above requests cost: rho.
    pub limits_over_requests: ExactNumber,
    /// GPUs: the pod's count.
    pub count: ExactNumber,
    /// Requested TFLOPs and GiB of VRAM, for each GPU.
    pub requests: [ExactNumber; 2],
    /// The limits, at least the requests.
    pub limits: [ExactNumber; 2],
    /// What the price is multiplied with under eviction protection: e.
    pub protection: ExactNumber,
}

/// Time at one price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PricedTime {
    /// Its length.
    pub hours: ExactNumber,
    /// Price of an hour.
    pub hourly: ExactNumber,
    /// Both multiplied.
    pub cost: ExactNumber,
}

/// An effective reservation with a number of units held by pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationSpan {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// As described.
    #[serde(skip)]
    pub description: Arc<ReservationSet>,
    /// The first instant.
    #[serde(serialize_with = "as_text")]
    pub from: Timestamp,
    /// The first instant after it.
    #[serde(serialize_with = "as_text")]
    pub to: Timestamp,
    /// Its length.
    pub hours: ExactNumber,
    /// Units that it has.
    pub units: i32,
    /// Units held by pods.
    pub used_units: u64,
    /// Unit-hours that no pod held.
    pub unused_hours: ExactNumber,
    /// Price of a unit-hour.
    pub unit_hourly_price: ExactNumber,
    /// What they cost.
    pub cost: ExactNumber,
}

/// An effective commitment and what it covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommitmentSpan {
    /// The commitment.
    pub commitment_id: CommitmentId,
    /// As described.
    #[serde(skip)]
    pub description: Arc<CommitmentSet>,
    /// The first instant.
    #[serde(serialize_with = "as_text")]
    pub from: Timestamp,
    /// The first instant after it.
    #[serde(serialize_with = "as_text")]
    pub to: Timestamp,
    /// Its length.
    pub hours: ExactNumber,
    /// Whether it covers anything.
    pub enabled: bool,
    /// Its cost in an hour.
    pub hourly_cost: ExactNumber,
    /// What it has committed to.
    pub committed: PerResource<ExactNumber>,
    /// What it covers.
    pub covered: PerResource<ExactNumber>,
    /// Part of it that is used.
    pub utilization: ExactNumber,
    /// What nothing was covered with.
    pub unused_cost: ExactNumber,
}

/// What a row costs before it is rounded. The first fields are its grain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowStep {
    /// Kind of row.
    pub kind: &'static str,
    /// Its cluster.
    pub cluster_id: Option<ClusterId>,
    /// Its resource.
    pub resource_id: Text,
    /// Its pod.
    pub pod_uid: Option<PodUid>,
    /// Its commitment.
    pub commitment_id: Option<CommitmentId>,
    /// Its reservation.
    pub reservation_id: Option<ReservationId>,
    /// Its quota.
    pub quota_id: Option<QuotaId>,
    /// Its label.
    pub quota_state: Option<&'static str>,
    /// Its price of an hour.
    #[serde(serialize_with = "as_text")]
    pub list_unit_price: Decimal12,
    /// Why it has no price.
    pub unpriced: Option<&'static str>,
    /// Its cost.
    pub cost: ExactNumber,
    /// Split and unused cost, where any of it is unused.
    pub split_and_unused: Option<[ExactNumber; 2]>,
    /// Cost by resource, where its kind has it.
    pub by_resource: Option<PerResource<ExactNumber>>,
    /// The hours that it stands for, of a row of a node.
    pub quantity: Option<ExactNumber>,
}
