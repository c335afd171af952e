//! Handles shards that come and go: claims, loads, drops, reloads and resumes them.

use std::collections::BTreeMap;
use std::time::Duration;

use prorata_schemas::Text;

use super::Worker;
use crate::backoff::{self, Backoff};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::root::Root;
use crate::source::{Source, SourceError};
use crate::status::Dependency;
use crate::stream::shard::{Claimed, LiveShard, Recovery};

/// The pause of a shard after another owner has decided a checkpoint, because the group may be about to take
/// the shard away.
const CONFLICT_PAUSE: Duration = Duration::from_millis(800);

impl<S: Source> Worker<S> {
    /// Drops a shard from memory.
    pub(super) fn forget(&mut self, shard: Shard) {
        self.shards.remove(shard);
        self.drop_waiting(shard);
    }

    /// Drops the polled items of a shard.
    pub(super) fn drop_waiting(&mut self, shard: Shard) {
        self.backlog.drop_shard(shard);
    }

    /// Drops a shard that another owner has taken. If the group still assigns the shard to this worker after
    /// a pause, it is claimed again.
    pub(super) async fn conflict(&mut self, shard: Shard) {
        tracing::warn!(shard, "another owner has decided; dropping the shard");
        self.setup.ports.status.lock().counts.conflicts += 1;
        let pause = self.setup.ports.shared.clock.now().after(CONFLICT_PAUSE);
        self.load_anew(shard, Backoff::not_before(backoff::STREAM, pause)).await;
    }

    /// Drops a shard from memory, to claim and load it again if the group still assigns it.
    pub(super) async fn load_anew(&mut self, shard: Shard, backoff: Backoff) {
        self.forget(shard);
        self.source.release(&[shard]).await;
        self.shards.load_again(shard, backoff);
    }

    /// Returns whether the group still assigns a shard to this worker. If it does not, drops the shard. If
    /// the group does not answer, it is asked again later, because a member that is cut off must not take
    /// shards from others.
    async fn still_assigned(&mut self, shard: Shard) -> bool {
        match self.source.assigned(shard).await {
            Ok(true) => return true,
            Ok(false) => {
                self.shards.remove(shard);
            }
            Err(error) => {
                tracing::warn!(shard, %error, "cannot ask the group who has the shard");
                self.shards.put_off(shard, self.setup.ports.shared.clock.now());
            }
        }
        false
    }

    /// Claims and loads the waiting shards whose back-off is over, and starts reading them.
    pub(super) async fn load_waiting(&mut self) -> Result<()> {
        let now = self.setup.ports.shared.clock.now();
        for (shard, ask) in self.shards.due(now) {
            if ask && !self.still_assigned(shard).await {
                continue;
            }
            let Some((backoff, mut claimed)) = self.shards.begin_loading(shard) else { continue };
            // The owner that keeps taking these shards may belong to another group.
            let compared = match ask {
                true => self.setup.consumer.compare(&*self.setup.ports.shared.store).await,
                false => Ok(()),
            };
            let loaded = match compared {
                Ok(()) => self.load(shard, &mut claimed).await,
                Err(error) => Err(error),
            };
            if let Err(error) = loaded {
                self.not_loaded(shard, error, (backoff, claimed)).await?;
            }
        }
        Ok(())
    }

    /// Claims a shard unless it is claimed already, loads it, and starts reading it. After an error,
    /// `claimed` keeps the claim.
    pub(super) async fn load(&mut self, shard: Shard, claimed: &mut Option<Claimed>) -> Result<()> {
        let mut recovery = Recovery {
            ports: &self.setup.ports.shared,
            counter: &self.counter,
            rules: &mut self.rules,
            configured: &self.setup.options.rules,
            topics: &self.setup.topics,
            retired: &self.setup.options.retired_topics,
            max_history_hours: self.setup.options.max_history_hours,
            retention: self.setup.options.retention,
        };
        if let Some(before) = claimed.as_ref()
            && !recovery.is_latest(before).await?
        {
            *claimed = None;
        }
        let claimed = match claimed {
            Some(claimed) => claimed,
            None => {
                self.claims += 1;
                let owner = format!("{}c{}", self.setup.options.owner, self.claims);
                claimed.insert(recovery.claim(shard, owner.into()).await?)
            }
        };
        let path = names::checkpoint(shard, claimed.decided.seq);
        self.setup.clock.look(&*self.setup.ports.shared.store, &path, claimed.wrote.clone()).await?;
        let live = recovery.load(claimed).await?;
        let closed_through = live.decided().closed_through.map(tracing::field::display);
        tracing::info!(shard, seq = live.decided().seq, closed_through, "loaded");
        self.shards.loaded(shard, live);
        self.start_reading(shard).await
    }

    /// Handles a shard that could not be loaded.
    async fn not_loaded(
        &mut self,
        shard: Shard,
        error: WorkerError,
        (mut backoff, claimed): (Backoff, Option<Claimed>),
    ) -> Result<()> {
        let waits = matches!(
            error,
            WorkerError::Store(_)
                | WorkerError::Tables(_)
                | WorkerError::Taken { .. }
                | WorkerError::Source(SourceError::Unavailable(_))
        );
        if waits {
            tracing::warn!(shard, %error, "shard cannot be loaded yet");
            let mut status = self.setup.ports.status.lock();
            status.counts.retries += 1;
            if matches!(error, WorkerError::Source(_)) {
                status.waits.insert(Dependency::Kafka, error.to_string().into());
            }
            backoff.fail(self.setup.ports.shared.clock.now());
        }
        self.shards.not_loaded(shard, backoff, claimed);
        if waits { Ok(()) } else { self.stop_shard(shard, error).await }
    }

    /// Resumes a shard at its next offsets, as after a claim: items that were read ahead are dropped.
    pub(super) async fn restart(&mut self, shard: Shard) -> Result<()> {
        self.stop_reading(shard).await;
        self.start_reading(shard).await
    }

    /// Resumes a shard after a pause.
    pub(super) async fn read_later(&mut self, shard: Shard) {
        self.stop_reading(shard).await;
        let now = self.setup.ports.shared.clock.now();
        if let Some(live) = self.shards.get_live(shard) {
            live.note_unread(now);
        }
    }

    /// Tries again to start reading the shards that could not be read.
    pub(super) async fn start_unread(&mut self) -> Result<()> {
        let now = self.setup.ports.shared.clock.now();
        let due = self.shards.live().filter(|live| live.unread().is_some_and(|unread| unread.is_due(now)));
        for shard in due.map(LiveShard::shard).collect::<Vec<Shard>>() {
            self.start_reading(shard).await?;
        }
        Ok(())
    }

    /// Starts reading a shard at its next offsets. If Kafka does not answer, the shard stays in memory, and
    /// reading starts later.
    pub(super) async fn start_reading(&mut self, shard: Shard) -> Result<()> {
        let Some(live) = self.shards.get_live(shard) else { return Ok(()) };
        let mut starts = live.topics().starts();
        starts.retain(|topic, _| !self.backlog.is_parked(shard, topic));
        let started = self.source.start(shard, starts).await;
        let now = self.setup.ports.shared.clock.now();
        let Some(live) = self.shards.get_live(shard) else { return Ok(()) };
        match started {
            Ok(()) => {
                live.note_read();
                Ok(())
            }
            Err(error) if error.is_unavailable() => {
                live.note_unread(now);
                tracing::warn!(shard, %error, "shard cannot be read yet");
                let mut status = self.setup.ports.status.lock();
                status.counts.retries += 1;
                status.waits.insert(Dependency::Kafka, error.to_string().into());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn stop_reading(&mut self, shard: Shard) {
        self.drop_waiting(shard);
        self.source.release(&[shard]).await;
    }
}

/// Returns the number of partitions of the first topic that exists; `None` if no topic exists.
pub(super) fn partitions(topics: &BTreeMap<Text, u32>) -> Option<Shard> {
    topics.values().find(|partitions| **partitions > 0).and_then(|found| Shard::try_from(*found).ok())
}

/// Checks that every topic has as many partitions as the root has shards.
pub(super) fn check_partitions(topics: &BTreeMap<Text, u32>, root: &Root) -> Result<()> {
    let message = |topic: &Text, partitions: u32| match partitions {
        0 => format!(
            "Kafka has no topic '{topic}'; create it with {} partitions, or correct kafka.topics",
            root.shards
        ),
        _ if partitions < u32::from(root.shards) => format!(
            "topic '{topic}' has {partitions} partitions, but the root has {} shards; every topic of a root \
             needs as many partitions as it has shards: give the topic {} partitions, or use another root",
            root.shards, root.shards
        ),
        _ => format!(
            "topic '{topic}' has {partitions} partitions, but the root has {} shards; nobody reads the \
             others, so no hour closes. Create another topic with {} partitions for the producers; name it \
             in kafka.topics, and '{topic}' in kafka.retired_topics. Then run 'prorata replay --config \
             FILE', which folds what '{topic}' still holds, and start the workers again",
            root.shards, root.shards
        ),
    };
    let wrong = topics.iter().find(|(_, partitions)| **partitions != u32::from(root.shards));
    match wrong {
        Some((topic, partitions)) => Err(WorkerError::Configuration(message(topic, *partitions))),
        None if topics.is_empty() => {
            Err(WorkerError::Configuration("kafka.topics is empty; name the topics with events".into()))
        }
        None => Ok(()),
    }
}
