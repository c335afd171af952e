//! Messages that Kafka does not have, and messages that cannot be read.

use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::reject::Reject;

use super::Worker;
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::ports::DeadLetter;
use crate::source::{Message, Source};
use crate::stream::backlog::{Loss, Place};

impl<S: Source> Worker<S> {
    /// Handles an offset that Kafka does not have. Retention may have removed only records that were read,
    /// and offsets without records. Then reading resumes after them, and nothing is lost. Any other loss
    /// stops the shard, unless the configuration lets the worker continue.
    pub(super) async fn offsets_lost(&mut self, topic: Text, shard: Shard, loss: Loss) -> Result<()> {
        let Loss { earliest, cause } = loss;
        let continues = self.setup.options.continue_without_lost;
        let store = Arc::clone(&self.setup.ports.shared.store);
        let Some(live) = self.shards.get_live(shard) else { return Ok(()) };
        let Some(progress) = live.topics_mut().get_mut(&topic) else { return Ok(()) };
        let compares = progress.verify.take().is_some();
        let is_read = earliest.zip(progress.offsets.next).is_some_and(|(earliest, next)| earliest <= next);
        if is_read || (compares && progress.last.is_none() && earliest.is_some()) {
            tracing::warn!(%topic, shard, cause, "cannot verify the last record read; resuming after it");
            return self.restart(shard).await;
        }
        match live.is_overtaken(&*store).await {
            Ok(false) => {}
            Ok(true) => {
                // Kafka keeps messages that the shard's owner has not read: an owner that was cut off may
                // find fewer.
                self.conflict(shard).await;
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(shard, %error, "cannot check yet whether another owner has the shard");
                self.setup.ports.status.lock().counts.retries += 1;
                self.read_later(shard).await;
                return Ok(());
            }
        }
        let Some(live) = self.shards.get_live(shard) else { return Ok(()) };
        if continues && let Some(progress) = live.topics_mut().get_mut(&topic) {
            tracing::error!(%topic, shard, cause, "Kafka has lost messages; resuming at the earliest");
            progress.offsets.next = None;
            progress.offsets.last = None;
            progress.last = None;
            live.topics_mut().note_moved();
            return self.restart(shard).await;
        }
        let lost = WorkerError::OffsetsLost { topic: topic.to_string(), partition: shard, cause };
        self.stop_shard(shard, lost).await
    }

    /// Handles a batch that begins at `offset` and cannot be read. The batch stops the shard, unless the
    /// configuration skips it. Then a dead letter records the batch, and reading continues after it.
    pub(super) async fn unreadable(&mut self, place: &Place, offset: i64, cause: String) -> Result<()> {
        let (shard, topic) = (place.0, &place.1);
        let skipped = self.setup.options.skip_batches.iter().find(|skipped| {
            skipped.topic == *topic && skipped.partition == shard && skipped.offset == offset
        });
        let through = skipped.map(|skipped| skipped.through.max(offset));
        let Some(live) = self.shards.get_live(shard) else { return Ok(()) };
        let Some(progress) = live.topics_mut().get_mut(topic) else { return Ok(()) };
        let (Some(through), false) = (through, progress.offsets.next > through) else {
            let topic = topic.to_string();
            let error = WorkerError::Unreadable { topic, partition: shard, offset, cause };
            return self.stop_shard(shard, error).await;
        };
        tracing::error!(%topic, shard, offset, through, cause, "batch cannot be read; passing over it");
        progress.pass_over(through + 1);
        let reject = Reject::malformed(format!(
            "the batch of offsets {offset} to {through} cannot be read ({cause}), and kafka.skip_batches \
             names it; send its events again"
        ));
        let reason = reject.reason;
        let message = Message {
            topic: topic.clone(),
            partition: shard,
            offset,
            timestamp_millis: -1,
            key: None,
            value: None,
            headers: Vec::new(),
        };
        live.push_dead_letter(DeadLetter::of(&message, reject));
        live.topics_mut().note_moved();
        *self.setup.ports.status.lock().counts.dead_letters.entry(reason).or_default() += 1;
        self.restart(shard).await
    }
}
