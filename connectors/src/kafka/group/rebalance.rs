//! What the group assigns and takes back, and what of it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use prorata_worker::names::Shard;
use prorata_worker::source::{Signal, SourceError, Start};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::{Group, Revoking};
use crate::kafka::context::Rebalance;

impl Group<'_> {
    /// Answers the group's changes.
    pub(super) fn rebalance(&mut self) {
        while let Some(rebalance) = self.consumer.context().rebalance() {
            match rebalance {
                Rebalance::Assign(partitions) => self.take(&partitions),
                Rebalance::Revoke if self.consumer.assignment_lost() => {
                    self.lose();
                    self.let_go();
                }
                Rebalance::Revoke => self.give_back(),
            }
        }
        if self.revoking.is_some() && self.consumer.assignment_lost() {
            self.lose();
            self.let_go();
        }
    }

    /// The group has assigned: shards are the partition numbers that we have of every topic.
    fn take(&mut self, partitions: &[(String, i32)]) {
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
                "of {} partitions assigned, {} are assigned of every topic",
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
        self.queue.tell(Signal::Assigned(self.assigned.iter().copied().collect()));
    }

    /// The group wants everything back.
    fn give_back(&mut self) {
        let shards: Vec<Shard> = self.assigned.iter().copied().collect();
        self.tracks.clear();
        self.stale = false;
        if !shards.is_empty() {
            self.queue.end_with(&shards, Signal::Revoked(shards.clone()));
        }
        let until = Instant::now() + self.settings.revoke_timeout;
        self.revoking = Some(Revoking { waiting: shards.into_iter().collect(), until });
    }

    /// Gives back what is released, or what takes too long.
    pub(super) fn finish_revocation(&mut self) {
        let Some(revoking) = &self.revoking else { return };
        if revoking.waiting.is_empty() {
            self.let_go();
        } else if Instant::now() >= revoking.until {
            tracing::warn!("shards {:?} were not released in time: the group takes them", revoking.waiting);
            self.let_go();
        }
    }

    /// The group has taken everything already.
    pub(super) fn lose(&mut self) {
        let shards: Vec<Shard> = std::mem::take(&mut self.assigned).into_iter().collect();
        self.tracks.clear();
        self.stale = false;
        self.committed.clear();
        if !shards.is_empty() {
            self.queue.end_with(&shards, Signal::Lost(shards.clone()));
        }
    }

    /// Answers a revocation.
    fn let_go(&mut self) {
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
        self.queue.complain(SourceError::Unavailable(reason));
    }

    /// Assigns what is to be read, all of it anew: each from behind what it has brought. Nothing is ever sought.
    pub(super) fn assign(&mut self) {
        self.stale |= self.tracks.fails(Instant::now());
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
