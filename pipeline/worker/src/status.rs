//! A worker's report for probes, metrics and people. It decides nothing.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::EventKind;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::reject::Reason;
use prorata_schemas::rows::budget::BudgetUse;
use prorata_schemas::time::{Hour, Timestamp, WallTime};

use crate::error::StopReason;
use crate::names::Shard;
use crate::ports::ErrorKind;

/// The status that the worker writes and that probes, metrics and people read.
#[derive(Debug, Default)]
pub struct Status(Mutex<WorkerStatus>);

impl Status {
    /// Locks the current status, to read or to write it. Never hold the lock while waiting for anything.
    pub fn lock(&self) -> MutexGuard<'_, WorkerStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The status of a worker at one time.
#[derive(Clone, Debug, Default)]
pub struct WorkerStatus {
    /// The time at which the loop last iterated or storage last answered; `None` before the first time.
    pub heartbeat: Option<Instant>,
    /// Whether the group has made an assignment, every assigned shard is loaded, and the clocks agree.
    pub ready: bool,
    /// Whether the worker is stopping.
    pub draining: bool,
    /// The shards held or being loaded.
    pub shards: BTreeMap<Shard, ShardStatus>,
    /// Counts since the start.
    pub counts: Counts,
    /// Number of seconds by which the wall clock is ahead of its witness, if they differ by more than the
    /// allowed skew; otherwise 0.
    pub clock_skew_seconds: i64,
    /// The dependencies that the worker waits for, each with the reason, as last observed.
    pub waits: BTreeMap<Dependency, Wait>,
}

/// The reason that the worker waits for a dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The kind of remedy: the wait may end on its own, or it needs a person.
    pub kind: ErrorKind,
    /// The cause of the wait, in one message.
    pub message: String,
}

impl<S: Into<String>> From<S> for Wait {
    /// Creates a wait that may end on its own.
    fn from(message: S) -> Self {
        Self { kind: ErrorKind::Transient, message: message.into() }
    }
}

impl WorkerStatus {
    /// Returns the messages of all waits as one text; `None` if the worker waits for nothing.
    pub fn waiting_for(&self) -> Option<String> {
        let causes: Vec<&str> = self.waits.values().map(|wait| wait.message.as_str()).collect();
        (!causes.is_empty()).then(|| causes.join("; "))
    }

    /// Notes how a dependency answered. After an error, the worker waits for the dependency until it answers
    /// without an error.
    pub fn note_answer<T, E: Display>(&mut self, dependency: Dependency, result: &Result<T, E>) {
        match result {
            Ok(_) => self.waits.remove(&dependency),
            Err(error) => self.waits.insert(dependency, error.to_string().into()),
        };
    }
}

/// A dependency of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependency {
    /// Objects and tables under the root.
    Storage,
    /// Room in memory, which returns once storage has taken the events in memory.
    Memory,
    /// Kafka, as the source.
    Kafka,
    /// The schema registry.
    Registry,
    /// The topic of dead letters.
    DeadLetterTopic,
    /// The topic of exceeded budgets.
    BudgetTopic,
    /// A wall clock that agrees with the store's.
    Clock,
}

impl Dependency {
    /// All dependencies, in order.
    pub const ALL: [Self; 7] = [
        Self::Storage,
        Self::Memory,
        Self::Kafka,
        Self::Registry,
        Self::DeadLetterTopic,
        Self::BudgetTopic,
        Self::Clock,
    ];

    /// Returns the dependency's name, as in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Memory => "memory",
            Self::Kafka => "kafka",
            Self::Registry => "registry",
            Self::DeadLetterTopic => "dead_letter_topic",
            Self::BudgetTopic => "budget_topic",
            Self::Clock => "clock",
        }
    }

    /// Returns the kinds of reasons for which the worker may wait for the dependency.
    pub const fn kinds(self) -> &'static [ErrorKind] {
        match self {
            Self::Storage => &ErrorKind::ALL,
            Self::Registry => &[ErrorKind::Transient, ErrorKind::Permission, ErrorKind::Invalid],
            Self::Clock => &[ErrorKind::Invalid],
            Self::Memory | Self::Kafka | Self::DeadLetterTopic | Self::BudgetTopic => &[ErrorKind::Transient],
        }
    }
}

/// The reason that a shard is stopped while others continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardStop {
    /// The reason.
    pub reason: StopReason,
    /// The cause, and how to fix it.
    pub message: String,
}

/// The gate at which the dirty hours of a shard wait. Dirty hours are hours whose events have changed since
/// they were folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecomputeGate {
    /// Open: each checkpoint recomputes a slice of the hours.
    Running,
    /// Open: the next checkpoint begins to recompute the hours.
    Due,
    /// The checkpoint with the late events is not decided, so the events cannot be read from the archive yet.
    Checkpoint,
    /// A run began less than `work.checkpoint_interval` ago, and the hours do not lie after the end of that
    /// run.
    Interval,
    /// Late events keep coming. Dirty hours wait until no late event has come for an hour, until live hours
    /// have written twice the rewritten bytes, or for `work.max_restate_delay`.
    LateEvents,
    /// The hours have rules of an engine version that this release does not compute.
    Release,
}

impl RecomputeGate {
    /// Returns the gate's name, as in the status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Due => "due",
            Self::Checkpoint => "checkpoint",
            Self::Interval => "interval",
            Self::LateEvents => "late_events",
            Self::Release => "release",
        }
    }

    /// Returns whether the hours may be recomputed now.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Due)
    }

    /// Returns whether the hours need a checkpoint, which recomputes them or stores their late events.
    pub const fn wants_checkpoint(self) -> bool {
        matches!(self, Self::Running | Self::Due | Self::Checkpoint)
    }
}

/// The status of one shard.
#[derive(Clone, Debug, Default)]
pub struct ShardStatus {
    /// Whether the shard's state is loaded and the shard is read.
    pub loaded: bool,
    /// The reason that the shard is stopped; `None` if the shard is not stopped.
    pub stopped: Option<ShardStop>,
    /// The sequence number of the shard's latest checkpoint.
    pub seq: u64,
    /// The time at which that checkpoint was decided.
    pub checkpoint_at: Option<WallTime>,
    /// The time at which tables were last known to be equal to that checkpoint.
    pub published_at: Option<WallTime>,
    /// The shard's watermark, in event time.
    pub watermark: Option<Timestamp>,
    /// The last hour closed.
    pub closed_through: Option<Hour>,
    /// The version of the rules in force for the shard's open hours; `None` while the shard lists none.
    pub rules_version: Option<Text>,
    /// The oldest hour with events that is not closed.
    pub oldest_open_hour: Option<Hour>,
    /// The first hour that waits to be recomputed.
    pub dirty_from: Option<Hour>,
    /// Number of hours that wait to be recomputed.
    pub dirty_hours: u64,
    /// The time at which the first of these hours began to wait.
    pub dirty_since: Option<WallTime>,
    /// The gate at which these hours wait; `None` if no hour waits.
    pub recompute_gate: Option<RecomputeGate>,
    /// Number of organizations in the shard's state.
    pub organizations: u64,
    /// Number of held organizations: the engine refused one of the hours of each.
    pub held: u64,
    /// The message of one of the held organizations.
    pub held_example: Option<String>,
    /// Bytes of the shard's state, as last written.
    pub state_bytes: u64,
    /// Bytes of events of open hours in memory.
    pub open_events_bytes: u64,
    /// The shard's topic partitions.
    pub topics: BTreeMap<Text, TopicStatus>,
    /// Costs and budgets of published hours.
    pub costs: Arc<ShardCosts>,
}

/// Costs and budgets of a shard, as its published tables hold them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardCosts {
    /// Allocated cost of the current day, the UTC day of the last closed hour, by organization and currency.
    pub day: BTreeMap<(OrganizationId, Text), Decimal12>,
    /// Budgets, with the spend through the last closed hour.
    pub budgets: Vec<BudgetUse>,
}

/// The status of one topic partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicStatus {
    /// The next offset to read.
    pub next_offset: i64,
    /// The largest event time seen.
    pub max_event_time: Option<Timestamp>,
    /// Whether a broker has confirmed that the partition's end is reached.
    pub at_end: bool,
    /// Whether the partition is idle and does not hold the watermark back.
    pub idle: bool,
}

/// Counts since the start of the process.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Number of events taken, by type.
    pub events: BTreeMap<EventKind, u64>,
    /// Number of dead letters, by reason.
    pub dead_letters: BTreeMap<Reason, u64>,
    /// Number of events that came after their hour had closed and that the archive did not already hold.
    pub late_events: u64,
    /// Number of events of closed hours that the archive already held.
    pub late_duplicates: u64,
    /// Number of hours closed, counted once per shard.
    pub closed_hours: u64,
    /// Number of pod hours without a price, counted as their hours close.
    pub unpriced_pod_hours: u64,
    /// Number of hours whose rows changed when they were recomputed, counted once per shard.
    pub restated_hours: u64,
    /// Number of hours folded, for the first time or again, counted once per organization.
    pub folded_organization_hours: u64,
    /// Number of recomputations of some organizations that had to include all organizations.
    pub full_restatements: u64,
    /// Number of checkpoints decided.
    pub checkpoints: u64,
    /// Number of checkpoints that another owner decided first, and of shards that a table's log fenced.
    pub conflicts: u64,
    /// Number of assignments and revocations by the group.
    pub rebalances: u64,
    /// Number of commits to tables.
    pub commits: u64,
    /// Number of failures of storage, Kafka or the registry that were retried.
    pub retries: u64,
    /// Number of requests to the object store, by kind.
    pub requests: BTreeMap<RequestKind, u64>,
    /// Number of messages about exceeded budgets that have reached their topic.
    pub budget_messages: u64,
    /// Number of failed attempts to send such messages.
    pub budget_failures: u64,
    /// Durations of folding a window of hours.
    pub fold: Durations,
    /// Durations of checkpoints, without publishing.
    pub checkpoint: Durations,
    /// Durations of publishing.
    pub publish: Durations,
}

impl Counts {
    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        for (kind, count) in other.events {
            *self.events.entry(kind).or_default() += count;
        }
        for (reason, count) in other.dead_letters {
            *self.dead_letters.entry(reason).or_default() += count;
        }
        for (kind, count) in other.requests {
            *self.requests.entry(kind).or_default() += count;
        }
        self.late_events += other.late_events;
        self.late_duplicates += other.late_duplicates;
        self.closed_hours += other.closed_hours;
        self.unpriced_pod_hours += other.unpriced_pod_hours;
        self.restated_hours += other.restated_hours;
        self.folded_organization_hours += other.folded_organization_hours;
        self.full_restatements += other.full_restatements;
        self.checkpoints += other.checkpoints;
        self.conflicts += other.conflicts;
        self.rebalances += other.rebalances;
        self.commits += other.commits;
        self.retries += other.retries;
        self.budget_messages += other.budget_messages;
        self.budget_failures += other.budget_failures;
        self.fold.add(&other.fold);
        self.checkpoint.add(&other.checkpoint);
        self.publish.add(&other.publish);
    }
}

/// A kind of request to an object store, as providers charge for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// An object, or a part of one, is written.
    Put,
    /// An object, a range of it, or its description is read.
    Get,
    /// A page of names is listed.
    List,
    /// An object is deleted.
    Delete,
}

impl RequestKind {
    /// All kinds, in order.
    pub const ALL: [Self; 4] = [Self::Put, Self::Get, Self::List, Self::Delete];

    /// Returns the kind's name, as in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::List => "list",
            Self::Delete => "delete",
        }
    }
}

/// Upper bounds of the buckets of [`Durations`], in seconds; one more bucket counts longer durations.
pub const DURATION_BOUNDS: [f64; 10] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// Counts by bucket, not cumulative; the last bucket has no upper bound.
    pub buckets: [u64; DURATION_BOUNDS.len() + 1],
    /// The sum of the durations, in seconds.
    pub sum: f64,
}

impl Durations {
    fn add(&mut self, other: &Self) {
        for (bucket, count) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += count;
        }
        self.sum += other.sum;
    }

    /// Adds one duration.
    pub fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = DURATION_BOUNDS.iter().position(|bound| seconds <= *bound);
        if let Some(count) = self.buckets.get_mut(bucket.unwrap_or(DURATION_BOUNDS.len())) {
            *count += 1;
        }
        self.sum += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_holds_it() {
        let mut durations = Durations::default();
        durations.observe(Duration::from_millis(10));
        durations.observe(Duration::from_millis(11));
        durations.observe(Duration::from_secs(3_600));
        assert_eq!(durations.buckets[..2], [1, 1]);
        assert_eq!(durations.buckets[DURATION_BOUNDS.len()], 1);
        assert!((durations.sum - 3_600.021).abs() < 1e-6);
    }
}
