//! Takes waiting items, one topic partition after another, and requests missing schemas from the registry.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::Worker;
use super::tasks::Task;
use crate::backoff::{self, Backoff};
use crate::error::Result;
use crate::names::Shard;
use crate::source::{RegistryError, Source};
use crate::status::{Dependency, Wait};
use crate::stream::backlog::{Item, Loss, Need, Parked, Place};
use crate::stream::intake::Taken;

/// Maximum number of schemas requested at once.
const FETCHES_MAX: usize = 16;

/// Maximum number of rounds of requests to the registry in one step. A flood of unknown ids must not hold up
/// the rest of the loop for long.
const ROUNDS_MAX: usize = 16;

/// The divisor of `queue_bytes` that gives the bytes that may wait to be taken.
const WAITING_PART: u64 = 4;

/// Minimum time that a topic partition is parked. Whenever a topic partition is parked or resumed, all
/// partitions are assigned again, and messages that were read ahead are read again.
const PARKED_FOR: Duration = Duration::from_secs(5);

impl<S: Source> Worker<S> {
    /// Takes waiting items as far as schemas and the clock allow. Returns whether more can be taken at once.
    pub(super) async fn take_backlog(&mut self) -> Result<bool> {
        if self.setup.clock.read().ahead_seconds.is_none() {
            self.unpark(|need| need == Need::Clock).await?;
        }
        let mut continues = true;
        for _ in 0..ROUNDS_MAX {
            for place in self.backlog.places() {
                self.take_place(place).await?;
            }
            continues = self.fetch_schemas().await?;
            if !continues {
                break;
            }
        }
        while self.backlog.bytes() > self.setup.options.queue_bytes / WAITING_PART
            && let Some((place, need)) = self.backlog.largest()
        {
            self.park(place, need).await?;
        }
        Ok(continues)
    }

    /// Takes the waiting items of a topic partition until its next message needs a schema or the clock.
    async fn take_place(&mut self, place: Place) -> Result<()> {
        let (shard, topic) = &place;
        while let Some(item) = self.backlog.pop(&place) {
            match item {
                Item::End(offset) => {
                    let now = self.setup.ports.shared.clock.now();
                    let Some(live) = self.shards.get_live(*shard) else { continue };
                    let Some(progress) = live.topics_mut().get_mut(topic) else { continue };
                    if let Some(cause) = progress.lacks_last(offset) {
                        self.offsets_lost(topic.clone(), *shard, Loss::of_another_log(cause)).await?;
                    } else if progress.confirm_end(offset, now) {
                        live.topics_mut().note_moved();
                    }
                }
                Item::Lost(loss) => self.offsets_lost(topic.clone(), *shard, loss).await?,
                Item::Unreadable { offset, cause } => self.unreadable(&place, offset, cause).await?,
                Item::Messages(mut messages) => match self.take(*shard, &mut messages) {
                    Err(error) => self.stop_shard(*shard, error).await?,
                    Ok(Taken::All) => {}
                    Ok(Taken::Differs(cause)) => {
                        self.offsets_lost(topic.clone(), *shard, Loss::of_another_log(cause)).await?;
                    }
                    Ok(Taken::NeedsClock) => {
                        self.backlog.wait(place, messages, Need::Clock);
                        return Ok(());
                    }
                    Ok(Taken::NeedsSchema(id)) => {
                        self.backlog.wait(place, messages, Need::Schema(id));
                        return Ok(());
                    }
                },
            }
        }
        Ok(())
    }

    /// Requests schemas that messages wait for, if the registry may be asked. Returns whether the registry
    /// has returned any schema, or reported that a schema does not exist.
    async fn fetch_schemas(&mut self) -> Result<bool> {
        let now = self.setup.ports.shared.clock.now();
        let mut ids = self.backlog.schemas(&*self.setup.ports.decoder, now);
        self.asks.retain(|id, _| ids.contains(id));
        ids.retain(|id| self.asks.get(id).is_none_or(|ask| ask.is_due(now)));
        if ids.is_empty() || !self.tasks.is_due(Task::Registry, now) {
            return Ok(false);
        }
        // Ids that have not failed go first: ids that the registry does not give must not hold up the others.
        ids.sort_by_key(|id| self.asks.get(id).map_or(0, Backoff::failures));
        ids.truncate(FETCHES_MAX);
        let decoder = Arc::clone(&self.setup.ports.decoder);
        let answers = join_all(ids.iter().map(|id| decoder.fetch(*id))).await;
        let (mut known, mut answered) = (BTreeSet::new(), false);
        for (id, answer) in ids.into_iter().zip(answers) {
            match answer {
                Ok(()) => {
                    self.asks.remove(&id);
                    known.insert(id);
                }
                Err(error) => {
                    answered |= error.is_of_schema;
                    self.note_missing(id, error);
                }
            }
        }
        self.tasks.note(Task::Registry, answered || !known.is_empty(), now);
        self.unpark(|need| matches!(need, Need::Schema(id) if known.contains(&id))).await?;
        Ok(!known.is_empty())
    }

    /// Notes that the registry has not returned a schema.
    fn note_missing(&mut self, id: u32, error: RegistryError) {
        tracing::warn!(%error, schema = id, "messages are waiting for the schema registry");
        if error.is_of_schema {
            let now = self.setup.ports.shared.clock.now();
            self.asks.entry(id).or_insert(Backoff::new(backoff::STREAM)).fail(now);
        }
        let mut status = self.setup.ports.status.lock();
        status.counts.retries += 1;
        let wait = Wait { kind: error.kind, message: error.to_string() };
        status.waits.insert(Dependency::Registry, wait);
    }

    /// Stops reading a topic partition until its need is met, and for at least [`PARKED_FOR`].
    async fn park(&mut self, place: Place, need: Need) -> Result<()> {
        let shard = place.0;
        tracing::warn!(shard, topic = %place.1, ?need, "topic partition is read no further until it can be");
        let until = self.setup.ports.shared.clock.now().after(PARKED_FOR);
        let mut parked = self.backlog.parked_of(shard);
        parked.push((place, Parked { need, until }));
        self.restart_but(shard, parked).await
    }

    /// Resumes the parked topic partitions whose need is met now, according to `is_there`.
    async fn unpark(&mut self, is_there: impl Fn(Need) -> bool) -> Result<()> {
        let now = self.setup.ports.shared.clock.now();
        let ready = |parked: &Parked| parked.until <= now && is_there(parked.need);
        for shard in self.backlog.shards_parked(ready) {
            let mut parked = self.backlog.parked_of(shard);
            parked.retain(|(_, parked)| !ready(parked));
            self.restart_but(shard, parked).await?;
        }
        Ok(())
    }

    /// Resumes a shard at its next offsets, without the topic partitions that are parked.
    async fn restart_but(&mut self, shard: Shard, parked: Vec<(Place, Parked)>) -> Result<()> {
        self.stop_reading(shard).await;
        self.backlog.park(parked);
        self.start_reading(shard).await
    }
}
