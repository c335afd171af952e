//! Kafka in memory: topics, and one consumer group that reads them. Only the simulation changes anything.
//! Nothing happens on its own or because time passes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{ConsumerId, Header, Message, SourceError};

use super::group::{Group, MemberId};
use super::reader::{PartitionLog, Reader};
use crate::fakes::random::Random;

/// Default maximum number of messages in one poll.
const POLL_MESSAGES: usize = 100;

/// Kafka in memory. Clones share the brokers.
///
/// By default, a poll reports all messages in order of topic and partition, and the end of every partition
/// that is read to its end. With a seed, polls take partitions in random order and random numbers of
/// messages, and sometimes report nothing.
#[derive(Clone, Debug, Default)]
pub struct FakeBroker(Arc<Mutex<Cluster>>);

/// A message as a producer sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Milliseconds since the epoch.
    pub timestamp_millis: i64,
    /// Key of the message.
    pub key: Option<Bytes>,
    /// Value of the message.
    pub value: Option<Bytes>,
    /// Headers of the message.
    pub headers: Vec<Header>,
}

/// The polls in which a source reports that a partition is read to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// In every poll.
    #[default]
    EveryPoll,
    /// Once after each [`FakeBroker::confirm_ends`].
    WhenAsked,
}

/// The state that the lock protects.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) consumer: ConsumerId,
    pub(super) topics: BTreeMap<Text, Vec<PartitionLog>>,
    pub(super) subscribed: BTreeSet<Text>,
    pub(super) group: Group,
    pub(super) readers: BTreeMap<(MemberId, Text, Shard), Reader>,
    pub(super) random: Option<Random>,
    pub(super) down: bool,
    pub(super) partitions_down: BTreeSet<(Text, Shard)>,
    /// First and last offsets of batches that cannot be read.
    pub(super) unreadable: BTreeMap<(Text, Shard), (i64, i64)>,
    pub(super) committed: BTreeMap<(Text, Shard), i64>,
    pub(super) poll_messages: usize,
    pub(super) ends: Ends,
    pub(super) ends_asked: u64,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            consumer: ConsumerId { group_id: "prorata".to_owned(), cluster_id: Some("memory".to_owned()) },
            topics: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            group: Group::default(),
            readers: BTreeMap::new(),
            random: None,
            down: false,
            partitions_down: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            committed: BTreeMap::new(),
            poll_messages: POLL_MESSAGES,
            ends: Ends::default(),
            ends_asked: 0,
        }
    }
}

impl FakeBroker {
    /// Creates a cluster with random polls.
    pub fn seeded(seed: u64) -> Self {
        let broker = Self::default();
        broker.lock().random = Some(Random::new(seed));
        broker
    }

    /// Creates a cluster whose group or cluster id differs from the default.
    pub fn of_consumer(group_id: &str, cluster_id: Option<&str>) -> Self {
        let broker = Self::default();
        let cluster_id = cluster_id.map(str::to_owned);
        broker.lock().consumer = ConsumerId { group_id: group_id.to_owned(), cluster_id };
        broker
    }

    /// Limits polls to this many messages from now on.
    pub fn set_poll_messages(&self, messages: usize) {
        self.lock().poll_messages = messages.max(1);
    }

    /// Sets when sources report ends from now on.
    pub fn set_ends(&self, ends: Ends) {
        self.lock().ends = ends;
    }

    /// Makes every source repeat its report of the ends that it has reached.
    pub fn confirm_ends(&self) {
        self.lock().ends_asked += 1;
    }

    /// Creates a topic, or changes its number of partitions. The remaining partitions keep their messages.
    pub fn set_partitions(&self, topic: &str, partitions: Shard) {
        let mut cluster = self.lock();
        cluster.topics.entry(topic.into()).or_default().resize_with(partitions.into(), PartitionLog::default);
        cluster.resize();
    }

    /// Deletes a topic and creates it again, empty and with offsets from 0. Readers are not informed, and
    /// offsets alone do not reveal it.
    pub fn recreate(&self, topic: &str) {
        if let Some(logs) = self.lock().topics.get_mut(topic) {
            logs.iter_mut().for_each(|log| *log = PartitionLog::default());
        }
    }

    /// Deletes a topic.
    pub fn delete_topic(&self, topic: &str) {
        let mut cluster = self.lock();
        cluster.topics.remove(topic);
        cluster.resize();
    }

    /// Appends a message, and returns its offset.
    ///
    /// # Errors
    /// If there is no such topic partition.
    pub fn produce(&self, topic: &str, partition: Shard, record: Record) -> Result<i64, SourceError> {
        let mut cluster = self.lock();
        let log = cluster.log(topic, partition)?;
        let offset = log.end;
        let Record { timestamp_millis, key, value, headers } = record;
        let topic = topic.into();
        let message = Message { topic, partition, offset, timestamp_millis, key, value, headers };
        log.messages.insert(offset, message);
        log.end += 1;
        Ok(offset)
    }

    /// Makes a gap at the end, as an aborted transaction does.
    ///
    /// # Errors
    /// If there is no such topic partition.
    pub fn skip_offsets(&self, topic: &str, partition: Shard, offsets: u32) -> Result<(), SourceError> {
        self.lock().log(topic, partition)?.end += i64::from(offsets);
        Ok(())
    }

    /// Removes one message, as compaction does.
    ///
    /// # Errors
    /// If there is no such topic partition.
    pub fn compact(&self, topic: &str, partition: Shard, offset: i64) -> Result<(), SourceError> {
        self.lock().log(topic, partition)?.messages.remove(&offset);
        Ok(())
    }

    /// Removes all messages before an offset, as retention does, but never past the end.
    ///
    /// # Errors
    /// If there is no such topic partition.
    pub fn delete_before(&self, topic: &str, partition: Shard, offset: i64) -> Result<(), SourceError> {
        let mut cluster = self.lock();
        let log = cluster.log(topic, partition)?;
        log.begin = log.begin.max(offset.min(log.end));
        log.messages = log.messages.split_off(&log.begin);
        Ok(())
    }

    /// Removes all messages from an offset on, as an unclean election does. Later messages take their
    /// offsets. A source that has read past the offset and continues reports a lost offset. A source that
    /// starts again does not.
    ///
    /// # Errors
    /// If there is no such topic partition.
    pub fn truncate(&self, topic: &str, partition: Shard, offset: i64) -> Result<(), SourceError> {
        let mut cluster = self.lock();
        let log = cluster.log(topic, partition)?;
        log.end = log.end.min(offset.max(log.begin));
        log.messages.split_off(&log.end);
        let end = log.end;
        let readers = cluster.readers.iter_mut();
        for (_, reader) in readers.filter(|((_, name, shard), _)| &**name == topic && *shard == partition) {
            reader.diverge(end);
        }
        Ok(())
    }

    /// Returns the first offset that still exists, and the next offset.
    ///
    /// # Errors
    /// If there is no such topic partition.
    pub fn bounds(&self, topic: &str, partition: Shard) -> Result<(i64, i64), SourceError> {
        let mut cluster = self.lock();
        let log = cluster.log(topic, partition)?;
        Ok((log.begin, log.end))
    }

    /// Returns all messages of a topic partition that still exist.
    ///
    /// # Errors
    /// If there is no such topic partition.
    pub fn messages(&self, topic: &str, partition: Shard) -> Result<Vec<Message>, SourceError> {
        Ok(self.lock().log(topic, partition)?.messages.values().cloned().collect())
    }

    /// Stops or restarts all brokers. Nothing is reported while they are stopped.
    pub fn set_down(&self, down: bool) {
        self.lock().down = down;
    }

    /// Stops or restarts the broker that leads a topic partition. While it is stopped, there are no messages
    /// and no ends.
    pub fn set_partition_down(&self, topic: &str, partition: Shard, down: bool) {
        let mut cluster = self.lock();
        if down {
            cluster.partitions_down.insert((topic.into(), partition));
        } else {
            cluster.partitions_down.remove(&(topic.into(), partition));
        }
    }

    /// Makes these offsets of a topic partition one batch that cannot be read.
    pub fn set_unreadable(&self, topic: &str, partition: Shard, first: i64, last: i64) {
        self.lock().unreadable.insert((topic.into(), partition), (first, last));
    }

    /// Returns the offsets that members have committed to the group.
    pub fn committed(&self) -> BTreeMap<(Text, Shard), i64> {
        self.lock().committed.clone()
    }

    /// Sets whether every change of the group first takes all shards from all members, as Kafka's range
    /// assignor does. Otherwise, it takes only the shards that move.
    pub fn set_eager(&self, eager: bool) {
        self.lock().group.eager = eager;
    }

    /// Assigns the shards again although nothing has changed. Members notice the rebalance only in eager
    /// mode.
    pub fn rebalance(&self) {
        self.lock().group.rebalance();
    }

    /// Ends the session of the members of this name, which have died or seem to have died. Other members
    /// receive their shards at once. The expired members receive `Lost` when they poll, and join again.
    /// Returns whether there was such a member.
    pub fn expire(&self, name: &str) -> bool {
        self.lock().group.expire(name)
    }

    /// Ends the session of the members of this name. Their own clients get no response and give up their
    /// shards. The members receive `Lost` when they poll, even while they are cut off from the group.
    pub fn lapse(&self, name: &str) {
        self.lock().group.lapse(name);
    }

    /// Makes the group stop waiting for revoked shards that the member of this name has not released.
    pub fn run_out(&self, name: &str) {
        self.lock().group.run_out(name);
    }

    /// Cuts the members of this name off from the group's coordinator, or connects them again. While cut off,
    /// they continue to read, and exchange nothing with the group. They stay members until they expire.
    pub fn isolate(&self, name: &str, isolated: bool) {
        self.lock().group.isolate(name, isolated);
    }

    /// Returns the member that holds each shard; the previous member if the shard is moving.
    pub fn owners(&self) -> BTreeMap<Shard, Text> {
        self.lock().group.owners()
    }

    /// Returns the shards that are revoked and not yet released, with the member that the group waits for.
    pub fn awaited(&self) -> BTreeMap<Shard, Text> {
        self.lock().group.awaited()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Cluster> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    fn log(&mut self, topic: &str, partition: Shard) -> Result<&mut PartitionLog, SourceError> {
        let logs = self.topics.get_mut(topic);
        let log = logs.and_then(|logs| logs.get_mut(usize::from(partition)));
        let missing =
            || SourceError::Configuration(format!("there is no topic '{topic}', partition {partition}"));
        log.ok_or_else(missing)
    }

    /// Sets the group's number of shards to the largest number of partitions of the topics that it reads.
    pub(super) fn resize(&mut self) {
        let counts = self.subscribed.iter().filter_map(|topic| self.topics.get(topic)).map(Vec::len);
        let shards = Shard::try_from(counts.max().unwrap_or_default()).unwrap_or(Shard::MAX);
        self.group.resize(shards);
    }
}
