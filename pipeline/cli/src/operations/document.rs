//! The status as one JSON document, with the content of the page for people. Keys are sorted.

use std::collections::BTreeMap;

use prorata_schemas::reject::Reason;
use prorata_worker::names::Shard;
use prorata_worker::status::{Counts, Durations, RecomputeGate, ShardStatus};
use serde::Serialize;
use serde_json::Value;

use super::view::Snapshot;

/// A worker.
#[derive(Serialize)]
struct WorkerDocument<'a> {
    version: &'static str,
    now: String,
    live: bool,
    ready: bool,
    draining: bool,
    heartbeat_age_seconds: f64,
    waiting_for: Vec<WaitDocument<'a>>,
    closed_through: Option<String>,
    dirty_from: Option<String>,
    lag_seconds: Option<f64>,
    shards: Vec<ShardDocument<'a>>,
    counts: CountsDocument<'a>,
}

/// A dependency that a worker waits for.
#[derive(Serialize)]
struct WaitDocument<'a> {
    dependency: &'static str,
    kind: &'static str,
    message: &'a str,
}

/// A shard.
#[derive(Serialize)]
struct ShardDocument<'a> {
    shard: Shard,
    loaded: bool,
    stopped: Option<StopDocument<'a>>,
    checkpoint_seq: u64,
    checkpoint_at: Option<String>,
    published_at: Option<String>,
    watermark: Option<String>,
    closed_through: Option<String>,
    rules_version: Option<&'a str>,
    oldest_open_hour: Option<String>,
    dirty_from: Option<String>,
    dirty_hours: u64,
    dirty_since: Option<String>,
    dirty_gate: Option<&'static str>,
    organizations: u64,
    organizations_held: u64,
    held_example: Option<&'a str>,
    state_bytes: u64,
    open_events_bytes: u64,
    topics: Vec<TopicDocument<'a>>,
}

/// The reason that a shard is stopped.
#[derive(Serialize)]
struct StopDocument<'a> {
    reason: &'static str,
    message: &'a str,
}

/// A topic partition.
#[derive(Serialize)]
struct TopicDocument<'a> {
    topic: &'a str,
    next_offset: i64,
    max_event_time: Option<String>,
    lag_seconds: Option<f64>,
    at_end: bool,
    idle: bool,
}

/// Counts since the start.
#[derive(Serialize)]
struct CountsDocument<'a> {
    events: BTreeMap<&'static str, u64>,
    dead_letters: &'a BTreeMap<Reason, u64>,
    late_events: u64,
    late_duplicates: u64,
    hours_closed: u64,
    hours_restated: u64,
    checkpoints: u64,
    table_commits: u64,
    conflicts: u64,
    rebalances: u64,
    retries: u64,
    fold_durations: DurationsDocument,
    checkpoint_durations: DurationsDocument,
    publish_durations: DurationsDocument,
}

/// A number of durations, and their sum.
#[derive(Serialize)]
struct DurationsDocument {
    count: u64,
    seconds: f64,
}

/// Returns the status as one JSON document.
///
/// # Errors
/// If it cannot be serialized.
pub(super) fn json(snapshot: &Snapshot) -> serde_json::Result<Value> {
    let status = &snapshot.status;
    let shards = status.shards.iter().map(|(shard, status)| shard_document(snapshot, *shard, status));
    let waits = status.waits.iter().map(|(dependency, wait)| WaitDocument {
        dependency: dependency.name(),
        kind: wait.kind.name(),
        message: &wait.message,
    });
    serde_json::to_value(WorkerDocument {
        version: env!("CARGO_PKG_VERSION"),
        now: snapshot.now.to_string(),
        live: snapshot.live().is_ok(),
        ready: snapshot.ready().is_ok(),
        draining: status.draining,
        heartbeat_age_seconds: snapshot.heartbeat_age.as_secs_f64(),
        waiting_for: waits.collect(),
        closed_through: text(snapshot.closed_through()),
        dirty_from: text(snapshot.dirty_from()),
        lag_seconds: snapshot.lag_max(),
        shards: shards.collect(),
        counts: counts_document(&status.counts),
    })
}

fn shard_document<'a>(snapshot: &Snapshot, shard: Shard, status: &'a ShardStatus) -> ShardDocument<'a> {
    let topics = status.topics.iter().map(|(topic, at)| TopicDocument {
        topic,
        next_offset: at.next_offset,
        max_event_time: text(at.max_event_time),
        lag_seconds: snapshot.lag_seconds(at),
        at_end: at.at_end,
        idle: at.idle,
    });
    ShardDocument {
        shard,
        loaded: status.loaded,
        stopped: status
            .stopped
            .as_ref()
            .map(|stop| StopDocument { reason: stop.reason.name(), message: &stop.message }),
        checkpoint_seq: status.seq,
        checkpoint_at: text(status.checkpoint_at),
        published_at: text(status.published_at),
        watermark: text(status.watermark),
        closed_through: text(status.closed_through),
        rules_version: status.rules_version.as_deref(),
        oldest_open_hour: text(status.oldest_open_hour),
        dirty_from: text(status.dirty_from),
        dirty_hours: status.dirty_hours,
        dirty_since: text(status.dirty_since),
        dirty_gate: status.recompute_gate.map(RecomputeGate::name),
        organizations: status.organizations,
        organizations_held: status.held,
        held_example: status.held_example.as_deref(),
        state_bytes: status.state_bytes,
        open_events_bytes: status.open_events_bytes,
        topics: topics.collect(),
    }
}

fn counts_document(counts: &Counts) -> CountsDocument<'_> {
    CountsDocument {
        events: counts.events.iter().map(|(kind, count)| (kind.name(), *count)).collect(),
        dead_letters: &counts.dead_letters,
        late_events: counts.late_events,
        late_duplicates: counts.late_duplicates,
        hours_closed: counts.closed_hours,
        hours_restated: counts.restated_hours,
        checkpoints: counts.checkpoints,
        table_commits: counts.commits,
        conflicts: counts.conflicts,
        rebalances: counts.rebalances,
        retries: counts.retries,
        fold_durations: durations_document(&counts.fold),
        checkpoint_durations: durations_document(&counts.checkpoint),
        publish_durations: durations_document(&counts.publish),
    }
}

fn durations_document(durations: &Durations) -> DurationsDocument {
    DurationsDocument { count: durations.buckets.iter().sum(), seconds: durations.sum }
}

fn text(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}
