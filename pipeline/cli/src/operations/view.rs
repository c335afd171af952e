//! A worker's status at one time, with values computed from it: ages, lags and the results of the probes.

use std::time::{Duration, Instant};

use prorata_schemas::time::{Hour, Timestamp, WallTime};
use prorata_worker::names::Shard;
use prorata_worker::status::{Dependency, ShardStop, TopicStatus, WorkerStatus};

use super::Limits;

/// The status and the time at which it was copied.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The status.
    pub status: WorkerStatus,
    /// The wall clock's time when the status was copied.
    pub now: WallTime,
    /// Time since the last iteration of the loop or response of storage. Before the first, time since the
    /// server started.
    pub heartbeat_age: Duration,
    limits: Limits,
}

impl Snapshot {
    pub(super) fn new(status: WorkerStatus, now: WallTime, started: Instant, limits: Limits) -> Self {
        let heartbeat_age = status.heartbeat.unwrap_or(started).elapsed();
        Self { status, now, heartbeat_age, limits }
    }

    /// Returns the maximum number of series of each metric of costs and budgets.
    pub(super) fn cost_series(&self) -> usize {
        self.limits.cost_series
    }

    /// Returns `Ok` with a message if the worker's loop has iterated or storage has responded recently, and
    /// `Err` otherwise. A dependency that is down does not matter, but one call to storage may take too long.
    pub(super) fn live(&self) -> Result<String, String> {
        let (age, limit) = (self.heartbeat_age.as_secs(), self.limits.live_within);
        let since = match self.status.heartbeat {
            Some(_) => format!("the worker's loop iterated or storage responded {age} s ago"),
            None => format!("the worker's loop has not started in the {age} s since the start"),
        };
        if self.heartbeat_age <= limit {
            Ok(format!("live: {since}"))
        } else {
            Err(format!("not live: {since}; the limit is {} s", limit.as_secs_f64()))
        }
    }

    /// Returns `Ok` with a message if shards are assigned and loaded, storage needs no action by a person,
    /// and the worker is not stopping. Otherwise, returns `Err` with the reason.
    pub(super) fn ready(&self) -> Result<String, String> {
        let status = &self.status;
        let (loaded, all) = (self.loaded(), status.shards.len());
        if status.draining {
            return Err("not ready: the worker is stopping".to_owned());
        }
        if let Some(wait) = status.waits.get(&Dependency::Storage).filter(|wait| !wait.kind.is_retryable()) {
            return Err(format!("not ready: {}", wait.message));
        }
        if status.ready {
            return Ok(format!("ready: {loaded} shards are loaded"));
        }
        let waits = status.waiting_for().map_or(String::new(), |what| format!("; waiting for {what}"));
        let waits = format!("{}{waits}", self.stopped_messages());
        Err(if all == 0 {
            format!("not ready: the consumer group has not assigned shards yet{waits}")
        } else {
            format!("not ready: {loaded} of {all} shards are loaded{waits}")
        })
    }

    /// Returns the message of each stopped shard, with how to fix it; empty if none is stopped.
    fn stopped_messages(&self) -> String {
        let stopped =
            self.stopped().map(|(shard, stop)| format!("; shard {shard} is stopped: {}", stop.message));
        stopped.collect()
    }

    /// Returns the shards that cannot continue, with the reason.
    pub(super) fn stopped(&self) -> impl Iterator<Item = (Shard, &ShardStop)> {
        let shards = self.status.shards.iter();
        shards.filter_map(|(shard, status)| Some((*shard, status.stopped.as_ref()?)))
    }

    /// Returns the number of shards whose state is loaded.
    pub(super) fn loaded(&self) -> usize {
        self.status.shards.values().filter(|shard| shard.loaded).count()
    }

    /// Returns the seconds from `then`, an event time, to now; 0 for times after now.
    pub(super) fn age_seconds(&self, then: Timestamp) -> f64 {
        seconds(self.now.event_time().0.saturating_sub(then.0).max(0))
    }

    /// Returns the lag of a topic partition in event time, in seconds. Returns 0 if its end is reached, and
    /// `None` if none of its events were seen.
    pub(super) fn lag_seconds(&self, topic: &TopicStatus) -> Option<f64> {
        if topic.at_end { Some(0.0) } else { topic.max_event_time.map(|seen| self.age_seconds(seen)) }
    }

    /// Returns the largest lag of all topic partitions, in seconds; `None` if no lag is known.
    pub(super) fn lag_max(&self) -> Option<f64> {
        let topics = self.status.shards.values().flat_map(|shard| shard.topics.values());
        topics.filter_map(|topic| self.lag_seconds(topic)).max_by(f64::total_cmp)
    }

    /// Returns the last hour that all loaded shards have closed; `None` if any of them has closed no hour.
    pub(super) fn closed_through(&self) -> Option<Hour> {
        let loaded = self.status.shards.values().filter(|shard| shard.loaded);
        loaded.map(|shard| shard.closed_through).min().flatten()
    }

    /// Returns the first hour that waits to be recomputed, over all shards; `None` if no hour waits.
    pub(super) fn dirty_from(&self) -> Option<Hour> {
        self.status.shards.values().filter_map(|shard| shard.dirty_from).min()
    }
}

/// Converts microseconds to seconds.
fn seconds(micros: i64) -> f64 {
    Duration::from_micros(micros.unsigned_abs()).as_secs_f64()
}
