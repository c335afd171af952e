//! The loop: steps until told to stop, then a clean stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prorata_schemas::time::Timestamp;

use super::close::Folding;
use super::shard::LiveShard;
use super::{Slot, Worker, decide, flush, micros, retry_at};
use crate::error::{Result, WorkerError};
use crate::hour_files::Stamper;
use crate::log::Decision;
use crate::names::Shard;
use crate::source::Source;
use crate::status::Dependency;

/// How long a step waits for messages when nothing else is to do.
const WAIT: Duration = Duration::from_millis(200);

/// A shard that was not checkpointed for so long is recovered first, in microseconds: what its checkpoint names may be
/// gone. One day.
const STALE_MICROS: i64 = 86_400_000_000;

/// While messages flow, this part of the most time between two checkpoints is the least.
const FLOWING_PART: i64 = 8;

/// How a checkpoint that was asked for came out.
enum Asked {
    /// Decided.
    Ours,
    /// Another owner had decided.
    Anothers,
    /// Storage did not answer; it is asked again.
    Later,
}

impl<S: Source> Worker<S> {
    /// Runs until `stop` is set, then stops cleanly, within `drain_timeout` and with the step at hand: last checkpoints,
    /// shards released, group left. After an error no checkpoint is made: memory may be half changed, and the next owner
    /// takes up what is decided.
    ///
    /// # Errors
    /// What no retry can mend: see [`WorkerError`].
    pub async fn run(mut self, stop: &AtomicBool) -> Result<()> {
        let patience = self.options.drain_timeout;
        let overdue = async {
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(WAIT).await;
            }
            tokio::time::sleep(patience).await;
        };
        tokio::select! {
            outcome = self.serve(stop) => outcome,
            () = overdue => {
                tracing::warn!("the clean stop took too long; the next owner takes up what is left");
                self.source.close().await;
                Ok(())
            }
        }
    }

    async fn serve(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut busy = false;
        while !stop.load(Ordering::Relaxed) {
            // A step is never broken off in the middle: what it has taken from memory would be lost.
            match self.step(if busy { Duration::ZERO } else { WAIT }).await {
                Ok(more) => busy = more,
                Err(error) => {
                    self.source.close().await;
                    return Err(error);
                }
            }
        }
        self.ports.status.lock().draining = true;
        self.drain().await;
        Ok(())
    }

    /// One round: load, take, checkpoint, publish. Returns whether more is to do at once.
    ///
    /// # Errors
    /// What no retry can mend: see [`WorkerError`].
    pub async fn step(&mut self, wait: Duration) -> Result<bool> {
        self.beside = (self.options.resident)().saturating_sub(self.bytes());
        self.load_waiting().await?;
        self.listen_if_room(wait).await?;
        self.take_backlog().await?;
        self.move_watermarks();
        let due = self.due();
        let began = self.ports.shared.clock.now();
        for shard in &due {
            self.checkpoint(*shard, false).await?;
        }
        if !due.is_empty() {
            // As long as that took, messages are taken before it is done again, if they flow.
            let now = self.ports.shared.clock.now();
            self.rests_until = Timestamp(now.0.saturating_add(now.0 - began.0));
        }
        self.publish().await?;
        self.feed().await;
        self.sweep().await;
        self.make_room();
        self.tell();
        Ok(!due.is_empty() && self.failures() == 0)
    }

    /// Listens unless messages wait for the registry, or memory is full.
    async fn listen_if_room(&mut self, wait: Duration) -> Result<()> {
        let full = self.bytes() >= self.budget();
        let room = if full { Err("storage must take events before more are read") } else { Ok(()) };
        self.ports.status.lock().heard(Dependency::Memory, &room);
        self.flowing = false;
        if self.backlog.is_empty() && !full {
            return self.listen(wait).await;
        }
        if wait > Duration::ZERO {
            self.ports.shared.clock.pause(wait).await;
        }
        Ok(())
    }

    fn move_watermarks(&mut self) {
        let (now, rule) = (self.ports.shared.clock.now(), self.options.watermark);
        for slot in self.slots.values_mut() {
            if let Slot::Live(live) = slot {
                let watermark = super::progress::watermark(live.topics.values(), now, &rule);
                live.watermark = live.watermark.max(watermark);
            }
        }
    }

    /// Shards whose next checkpoint is due. While messages flow, as when a worker catches up, hours close and dirty ones
    /// are folded by the batch, and only now and then: what comes in the meantime is not late, and files are fewer.
    fn due(&self) -> Vec<Shard> {
        let now = self.ports.shared.clock.now();
        let every = micros(self.options.checkpoint_every);
        let crowded = self.bytes() >= self.budget() / 2;
        let is_due = |live: &LiveShard| {
            let age = now.0 - live.decided_at.0;
            let waiting = live.closable().is_some() || live.refold_due(now, every);
            let rested = age >= every / FLOWING_PART && now >= self.rests_until;
            let in_turn = waiting && (!self.flowing || rested);
            let large = live.new_bytes >= self.options.checkpoint_bytes || (crowded && live.new_bytes > 0);
            // One that nothing happens in is checkpointed all the same before it counts as stale.
            let old = (live.news || waiting || age >= STALE_MICROS / 2) && age >= every;
            live.retry_at <= now && (live.pending.is_some() || in_turn || large || old)
        };
        self.live().filter(|live| is_due(live)).map(|live| live.shard).collect()
    }

    fn failures(&self) -> u32 {
        self.live().map(|live| live.failures).sum()
    }

    /// Makes and decides a shard's next checkpoint.
    async fn checkpoint(&mut self, shard: Shard, release: bool) -> Result<()> {
        let now = self.ports.shared.clock.now();
        let stale = self.live_mut(shard).is_some_and(|live| now.0 - live.decided_at.0 >= STALE_MICROS);
        if stale && release {
            tracing::info!(shard, "no checkpoint for a day, the shard is let go without one");
            return Ok(());
        }
        if stale {
            tracing::info!(shard, "no checkpoint for a day, the shard is loaded anew");
            self.load_anew(shard, now, 0).await;
            return Ok(());
        }
        match self.ask(shard, now, release).await? {
            Asked::Ours | Asked::Later => Ok(()),
            Asked::Anothers => {
                self.conflict(shard).await;
                Ok(())
            }
        }
    }

    async fn ask(&mut self, shard: Shard, now: Timestamp, release: bool) -> Result<Asked> {
        let outcome = self.try_ask(shard, now, release).await;
        let Some(live) = self.live_mut(shard) else { return Ok(Asked::Later) };
        // After any error the draft may name what is not stored, let alone decided: it is not for publish to see.
        live.failures = if outcome.is_ok() { 0 } else { live.failures + 1 };
        match outcome {
            Ok(Decision::Ours) => Ok(Asked::Ours),
            Ok(Decision::Anothers) => Ok(Asked::Anothers),
            Err(error @ (WorkerError::Store(_) | WorkerError::Tables(_))) => {
                live.retry_at = retry_at(now, live.failures);
                tracing::warn!(shard, %error, "a checkpoint waits for storage");
                self.ports.status.lock().counts.retries += 1;
                Ok(Asked::Later)
            }
            Err(error) => Err(error),
        }
    }

    async fn try_ask(&mut self, shard: Shard, now: Timestamp, release: bool) -> Result<Decision> {
        let every = micros(self.options.checkpoint_every);
        let Some(Slot::Live(live)) = self.slots.get_mut(&shard) else { return Ok(Decision::Ours) };
        let mut counts = crate::status::Counts::default();
        let outcome = async {
            if live.pending.is_none() {
                let stamper = Stamper {
                    seq: live.draft.seq,
                    owner: live.owner.clone(),
                    counter: std::sync::Arc::clone(&self.counter),
                };
                let mut folding = Folding {
                    ports: &self.ports,
                    stamper: &stamper,
                    rules: &mut self.rules,
                    configured: &self.options.rules,
                    now,
                    rows_in_flight: self.options.rows_in_flight,
                    bytes_in_flight: self.options.checkpoint_bytes,
                    counts: &mut counts,
                };
                // Late events that wait to be stored are not in the archive yet. Those still in memory are flushed
                // after the slice, so that however many come, folding again goes on.
                let stored = live.archived.iter().all(|(hour, ..)| !live.is_closed(*hour));
                if !release && stored && live.refold_due(now, every) {
                    folding.slice(live).await?;
                }
                flush::flush(&self.ports, live, &stamper, folding.counts).await?;
                if !release {
                    folding.close(live).await?;
                }
                decide::seal(live, now, release)?;
            }
            decide::decide(&self.ports, live, &mut counts).await
        }
        .await;
        if matches!(outcome, Ok(Decision::Ours)) {
            let next = live.next_offsets();
            self.source.commit(shard, &next);
        }
        self.ports.status.lock().counts.add(counts);
        outcome
    }

    /// Publishes every shard whose tables may differ, together.
    async fn publish(&mut self) -> Result<()> {
        let now = self.ports.shared.clock.now();
        if self.publish_at > now {
            return Ok(());
        }
        let mut due: Vec<&mut LiveShard> = Vec::new();
        for slot in self.slots.values_mut() {
            if let Slot::Live(live) = slot
                && live.unpublished
                && live.settled()
            {
                due.push(live);
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        let mut counts = crate::status::Counts::default();
        let published = decide::publish(&self.ports, &mut due, &self.options.owner, &mut counts).await;
        self.ports.status.lock().counts.add(counts);
        match published {
            Ok(fenced) => {
                self.publish_failures = 0;
                for shard in fenced {
                    self.conflict(shard).await;
                }
                Ok(())
            }
            Err(error @ (WorkerError::Store(_) | WorkerError::Tables(_))) => {
                tracing::warn!(%error, "tables wait to be made equal to the checkpoints");
                self.publish_failures += 1;
                self.publish_at = retry_at(now, self.publish_failures);
                self.ports.status.lock().counts.retries += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Feeds the topic of dead letters from decided files.
    async fn feed(&mut self) {
        let now = self.ports.shared.clock.now();
        if self.feed_at > now || self.ports.letters.is_none() {
            return;
        }
        for slot in self.slots.values_mut() {
            let Slot::Live(live) = slot else { continue };
            if !live.settled() {
                continue;
            }
            let fed = decide::feed(&self.ports, live).await;
            let heard = fed.as_ref().map_err(|error| format!("the topic of dead letters: {error}"));
            self.ports.status.lock().heard(Dependency::DeadLetterTopic, &heard);
            if let Err(error) = fed {
                tracing::warn!(%error, "dead letters wait for their topic");
                self.feed_failures += 1;
                self.feed_at = retry_at(now, self.feed_failures);
                self.ports.status.lock().counts.retries += 1;
                return;
            }
        }
        self.feed_failures = 0;
    }

    /// Clears away what no checkpoint needs. What fails is left for good, or for the next time.
    async fn sweep(&mut self) {
        for slot in self.slots.values_mut() {
            let Slot::Live(live) = slot else { continue };
            if !live.settled() {
                continue;
            }
            if let Err(error) = decide::sweep(&self.ports, live).await {
                tracing::debug!(%error, "an object that is not needed stays");
            }
        }
    }

    /// Drops from memory what the archive holds, latest hours first, where there is too much: and then a good deal, or
    /// every few messages would make it too much again.
    fn make_room(&mut self) {
        let mut bytes = self.bytes();
        let budget = self.budget();
        if bytes < budget / 2 {
            return;
        }
        while bytes >= budget / 4 {
            let mut largest: Option<&mut Box<LiveShard>> = None;
            for slot in self.slots.values_mut() {
                if let Slot::Live(live) = slot
                    && live.can_spill()
                    && largest.as_ref().is_none_or(|largest| live.bytes() > largest.bytes())
                {
                    largest = Some(live);
                }
            }
            let Some(largest) = largest else { return };
            largest.spill();
            bytes = self.bytes();
        }
    }

    /// Last checkpoint and publish of shards that are given back; errors are the next owner's affair.
    pub(super) async fn let_go(&mut self, shards: &[Shard]) {
        for shard in shards {
            let last = async {
                // One that is on its way first, then one with the rest, which releases the shard.
                if self.live_mut(*shard).is_some_and(|live| live.pending.is_some()) {
                    self.checkpoint(*shard, true).await?;
                }
                self.checkpoint(*shard, true).await
            }
            .await;
            if let Err(error) = last {
                tracing::warn!(shard, %error, "a shard is let go without a last checkpoint");
            }
        }
        if let Err(error) = self.publish().await {
            tracing::warn!(%error, "shards are let go unpublished");
        }
        self.feed().await;
        shards.iter().for_each(|shard| self.forget(*shard));
    }

    /// A clean stop: last checkpoints, shards released, group left.
    pub async fn drain(&mut self) {
        let shards: Vec<Shard> = self.slots.keys().copied().collect();
        self.let_go(&shards).await;
        self.source.release(&shards).await;
        self.source.close().await;
    }
}
