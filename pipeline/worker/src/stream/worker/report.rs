//! The worker's status, reported once a round.

use std::time::Instant;

use prorata_schemas::Text;
use prorata_schemas::time::WallTime;

use super::Worker;
use crate::checkpoint::Checkpoint;
use crate::ports::ErrorKind;
use crate::source::Source;
use crate::status::{Dependency, ShardStatus, TopicStatus, Wait};
use crate::stream::shard::LiveShard;
use crate::stream::shard_table::Slot;
use crate::stream::stopped::StoppedShard;
use crate::stream::watermark::{TopicProgress, WatermarkRule};

impl<S: Source> Worker<S> {
    /// Reports the status of every shard.
    pub(super) fn report_status(&self) {
        let clock = self.setup.clock.read();
        let now = clock.steady;
        // Ages are measured by the steady clock; readers measure them by the machine clock.
        let machine_time = |at: WallTime| WallTime(clock.machine.0.saturating_sub(now.micros_since(at)));
        let rule = self.setup.options.watermark();
        let shard_status = |live: &LiveShard| {
            let (held, held_example) = live.held();
            let (dirty_hours, dirty_since) = live.waiting();
            ShardStatus {
                held,
                held_example,
                loaded: live.unread().is_none(),
                stopped: None,
                seq: live.decided().seq,
                checkpoint_at: Some(machine_time(live.decided_at())),
                published_at: Some(machine_time(live.published_at(now))),
                watermark: live.topics().watermark(),
                closed_through: live.next().closed_through,
                rules_version: in_force(live.next()),
                oldest_open_hour: live.oldest_open_hour(),
                dirty_from: live.next().dirty.first(),
                dirty_hours,
                dirty_since: dirty_since.map(machine_time),
                recompute_gate: live.recompute_gate(self.setup.ports.shared.clock.now(), self.pace()),
                organizations: live.organizations(),
                state_bytes: live.state_bytes(),
                open_events_bytes: live.bytes(),
                costs: live.costs(),
                topics: live
                    .topics()
                    .iter()
                    .map(|(topic, progress)| (topic.clone(), topic_status(progress, now, &rule)))
                    .collect(),
            }
        };
        let shards = self.shards.iter().map(|(shard, slot)| match slot {
            Slot::Live(live) => (shard, shard_status(live)),
            Slot::Waiting { .. } => (shard, ShardStatus::default()),
            Slot::Stopped(stopped) => (shard, stopped_status(stopped)),
        });
        let shards = shards.collect();
        let loaded =
            self.shards.iter().all(|(_, slot)| matches!(slot, Slot::Live(live) if live.unread().is_none()));
        let mut status = self.setup.ports.status.lock();
        status.heartbeat = Some(Instant::now());
        status.ready = self.contact.is_assigned() && loaded && clock.ahead_seconds.is_none();
        status.clock_skew_seconds = clock.ahead_seconds.unwrap_or(0);
        match clock.message() {
            Some(message) => {
                status.waits.insert(Dependency::Clock, Wait { kind: ErrorKind::Invalid, message });
            }
            None => {
                status.waits.remove(&Dependency::Clock);
            }
        }
        status.shards = shards;
        if !self.backlog.needs_schema() {
            status.waits.remove(&Dependency::Registry);
        }
        if self.shards.is_empty() {
            // A worker without shards no longer uses them.
            status.waits.remove(&Dependency::Storage);
            status.waits.remove(&Dependency::DeadLetterTopic);
            status.waits.remove(&Dependency::BudgetTopic);
        }
    }
}

/// Returns the version of the rules by which open hours are folded; `None` if no rules are listed.
fn in_force(checkpoint: &Checkpoint) -> Option<Text> {
    checkpoint.rules.last().map(|rules| rules.version.clone())
}

fn topic_status(progress: &TopicProgress, now: WallTime, rule: &WatermarkRule) -> TopicStatus {
    TopicStatus {
        next_offset: progress.offsets.next.unwrap_or(0),
        max_event_time: progress.offsets.max_event_time,
        at_end: progress.at_end(now),
        idle: progress.idle(now, rule),
    }
}

/// Returns the status of a stopped shard, from its last checkpoint.
fn stopped_status(stopped: &StoppedShard) -> ShardStatus {
    let decided = stopped.decided();
    ShardStatus {
        stopped: stopped.report(),
        seq: decided.map_or(0, |decided| decided.seq),
        checkpoint_at: decided.map(|decided| decided.written_at),
        closed_through: decided.and_then(|decided| decided.closed_through),
        rules_version: decided.and_then(|decided| in_force(decided)),
        dirty_from: decided.and_then(|decided| decided.dirty.first()),
        ..ShardStatus::default()
    }
}
