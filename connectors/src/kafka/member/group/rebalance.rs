//! Rebalances: the partitions that the group assigns and revokes, and which of them are read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use prorata_worker::names::Shard;
use prorata_worker::source::{SourceError, SourceEvent, Start};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::{Group, Revocation};
use crate::kafka::member::context::Rebalance;

impl Group<'_> {
    /// Acts on the group's changes.
    pub(super) fn rebalance(&mut self) {
        while let Some(rebalance) = self.consumer.context().rebalance() {
            match rebalance {
                Rebalance::Assign(partitions) => self.accept(&partitions),
                Rebalance::Revoke if self.consumer.assignment_lost() => {
                    self.lose();
                    self.revoke();
                }
                Rebalance::Revoke => self.begin_revocation(),
            }
        }
        if self.revoking.is_some() && self.consumer.assignment_lost() {
            self.lose();
            self.revoke();
        }
    }

    /// Accepts an assignment. Our shards are the partition numbers that are assigned to us for every topic.
    fn accept(&mut self, partitions: &[(String, i32)]) {
        let mut topics: BTreeMap<i32, BTreeSet<&str>> = BTreeMap::new();
        for (topic, partition) in partitions {
            topics.entry(*partition).or_default().insert(topic);
        }
        let whole = |topics: &BTreeSet<&str>| {
            self.settings.topics.iter().all(|topic| topics.contains(topic.as_str()))
        };
        let whole = topics.iter().filter(|(_, topics)| whole(topics));
        self.assigned = whole.filter_map(|(partition, _)| Shard::try_from(*partition).ok()).collect();
        if self.assigned.len() < topics.len() {
            tracing::warn!(
                "of {} assigned partition numbers, only {} are assigned for every topic",
                topics.len(),
                self.assigned.len()
            );
        }
        self.tracks.clear();
        self.stale = false;
        self.revoking = None;
        if let Err(error) = self.consumer.assign(&TopicPartitionList::new()) {
            self.refused(&error);
        }
        self.queue.push(SourceEvent::Assigned(self.assigned.iter().copied().collect()));
    }

    /// Begins a revocation. The group revokes everything.
    fn begin_revocation(&mut self) {
        let shards: Vec<Shard> = self.assigned.iter().copied().collect();
        self.tracks.clear();
        self.stale = false;
        if !shards.is_empty() {
            self.queue.end_with(&shards, SourceEvent::Revoked(shards.clone()));
        }
        let until = Instant::now() + self.settings.revoke_timeout;
        self.revoking = Some(Revocation { waiting: shards.into_iter().collect(), until });
    }

    /// Returns revoked partitions to the group once the worker has released them, or once the release takes
    /// too long.
    pub(super) fn finish_revocation(&mut self) {
        let Some(revoking) = &self.revoking else { return };
        if revoking.waiting.is_empty() {
            self.revoke();
        } else if Instant::now() >= revoking.until {
            tracing::warn!(
                "shards {:?} were not released in time: the group reassigns them",
                revoking.waiting
            );
            self.revoke();
        }
    }

    /// Drops the assignment, because the group has already assigned all shards to other members.
    pub(super) fn lose(&mut self) {
        let shards: Vec<Shard> = std::mem::take(&mut self.assigned).into_iter().collect();
        self.tracks.clear();
        self.stale = false;
        self.committed.clear();
        if !shards.is_empty() {
            self.queue.end_with(&shards, SourceEvent::Lost(shards.clone()));
        }
    }

    /// Gives up the whole assignment, and reports this to the group.
    fn revoke(&mut self) {
        self.revoking = None;
        self.assigned.clear();
        self.committed.clear();
        if let Err(error) = self.consumer.unassign() {
            self.refused(&error);
        }
        self.batch.clear();
    }

    fn refused(&self, error: &KafkaError) {
        let reason = format!("{}: {error}", self.settings.connection.brokers);
        self.queue.set_unavailable(SourceError::Unavailable(reason));
    }

    /// Assigns everything that is to be read, each partition from the offset after its last message. The
    /// consumer never seeks, because the library skips messages if a seek and a read of a batch coincide.
    pub(super) fn assign(&mut self) {
        self.stale |= self.tracks.retry_due(Instant::now());
        if !self.stale || self.revoking.is_some() || self.failed {
            return;
        }
        let mut list = TopicPartitionList::new();
        for (topic, shard, next) in self.tracks.assignment() {
            let offset = match next {
                Start::Earliest => Offset::Beginning,
                Start::At(next) => Offset::Offset(next),
            };
            if let Err(error) = list.add_partition_offset(topic, i32::from(shard), offset) {
                self.refused(&error);
            }
        }
        self.stale = false;
        match self.consumer.assign(&list) {
            Ok(()) => self.tracks.assigned(),
            Err(error) => {
                self.stale = true;
                self.refused(&error);
            }
        }
    }
}
