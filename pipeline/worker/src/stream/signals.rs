//! What the source tells: shards that come and go, messages, ends.

use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::time::Hour;

use super::intake::{Intake, Taken};
use super::progress::TopicProgress;
use super::{Item, Slot, Worker, check_partitions, micros, retry_at};
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::source::{Signal, Source, SourceError};
use crate::status::Dependency;

/// Schemas asked for in one step, at most.
const FETCHES_MAX: usize = 16;

/// How long Kafka may tell nothing before the worker gives up, in microseconds: 10 minutes.
const DEAF_MICROS: i64 = 600_000_000;

/// How long before the worker says that it waits for Kafka, in microseconds.
const QUIET_MICROS: i64 = 15_000_000;

impl<S: Source> Worker<S> {
    /// Takes what the source tells.
    pub(super) async fn listen(&mut self, wait: Duration) -> Result<()> {
        let began = self.ports.shared.clock.now();
        if began.0 - self.listened_at.0 > QUIET_MICROS {
            // What was not listened to has not been silent.
            self.deaf_since = None;
        }
        self.listened_at = began;
        let signals = match self.source.poll(wait).await {
            Ok(signals) => signals,
            Err(error) => return self.endure(error).await,
        };
        if signals.is_empty() {
            if self.slots.is_empty() && !self.cut_off {
                // Nothing is to be heard.
                self.ports.status.lock().waits.remove(&Dependency::Kafka);
            }
            return self.hear_nothing();
        }
        self.deaf_since = None;
        self.ports.status.lock().waits.remove(&Dependency::Kafka);
        self.flowing = signals.iter().any(|signal| matches!(signal, Signal::Messages(_)));
        let now = self.ports.shared.clock.now();
        let silent = now.0.saturating_sub(self.heard_at.0) > micros(self.options.compare_after);
        self.heard_at = now;
        if silent {
            return self.heed_after_silence(signals).await;
        }
        for signal in signals {
            self.heed(signal).await?;
        }
        Ok(())
    }

    /// Heeds signals, but for those of shards that are read once more: while nothing was heard, a topic may have been
    /// made anew and have grown beyond what was read, and would look as if it went on.
    async fn heed_after_silence(&mut self, signals: Vec<Signal>) -> Result<()> {
        let of = |signal: &Signal| match signal {
            Signal::Messages(messages) => messages.first().map(|message| message.partition),
            Signal::End { partition, .. } => Some(*partition),
            _ => None,
        };
        let (read, told): (Vec<Signal>, Vec<Signal>) =
            signals.into_iter().partition(|signal| of(signal).is_some());
        for signal in told {
            self.heed(signal).await?;
        }
        let again: Vec<Shard> = self.live().filter(|live| live.has_read()).map(|live| live.shard).collect();
        for shard in &again {
            if let Some(live) = self.live_mut(*shard) {
                live.topics.values_mut().for_each(TopicProgress::compare_again);
            }
            self.restart(*shard).await?;
        }
        for signal in read.into_iter().filter(|signal| of(signal).is_none_or(|shard| !again.contains(&shard)))
        {
            self.heed(signal).await?;
        }
        Ok(())
    }

    /// Of a shard that is read, messages or ends are told every few seconds, and who has lost all shards is assigned
    /// some, or none, soon: silence means that no broker answers. It is borne, but not for ever: a new process may find
    /// what this one does not.
    fn hear_nothing(&mut self) -> Result<()> {
        let now = self.ports.shared.clock.now();
        if self.live().next().is_none() && !self.cut_off {
            self.deaf_since = None;
            return Ok(());
        }
        let silence = now.0 - self.deaf_since.get_or_insert(now).0;
        if silence > QUIET_MICROS {
            let cause = format!("no broker has told anything for {} s", silence / 1_000_000);
            let error = SourceError::Unavailable(cause);
            let mut status = self.ports.status.lock();
            status.waits.entry(Dependency::Kafka).or_insert_with(|| error.to_string().into());
            if silence > DEAF_MICROS {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Waits a little where Kafka is only unavailable.
    async fn endure(&mut self, error: SourceError) -> Result<()> {
        let SourceError::Unavailable(cause) = &error else { return Err(error.into()) };
        tracing::warn!(cause, "Kafka is unavailable, it is asked again");
        {
            let mut status = self.ports.status.lock();
            status.counts.retries += 1;
            status.waits.insert(Dependency::Kafka, error.to_string().into());
        }
        self.ports.shared.clock.pause(Duration::from_millis(500)).await;
        self.hear_nothing()
    }

    async fn heed(&mut self, signal: Signal) -> Result<()> {
        match signal {
            Signal::Assigned(shards) => self.assign(shards).await?,
            Signal::Revoked(shards) => {
                tracing::info!(?shards, "the group takes shards back");
                self.ports.status.lock().counts.rebalances += 1;
                self.let_go(&shards).await;
                self.source.release(&shards).await;
            }
            Signal::Lost(shards) => {
                tracing::warn!(?shards, "the group has given shards to others");
                self.cut_off = true;
                self.ports.status.lock().counts.rebalances += 1;
                shards.iter().for_each(|shard| self.forget(*shard));
                self.source.release(&shards).await;
            }
            Signal::Messages(messages) => self.backlog.extend(messages.into_iter().map(Item::Message)),
            Signal::End { topic, partition, offset } => {
                self.backlog.push_back(Item::End { topic, shard: partition, offset });
            }
            // In its order: reading starts anew behind what came before it, and what came after it is read again.
            Signal::OffsetsLost { topic, partition, cause } => {
                self.backlog.push_back(Item::Lost { topic, shard: partition, cause });
            }
        }
        Ok(())
    }

    async fn assign(&mut self, shards: Vec<Shard>) -> Result<()> {
        tracing::info!(?shards, "the group assigns shards");
        (self.assigned, self.cut_off) = (true, false);
        self.ports.status.lock().counts.rebalances += 1;
        match self.source.partitions().await {
            Ok(topics) => check_partitions(&topics, &self.root)?,
            // They are compared at the next assignment; a message on a wrong partition is rejected anyway.
            Err(SourceError::Unavailable(cause)) => tracing::warn!(cause, "partitions cannot be counted"),
            Err(error) => return Err(error.into()),
        }
        let now = self.ports.shared.clock.now();
        for shard in shards.into_iter().filter(|shard| *shard < self.root.shards) {
            self.slots.entry(shard).or_insert(Slot::Waiting { retry_at: now, failures: 0, ask: false });
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
                    let Some(progress) = live.topics.get_mut(&topic) else { continue };
                    if progress.ends_before_last(offset) {
                        let cause = format!("Kafka has {offset} as its end, and more had been read");
                        progress.verify = None;
                        self.offsets_lost(topic, shard, cause).await?;
                    } else {
                        live.news |= progress.confirm_end(offset, now);
                    }
                }
                Item::Lost { topic, shard, cause } => self.offsets_lost(topic, shard, cause).await?,
                Item::Message(message) => {
                    let (topic, shard) = (message.topic.clone(), message.partition);
                    match self.take(message)? {
                        Taken::Done => {}
                        Taken::Differs(cause) => self.offsets_lost(topic, shard, cause).await?,
                        Taken::NeedsSchema(message, schema) => {
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
        let listed = match live.draft.rules.is_empty() {
            true => None,
            false => Some(self.rules.of(&live.draft, Hour(i64::MAX))?),
        };
        let intake = Intake {
            root: &self.root,
            decoder: &*self.ports.decoder,
            rules: listed.as_deref().unwrap_or(&self.options.rules),
            now: self.ports.shared.clock.now(),
            max_clock_skew: micros(self.options.max_clock_skew),
            hours_max: self.options.hours_max,
        };
        Ok(intake.take(live, message, &mut self.ports.status.lock().counts))
    }

    /// Asks the registry for a schema; false when it does not answer, or is not to be asked yet.
    async fn fetch(&mut self, schema: u32) -> bool {
        let now = self.ports.shared.clock.now();
        if now < self.registry_at {
            return false;
        }
        match self.ports.decoder.fetch(schema).await {
            Ok(()) => {
                self.registry_failures = 0;
                self.ports.status.lock().waits.remove(&Dependency::Registry);
                true
            }
            Err(error) => {
                tracing::warn!(%error, schema, "messages wait for the schema registry");
                self.registry_at = retry_at(now, self.registry_failures);
                self.registry_failures += 1;
                let mut status = self.ports.status.lock();
                status.counts.retries += 1;
                status.waits.insert(Dependency::Registry, error.to_string().into());
                false
            }
        }
    }

    /// Kafka does not have the next message. The record before it may be gone without harm; then reading starts behind
    /// it. Anything else is a loud stop, unless configured otherwise.
    async fn offsets_lost(&mut self, topic: Text, shard: Shard, cause: String) -> Result<()> {
        let go_on = self.options.go_on_without_lost;
        let Some(live) = self.live_mut(shard) else { return Ok(()) };
        let Some(progress) = live.topics.get_mut(&topic) else { return Ok(()) };
        if progress.verify.take().is_some() && progress.last.is_none() {
            tracing::warn!(%topic, shard, cause, "the last record read cannot be compared, reading starts behind it");
        } else if go_on {
            tracing::error!(%topic, shard, cause, "messages are lost to Kafka, reading goes on from the earliest");
            progress.offsets.next = None;
            progress.offsets.last = None;
            progress.last = None;
            live.news = true;
        } else {
            return Err(WorkerError::OffsetsLost { topic: topic.to_string(), partition: shard, cause });
        }
        self.restart(shard).await
    }
}
