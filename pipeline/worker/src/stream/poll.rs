//! What the source says: shards that come and go, messages, ends, and silence.

use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::time::{Hour, WallTime, micros};

use super::assignments::check_partitions;
use super::intake::{Intake, Taken};
use super::shard::LiveShard;
use super::tasks::Task;
use super::{Item, Slot, Worker};
use crate::backoff::{self, Backoff};
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::source::{Source, SourceError, SourceEvent};
use crate::status::{Dependency, Wait};

/// Schemas asked for in one step, at most.
const FETCHES_MAX: usize = 16;

/// How long Kafka may say nothing before the worker gives up, in microseconds: 10 minutes. That is longer
/// than a rolling restart of brokers takes, and a new process may find what this one does not.
const SILENCE_MAX_MICROS: i64 = 600_000_000;

/// How long before the worker says that it waits for Kafka, in microseconds: ends are confirmed every few
/// seconds.
const QUIET_MICROS: i64 = 15_000_000;

/// What the group and its brokers were last known to do.
#[derive(Debug)]
pub(super) struct Contact {
    /// Whether the group has assigned anything yet, even if it was no shard.
    assigned: bool,
    /// Whether the group has taken all shards away, and has not assigned any since, not even none.
    cut_off: bool,
    /// When the source was last polled.
    polled_at: WallTime,
    /// Since when Kafka has been polled, and has said nothing.
    silent_since: Option<WallTime>,
    /// When the source last said anything.
    last_event_at: WallTime,
}

impl Contact {
    /// None yet.
    pub fn new(now: WallTime) -> Self {
        Self { assigned: false, cut_off: false, polled_at: now, silent_since: None, last_event_at: now }
    }

    /// Whether the group has said which shards are this worker's, and has not taken that back.
    pub fn is_assigned(&self) -> bool {
        self.assigned && !self.cut_off
    }
}

impl<S: Source> Worker<S> {
    /// Handles what the source says.
    pub(super) async fn poll(&mut self, wait: Duration) -> Result<()> {
        let began = self.ports.shared.clock.now();
        if began.micros_since(self.contact.polled_at) > QUIET_MICROS {
            // A source that was not polled has not been silent.
            self.contact.silent_since = None;
        }
        self.contact.polled_at = began;
        let events = match self.source.poll(wait).await {
            Ok(events) => events,
            Err(error) => return self.wait_for_kafka(error).await,
        };
        if events.is_empty() {
            if self.slots.is_empty() && !self.contact.cut_off {
                // There is nothing to say.
                self.ports.status.lock().waits.remove(&Dependency::Kafka);
            }
            return self.note_silence();
        }
        self.contact.silent_since = None;
        self.ports.status.lock().waits.remove(&Dependency::Kafka);
        self.flowing = events.iter().any(|event| matches!(event, SourceEvent::Messages(_)));
        let now = self.ports.shared.clock.now();
        let silent = now.micros_since(self.contact.last_event_at) > micros(self.options.compare_after);
        self.contact.last_event_at = now;
        if silent {
            return self.handle_after_silence(events).await;
        }
        for event in events {
            self.handle(event).await?;
        }
        Ok(())
    }

    /// Handles events, except those of shards that are read once more: during the silence a topic may have
    /// been recreated and have grown beyond what was read, so that it looks like the old one.
    async fn handle_after_silence(&mut self, events: Vec<SourceEvent>) -> Result<()> {
        let of = |event: &SourceEvent| match event {
            SourceEvent::Messages(messages) => messages.first().map(|message| message.partition),
            SourceEvent::End { partition, .. } => Some(*partition),
            _ => None,
        };
        let (read, told): (Vec<SourceEvent>, Vec<SourceEvent>) =
            events.into_iter().partition(|event| of(event).is_some());
        for event in told {
            self.handle(event).await?;
        }
        let again: Vec<Shard> = {
            let read = self.live().filter(|live| live.topics().have_read());
            read.map(LiveShard::shard).collect()
        };
        for shard in &again {
            if let Some(live) = self.live_mut(*shard) {
                live.topics_mut().compare_again();
            }
            self.restart(*shard).await?;
        }
        for event in read.into_iter().filter(|event| of(event).is_none_or(|shard| !again.contains(&shard))) {
            self.handle(event).await?;
        }
        Ok(())
    }

    /// While a shard is read, the source says something every few seconds, and a member that has lost all
    /// shards is soon assigned some, or none. Silence means that no broker answers. The worker waits, but not
    /// without end.
    fn note_silence(&mut self) -> Result<()> {
        let now = self.ports.shared.clock.now();
        let reads = self.live().any(|live| live.unread().is_none());
        if !reads && !self.contact.cut_off {
            self.contact.silent_since = None;
            return Ok(());
        }
        let silence = now.micros_since(*self.contact.silent_since.get_or_insert(now));
        if silence > QUIET_MICROS {
            let cause = format!("no broker has told anything for {} s", silence / 1_000_000);
            let error = SourceError::Unavailable(cause);
            let mut status = self.ports.status.lock();
            status.waits.entry(Dependency::Kafka).or_insert_with(|| error.to_string().into());
            if silence > SILENCE_MAX_MICROS {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Waits a little where Kafka is only unavailable.
    async fn wait_for_kafka(&mut self, error: SourceError) -> Result<()> {
        let SourceError::Unavailable(cause) = &error else { return Err(error.into()) };
        tracing::warn!(cause, "Kafka is unavailable, it is asked again");
        {
            let mut status = self.ports.status.lock();
            status.counts.retries += 1;
            status.waits.insert(Dependency::Kafka, error.to_string().into());
        }
        self.ports.shared.clock.pause(Duration::from_millis(500)).await;
        self.note_silence()
    }

    async fn handle(&mut self, event: SourceEvent) -> Result<()> {
        match event {
            SourceEvent::Assigned(shards) => self.assign(shards).await?,
            SourceEvent::Revoked(shards) => {
                tracing::info!(?shards, "the group takes shards back");
                self.ports.status.lock().counts.rebalances += 1;
                self.revoke(&shards).await;
                self.source.release(&shards).await;
            }
            SourceEvent::Lost(shards) => {
                tracing::warn!(?shards, "the group has given shards to others");
                self.contact.cut_off = true;
                self.ports.status.lock().counts.rebalances += 1;
                shards.iter().for_each(|shard| self.forget(*shard));
                self.source.release(&shards).await;
            }
            SourceEvent::Messages(messages) => self.backlog.extend(messages.into_iter().map(Item::Message)),
            SourceEvent::End { topic, partition, offset } => {
                self.backlog.push_back(Item::End { topic, shard: partition, offset });
            }
            // In its order: reading starts again after what came before it, and what came after it is read
            // again.
            SourceEvent::OffsetsLost { topic, partition, cause } => {
                self.backlog.push_back(Item::Lost { topic, shard: partition, cause });
            }
        }
        Ok(())
    }

    async fn assign(&mut self, shards: Vec<Shard>) -> Result<()> {
        tracing::info!(?shards, "the group assigns shards");
        (self.contact.assigned, self.contact.cut_off) = (true, false);
        self.ports.status.lock().counts.rebalances += 1;
        match self.source.partitions().await {
            Ok(topics) => check_partitions(&topics, &self.root)?,
            // They are compared at the next assignment; a message on a wrong partition is rejected anyway.
            Err(SourceError::Unavailable(cause)) => tracing::warn!(cause, "partitions cannot be counted"),
            Err(error) => return Err(error.into()),
        }
        let now = self.ports.shared.clock.now();
        for shard in shards.into_iter().filter(|shard| *shard < self.root.shards) {
            self.slots.entry(shard).or_insert(Slot::Waiting {
                backoff: Backoff::not_before(backoff::STREAM, now),
                ask: false,
                claimed: None,
            });
        }
        Ok(())
    }

    /// Takes what waits, until the registry is needed and does not answer.
    pub(super) async fn take_backlog(&mut self) -> Result<()> {
        let mut fetches = 0;
        while let Some(item) = self.backlog.pop_front() {
            match item {
                Item::End { topic, shard, offset } => {
                    let now = self.ports.shared.clock.now();
                    let Some(live) = self.live_mut(shard) else { continue };
                    let Some(progress) = live.topics_mut().get_mut(&topic) else { continue };
                    if progress.ends_before_last(offset) {
                        let cause = format!("Kafka has {offset} as its end, and more had been read");
                        progress.verify = None;
                        self.offsets_lost(topic, shard, cause).await?;
                    } else if progress.confirm_end(offset, now) {
                        live.topics_mut().note_moved();
                    }
                }
                Item::Lost { topic, shard, cause } => self.offsets_lost(topic, shard, cause).await?,
                Item::Message(message) => {
                    let (topic, shard) = (message.topic.clone(), message.partition);
                    match self.take(message) {
                        Err(error) => self.stop_shard(shard, error).await?,
                        Ok(Taken::Done) => {}
                        Ok(Taken::Differs(cause)) => self.offsets_lost(topic, shard, cause).await?,
                        Ok(Taken::NeedsClock(message)) => {
                            self.backlog.push_front(Item::Message(*message));
                            return Ok(());
                        }
                        Ok(Taken::NeedsSchema(message, schema)) => {
                            self.backlog.push_front(Item::Message(*message));
                            fetches += 1;
                            if fetches > FETCHES_MAX || !self.fetch(schema).await {
                                return Ok(());
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, message: crate::source::Message) -> Result<Taken> {
        let Some(Slot::Live(live)) = self.slots.get_mut(&message.partition) else { return Ok(Taken::Done) };
        let listed = match live.next().rules.is_empty() {
            true => None,
            false => Some(self.rules.for_judging(live.next(), Hour(i64::MAX))?),
        };
        let intake = Intake {
            root: &self.root,
            decoder: &*self.ports.decoder,
            rules: listed.as_deref().unwrap_or(&self.options.rules),
            clock: self.clock.read(),
            max_clock_skew: self.options.max_clock_skew,
            hours_max: self.options.hours_max,
        };
        Ok(intake.take(live, message, &mut self.ports.status.lock().counts))
    }

    /// Asks the registry for a schema; false when it does not answer, or is not to be asked yet.
    async fn fetch(&mut self, schema: u32) -> bool {
        let now = self.ports.shared.clock.now();
        if !self.tasks.is_due(Task::Registry, now) {
            return false;
        }
        match self.ports.decoder.fetch(schema).await {
            Ok(()) => {
                self.tasks.note(Task::Registry, true, now);
                self.ports.status.lock().waits.remove(&Dependency::Registry);
                true
            }
            Err(error) => {
                tracing::warn!(%error, schema, "messages wait for the schema registry");
                self.tasks.note(Task::Registry, false, now);
                let mut status = self.ports.status.lock();
                status.counts.retries += 1;
                let wait = Wait { kind: error.kind, sentence: error.to_string() };
                status.waits.insert(Dependency::Registry, wait);
                false
            }
        }
    }

    /// Kafka does not have the next message. The record before it may be gone without harm; then reading
    /// starts behind it. Anything else stops the shard, unless configured otherwise.
    async fn offsets_lost(&mut self, topic: Text, shard: Shard, cause: String) -> Result<()> {
        let go_on = self.options.go_on_without_lost;
        let Some(live) = self.live_mut(shard) else { return Ok(()) };
        let Some(progress) = live.topics_mut().get_mut(&topic) else { return Ok(()) };
        if progress.verify.take().is_some() && progress.last.is_none() {
            tracing::warn!(%topic, shard, cause, "the last record read cannot be compared, reading starts \
                                                  behind it");
        } else if go_on {
            tracing::error!(%topic, shard, cause, "messages are lost to Kafka, reading goes on from the \
                                                   earliest");
            progress.offsets.next = None;
            progress.offsets.last = None;
            progress.last = None;
            live.topics_mut().note_moved();
        } else {
            let lost = WorkerError::OffsetsLost { topic: topic.to_string(), partition: shard, cause };
            return self.stop_shard(shard, lost).await;
        }
        self.restart(shard).await
    }
}
