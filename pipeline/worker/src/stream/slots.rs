//! Shards as they come and go: claimed and loaded, dropped, loaded anew, read on.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::time::Timestamp;

use super::recover::Recovery;
use super::shard::LiveShard;
use super::{Slot, Worker, retry_at};
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::source::{Source, SourceError, Start};
use crate::status::Dependency;

impl<S: Source> Worker<S> {
    /// Drops a shard's memory.
    pub(super) fn forget(&mut self, shard: Shard) {
        self.slots.remove(&shard);
        self.drop_waiting(shard);
    }

    /// Drops what of a shard waits to be taken.
    fn drop_waiting(&mut self, shard: Shard) {
        self.backlog.retain(|item| item.shard() != shard);
    }

    /// Another owner has the shard. Where the group, asked anew, still assigns it to us, it is taken again.
    pub(super) async fn conflict(&mut self, shard: Shard) {
        tracing::warn!(shard, "another owner has decided, the shard is dropped");
        self.ports.status.lock().counts.conflicts += 1;
        self.load_anew(shard, retry_at(self.ports.shared.clock.now(), 3), 0).await;
    }

    /// Drops a shard's memory, to claim and load it once more if the group still assigns it.
    pub(super) async fn load_anew(&mut self, shard: Shard, retry_at: Timestamp, failures: u32) {
        self.forget(shard);
        self.source.release(&[shard]).await;
        self.slots.insert(shard, Slot::Waiting { retry_at, failures, ask: true });
    }

    /// Asks the group whether a shard is still ours. Where it is not, the shard is let go; where the group does not
    /// answer, it is asked again later: a member that is cut off must not take shards from others.
    async fn still_assigned(&mut self, shard: Shard, failures: u32) -> bool {
        match self.source.assigned(shard).await {
            Ok(true) => return true,
            Ok(false) => {
                self.slots.remove(&shard);
            }
            Err(error) => {
                tracing::warn!(shard, %error, "the group cannot be asked whose the shard is");
                let retry_at = retry_at(self.ports.shared.clock.now(), failures);
                self.slots.insert(shard, Slot::Waiting { retry_at, failures: failures + 1, ask: true });
            }
        }
        false
    }

    /// Claims and loads shards that wait for it, and starts reading them.
    pub(super) async fn load_waiting(&mut self) -> Result<()> {
        let now = self.ports.shared.clock.now();
        let due: Vec<(Shard, u32, bool)> = self
            .slots
            .iter()
            .filter_map(|(shard, slot)| match slot {
                Slot::Waiting { retry_at, failures, ask } if *retry_at <= now => {
                    Some((*shard, *failures, *ask))
                }
                _ => None,
            })
            .collect();
        for (shard, failures, ask) in due {
            if ask && !self.still_assigned(shard, failures).await {
                continue;
            }
            self.claims += 1;
            let mut recovery = Recovery {
                ports: &self.ports,
                owner: format!("{}c{}", self.options.owner, self.claims).into(),
                rules: &mut self.rules,
                configured: &self.options.rules,
                topics: &self.topics,
            };
            let loaded = match recovery.take(shard).await {
                Ok(live) => {
                    self.source.start(shard, live.starts()).await.map(|()| live).map_err(WorkerError::from)
                }
                Err(error) => Err(error),
            };
            let slot = self.slot(shard, loaded, failures)?;
            self.slots.insert(shard, slot);
        }
        Ok(())
    }

    /// What becomes of a shard once loading it was tried.
    fn slot(&self, shard: Shard, loaded: Result<LiveShard>, failures: u32) -> Result<Slot> {
        match loaded {
            Ok(live) => {
                let closed_through = live.draft.closed_through.map(tracing::field::display);
                tracing::info!(shard, seq = live.draft.seq, closed_through, "loaded");
                Ok(Slot::Live(Box::new(live)))
            }
            Err(
                error @ (WorkerError::Store(_)
                | WorkerError::Tables(_)
                | WorkerError::Taken { .. }
                | WorkerError::Source(SourceError::Unavailable(_))),
            ) => {
                tracing::warn!(shard, %error, "a shard cannot be loaded yet");
                let mut status = self.ports.status.lock();
                status.counts.retries += 1;
                if matches!(error, WorkerError::Source(_)) {
                    status.waits.insert(Dependency::Kafka, error.to_string().into());
                }
                let retry_at = retry_at(self.ports.shared.clock.now(), failures);
                Ok(Slot::Waiting { retry_at, failures: failures + 1, ask: true })
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a shard on from where it has come to, as after a claim: whatever was read ahead is dropped.
    pub(super) async fn restart(&mut self, shard: Shard) -> Result<()> {
        let Some(live) = self.live_mut(shard) else { return Ok(()) };
        let starts: BTreeMap<Text, Start> = live.starts();
        self.drop_waiting(shard);
        self.source.release(&[shard]).await;
        match self.source.start(shard, starts).await {
            Err(SourceError::Unavailable(cause)) => {
                tracing::warn!(shard, cause, "a shard cannot be read yet, it is loaded anew");
                self.load_anew(shard, retry_at(self.ports.shared.clock.now(), 0), 1).await;
                Ok(())
            }
            started => Ok(started?),
        }
    }
}
