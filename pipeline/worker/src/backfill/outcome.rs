//! The report of a finished backfill.

use std::collections::BTreeMap;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::reject::Reason;
use prorata_schemas::rows::{HourTables, QuotaState, RowKind};
use prorata_schemas::time::{Hour, HourRange};
use serde::Serialize;

use crate::checkpoint::snapshot::{ShardState, hold_message};
use crate::names::Shard;
use crate::ports::DeadLetter;
use crate::shard::emit::EncodedHour;

/// Maximum number of examples of dead letters that the report keeps.
const EXAMPLES_MAX: usize = 10;

/// The result of a backfill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of Avro files read.
    pub files: u64,
    /// Number of other files in the input.
    pub files_skipped: u64,
    /// Number of events read.
    pub events_read: u64,
    /// Number of events that the archive did not already hold.
    pub events_new: u64,
    /// Number of events that the archive already held, or that came twice.
    pub events_known: u64,
    /// Number of events of shards that this run was asked to leave alone or had to leave out.
    pub events_elsewhere: u64,
    /// Shards that cannot be owned, each with the reason. Only the events and hours of these shards were left
    /// out.
    pub left_out: BTreeMap<Shard, String>,
    /// Held organizations, each with a message that names the hour that the engine refused.
    pub held: BTreeMap<OrganizationId, String>,
    /// Number of rejected records, by reason.
    pub dead_letters: BTreeMap<Reason, u64>,
    /// Some of the rejected records, as messages with file and position.
    pub dead_letter_examples: Vec<String>,
    /// The hours folded, over all shards.
    pub folded: Option<HourRange>,
    /// Number of hours folded, counted once per shard.
    pub hours: u64,
    /// Number of hours folded, counted once per organization. After late events of a few organizations, only
    /// the hours of these organizations are folded.
    pub organization_hours: u64,
    /// The number of organizations that were folded again, for each shard in which few organizations had late
    /// events.
    pub some_folded: BTreeMap<Shard, FoldedAgain>,
    /// Number of table files written.
    pub files_written: u64,
    /// Number of hours whose published costs have changed, counted once per shard.
    pub hours_restated: u64,
    /// Number of commits made to tables.
    pub commits: u64,
    /// The latest hour through which any of the run's shards is closed; `None` if no hour is closed.
    pub closed_through: Option<Hour>,
    /// Events that wait in the archive for their hours to close.
    pub ahead: Option<Ahead>,
    /// Sums over the folded hours and organizations, by currency.
    pub totals: BTreeMap<String, Totals>,
}

/// The extent of a fold of some organizations in closed hours. The totals cover only the organizations that
/// were folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldedAgain {
    /// Number of organizations that were folded again.
    pub folded: u64,
    /// Number of organizations of the shard.
    pub all: u64,
}

/// Sums over an hour's rows, by currency.
pub(super) type HourTotals = BTreeMap<String, Totals>;

/// Events after the last closed hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Number of hours with such events.
    pub hours: u64,
    /// The earliest of these hours.
    pub first: Hour,
    /// The latest of these hours.
    pub last: Hour,
    /// Whether the root has a worker, which closes the hours when its watermark passes them.
    pub worker_closes: bool,
}

/// Exact sums over hours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Effective cost of pods by namespace.
    pub namespaces: BTreeMap<String, Decimal12>,
    /// Cost of nodes, and of node resources, while they had no pod.
    pub idle: Decimal12,
    /// Cost of unused reservation units.
    pub unused_reservations: Decimal12,
    /// Cost of commitments that reached no node.
    pub unused_commitments: Decimal12,
    /// Cost of lines of bills that belong to no node, no agreement and no pod, and of purchases that a bill
    /// amortizes.
    pub shared_charges: Decimal12,
    /// Cost of nodes that was allocated to pods; included in the cost of the pods' namespaces.
    pub node_used: Decimal12,
    /// Cost of nodes that was allocated to no pod: `idle`, and the unused part of the cost of pods on nodes.
    pub node_unused: Decimal12,
    /// Effective cost of pods while over quota; included in the cost of the pods' namespaces.
    pub over_quota: Decimal12,
    /// Number of pod hours with an unpriced row; each pod hour counts once.
    pub unpriced_pod_hours: i64,
    /// Total supply.
    pub supply: Decimal12,
    /// Sum of effective cost.
    pub allocated: Decimal12,
    /// Supply less allocated: always 0.
    pub difference: Decimal12,
    /// Number of rows of `cost_allocation`.
    pub rows: i64,
    /// Number of distinct events.
    pub events: i64,
}

impl Outcome {
    /// Notes which of these organizations are held, and which are no longer held.
    pub(super) fn note_held(&mut self, states: &ShardState) {
        for (organization_id, state) in states {
            match &state.hold {
                Some(hold) => {
                    let message = hold_message(organization_id, hold);
                    self.held.insert(organization_id.clone(), message);
                }
                None => {
                    self.held.remove(organization_id);
                }
            }
        }
    }

    /// Counts a dead letter.
    pub(super) fn reject(&mut self, letter: &DeadLetter) {
        let reject = &letter.rejected.reject;
        *self.dead_letters.entry(reject.reason).or_default() += 1;
        if self.dead_letter_examples.len() < EXAMPLES_MAX {
            self.dead_letter_examples.push(format!("{}: {reject}", letter.origin));
        }
    }

    /// Returns the number of dead letters over all reasons.
    pub fn dead_letters_all(&self) -> u64 {
        self.dead_letters.values().sum()
    }

    /// Returns the number of organizations folded again in closed hours, over the shards that did not fold
    /// all their organizations. `None` if there is no such shard.
    pub fn some_folded_all(&self) -> Option<FoldedAgain> {
        let add = |sum: FoldedAgain, of: &FoldedAgain| FoldedAgain {
            folded: sum.folded + of.folded,
            all: sum.all + of.all,
        };
        let sum = self.some_folded.values().fold(FoldedAgain::default(), add);
        (sum.folded < sum.all).then_some(sum)
    }

    /// Counts an encoded hour of a shard.
    pub(super) fn take(&mut self, encoded: &EncodedHour<HourTotals>) {
        let hour = encoded.hour;
        self.folded = Some(self.folded.map_or(HourRange::new(hour, hour), |folded| folded.with(hour)));
        self.hours += 1;
        self.files_written += encoded.files;
        self.hours_restated += u64::from(encoded.restated);
        for (currency, totals) in &encoded.summary {
            self.totals.entry(currency.clone()).or_default().merge(totals);
        }
    }
}

impl Totals {
    /// Adds the totals of other hours. A sum saturates at the largest 128-bit number, which the decimals of a
    /// lake, with at most 38 digits, never reach.
    pub fn merge(&mut self, other: &Self) {
        for (namespace, cost) in &other.namespaces {
            add(self.namespaces.entry(namespace.clone()).or_default(), *cost);
        }
        add(&mut self.idle, other.idle);
        add(&mut self.unused_reservations, other.unused_reservations);
        add(&mut self.unused_commitments, other.unused_commitments);
        add(&mut self.shared_charges, other.shared_charges);
        add(&mut self.node_used, other.node_used);
        add(&mut self.node_unused, other.node_unused);
        add(&mut self.over_quota, other.over_quota);
        add(&mut self.supply, other.supply);
        add(&mut self.allocated, other.allocated);
        add(&mut self.difference, other.difference);
        self.unpriced_pod_hours += other.unpriced_pod_hours;
        self.rows += other.rows;
        self.events += other.events;
    }

    /// Adds one organization's hour.
    pub fn add(&mut self, tables: &HourTables) {
        for row in &tables.cost_allocation {
            let cost = row.effective_cost;
            match (row.kind, &row.pod) {
                // A pod may also bear a part of a shared charge.
                (_, Some(pod)) => match self.namespaces.get_mut(&*pod.namespace) {
                    Some(sum) => add(sum, cost),
                    None => {
                        self.namespaces.insert(pod.namespace.to_string(), cost);
                    }
                },
                (RowKind::NodeIdle, None) => {
                    add(&mut self.idle, cost);
                    add(&mut self.node_unused, cost);
                }
                (RowKind::ReservationUnused, None) => add(&mut self.unused_reservations, cost),
                (RowKind::CommitmentUnused, None) => add(&mut self.unused_commitments, cost),
                // The effective cost of a purchase is zero unless a bill says otherwise.
                (RowKind::CommitmentPurchase | RowKind::SharedCharge, None) => {
                    add(&mut self.shared_charges, cost);
                }
                (RowKind::PodNode | RowKind::PodServerless | RowKind::PodPool, None) => {}
            }
            add(&mut self.node_used, row.split_cost.unwrap_or_default());
            add(&mut self.node_unused, row.unused_cost.unwrap_or_default());
            if row.quota_state == Some(QuotaState::OverQuota) {
                add(&mut self.over_quota, cost);
            }
        }
        let totals = &tables.totals;
        add(&mut self.supply, totals.supply_cost);
        add(&mut self.allocated, totals.allocated_cost);
        add(&mut self.difference, totals.difference);
        self.unpriced_pod_hours += totals.unpriced_pods;
        self.rows += totals.rows;
        self.events += totals.events;
    }
}

fn add(sum: &mut Decimal12, amount: Decimal12) {
    *sum = Decimal12::from_atoms(sum.atoms().saturating_add(amount.atoms()));
}
