//! Kafka in memory: topics, and one consumer group that reads them. The simulation moves everything; nothing
//! happens by itself or by time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{ConsumerId, Header, Message, SourceError};

use super::group::{Group, MemberId};
use super::source::{FakeSource, Reader};
use crate::fakes::random::Random;

/// Messages that one poll tells at most, unless said otherwise.
const POLL_MESSAGES: usize = 100;

/// Kafka in memory. Clones share it.
///
/// By default a poll tells what there is in order of topic and partition, and the end of every partition that
/// is read up. With a seed, polls take partitions in random order, random numbers of messages, and at times
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct FakeBroker(Arc<Mutex<Cluster>>);

/// What a producer sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Milliseconds since the epoch.
    pub timestamp_millis: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
    /// Its headers.
    pub headers: Vec<Header>,
}

/// When a source tells that a partition is read up to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// In every poll.
    #[default]
    EveryPoll,
    /// Once after each [`FakeBroker::confirm_ends`].
    WhenAsked,
}

/// The log of a topic partition.
#[derive(Debug, Default)]
pub(super) struct PartitionLog {
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) messages: BTreeMap<i64, Message>,
}

/// What the lock guards.
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
    /// First and last offset of batches that nobody can read.
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
    /// With random polls.
    pub fn seeded(seed: u64) -> Self {
        let broker = Self::default();
        broker.lock().random = Some(Random::new(seed));
        broker
    }

    /// With another group, or of another cluster, than others have.
    pub fn of_consumer(group_id: &str, cluster_id: Option<&str>) -> Self {
        let broker = Self::default();
        let cluster_id = cluster_id.map(str::to_owned);
        broker.lock().consumer = ConsumerId { group_id: group_id.to_owned(), cluster_id };
        broker
    }

    /// Polls tell at most this many messages from now on.
    pub fn set_poll_messages(&self, messages: usize) {
        self.lock().poll_messages = messages.max(1);
    }

    /// When sources tell ends from now on.
    pub fn set_ends(&self, ends: Ends) {
        self.lock().ends = ends;
    }

    /// Every source may tell the ends it stands at once more.
    pub fn confirm_ends(&self) {
        self.lock().ends_asked += 1;
    }

    /// Creates a topic, or gives it more or fewer partitions; those that remain keep their messages.
    pub fn set_partitions(&self, topic: &str, partitions: Shard) {
        let mut cluster = self.lock();
        cluster.topics.entry(topic.into()).or_default().resize_with(partitions.into(), PartitionLog::default);
        cluster.resize();
    }

    /// Deletes a topic and creates it again: empty, offsets from 0. Readers are not told; offsets alone do
    /// not show it.
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

    /// Makes a hole at the end, as an aborted transaction does.
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

    /// Removes all messages before an offset, as retention does; never beyond the end.
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

    /// Removes all messages from an offset on, as an unclean election does: other messages will take their
    /// offsets. A source that has read beyond and goes on reading is told that its offset is lost; one that
    /// starts again is not.
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

    /// First offset that is still there, and next offset.
    ///
    /// # Errors
    /// If there is no such topic partition.
    pub fn bounds(&self, topic: &str, partition: Shard) -> Result<(i64, i64), SourceError> {
        let mut cluster = self.lock();
        let log = cluster.log(topic, partition)?;
        Ok((log.begin, log.end))
    }

    /// All messages of a topic partition that are still there.
    ///
    /// # Errors
    /// If there is no such topic partition.
    pub fn messages(&self, topic: &str, partition: Shard) -> Result<Vec<Message>, SourceError> {
        Ok(self.lock().log(topic, partition)?.messages.values().cloned().collect())
    }

    /// No broker answers, or all do again. Nothing is told meanwhile.
    pub fn set_down(&self, down: bool) {
        self.lock().down = down;
    }

    /// The broker that leads a topic partition does not answer, or does again: no messages, no ends.
    pub fn set_partition_down(&self, topic: &str, partition: Shard, down: bool) {
        let mut cluster = self.lock();
        if down {
            cluster.partitions_down.insert((topic.into(), partition));
        } else {
            cluster.partitions_down.remove(&(topic.into(), partition));
        }
    }

    /// From now on these offsets of a topic partition are one batch that nobody can read.
    pub fn set_unreadable(&self, topic: &str, partition: Shard, first: i64, last: i64) {
        self.lock().unreadable.insert((topic.into(), partition), (first, last));
    }

    /// Offsets that members have committed to the group.
    pub fn committed(&self) -> BTreeMap<(Text, Shard), i64> {
        self.lock().committed.clone()
    }

    /// A new process that reads these topics, as the group's member of this name once it first polls. Where
    /// one of that name is a member already, its place is taken, and it is fenced: so a process that died
    /// comes back.
    pub fn source(&self, name: &str, topics: &[&str]) -> FakeSource {
        let mut cluster = self.lock();
        let topics: Vec<Text> = topics.iter().map(|topic| Text::from(*topic)).collect();
        cluster.subscribed.extend(topics.iter().cloned());
        cluster.resize();
        let id = cluster.group.enter(name.into());
        drop(cluster);
        FakeSource::new(self.clone(), id, topics)
    }

    /// Whether every change of the group takes all shards from all members first, as Kafka's range assignor
    /// does. Otherwise only what moves is taken.
    pub fn set_eager(&self, eager: bool) {
        self.lock().group.eager = eager;
    }

    /// Assigns again although nothing has changed; members notice it in eager mode only.
    pub fn rebalance(&self) {
        self.lock().group.rebalance();
    }

    /// Ends the session of the members of this name: they have died, or seem to have. Others get their shards
    /// at once; they themselves are told `Lost` when they poll, and join again. True if there was such a
    /// member.
    pub fn expire(&self, name: &str) -> bool {
        self.lock().group.expire(name)
    }

    /// Ends the session of the members of this name. Their own clients get no answer and give up their
    /// shards: members are told `Lost` when they poll, even while they are cut off from the group.
    pub fn lapse(&self, name: &str) {
        self.lock().group.lapse(name);
    }

    /// The group waits no longer for what the member of this name was told is revoked, and has not released.
    pub fn run_out(&self, name: &str) {
        self.lock().group.run_out(name);
    }

    /// Cuts the members of this name off from the group's coordinator, or connects them again. Cut off, they
    /// go on reading, hear nothing of the group, and are not heard; they stay members until they expire.
    pub fn isolate(&self, name: &str, isolated: bool) {
        self.lock().group.isolate(name, isolated);
    }

    /// Which member holds each shard; one that is to move, the member before.
    pub fn owners(&self) -> BTreeMap<Shard, Text> {
        self.lock().group.owners()
    }

    /// Shards that are revoked and not yet released, with the member that the group waits for.
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

    /// Tells the group how many shards the topics it reads have.
    fn resize(&mut self) {
        let counts = self.subscribed.iter().filter_map(|topic| self.topics.get(topic)).map(Vec::len);
        let shards = Shard::try_from(counts.max().unwrap_or_default()).unwrap_or(Shard::MAX);
        self.group.resize(shards);
    }
}
