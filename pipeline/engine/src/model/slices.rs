//! Slices: the spans of an hour in which nothing that costs or counts changes, once its events have been
//! applied. The rules that create rows read slices; they never see events.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::event::{CommitmentSet, PoolSet, RateSet, ReservationSet};
use prorata_schemas::ids::{CommitmentId, PodUid, PoolId, ReservationId};
use prorata_schemas::rows::{QuotaState, Unpriced};
use prorata_schemas::time::Timestamp;

use crate::model::per_resource::PerResource;
use crate::model::pool_price::PoolPricing;
use crate::model::span::Span;
use crate::model::spec::{Amounts, NodeSpec, PodSpec};
use crate::model::state::{ByPod, NodeKey, QuotaKey};

/// All slices of an hour. The slices of each object are in order of time.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    pub(crate) nodes: BTreeMap<NodeKey, Vec<NodeSlice>>,
    pub(crate) pods: ByPod<Vec<PodSlice>>,
    pub(crate) pools: BTreeMap<PoolId, Vec<PoolSlice>>,
    pub(crate) reservations: BTreeMap<ReservationId, Vec<ReservationSlice>>,
    pub(crate) commitments: BTreeMap<CommitmentId, CommitmentHour>,
}

impl Slices {
    /// Returns the slices of a pod. `None` if it did not run.
    pub(crate) fn of_pod(&self, uid: &PodUid) -> Option<&[PodSlice]> {
        let place = self.pods.binary_search_by(|(of, _)| of.cmp(uid)).ok()?;
        self.pods.get(place).map(|(_, slices)| slices.as_slice())
    }
}

/// A node under one description and coverage.
#[derive(Clone, Debug)]
pub(crate) struct NodeSlice {
    pub(crate) span: Span,
    /// The start of the node's run.
    pub(crate) start: Timestamp,
    pub(crate) spec: Arc<NodeSpec>,
    /// The coverage, in the order in which the commitments cover the node.
    pub(crate) coverage: Arc<Vec<Coverage>>,
    /// The parts of the remaining cost, after reserved capacity, that savings plans cover.
    pub(crate) plans: Vec<PlanPart>,
}

/// A part of usage that a savings plan covers: see `rules/plan.rs`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanPart {
    pub(crate) plan: Arc<CommitmentSet>,
    /// The covered part of the usage.
    pub(crate) part: RBig,
    /// The covered spend for one hour of the whole usage, in atoms.
    pub(crate) spend: RBig,
    /// The part of the plan's cost that this hour of usage bears, in atoms.
    pub(crate) cost: RBig,
}

/// Returns the part of usage that no plan covers.
pub(crate) fn own_part(plans: &[PlanPart]) -> RBig {
    plans.iter().fold(RBig::ONE, |left, plan| left - &plan.part)
}

/// Number of parts into which coverage divides a thousandth or a byte: 10^24, with twice the decimals of an
/// event.
pub(crate) const COVERAGE_SCALE: UBig = UBig::from_dword(10_u128.pow(24));

/// The amount of a node that one commitment covers, in 10^-24 of a thousandth or byte: see
/// `rules/commitment.rs`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Coverage {
    pub(crate) commitment: Arc<CommitmentSet>,
    pub(crate) amounts: PerResource<RBig>,
}

/// A pod's label under its quota.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label {
    pub(crate) quota: Arc<QuotaKey>,
    pub(crate) state: QuotaState,
}

/// The properties of a pod that can change while it runs under one description.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodStatus {
    /// Whether the node that the pod names is running.
    pub(crate) node_runs: bool,
    pub(crate) pool: PoolPricing,
    /// The rate in force; `None` if the pod is not serverless or no rate matches.
    pub(crate) rate: Option<Arc<RateSet>>,
    /// The reservation whose unit the pod holds.
    pub(crate) reservation: Option<ReservationId>,
    pub(crate) label: Option<Label>,
}

/// A pod under one description and status.
#[derive(Clone, Debug)]
pub(crate) struct PodSlice {
    pub(crate) span: Span,
    pub(crate) spec: Arc<PodSpec>,
    pub(crate) status: PodStatus,
    /// The parts of a serverless pod that savings plans cover.
    pub(crate) plans: Vec<PlanPart>,
}

impl PodSlice {
    /// Returns the reason for a missing price if the pod's part of shared GPUs is unknown, and `None`
    /// otherwise.
    pub(crate) fn unknown_share(&self) -> Option<Unpriced> {
        self.spec.has_unknown_share.then_some(Unpriced::UnknownGpuShare)
    }

    /// Returns the reason for which the pod lacks a price of its pool or node; `None` if it lacks none.
    /// Ignores the rate card.
    pub(crate) fn unpriced(&self) -> Option<Unpriced> {
        match (&self.spec.node, self.status.node_runs, &self.status.pool) {
            (Some(_), false, _) => Some(Unpriced::UnknownNode),
            (_, _, PoolPricing::Unpriced(reason)) => Some(*reason),
            (_, _, PoolPricing::None) => self.unknown_share(),
            (_, _, PoolPricing::Priced(_)) => None,
        }
    }
}

/// An effective reservation, with the number of its units that pods hold.
#[derive(Clone, Debug)]
pub(crate) struct ReservationSlice {
    pub(crate) span: Span,
    pub(crate) description: Arc<ReservationSet>,
    pub(crate) used_units: u64,
    /// Whether bills of the hour have lines for the reservation, so that unused units cost what these say.
    pub(crate) is_billed: bool,
    /// The parts of the unused units that savings plans cover.
    pub(crate) plans: Vec<PlanPart>,
}

/// One commitment in one hour.
#[derive(Debug)]
pub(crate) struct CommitmentHour {
    /// The last description.
    pub(crate) description: Arc<CommitmentSet>,
    /// Microseconds for which the commitment existed.
    pub(crate) existed_micros: u128,
    /// Whether any description in force ended after the hour's start, or has no end.
    pub(crate) unexpired: bool,
    /// Whether the commitment is deleted at the hour's end.
    pub(crate) deleted: bool,
    /// Whether bills of the hour have lines for the commitment, which say what it costs.
    pub(crate) is_billed: bool,
    /// The slices of effective time.
    pub(crate) slices: Vec<CommitmentSlice>,
}

/// An effective commitment with the amounts that it covers and could cover.
#[derive(Clone, Debug)]
pub(crate) struct CommitmentSlice {
    pub(crate) span: Span,
    pub(crate) description: Arc<CommitmentSet>,
    /// Covered amounts in 10^-24 of a thousandth or byte, as in [`Coverage`]. For a reserved instance, they
    /// are averages over the instance's effective time.
    pub(crate) covered: PerResource<RBig>,
    /// The amounts that the commitment would cover if the provider followed `enabled` and
    /// `allowed_utilization`, in the same unit.
    pub(crate) planned: PerResource<RBig>,
    /// The capacity of all matching nodes.
    pub(crate) provisioned: Amounts,
    /// The spend of a savings plan.
    pub(crate) spend: CoveredSpend,
}

/// The spend of a savings plan in an hour, on average over the plan's effective time, in atoms.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CoveredSpend {
    pub(crate) covered: RBig,
    /// The spend that the plan would cover if the provider followed `enabled` and `allowed_utilization`.
    pub(crate) planned: RBig,
    /// The spend of all matching usage.
    pub(crate) provisioned: RBig,
}

/// A pool under one description.
#[derive(Clone, Debug)]
pub(crate) struct PoolSlice {
    pub(crate) span: Span,
    pub(crate) description: Arc<PoolSet>,
}
