//! One organization at an hour's edge (RULES.md, section 7): everything on which later hours depend, and
//! nothing that can be derived.
//!
//! The form of [`State`] is stored: snapshots hold it in postcard, which writes fields in order and without
//! names. If the fields or their order change, the snapshot format changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{
    BillSet, CommitmentSet, NodeStarted, PodStarted, PoolSet, QuotaSet, RateSet, ReservationSet,
};
use prorata_schemas::ids::{
    ClusterId, CommitmentId, NodeId, OrganizationId, PodUid, PoolId, QuotaId, ReservationId,
};
use prorata_schemas::time::{Hour, Timestamp};
use serde::{Deserialize, Serialize};

use crate::model::per_resource::PerResource;

/// Cluster id and node id.
pub type NodeKey = (ClusterId, NodeId);

/// Cluster id and quota id.
pub type QuotaKey = (ClusterId, QuotaId);

/// Region, GPU model and quality of service of a rate. A state holds them as delivered; the lookup of rates
/// uses canonical names (RULES.md, section 12).
pub type RateKey = (Text, Option<Text>, Text);

/// The canonical name of a provider, and a billing account of the provider.
pub(crate) type BillingAccount = (Text, Text);

/// A value for each pod, ascending by uid. With millions of pods, a list is built and walked faster than a
/// map.
pub(crate) type ByPod<T> = Vec<(PodUid, T)>;

/// One organization at the end of an hour. Equal states serialize equally, so digests of snapshots can be
/// compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The organization.
    pub(crate) organization_id: OrganizationId,
    pub(crate) rates: Vec<(RateKey, Arc<RateSet>)>,
    pub(crate) pools: BTreeMap<PoolId, Arc<PoolSet>>,
    pub(crate) quotas: Vec<(QuotaKey, SavedQuota)>,
    pub(crate) commitments: BTreeMap<CommitmentId, Arc<CommitmentSet>>,
    pub(crate) reservations: BTreeMap<ReservationId, SavedReservation>,
    pub(crate) nodes: Vec<(NodeKey, SavedNode)>,
    pub(crate) pods: ByPod<SavedPod>,
    pub(crate) samples: ByPod<Vec<Sample>>,
    pub(crate) spend: BTreeMap<PoolId, Spend>,
    /// The sets of bills with a line that has not ended, in order of [`SavedBill::key`].
    pub(crate) bills: Vec<SavedBill>,
    /// The accounts that are closed for the month of the next hour.
    pub(crate) closed: BTreeSet<BillingAccount>,
}

/// A set of lines of a bill, and what its lines have left for later hours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedBill {
    pub(crate) begins_at: Timestamp,
    pub(crate) set: Arc<BillSet>,
    /// The amounts that are left of each line, in the order of the lines.
    pub(crate) left: Vec<LineAmounts>,
}

/// Amounts of a line of a bill, or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LineAmounts {
    pub(crate) effective: Decimal12,
    pub(crate) billed: Decimal12,
    pub(crate) list: Decimal12,
    pub(crate) hours: Decimal12,
}

impl SavedBill {
    /// Returns the key by which sets sort, as lines do.
    pub(crate) fn key(&self) -> (&Text, &Text, &Text, Timestamp) {
        (&self.set.provider, &self.set.billing_account_id, &self.set.resource_key, self.begins_at)
    }
}

/// A quota, and the time of the first `QuotaSet` since the quota last did not exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedQuota {
    pub(crate) description: Arc<QuotaSet>,
    pub(crate) first_set: Timestamp,
}

/// A reservation, whether it is effective, and the pods that hold a unit of it, each with the time of the
/// match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedReservation {
    pub(crate) description: Arc<ReservationSet>,
    pub(crate) active: bool,
    pub(crate) matched: BTreeMap<PodUid, Timestamp>,
}

/// A running node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedNode {
    pub(crate) description: Arc<NodeStarted>,
    pub(crate) start: Timestamp,
}

/// A running pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedPod {
    pub(crate) description: Arc<PodStarted>,
    pub(crate) start: Timestamp,
}

/// Measured use over [from, to), as averages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// Thousandths of a vCPU, bytes, thousandths of a GPU.
    pub(crate) use_amounts: PerResource<u64>,
    /// Bytes of GPU memory. `None` if it was not measured.
    pub(crate) gpu_memory: Option<u64>,
}

/// Node cost of a pool in the current UTC day, month and quarter, each with the number of the day on which
/// the period began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spend {
    pub(crate) day: (i64, Decimal12),
    pub(crate) month: (i64, Decimal12),
    pub(crate) quarter: (i64, Decimal12),
}

impl State {
    /// Creates the state of an organization before its first event.
    pub fn new(organization_id: OrganizationId) -> Self {
        Self {
            organization_id,
            rates: Vec::new(),
            pools: BTreeMap::new(),
            quotas: Vec::new(),
            commitments: BTreeMap::new(),
            reservations: BTreeMap::new(),
            nodes: Vec::new(),
            pods: Vec::new(),
            samples: Vec::new(),
            spend: BTreeMap::new(),
            bills: Vec::new(),
            closed: BTreeSet::new(),
        }
    }

    /// Returns the organization.
    pub fn organization_id(&self) -> &OrganizationId {
        &self.organization_id
    }

    /// Returns whether nothing in the state can matter to a later hour, as before the organization's first
    /// event.
    pub fn is_empty(&self) -> bool {
        let Self {
            organization_id: _,
            rates,
            pools,
            quotas,
            commitments,
            reservations,
            nodes,
            pods,
            samples,
            spend,
            bills,
            closed,
        } = self;
        let set = rates.is_empty() && pools.is_empty() && quotas.is_empty();
        let bought = commitments.is_empty() && reservations.is_empty() && spend.is_empty();
        let billed = bills.is_empty() && closed.is_empty();
        set && bought && billed && nodes.is_empty() && pods.is_empty() && samples.is_empty()
    }

    /// Returns whether any price that stays in force is not in this currency. Hours in this currency do not
    /// count such a price (RULES.md, section 11).
    pub fn has_prices_in_other_than(&self, currency: &str) -> bool {
        let nodes = self.nodes.iter().map(|(_, node)| &node.description.currency);
        let rates = self.rates.iter().map(|(_, rate)| &rate.currency);
        let pools = self.pools.values().map(|pool| &pool.currency);
        let commitments = self.commitments.values().map(|commitment| &commitment.currency);
        let reservations = self.reservations.values().map(|reservation| &reservation.description.currency);
        let bills = self.bills.iter().map(|bill| &bill.set.currency);
        let mut all = nodes.chain(rates).chain(pools).chain(commitments).chain(reservations).chain(bills);
        all.any(|other| &**other != currency)
    }

    /// Opens all accounts at the end of a month, when `hour` is its last hour.
    pub(crate) fn end_month(&mut self, hour: Hour) {
        if hour.date().month_start() != hour.next().date().month_start() {
            self.closed.clear();
        }
    }

    /// Returns the numbers of nodes and pods that run at the edge.
    pub fn running(&self) -> (usize, usize) {
        (self.nodes.len(), self.pods.len())
    }
}
