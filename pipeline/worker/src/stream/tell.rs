//! The worker's status, told once a round.

use std::time::Instant;

use super::shard::LiveShard;
use super::{Slot, Worker};
use crate::source::Source;
use crate::status::{Dependency, ShardStatus, TopicStatus};

impl<S: Source> Worker<S> {
    pub(super) fn tell(&self) {
        let now = self.ports.shared.clock.now();
        let shard_status = |live: &LiveShard| ShardStatus {
            loaded: true,
            seq: live.draft.seq - 1,
            checkpoint_at: Some(live.decided_at),
            published_at: if live.unpublished { live.published_at } else { Some(live.decided_at) },
            watermark: live.watermark,
            closed_through: live.draft.closed_through,
            oldest_open_hour: live.open.keys().next().copied(),
            dirty_from: live.draft.dirty.first(),
            organizations: live.states.as_ref().map_or(0, |states| states.len() as u64),
            state_bytes: live.state_bytes,
            open_bytes: live.bytes(),
            topics: live
                .topics
                .iter()
                .map(|(topic, progress)| {
                    let status = TopicStatus {
                        next_offset: progress.offsets.next.unwrap_or(0),
                        max_event_time: progress.offsets.max_event_time,
                        at_end: progress.at_end(now),
                        idle: progress.idle(now, &self.options.watermark),
                    };
                    (topic.clone(), status)
                })
                .collect(),
        };
        let shards = self.slots.iter().map(|(shard, slot)| match slot {
            Slot::Live(live) => (*shard, shard_status(live)),
            Slot::Waiting { .. } => (*shard, ShardStatus::default()),
        });
        let shards = shards.collect();
        let loaded = self.slots.values().all(|slot| matches!(slot, Slot::Live(_)));
        let mut status = self.ports.status.lock();
        status.ticked = Some(Instant::now());
        status.ready = self.assigned && !self.cut_off && loaded;
        status.shards = shards;
        if self.backlog.is_empty() {
            status.waits.remove(&Dependency::Registry);
        }
        if self.slots.is_empty() {
            // Nobody asks them any more.
            status.waits.remove(&Dependency::Storage);
            status.waits.remove(&Dependency::DeadLetterTopic);
        }
    }
}
