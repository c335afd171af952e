//! What an hour is made of once its events have been applied: spans of time in which nothing that costs or counts
//! changes. The rules read slices; they never see events.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use prorata_schemas::event::{CommitmentSet, PoolSet, RateSet, ReservationSet};
use prorata_schemas::ids::{PodUid, PoolId, ReservationId};
use prorata_schemas::rows::{QuotaState, Unpriced};
use prorata_schemas::time::Timestamp;

use crate::rules::pool::PoolPrice;
use crate::timeline::size::{NodeShape, PodShape};
use crate::timeline::state::{NodeKey, QuotaKey};

/// A non-empty half-open span [from, to) inside one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Span {
    /// The span, unless it is empty.
    pub(crate) fn new(from: Timestamp, to: Timestamp) -> Option<Self> {
        (from < to).then_some(Self { from, to })
    }

    /// Its length in microseconds.
    pub(crate) fn micros(self) -> u128 {
        u128::from(self.to.0.abs_diff(self.from.0))
    }

    /// What it shares with another span.
    pub(crate) fn overlap(self, other: Self) -> Option<Self> {
        Self::new(self.from.max(other.from), self.to.min(other.to))
    }
}

/// A node under one description and cover.
#[derive(Clone, Debug)]
pub(crate) struct NodeSlice {
    pub(crate) span: Span,
    pub(crate) shape: Arc<NodeShape>,
    pub(crate) cover: Arc<Vec<Cover>>,
}

/// What one commitment covers of a node: vCPU and GPU thousandths and bytes, each in units of 10^-24.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cover {
    pub(crate) commitment: Arc<CommitmentSet>,
    pub(crate) fine: [UBig; 3],
}

/// A pod's label under its quota.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label {
    pub(crate) quota: Arc<QuotaKey>,
    pub(crate) state: QuotaState,
}

/// How a pool prices a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PoolPricing {
    /// The pod names no pool.
    None,
    /// The pool has no price for it.
    Unpriced(Unpriced),
    /// The prices in force.
    Priced(Arc<PoolPrice>),
}

/// What of a pod can change while it runs under one description.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing {
    /// Whether the node that it names is running.
    pub(crate) node_runs: bool,
    pub(crate) pool: PoolPricing,
    pub(crate) rate: Option<Arc<RateSet>>,
    pub(crate) reservation: Option<ReservationId>,
    pub(crate) label: Option<Label>,
}

/// A pod under one description and standing.
#[derive(Clone, Debug)]
pub(crate) struct PodSlice {
    pub(crate) span: Span,
    pub(crate) shape: Arc<PodShape>,
    pub(crate) standing: Standing,
}

/// An effective reservation with a number of units matched.
#[derive(Clone, Debug)]
pub(crate) struct ReservationSlice {
    pub(crate) span: Span,
    pub(crate) description: Arc<ReservationSet>,
    pub(crate) used: u64,
}

/// An effective commitment with what it covers and what there is to cover.
#[derive(Clone, Debug)]
pub(crate) struct CommitmentSlice {
    pub(crate) span: Span,
    pub(crate) description: Arc<CommitmentSet>,
    /// In units of 10^-24, as in [`Cover`].
    pub(crate) covered: [UBig; 3],
    /// Capacity of all matching nodes.
    pub(crate) provisioned: [u128; 3],
}

/// A pool under one description.
#[derive(Clone, Debug)]
pub(crate) struct PoolSlice {
    pub(crate) span: Span,
    pub(crate) description: Arc<PoolSet>,
}

/// All slices of nodes, pods and pools of an hour, each entity's in order of time.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    pub(crate) nodes: BTreeMap<NodeKey, Vec<NodeSlice>>,
    pub(crate) pods: BTreeMap<PodUid, Vec<PodSlice>>,
    pub(crate) pools: BTreeMap<PoolId, Vec<PoolSlice>>,
}
