//! One member's view of the fake Kafka.

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{ConsumerId, Message, Source, SourceError, SourceEvent, Start};

use super::broker::{Cluster, Ends, FakeBroker};
use super::group::MemberId;
use super::reader::Reader;
use crate::fakes::faults::Faults;

/// Chance, in millionths, that a random poll skips a partition.
const PASSED_OVER: u32 = 150_000;

/// A member of the group of a [`FakeBroker`]. Dropping it simulates a process that dies without leaving.
#[derive(Debug)]
pub struct FakeSource {
    broker: FakeBroker,
    id: MemberId,
    topics: Vec<Text>,
    faults: Faults,
    /// Number of partitions of each topic at the last poll.
    counts: BTreeMap<Text, u32>,
}

impl FakeBroker {
    /// Creates a new process that reads these topics. It becomes the group's member of this name when it
    /// first polls. If such a member exists, the new process replaces and fences it, as a restart of a dead
    /// process does.
    pub fn source(&self, name: &str, topics: &[&str]) -> FakeSource {
        let mut cluster = self.lock();
        let topics: Vec<Text> = topics.iter().map(|topic| Text::from(*topic)).collect();
        cluster.subscribed.extend(topics.iter().cloned());
        cluster.resize();
        let id = cluster.group.enter(name.into());
        drop(cluster);
        FakeSource::new(self.clone(), id, topics)
    }
}

impl FakeSource {
    fn new(broker: FakeBroker, id: MemberId, topics: Vec<Text>) -> Self {
        Self { broker, id, topics, faults: Faults::default(), counts: BTreeMap::new() }
    }

    /// Sets the faults of the process. A source of a dead process does nothing.
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Returns the cluster, if it can be reached.
    fn reach(&self) -> Result<MutexGuard<'_, Cluster>, SourceError> {
        let cluster = self.broker.lock();
        let silent = if self.faults.dead() { Some("the process is dead") } else { None };
        match silent.or(cluster.down.then_some("no broker answers")) {
            Some(cause) => Err(SourceError::Unavailable(cause.into())),
            None => Ok(cluster),
        }
    }
}

#[async_trait]
impl Source for FakeSource {
    async fn consumer(&mut self) -> Result<ConsumerId, SourceError> {
        Ok(self.reach()?.consumer.clone())
    }

    async fn partitions(&mut self) -> Result<BTreeMap<Text, u32>, SourceError> {
        Ok(self.reach()?.counts(&self.topics))
    }

    async fn poll(&mut self, _wait: Duration) -> Result<Vec<SourceEvent>, SourceError> {
        let polled = self.reach().map(|mut cluster| (cluster.poll(self.id), cluster.counts(&self.topics)));
        let unreachable = match polled {
            Ok((events, counts)) => {
                let mut events = events?;
                let before = std::mem::replace(&mut self.counts, counts);
                events.extend(changed(&before, &self.counts));
                return Ok(events);
            }
            Err(error) => error,
        };
        // A client sometimes reports that no broker responds, and sometimes reports nothing.
        let silent = self.broker.lock().random.as_mut().is_some_and(|random| random.happens(500_000));
        if silent { Ok(Vec::new()) } else { Err(unreachable) }
    }

    async fn start(&mut self, shard: Shard, from: BTreeMap<Text, Start>) -> Result<(), SourceError> {
        if self.faults.dead() {
            return Ok(());
        }
        let mut cluster = self.reach()?;
        // A client asks the leader of each partition for its first and last offsets.
        let is_down = |topic: &&Text| cluster.partitions_down.contains(&((*topic).clone(), shard));
        let asked = from.iter().filter(|(_, start)| matches!(start, Start::At(_))).map(|(topic, _)| topic);
        if let Some(topic) = asked.clone().find(is_down) {
            return Err(SourceError::Unavailable(format!("partition {shard} of {topic} has no leader")));
        }
        cluster.stop(self.id, &[shard]);
        // A shard that is lost is not read, whether the member knows of the loss or not.
        if cluster.group.believes(self.id, shard) {
            let readers = from.into_iter().map(|(topic, from)| ((self.id, topic, shard), Reader::new(from)));
            cluster.readers.extend(readers);
        }
        Ok(())
    }

    async fn release(&mut self, shards: &[Shard]) {
        if !self.faults.dead() {
            let mut cluster = self.broker.lock();
            cluster.stop(self.id, shards);
            cluster.group.release(self.id, shards);
        }
    }

    async fn assigned(&mut self, shard: Shard) -> Result<bool, SourceError> {
        self.reach()?.group.assigned(self.id, shard)
    }

    fn commit(&mut self, shard: Shard, next: &BTreeMap<Text, i64>) {
        let Ok(mut cluster) = self.reach() else { return };
        if cluster.group.assigned(self.id, shard) == Ok(true) {
            let offsets = next.iter().map(|(topic, next)| ((topic.clone(), shard), *next));
            cluster.committed.extend(offsets);
        }
    }

    async fn close(&mut self) {
        if !self.faults.dead() {
            let (mut cluster, id) = (self.broker.lock(), self.id);
            cluster.readers.retain(|(member, _, _), _| *member != id);
            cluster.group.leave(id);
        }
    }
}

/// Returns an event for each topic whose number of partitions has changed.
fn changed(before: &BTreeMap<Text, u32>, counts: &BTreeMap<Text, u32>) -> Vec<SourceEvent> {
    let differs = |(topic, count): &(&Text, &u32)| {
        **count > 0 && before.get(*topic).is_some_and(|before| before != *count)
    };
    let event = |(topic, partitions): (&Text, &u32)| SourceEvent::Partitions {
        topic: topic.clone(),
        partitions: *partitions,
    };
    counts.iter().filter(differs).map(event).collect()
}

impl Cluster {
    /// Returns the number of partitions of each topic; 0 if the topic does not exist.
    fn counts(&self, topics: &[Text]) -> BTreeMap<Text, u32> {
        let count = |topic: &Text| self.topics.get(topic).map_or(0, Vec::len);
        let counts = topics.iter().map(|topic| (topic.clone(), u32::try_from(count(topic))));
        counts.map(|(topic, count)| (topic, count.unwrap_or(u32::MAX))).collect()
    }

    fn poll(&mut self, id: MemberId) -> Result<Vec<SourceEvent>, SourceError> {
        let mut signals = self.group.signals(id)?;
        for signal in &signals {
            if let SourceEvent::Revoked(shards) | SourceEvent::Lost(shards) = signal {
                self.stop(id, &shards.clone());
            }
        }
        let readers = self.readers.keys().filter(|(member, _, _)| *member == id);
        let mut keys: Vec<(Text, Shard)> = readers.map(|(_, topic, shard)| (topic.clone(), *shard)).collect();
        if let Some(random) = &mut self.random {
            // One poll may report a partition in several parts, with parts of other partitions in between.
            keys.extend(keys.clone());
            random.shuffle(&mut keys);
            keys.retain(|_| !random.happens(PASSED_OVER));
        }
        let mut left = self.poll_messages;
        for key in keys.into_iter().filter(|key| !self.partitions_down.contains(key)).collect::<Vec<_>>() {
            left -= self.read(id, key, left, &mut signals);
        }
        Ok(signals)
    }

    /// Continues reading one topic partition. Returns the number of reported messages, at most `left`.
    fn read(
        &mut self,
        id: MemberId,
        key: (Text, Shard),
        left: usize,
        signals: &mut Vec<SourceEvent>,
    ) -> usize {
        let (topic, partition) = key;
        let key = (id, topic.clone(), partition);
        let log = self.topics.get(&topic).and_then(|logs| logs.get(usize::from(partition)));
        let (Some(reader), Some(log)) = (self.readers.get_mut(&key), log) else { return 0 };
        let next = match reader.position(log) {
            Ok(next) => next,
            Err((earliest, cause)) => {
                self.readers.remove(&key);
                signals.push(SourceEvent::OffsetsLost { topic, partition, earliest, cause });
                return 0;
            }
        };
        let bad = self.unreadable.get(&(topic.clone(), partition)).copied();
        let bad = bad.filter(|(_, last)| next <= *last);
        let is_reached = |first: i64| next >= first || log.messages.range(next..first).next().is_none();
        if let Some((first, _)) = bad.filter(|(first, _)| is_reached(*first)) {
            self.readers.remove(&key);
            let cause = "it does not unpack".to_owned();
            signals.push(SourceEvent::Unreadable { topic, partition, offset: first, cause });
            return 0;
        }
        let until = bad.map_or(i64::MAX, |(first, _)| first);
        let most = self.random.as_mut().map_or(left, |random| left.min(1 + random.below(left)));
        let messages: Vec<Message> =
            log.messages.range(next..until).take(most).map(|(_, one)| one.clone()).collect();
        let count = messages.len();
        let next = messages.last().map_or(next, |last| last.offset + 1);
        let all = log.messages.range(next..).next().is_none();
        reader.next = Some(if all { log.end } else { next });
        if count > 0 {
            signals.push(SourceEvent::Messages(messages));
        }
        let asked = self.ends == Ends::EveryPoll || reader.ends_reported < self.ends_asked;
        if all && asked {
            reader.ends_reported = self.ends_asked;
            signals.push(SourceEvent::End { topic, partition, offset: log.end });
        }
        count
    }

    fn stop(&mut self, id: MemberId, shards: &[Shard]) {
        self.readers.retain(|(member, _, shard), _| *member != id || !shards.contains(shard));
    }
}
