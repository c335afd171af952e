//! Recurring tasks: publish, forward dead letters, collect garbage. Each has its own back-off.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prorata_schemas::time::WallTime;

use super::Worker;
use crate::backoff::{self, Backoff};
use crate::checkpoint::Decided;
use crate::checkpoint::publish;
use crate::checkpoint::sweep;
use crate::error::{Result, WorkerError};
use crate::names;
use crate::ports::DeadLetter;
use crate::source::{Source, SourceError};
use crate::status::Dependency;
use crate::stream::StreamPorts;
use crate::stream::shard::LiveShard;

/// The time between two searches of a shard's state folder for objects that nothing needs: one hour. A
/// shard makes 60 checkpoints in that time, and many more while late events flow.
const COLLECT: Duration = Duration::from_secs(3_600);

/// Maximum number of objects of one shard that are deleted between two steps, so that steps stay short: four
/// rounds of concurrent requests. This allows hundreds of deletions a second, many times the number of
/// objects that a shard writes.
const COLLECTED_AT_ONCE: usize = 64;

/// The number of bad reads of a file of dead letters after which the file counts as damaged.
const DEAD_LETTER_READS: usize = 3;

/// A task that a worker repeats for all of its shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Asks the schema registry.
    Registry,
    /// Makes the tables equal to the decided checkpoints.
    Publish,
    /// Sends decided dead letters to their topic.
    ForwardDeadLetters,
    /// Sends exceeded budgets to their topic.
    SendBudgets,
    /// Deletes what no checkpoint needs.
    CollectGarbage,
}

/// The recurring tasks, and the time from which each may be retried.
#[derive(Debug, Default)]
pub(super) struct Tasks(BTreeMap<Task, Backoff>);

impl Tasks {
    /// Returns whether a task may be tried.
    pub fn is_due(&self, task: Task, now: WallTime) -> bool {
        self.0.get(&task).is_none_or(|backoff| backoff.is_due(now))
    }

    /// Notes the result of a task.
    pub fn note(&mut self, task: Task, succeeded: bool, now: WallTime) {
        let backoff = self.0.entry(task).or_insert(Backoff::new(backoff::STREAM));
        if succeeded { backoff.succeed() } else { backoff.fail(now) }
    }
}

impl<S: Source> Worker<S> {
    /// Publishes all shards whose tables may differ from the decided checkpoints, together.
    pub(super) async fn publish(&mut self) -> Result<()> {
        let now = self.setup.ports.shared.clock.now();
        let due = self.shards.live().filter(|live| live.is_publish_due());
        let due: Vec<Decided> = due.map(|live| live.decided().clone()).collect();
        if due.is_empty() || !self.tasks.is_due(Task::Publish, now) {
            return Ok(());
        }
        match self.publish_these(&due).await {
            // An error of a table or its log may concern only some of the shards.
            Err(error) if error.stop_reason().is_some() => {
                for decided in due {
                    if let Err(error) = self.publish_these(std::slice::from_ref(&decided)).await {
                        self.stop_shard(decided.shard, error).await?;
                    }
                }
                Ok(())
            }
            published => published,
        }
    }

    /// Publishes these checkpoints together. If storage fails, the task is retried later.
    async fn publish_these(&mut self, due: &[Decided]) -> Result<()> {
        let now = self.setup.ports.shared.clock.now();
        let started = Instant::now();
        let published = publish::publish(&self.setup.ports.shared, due, &self.setup.options.owner).await;
        match published {
            Ok(published) => {
                self.tasks.note(Task::Publish, true, now);
                let done = self.setup.ports.shared.clock.now();
                {
                    let mut status = self.setup.ports.status.lock();
                    status.counts.commits += published.commits;
                    status.counts.publish.observe(started.elapsed());
                }
                for decided in due.iter().filter(|decided| !published.fenced.contains_key(&decided.shard)) {
                    if let Some(live) = self.shards.get_live(decided.shard) {
                        live.note_published(decided, done);
                    }
                }
                for shard in published.fenced.into_keys() {
                    self.conflict(shard).await;
                }
                Ok(())
            }
            Err(error @ (WorkerError::Store(_) | WorkerError::Tables(_))) => {
                tracing::warn!(%error, "tables not published yet");
                self.tasks.note(Task::Publish, false, now);
                self.setup.ports.status.lock().counts.retries += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends decided files of dead letters to their topic, one file per shard. A shard whose file cannot be
    /// read does not hold up other shards.
    pub(super) async fn forward_dead_letters(&mut self) {
        let now = self.setup.ports.shared.clock.now();
        if !self.tasks.is_due(Task::ForwardDeadLetters, now) || self.setup.ports.dead_letters.is_none() {
            return;
        }
        let mut failed = false;
        for live in self.shards.live_mut() {
            let forwarded = forward(&self.setup.ports, live).await;
            let answer = forwarded.as_ref().map_err(|error| format!("the dead-letter topic: {error}"));
            self.setup.ports.status.lock().note_answer(Dependency::DeadLetterTopic, &answer);
            if let Err(error) = forwarded {
                tracing::warn!(%error, "dead letters are waiting for their topic");
                self.setup.ports.status.lock().counts.retries += 1;
                failed = true;
                if matches!(error, WorkerError::Source(_)) {
                    break;
                }
            }
        }
        self.tasks.note(Task::ForwardDeadLetters, !failed, now);
    }

    /// Deletes objects that no checkpoint needs. A failed deletion is retried the next time.
    pub(super) async fn collect_garbage(&mut self) {
        let now = self.setup.ports.shared.clock.now();
        if !self.tasks.is_due(Task::CollectGarbage, now) {
            return;
        }
        let mut failed = false;
        for live in self.shards.live_mut() {
            if let Err(error) = collect(&self.setup.ports, live).await {
                tracing::debug!(%error, "unneeded object not deleted");
                failed = true;
            }
        }
        self.tasks.note(Task::CollectGarbage, !failed, now);
    }
}

/// Sends one decided file of dead letters to the dead-letter topic. The next checkpoint no longer lists the
/// file. A file that is gone or damaged also leaves the list, because it would hold up all later files.
async fn forward(ports: &StreamPorts, shard: &mut LiveShard) -> Result<()> {
    let Some(topic) = &ports.dead_letters else { return Ok(()) };
    let Some(path) = shard.next_dead_letters().cloned() else { return Ok(()) };
    let mut read = read_dead_letters(ports, &path).await;
    // One bad read does not prove that the object is bad.
    for _ in 1..DEAD_LETTER_READS {
        if matches!(read, Err(WorkerError::Damaged { .. })) {
            read = read_dead_letters(ports, &path).await;
        }
    }
    let dead_letters = match read {
        Err(WorkerError::Damaged { cause, .. }) => {
            tracing::error!(
                cause,
                path,
                "dead letters do not reach their topic; restore the file and replay it"
            );
            shard.note_forwarded(&path);
            return Ok(());
        }
        read => read?,
    };
    match topic.send(&dead_letters).await {
        // The topic will never take the letter, and it would hold up all others.
        Err(SourceError::TooLarge(cause)) => {
            tracing::error!(cause, path, "dead letter too large for its topic; it is only in the file");
        }
        sent => sent?,
    }
    shard.note_forwarded(&path);
    Ok(())
}

/// Reads a file of dead letters.
async fn read_dead_letters(ports: &StreamPorts, path: &str) -> Result<Vec<DeadLetter>> {
    let damaged = |cause: String| WorkerError::Damaged { object: path.to_owned(), cause };
    let bytes = ports.shared.store.get(path).await?;
    let bytes = bytes.ok_or_else(|| damaged("it does not exist".to_owned()))?;
    ports.shared.archive.read_dead_letters(&bytes).map_err(|error| damaged(error.to_string()))
}

/// Deletes objects that the shard no longer needs, at most [`COLLECTED_AT_ONCE`] at a time. Once an hour, it
/// also searches the shard's state folder for such objects. Only the shard's latest owner may do so, after
/// its own decision.
async fn collect(ports: &StreamPorts, shard: &mut LiveShard) -> Result<()> {
    let store = &*ports.shared.store;
    let now = ports.shared.clock.now();
    let (number, decided) = (shard.shard(), shard.decided().clone());
    if now.since(shard.garbage_mut().looked_at) >= COLLECT {
        let listed = store.list(&names::state_folder(number)).await?;
        shard.garbage_mut().paths.extend(sweep::unneeded_state(&listed, &decided, now));
        shard.garbage_mut().looked_at = now;
    }
    let garbage = shard.garbage_mut();
    let mut batch = Vec::new();
    while batch.len() < COLLECTED_AT_ONCE
        && let Some(path) = garbage.paths.pop_first()
    {
        batch.push(path);
    }
    let deleted = sweep::delete_all(store, batch).await;
    deleted.map_err(|(left, error)| {
        shard.garbage_mut().paths.extend(left);
        error.into()
    })
}
