//! A listener, which records the events of a member and checks them against the promises that a source must
//! always keep.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{Message, Source, SourceError, SourceEvent, Start};

use super::{Checked, SourceStage};
use crate::wait::Deadline;

/// Maximum wait of one poll.
const WAIT: Duration = Duration::from_millis(100);

/// Limit of a wait for an event that must occur.
pub(super) enum Bound {
    Polls(u32),
    Time(Deadline),
}

impl Bound {
    /// Counts one more poll. Returns an error if the limit is reached.
    pub(super) fn next(&mut self) -> Result<(), ()> {
        match self {
            Self::Polls(left) => left.checked_sub(1).map(|fewer| *left = fewer).ok_or(()),
            Self::Time(deadline) if deadline.passed() => Err(()),
            Self::Time(_) => Ok(()),
        }
    }
}

/// A member whose events are recorded.
pub(super) struct Listener {
    pub(super) source: Box<dyn Source>,
    /// Shards that were assigned to the member.
    pub(super) held: BTreeSet<Shard>,
    /// Shards that were revoked and not yet released.
    pub(super) revoked: BTreeSet<Shard>,
    /// Shards that were lost.
    pub(super) lost: BTreeSet<Shard>,
    /// Messages and ends since each start.
    pub(super) readings: BTreeMap<(Text, Shard), Reading>,
    /// Topic partitions whose offset was lost.
    pub(super) offsets_lost: BTreeSet<(Text, Shard)>,
    /// Whether another member has taken its place.
    pub(super) fenced: bool,
}

/// Messages and ends of a topic partition since its start.
pub(super) struct Reading {
    from: Start,
    pub(super) messages: Vec<Message>,
    pub(super) ends: Vec<i64>,
}

impl Reading {
    /// Returns the smallest possible next offset, which is after the reported messages and not before a
    /// reported end.
    fn next(&self) -> i64 {
        let start = match self.from {
            Start::Earliest => 0,
            Start::At(offset) => offset,
        };
        let due = self.messages.last().map_or(start, |last| last.offset + 1);
        self.ends.last().map_or(due, |end| due.max(*end))
    }

    fn hear(&mut self, messages: Vec<Message>) -> Checked {
        for message in messages {
            if message.offset < self.next() {
                let Message { topic, partition, offset, .. } = message;
                return Err(format!(
                    "offset {offset} of {topic}, partition {partition} came when {} or later was due",
                    self.next()
                ));
            }
            self.messages.push(message);
        }
        Ok(())
    }
}

impl SourceStage {
    /// Returns the limit of a wait that begins now.
    pub(super) fn bound(&self) -> Bound {
        self.place.polls_max().map_or_else(|| Bound::Time(Deadline::start()), Bound::Polls)
    }

    /// Creates a new member that reads these topics.
    pub(super) async fn listener(&self, name: &str, topics: &[Text]) -> Result<Listener, String> {
        Ok(Listener {
            source: self.place.member(name, topics).await?,
            held: BTreeSet::new(),
            revoked: BTreeSet::new(),
            lost: BTreeSet::new(),
            readings: BTreeMap::new(),
            offsets_lost: BTreeSet::new(),
            fenced: false,
        })
    }

    /// Creates a new member that is alone in the group and holds all shards.
    pub(super) async fn sole_listener(
        &self,
        name: &str,
        topics: &[Text],
        shards: Shard,
    ) -> Result<Listener, String> {
        let mut listener = self.listener(name, topics).await?;
        let all: BTreeSet<Shard> = (0..shards).collect();
        self.until(&mut [&mut listener], "the only member gets all shards", |one| {
            one.iter().all(|listener| listener.held == all)
        })
        .await?;
        Ok(listener)
    }

    /// Polls the members in order until the condition holds.
    pub(super) async fn until(
        &self,
        members: &mut [&mut Listener],
        what: &str,
        condition: impl Fn(&[&mut Listener]) -> bool,
    ) -> Checked {
        let mut bound = self.bound();
        while !condition(members) {
            bound.next().map_err(|()| format!("this has not come: {what}"))?;
            for member in &mut *members {
                member.poll().await?;
            }
        }
        Ok(())
    }

    /// Polls the members for a while, so that forbidden events appear.
    pub(super) async fn listen(&self, members: &mut [&mut Listener]) -> Checked {
        for _ in 0..self.place.silence() {
            for member in &mut *members {
                member.poll().await?;
            }
        }
        Ok(())
    }
}

impl Listener {
    /// Starts a shard at the same place in all these topics.
    pub(super) async fn start(&mut self, topics: &[Text], shard: Shard, from: Start) -> Checked {
        self.forget(&[shard]);
        for topic in topics {
            let reading = Reading { from, messages: Vec::new(), ends: Vec::new() };
            self.offsets_lost.remove(&(topic.clone(), shard));
            self.readings.insert((topic.clone(), shard), reading);
        }
        let from = topics.iter().map(|topic| (topic.clone(), from)).collect();
        self.source.start(shard, from).await.map_err(|error| format!("start: {error}"))
    }

    /// Starts all shards of the member at their earliest messages.
    pub(super) async fn start_all(&mut self, topics: &[Text]) -> Checked {
        for shard in self.held.clone() {
            self.start(topics, shard, Start::Earliest).await?;
        }
        Ok(())
    }

    /// Releases shards.
    pub(super) async fn release(&mut self, shards: &[Shard]) {
        self.forget(shards);
        self.revoked.retain(|shard| !shards.contains(shard));
        self.source.release(shards).await;
    }

    /// Releases all revoked shards.
    pub(super) async fn release_revoked(&mut self) {
        let revoked: Vec<Shard> = self.revoked.iter().copied().collect();
        self.release(&revoked).await;
    }

    /// Returns the offsets that were reported for a topic partition since its start.
    pub(super) fn offsets(&self, topic: &Text, shard: Shard) -> Vec<i64> {
        let reading = self.readings.get(&(topic.clone(), shard));
        reading.map_or_else(Vec::new, |reading| reading.messages.iter().map(|one| one.offset).collect())
    }

    /// Returns the number of times that this end was reported since the start.
    pub(super) fn ends(&self, topic: &Text, shard: Shard, offset: i64) -> usize {
        let reading = self.readings.get(&(topic.clone(), shard));
        reading.map_or(0, |reading| reading.ends.iter().filter(|end| **end == offset).count())
    }

    /// Asks the group whether it assigns the shard to this member. Asks again if Kafka does not respond.
    pub(super) async fn assigned(&mut self, shard: Shard, mut bound: Bound) -> Result<bool, String> {
        loop {
            match self.source.assigned(shard).await {
                Ok(assigned) => return Ok(assigned),
                Err(SourceError::Unavailable(_)) => self.poll().await?,
                Err(error) => return Err(format!("asked again: {error}")),
            }
            bound.next().map_err(|()| "the group, asked again, does not answer")?;
        }
    }

    /// Polls once, and checks the events against the promises.
    pub(super) async fn poll(&mut self) -> Checked {
        let signals = match self.source.poll(WAIT).await {
            Ok(signals) => signals,
            Err(SourceError::Unavailable(_)) => return Ok(()),
            Err(SourceError::Fenced(_)) => {
                self.fenced = true;
                return Ok(());
            }
            Err(error) => return Err(format!("poll: {error}")),
        };
        signals.into_iter().try_for_each(|signal| self.hear(signal))
    }

    fn hear(&mut self, signal: SourceEvent) -> Checked {
        match signal {
            SourceEvent::Assigned(shards) => {
                shards.iter().try_for_each(|shard| match self.held.insert(*shard) {
                    true => Ok(()),
                    false => Err(format!("shard {shard} is assigned to who holds it already")),
                })
            }
            SourceEvent::Revoked(shards) => {
                self.revoked.extend(&shards);
                self.take(&shards, "revoked")
            }
            SourceEvent::Lost(shards) => {
                self.lost.extend(&shards);
                self.take(&shards, "lost")
            }
            SourceEvent::Messages(messages) => {
                let Some(first) = messages.first() else { return Err("no messages were reported".into()) };
                let (topic, partition) = (first.topic.clone(), first.partition);
                if messages.iter().any(|one| (&one.topic, one.partition) != (&topic, partition)) {
                    return Err("messages of several topic partitions came together".into());
                }
                self.reading(&topic, partition, "messages")?.hear(messages)
            }
            SourceEvent::End { topic, partition, offset } => {
                let reading = self.reading(&topic, partition, "an end")?;
                if offset < reading.next() {
                    return Err(format!(
                        "the end of {topic}, partition {partition} is before what was reported"
                    ));
                }
                reading.ends.push(offset);
                Ok(())
            }
            SourceEvent::OffsetsLost { topic, partition, .. } => {
                self.reading(&topic, partition, "a lost offset")?;
                self.readings.remove(&(topic.clone(), partition));
                self.offsets_lost.insert((topic, partition));
                Ok(())
            }
            SourceEvent::Unreadable { topic, partition, .. } => {
                Err(format!("a batch of {topic}, partition {partition} cannot be read"))
            }
            SourceEvent::Partitions { .. } => Ok(()),
        }
    }

    /// Returns the events that were reported for a topic partition. Fails unless the partition was started
    /// and still runs.
    fn reading(&mut self, topic: &Text, partition: Shard, what: &str) -> Result<&mut Reading, String> {
        let reading = self.readings.get_mut(&(topic.clone(), partition));
        reading.ok_or_else(|| format!("{what} of {topic}, partition {partition} came, which is not read"))
    }

    fn take(&mut self, shards: &[Shard], how: &str) -> Checked {
        self.forget(shards);
        shards.iter().try_for_each(|shard| match self.held.remove(shard) {
            true => Ok(()),
            false => Err(format!("shard {shard} is {how} of who does not hold it")),
        })
    }

    fn forget(&mut self, shards: &[Shard]) {
        self.readings.retain(|(_, shard), _| !shards.contains(shard));
    }
}
