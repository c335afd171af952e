//! Handles the events of the source: shards that come and go, messages, ends, and silence.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::time::WallTime;

use super::Worker;
use super::assignments::check_partitions;
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::source::{Message, Source, SourceError, SourceEvent};
use crate::status::{Counts, Dependency};
use crate::stream::backlog::{Item, Loss};
use crate::stream::intake::{Intake, Taken};

/// The longest silence of Kafka before the worker gives up: 10 minutes. A rolling restart of brokers takes
/// less, and a new process may find brokers that this process does not find.
const SILENCE_MAX: Duration = Duration::from_secs(10 * 60);

/// The silence of Kafka after which the worker reports that it waits. Brokers usually confirm ends every few
/// seconds.
const QUIET: Duration = Duration::from_secs(15);

/// The time after its start within which only a rival with the same id can have fenced a worker. Later, a
/// session of its own that ended under load may have fenced the worker.
const FENCED_SOON: Duration = Duration::from_secs(600);

/// The last known answers of the group and its brokers.
#[derive(Debug)]
pub(super) struct Contact {
    /// Whether the group has assigned anything yet, even an empty set of shards.
    assigned: bool,
    /// Whether the group has taken all shards away and has not assigned any set of shards since, not even an
    /// empty set.
    cut_off: bool,
    /// The time at which the worker started.
    began_at: WallTime,
    /// The time at which the source was last polled.
    polled_at: WallTime,
    /// The time since which Kafka has been polled without an answer.
    silent_since: Option<WallTime>,
}

impl Contact {
    /// Creates the contact of a worker that has not been assigned anything.
    pub fn new(now: WallTime) -> Self {
        Self { assigned: false, cut_off: false, began_at: now, polled_at: now, silent_since: None }
    }

    /// Returns whether the group has assigned this worker's shards, and has not revoked the assignment.
    pub fn is_assigned(&self) -> bool {
        self.assigned && !self.cut_off
    }
}

/// Returns the topic partition from which messages or an end were read; `None` for all other events.
fn of(event: &SourceEvent) -> Option<(&Text, Shard)> {
    match event {
        SourceEvent::Messages(messages) => {
            messages.first().map(|message| (&message.topic, message.partition))
        }
        SourceEvent::End { topic, partition, .. } => Some((topic, *partition)),
        SourceEvent::Unreadable { .. }
        | SourceEvent::Assigned(_)
        | SourceEvent::Revoked(_)
        | SourceEvent::Lost(_)
        | SourceEvent::OffsetsLost { .. }
        | SourceEvent::Partitions { .. } => None,
    }
}

impl<S: Source> Worker<S> {
    /// Polls the source, and handles the events that it returns.
    pub(super) async fn poll(&mut self, wait: Duration) -> Result<()> {
        let began = self.setup.ports.shared.clock.now();
        if began.since(self.contact.polled_at) > QUIET {
            // A source that was not polled has not been silent.
            self.contact.silent_since = None;
        }
        self.contact.polled_at = began;
        let events = match self.source.poll(wait).await {
            Ok(events) => events,
            Err(error) => return self.wait_for_kafka(error).await,
        };
        if events.is_empty() {
            if self.shards.is_empty() && !self.contact.cut_off {
                // A worker without shards hears nothing.
                self.setup.ports.status.lock().waits.remove(&Dependency::Kafka);
            }
            return self.note_silence();
        }
        self.contact.silent_since = None;
        self.setup.ports.status.lock().waits.remove(&Dependency::Kafka);
        self.flowing = events.iter().any(|event| matches!(event, SourceEvent::Messages(_)));
        let again = self.after_silence(&events);
        for shard in &again {
            if let Some(live) = self.shards.get_live(*shard) {
                live.topics_mut().compare_again();
            }
            self.restart(*shard).await?;
        }
        let is_of = |event: &SourceEvent| of(event).is_some_and(|(_, shard)| again.contains(&shard));
        for event in events.into_iter().filter(|event| !is_of(event)) {
            self.handle(event).await?;
        }
        Ok(())
    }

    /// Returns the shards with a topic partition that is heard again after a silence. They are read again
    /// from the last record, because the topic may have been recreated meanwhile and have grown beyond the
    /// offset that was read. Silence is measured for each topic partition, because other topic partitions may
    /// continue.
    fn after_silence(&mut self, events: &[SourceEvent]) -> BTreeSet<Shard> {
        let (now, compare_after) = (self.setup.ports.shared.clock.now(), self.setup.options.compare_after);
        let mut again = BTreeSet::new();
        for (topic, shard) in events.iter().filter_map(of) {
            let Some(live) = self.shards.get_live(shard) else { continue };
            let silent = live.topics_mut().get_mut(topic).is_some_and(|topic| topic.hear(now, compare_after));
            if silent {
                live.topics_mut().hear_all(now);
                again.insert(shard);
            }
        }
        again
    }

    /// Checks how long Kafka has been silent. While a shard is read, the source reports something every few
    /// seconds. A member that has lost all shards soon gets a new assignment, perhaps an empty one. So
    /// silence means that no broker answers. The worker waits, but after [`SILENCE_MAX`] it returns an error.
    fn note_silence(&mut self) -> Result<()> {
        let now = self.setup.ports.shared.clock.now();
        let reads = self.shards.live().any(|live| {
            let mut topics = live.topics().iter();
            live.unread().is_none() && topics.any(|(topic, _)| !self.backlog.is_parked(live.shard(), topic))
        });
        if !reads && !self.contact.cut_off {
            self.contact.silent_since = None;
            return Ok(());
        }
        let silence = now.since(*self.contact.silent_since.get_or_insert(now));
        if silence > QUIET {
            let cause = format!("no broker has responded for {} s", silence.as_secs());
            let error = SourceError::Unavailable(cause);
            let mut status = self.setup.ports.status.lock();
            status.waits.entry(Dependency::Kafka).or_insert_with(|| error.to_string().into());
            if silence > SILENCE_MAX {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Pauses for a moment if Kafka is only unavailable. Returns any other error.
    async fn wait_for_kafka(&mut self, error: SourceError) -> Result<()> {
        if let SourceError::Fenced(_) = error {
            let age = self.setup.ports.shared.clock.now().since(self.contact.began_at);
            return Err(if age > FENCED_SOON { WorkerError::FencedLate } else { error.into() });
        }
        let SourceError::Unavailable(cause) = &error else { return Err(error.into()) };
        tracing::warn!(cause, "Kafka unavailable; trying again");
        {
            let mut status = self.setup.ports.status.lock();
            status.counts.retries += 1;
            status.waits.insert(Dependency::Kafka, error.to_string().into());
        }
        self.setup.ports.shared.clock.pause(Duration::from_millis(500)).await;
        self.note_silence()
    }

    async fn handle(&mut self, event: SourceEvent) -> Result<()> {
        match event {
            SourceEvent::Assigned(shards) => self.assign(shards).await?,
            SourceEvent::Revoked(shards) => {
                tracing::info!(?shards, "shards revoked by the group");
                self.setup.ports.status.lock().counts.rebalances += 1;
                self.revoke(&shards).await;
                self.source.release(&shards).await;
            }
            SourceEvent::Lost(shards) => {
                tracing::warn!(?shards, "shards lost: the group has given them to others");
                self.contact.cut_off = true;
                self.setup.ports.status.lock().counts.rebalances += 1;
                shards.iter().for_each(|shard| self.forget(*shard));
                self.source.release(&shards).await;
            }
            SourceEvent::Messages(messages) => {
                let place = messages.first().map(|message| (message.partition, message.topic.clone()));
                if let Some(place) = place {
                    self.backlog.push(place, Item::Messages(messages.into()));
                }
            }
            SourceEvent::End { topic, partition, offset } => {
                self.backlog.push((partition, topic), Item::End(offset));
            }
            // This event is handled in order: reading starts again after the events before it, and the events
            // after it are read again.
            SourceEvent::OffsetsLost { topic, partition, earliest, cause } => {
                self.backlog.push((partition, topic), Item::Lost(Loss { earliest, cause }));
            }
            SourceEvent::Unreadable { topic, partition, offset, cause } => {
                self.backlog.push((partition, topic), Item::Unreadable { offset, cause });
            }
            // Organizations may have moved to partitions that no worker reads: no hour closes from now on.
            SourceEvent::Partitions { topic, partitions }
                if partitions > u32::from(self.setup.root.shards) =>
            {
                check_partitions(&BTreeMap::from([(topic, partitions)]), &self.setup.root)?;
            }
            SourceEvent::Partitions { .. } => {}
        }
        Ok(())
    }

    async fn assign(&mut self, shards: Vec<Shard>) -> Result<()> {
        tracing::info!(?shards, "shards assigned by the group");
        (self.contact.assigned, self.contact.cut_off) = (true, false);
        self.setup.ports.status.lock().counts.rebalances += 1;
        match self.source.partitions().await {
            Ok(topics) => check_partitions(&topics, &self.setup.root)?,
            // The counts are compared at the next assignment; a message on a wrong partition is rejected
            // anyway.
            Err(SourceError::Unavailable(cause)) => tracing::warn!(cause, "cannot count the partitions"),
            Err(error) => return Err(error.into()),
        }
        let now = self.setup.ports.shared.clock.now();
        for shard in shards.into_iter().filter(|shard| *shard < self.setup.root.shards) {
            self.shards.assign(shard, now);
        }
        Ok(())
    }

    pub(super) fn take(&mut self, shard: Shard, messages: &mut VecDeque<Message>) -> Result<Taken> {
        let Some(live) = self.shards.get_live(shard) else {
            messages.clear();
            return Ok(Taken::All);
        };
        let intake = Intake {
            root: &self.setup.root,
            decoder: &*self.setup.ports.decoder,
            rules: &self.rules,
            configured: &self.setup.options.rules,
            organizations: &self.setup.options.organizations,
            clock: self.setup.clock.read(),
            max_clock_skew: self.setup.options.max_clock_skew,
            max_history_hours: self.setup.options.max_history_hours,
        };
        // Decoding may take long. A probe, which reads the status, never waits for it.
        let mut counts = Counts::default();
        let taken = intake.take(live, messages, &mut counts);
        self.setup.ports.status.lock().counts.add(counts);
        taken
    }
}
