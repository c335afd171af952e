//! Shards that cannot continue: each is stopped and released separately, and the others continue.
//!
//! The cause lies in the shard's own objects, tables or topic partitions, so neither another worker nor a
//! restart helps. The shard is released, so that a backfill can fix it. It is taken again as soon as the
//! checkpoint log shows that somebody has fixed it. It is also tried again occasionally, because an object
//! may have been restored. Only lost offsets are not retried: nothing that happens while the worker runs
//! brings them back.

use super::Worker;
use crate::backoff::{self, Backoff};
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::source::Source;
use crate::stream::shard_table::Slot;
use crate::stream::stopped::{StoppedShard, Stops};

impl<S: Source> Worker<S> {
    /// Stops a shard because of an error that concerns only this shard, and releases it.
    ///
    /// # Errors
    /// Returns `error` itself if it does not concern one shard.
    pub(super) async fn stop_shard(&mut self, shard: Shard, error: WorkerError) -> Result<()> {
        let Some(reason) = error.stop_reason() else { return Err(error) };
        tracing::error!(shard, reason = reason.name(), %error, "shard stopped; the others continue");
        let unreleased = self.shards.remove(shard).and_then(Slot::into_claimed_log);
        self.drop_waiting(shard);
        self.source.release(&[shard]).await;
        let now = self.setup.ports.shared.clock.now();
        let tries = self.stops.entry(shard).or_insert_with(|| Stops::new(now)).count(now);
        let mut stopped = StoppedShard::new(error, unreleased, tries, now);
        stopped.release(shard, &self.setup.ports.shared).await;
        self.shards.stop(shard, Box::new(stopped));
        Ok(())
    }

    /// Checks stopped shards at intervals, and claims again the shards that may continue.
    pub(super) async fn look_at_stopped(&mut self) -> Result<()> {
        let now = self.setup.ports.shared.clock.now();
        for shard in self.shards.due_stopped(now) {
            let Some(mut stopped) = self.shards.take_stopped(shard) else { continue };
            stopped.note_look(now);
            stopped.release(shard, &self.setup.ports.shared).await;
            let store = &*self.setup.ports.shared.store;
            let due = stopped.is_released()
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

    /// Claims and loads a stopped shard. The shard stays stopped while storage or Kafka does not answer.
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
                stopped.note_claim(claimed.map(|claimed| claimed.decided));
                self.shards.stop(shard, stopped);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the error of a stopped shard if no running shard is left, which ends the process; otherwise
    /// `None`.
    pub(super) fn all_stopped(&mut self) -> Option<WorkerError> {
        self.shards.take_if_all_stopped().map(|stopped| stopped.into_error())
    }

    /// Releases all shards after an error that ends the process, but makes no last checkpoints. The next
    /// owner continues from the decided checkpoints.
    pub(super) async fn release_all(&mut self) {
        for shard in self.shards.shards() {
            if let Some(slot) = self.shards.remove(shard) {
                self.release_slot(shard, slot).await;
            }
        }
    }

    /// Releases a shard, but makes no last checkpoint of its new input.
    pub(super) async fn release_slot(&mut self, shard: Shard, slot: Slot) {
        let Some(mut log) = slot.into_claimed_log() else { return };
        let ports = &self.setup.ports.shared;
        if let Err(error) = log.release(&*ports.store, &*ports.clock).await {
            tracing::warn!(shard, %error, "releasing a shard without a checkpoint that says so");
        }
    }
}
