//! The input of one hour's tables: stretches of time, each with the decisions of the rules of quotas and
//! commitments.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{Labels, QuotaSet};
use prorata_schemas::ids::{CommitmentId, OrganizationId, PodUid, QuotaId, ReservationId};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{BilledLine, QuotaState, RowKind, Unpriced};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, Timestamp};

use crate::resources::Three;
use crate::rounding::{Exact, larger, zero};
use crate::usage::Sample;
use crate::world::{NodeKey, QuotaKey, World};

/// One hour of one organization.
pub struct HourView<'a> {
    /// The organization.
    pub organization_id: &'a OrganizationId,
    /// The hour.
    pub hour: Hour,
    /// The slices of the hour, in order and without gaps.
    pub slices: &'a [Slice],
    /// All samples of the history.
    pub samples: &'a [Sample],
    /// The rules.
    pub rules: &'a Rules,
    /// The parts that the hour has of lines of bills, in the order of the lines.
    pub lines: Vec<LinePart>,
    /// Everything that savings plans cover.
    pub plans: Plans,
}

/// A stretch of one hour, longer than 0 µs, in which the world does not change.
pub struct Slice {
    /// First instant, in microseconds.
    pub from: i64,
    /// First instant after it.
    pub to: i64,
    /// The objects during the stretch.
    pub world: World,
    /// Quotas that count, with their pods and labels.
    pub quotas: Vec<Standing>,
    /// The amounts of nodes that commitments cover.
    pub covers: Vec<Cover>,
}

/// A quota that counts, at one instant.
pub struct Standing {
    /// Cluster and quota.
    pub key: QuotaKey,
    /// The description.
    pub set: Arc<QuotaSet>,
    /// The running pods in the order in which they count, each with its label.
    pub pods: Vec<(PodUid, QuotaState)>,
    /// The resources of `min`.
    pub resources: Vec<ResourceStanding>,
}

/// One resource of a quota's `min`, at one instant, in units of the resource.
pub struct ResourceStanding {
    /// The resource.
    pub resource: Text,
    /// Guaranteed amount.
    pub min: Exact,
    /// Upper bound, if set.
    pub max: Option<Exact>,
    /// Requests of in-quota pods.
    pub in_quota: Exact,
    /// Requests of over-quota pods.
    pub over_quota: Exact,
    /// The part of the minima in the cluster that nobody uses.
    pub pool: Exact,
    /// The quota's part of the pool.
    pub guaranteed: Exact,
    /// The use above min.
    pub borrowed: Exact,
    /// The quota's part of the amount that others borrow.
    pub lent: Exact,
}

impl ResourceStanding {
    /// Returns the use by all pods of the quota.
    pub fn used(&self) -> Exact {
        &self.in_quota + &self.over_quota
    }

    /// Returns the part of the minimum that is not used.
    pub fn free(&self) -> Exact {
        larger(&self.min - self.used(), zero())
    }
}

/// The amounts of one node that one commitment covers at one instant.
pub struct Cover {
    /// The commitment.
    pub commitment_id: CommitmentId,
    /// The node.
    pub node: NodeKey,
    /// Covered vCPU, GiB and GPUs. At least one is above zero.
    pub amount: Three,
}

/// Usage that a plan may cover.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usage {
    /// A node, with the start of its run.
    Node(NodeKey, i64),
    /// A serverless pod.
    Pod(PodUid),
    /// Unused units of a reservation.
    Reservation(ReservationId),
}

/// The part of a usage that one plan covers in one stretch of time.
pub struct PlanCover {
    /// The index of the slice among the slices of the hour.
    pub slice: usize,
    /// The plan.
    pub commitment_id: CommitmentId,
    /// The usage.
    pub usage: Usage,
    /// The part that the plan covers of the usage's cost after reserved capacity.
    pub part: Exact,
    /// The discounted price per hour of all of the usage.
    pub rate: Exact,
}

/// The spend of one plan in the hour, at discounted rates.
#[derive(Clone, Default)]
pub struct PlanTotals {
    /// The commitment times the effective time.
    pub committed: Exact,
    /// The spend that the plan covers.
    pub covered: Exact,
    /// The spend of all matching usage, whether other plans cover it or not.
    pub provisioned: Exact,
}

/// Everything that savings plans cover in one hour.
#[derive(Default)]
pub struct Plans {
    /// The covered parts.
    pub covers: Vec<PlanCover>,
    /// The spend of each plan.
    pub spends: BTreeMap<CommitmentId, PlanTotals>,
}

/// Billed, effective and list cost, and hours, of a line of a bill or of a part of it.
pub type LineAmounts = [Exact; 4];

/// Returns whether the billed, effective or list cost is not zero.
pub fn has_cost(amounts: &LineAmounts) -> bool {
    let [billed, effective, list, _] = amounts;
    [billed, effective, list].into_iter().any(|cost| *cost != zero())
}

/// The part that one hour has of a line of a bill.
pub struct LinePart {
    /// The line.
    pub line: BilledLine,
    /// The kind of the row that shows the part; `None` if the part goes to nodes.
    pub kind: Option<RowKind>,
    /// The amounts of the part.
    pub amounts: LineAmounts,
}

/// The key by which lines of bills sort.
pub type LineKey = (Text, Text, Text, Timestamp, Text);

/// Returns the key of a line.
pub fn line_key(line: &BilledLine) -> LineKey {
    let (provider, account, resource, begin, id) = line.key();
    (provider.clone(), account.clone(), resource.clone(), begin, id.clone())
}

/// Quota, state, reason and Kubernetes labels of one stretch of a pod's time.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// The quota that governs the pod.
    pub quota_id: Option<QuotaId>,
    /// The pod's label under it.
    pub state: Option<QuotaState>,
    /// The reason for which there is no price; `None` if there is a price.
    pub reason: Option<Unpriced>,
    /// The pod's Kubernetes labels.
    pub labels: Labels,
}

impl Label {
    /// Returns the key by which labels sort in row order.
    pub fn order(&self) -> (Option<QuotaId>, Option<&'static str>, Option<&'static str>, Labels) {
        let (state, reason) = (self.state.map(QuotaState::name), self.reason.map(Unpriced::name));
        (self.quota_id.clone(), state, reason, self.labels.clone())
    }
}

/// Returns the price that the hour counts, and whether the price is in another currency and so counts as
/// zero.
pub fn counted(view: &HourView, price: UnitPrice, currency: &Text) -> (UnitPrice, bool) {
    let other = currency != view.rules.currency_of(view.organization_id);
    (if other { UnitPrice::ZERO } else { price }, other)
}
