//! Shards that cannot continue: each is stopped and released separately, and the others continue.
//!
//! The cause lies in the shard's own objects, tables or topic partitions, so neither another worker nor a
//! restart helps. The shard is released, so that a backfill can fix it. It is taken again as soon as the
//! checkpoint log shows that somebody has fixed it, and now and then in any case: an object may have been
//! restored. Only lost offsets are not retried: nothing that happens while the worker runs brings them back.

use prorata_schemas::time::WallTime;

use super::shard::LiveShard;
use super::{Slot, Worker};
use crate::backoff::{self, Backoff};
use crate::checkpoint::log::{self, Appended, Log};
use crate::checkpoint::{Decided, OwnerKind};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::ports::ObjectStore;
use crate::source::Source;
use crate::status::{Dependency, ShardStop};

/// The time between two reads of a stopped shard's log, in microseconds: short enough that a person who has
/// fixed the shard need not wait.
const LOOK_MICROS: i64 = 30_000_000;

/// The longest time that a backfill may work on a stopped shard without a checkpoint before it counts as
/// dead, in microseconds. It is 15 minutes, many times `backfill.checkpoint_interval`.
const MENDING_MICROS: i64 = 900_000_000;

/// The time that a shard must run after it was stopped before it counts as fixed, in microseconds: two hours,
/// longer than the longest delay.
const MENDED_MICROS: i64 = 7_200_000_000;

/// Returns the log of a shard that has a claim to be released. Events that no checkpoint has taken are
/// dropped: the next owner reads them again.
fn claimed_log(slot: Slot) -> Option<Log> {
    match slot {
        Slot::Waiting { claimed, .. } => claimed.map(|claimed| Log::new(claimed.decided)),
        Slot::Live(live) => Some(live.into_log()),
        Slot::Stopped(stopped) => stopped.unreleased,
    }
}

/// A shard that is stopped.
#[derive(Debug)]
pub(super) struct StoppedShard {
    /// Why the shard is stopped.
    error: WorkerError,
    /// The last known checkpoint of the shard; `None` if the shard could not even be claimed.
    decided: Option<Decided>,
    /// The log with a claim that is still to be released.
    unreleased: Option<Log>,
    /// When the shard is tried again although nothing seems to have changed.
    tries: Backoff,
    /// When its log is read next.
    look_at: WallTime,
    /// A backfill that works on the shard: its last checkpoint, and since when that is the last.
    mending: Option<(u64, WallTime)>,
}

impl StoppedShard {
    pub fn decided(&self) -> Option<&Decided> {
        self.decided.as_ref()
    }

    /// Returns whether the shard has no claim that is still to be released.
    pub fn is_released(&self) -> bool {
        self.unreleased.is_none()
    }

    /// Returns whether the shard's log is to be read.
    pub fn is_look_due(&self, now: WallTime) -> bool {
        self.look_at <= now
    }

    /// The report for the status.
    pub fn report(&self) -> Option<ShardStop> {
        let reason = self.error.stop_reason()?;
        Some(ShardStop { reason, message: self.error.to_string() })
    }

    /// Returns whether to take the shard again: another owner has decided since and is done, or the retry is
    /// due.
    async fn is_due(&mut self, store: &dyn ObjectStore, shard: Shard, now: WallTime) -> Result<bool> {
        let try_again = self.error.may_heal() && self.tries.is_due(now);
        let Some(decided) = &self.decided else { return Ok(try_again) };
        if store.get(&names::checkpoint(shard, decided.next_seq())).await?.is_none() {
            return Ok(try_again);
        }
        let latest = log::latest(store, shard).await?;
        let at_work =
            latest.owner.as_ref().is_some_and(|owner| owner.kind == OwnerKind::Backfill && !owner.released);
        if at_work {
            let since = self.mending.filter(|(seq, _)| *seq == latest.seq).map_or(now, |(_, since)| since);
            self.mending = Some((latest.seq, since));
            if now.0 - since.0 < MENDING_MICROS {
                return Ok(false);
            }
        }
        self.decided = Some(latest);
        Ok(true)
    }
}

/// The number of times that a shard was stopped.
#[derive(Debug)]
pub(super) struct Stops {
    tries: Backoff,
    last: WallTime,
}

impl<S: Source> Worker<S> {
    /// Stops a shard for an error of its own, and releases it.
    ///
    /// # Errors
    /// Returns the same error if it does not concern one shard.
    pub(super) async fn stop_shard(&mut self, shard: Shard, error: WorkerError) -> Result<()> {
        let Some(reason) = error.stop_reason() else { return Err(error) };
        tracing::error!(shard, reason = reason.name(), %error, "shard stopped; the others continue");
        let unreleased = self.shards.remove(shard).and_then(claimed_log);
        self.drop_waiting(shard);
        self.source.release(&[shard]).await;
        let now = self.ports.shared.clock.now();
        let fresh = || Stops { tries: Backoff::new(backoff::STOPPED_SHARD), last: now };
        let stops = self.stops.entry(shard).or_insert_with(fresh);
        if now.0 - stops.last.0 > MENDED_MICROS {
            *stops = fresh();
        }
        stops.tries.fail(now);
        stops.last = now;
        let mut stopped = StoppedShard {
            error,
            decided: unreleased.as_ref().map(|log| log.decided().clone()),
            unreleased,
            tries: stops.tries,
            look_at: WallTime(now.0.saturating_add(LOOK_MICROS)),
            mending: None,
        };
        self.release_stopped(shard, &mut stopped).await;
        self.shards.stop(shard, Box::new(stopped));
        Ok(())
    }

    /// Releases a stopped shard, unless that is done.
    async fn release_stopped(&mut self, shard: Shard, stopped: &mut StoppedShard) {
        let Some(log) = &mut stopped.unreleased else { return };
        let ports = &self.ports.shared;
        match log.release(&*ports.store, &*ports.clock).await {
            Ok(released) => {
                if released == Appended::Ours {
                    stopped.decided = Some(log.decided().clone());
                }
                stopped.unreleased = None;
            }
            Err(error) if error.storage_kind().is_some() => {
                tracing::warn!(shard, %error, "stopped shard not released yet: waiting for storage");
            }
            Err(error) => {
                tracing::warn!(shard, %error, "stopped shard cannot be released");
                stopped.unreleased = None;
            }
        }
    }

    /// Checks stopped shards now and then, and takes again the shards that may continue.
    pub(super) async fn look_at_stopped(&mut self) -> Result<()> {
        let now = self.ports.shared.clock.now();
        for shard in self.shards.due_stopped(now) {
            let Some(mut stopped) = self.shards.take_stopped(shard) else { continue };
            stopped.look_at = WallTime(now.0.saturating_add(LOOK_MICROS));
            self.release_stopped(shard, &mut stopped).await;
            let store = &*self.ports.shared.store;
            let due = stopped.unreleased.is_none()
                && stopped.is_due(store, shard, now).await.unwrap_or_else(|error| {
                    tracing::warn!(shard, %error, "cannot read the log of a stopped shard");
                    false
                });
            let assigned = if due { self.source.assigned(shard).await } else { Ok(true) };
            match assigned {
                Ok(false) => {}
                Ok(true) if due => self.take_up_again(shard, stopped).await?,
                _ => self.shards.stop(shard, stopped),
            }
        }
        Ok(())
    }

    /// Claims and loads a stopped shard. It stays stopped while storage does not answer.
    async fn take_up_again(&mut self, shard: Shard, mut stopped: Box<StoppedShard>) -> Result<()> {
        tracing::info!(shard, "resuming a stopped shard");
        let mut claimed = None;
        match self.load(shard, &mut claimed).await {
            Ok(()) => {}
            Err(error) if error.stop_reason().is_some() => {
                self.shards.not_loaded(shard, Backoff::new(backoff::STREAM), claimed);
                self.stop_shard(shard, error).await?;
            }
            Err(error) if error.exit_code() == 4 || error.storage_kind().is_some() => {
                tracing::warn!(shard, %error, "stopped shard cannot be loaded yet");
                stopped.unreleased = claimed.map(|claimed| Log::new(claimed.decided));
                self.shards.stop(shard, stopped);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the error of a stopped shard if no running shard is left: then the process ends.
    pub(super) fn all_stopped(&mut self) -> Option<WorkerError> {
        self.shards.take_if_all_stopped().map(|stopped| stopped.error)
    }

    /// Releases all shards without a last checkpoint, as after an error that ends the process: the next owner
    /// continues from the decided checkpoints.
    pub(super) async fn release_all(&mut self) {
        for shard in self.shards.shards() {
            if let Some(slot) = self.shards.remove(shard) {
                self.release_slot(shard, slot).await;
            }
        }
    }

    /// Releases a shard without a last checkpoint.
    pub(super) async fn release_slot(&mut self, shard: Shard, slot: Slot) {
        let Some(mut log) = claimed_log(slot) else { return };
        let ports = &self.ports.shared;
        if let Err(error) = log.release(&*ports.store, &*ports.clock).await {
            tracing::warn!(shard, %error, "releasing a shard without a checkpoint that says so");
        }
    }

    /// Retries reading of shards whose reading could not be started.
    pub(super) async fn start_unread(&mut self) -> Result<()> {
        let now = self.ports.shared.clock.now();
        let due = self.shards.live().filter(|live| live.unread().is_some_and(|unread| unread.is_due(now)));
        for shard in due.map(LiveShard::shard).collect::<Vec<Shard>>() {
            self.start_reading(shard).await?;
        }
        Ok(())
    }

    /// Starts reading a shard at its next offsets. The shard keeps its memory while Kafka does not answer,
    /// and reading starts later.
    pub(super) async fn start_reading(&mut self, shard: Shard) -> Result<()> {
        let Some(live) = self.shards.get_live(shard) else { return Ok(()) };
        let mut starts = live.topics().starts();
        starts.retain(|topic, _| !self.backlog.is_parked(shard, topic));
        let started = self.source.start(shard, starts).await;
        let now = self.ports.shared.clock.now();
        let Some(live) = self.shards.get_live(shard) else { return Ok(()) };
        match started {
            Ok(()) => {
                live.note_read();
                Ok(())
            }
            Err(error) if error.is_unavailable() => {
                live.note_unread(now);
                tracing::warn!(shard, %error, "shard cannot be read yet");
                let mut status = self.ports.status.lock();
                status.counts.retries += 1;
                status.waits.insert(Dependency::Kafka, error.to_string().into());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
