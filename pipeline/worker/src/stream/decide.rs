//! Last part of a checkpoint: store its objects, decide it, publish it, feed the topic of dead letters.

use std::collections::BTreeSet;
use std::time::Instant;

use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::time::{Hour, Timestamp};

use super::StreamPorts;
use super::shard::{LiveShard, Pending};
use crate::checkpoint::Checkpoint;
use crate::error::{Result, WorkerError};
use crate::log::{self, Decision};
use crate::names::{self, Shard};
use crate::objects::{self, CONCURRENCY};
use crate::ports::FormatError;
use crate::publish;
use crate::retention;
use crate::source::SourceError;
use crate::status::Counts;

/// How long checkpoints are kept, in microseconds: 7 days.
const KEPT_MICROS: i64 = 7 * 86_400_000_000;

/// How often old checkpoints are looked for, in microseconds.
const SWEEP_MICROS: i64 = 3_600_000_000;

/// Most checkpoints looked at in one sweep.
const SWEPT_MAX: usize = 256;

/// Freezes the draft: what it says is what will be decided.
pub(super) fn seal(shard: &mut LiveShard, now: Timestamp, release: bool) -> Result<()> {
    let offsets = shard.offsets();
    shard.draft.offsets = offsets.map_err(|error| FormatError::new("encode offsets", error))?;
    shard.draft.written_at = now;
    let mut dropped = retention::prune(&mut shard.draft);
    dropped.append(&mut shard.replaced);
    if let Some(owner) = shard.draft.owners.last_mut() {
        owner.released = release;
    }
    let pending = Pending {
        checkpoint: shard.draft.clone(),
        objects: std::mem::take(&mut shard.objects),
        archived: std::mem::take(&mut shard.archived),
        dropped,
    };
    shard.pending = Some(pending);
    shard.draft.seq += 1;
    shard.news = false;
    shard.new_bytes = 0;
    Ok(())
}

/// Stores the objects of a pending checkpoint and asks for the decision. Asked again after an error, it asks for the
/// very same.
pub(super) async fn decide(
    ports: &StreamPorts,
    shard: &mut LiveShard,
    counts: &mut Counts,
) -> Result<Decision> {
    let Some(pending) = &shard.pending else { return Ok(Decision::Ours) };
    let started = Instant::now();
    let puts = pending
        .objects
        .iter()
        .map(|(path, bytes)| objects::put(&*ports.shared.store, path.clone(), bytes.clone()));
    stream::iter(puts.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY).try_collect::<Vec<()>>().await?;
    let decision = log::decide(&*ports.shared.store, &pending.checkpoint).await?;
    if decision == Decision::Ours {
        counts.checkpoints += 1;
        counts.checkpoint.observe(started.elapsed());
        take_decided(shard, ports.shared.clock.now());
    }
    Ok(decision)
}

/// What is decided is in the archive, and need not be in memory.
fn take_decided(shard: &mut LiveShard, now: Timestamp) {
    let Some(pending) = shard.pending.take() else { return };
    for (hour, stamp, bytes) in pending.archived {
        shard.archive.add(hour, stamp, bytes);
    }
    shard.open.values_mut().for_each(|open| open.decided = open.flushed);
    shard.dropped.extend(pending.dropped);
    shard.decided_at = now;
    shard.note_bases();
    if let Some(closed) = shard.draft.closed_through {
        shard.archive.forget_before(Hour(closed.0 - retention::HORIZON_HOURS));
    }
}

/// Makes the tables equal to the latest checkpoints of these shards, in one commit per table. Returns the shards that
/// a table's log fences off.
pub(super) async fn publish(
    ports: &StreamPorts,
    shards: &mut [&mut LiveShard],
    id: &str,
    counts: &mut Counts,
) -> Result<BTreeSet<Shard>> {
    let started = Instant::now();
    let decided: Vec<Checkpoint> = shards
        .iter()
        .map(|shard| {
            let mut checkpoint = shard.draft.clone();
            checkpoint.seq -= 1;
            checkpoint
        })
        .collect();
    let checkpoints: Vec<&Checkpoint> = decided.iter().collect();
    let published = publish::publish(&*ports.shared.tables, &*ports.shared.clock, &checkpoints, id).await?;
    counts.commits += published.commits;
    counts.publish.observe(started.elapsed());
    for shard in shards.iter_mut().filter(|shard| !published.fenced.contains_key(&shard.shard)) {
        shard.draft.hours_are_held();
        shard.unpublished = false;
        shard.published_at = Some(ports.shared.clock.now());
    }
    Ok(published.fenced.into_keys().collect())
}

/// Sends one file of dead letters to their topic. What was sent leaves the list of the next checkpoint.
pub(super) async fn feed(ports: &StreamPorts, shard: &mut LiveShard) -> Result<()> {
    let Some(topic) = &ports.letters else { return Ok(()) };
    let Some(path) = shard.draft.dead_letters.first().cloned() else { return Ok(()) };
    let damaged = |cause: String| WorkerError::Damaged { object: path.clone(), cause };
    let bytes =
        ports.shared.store.get(&path).await?.ok_or_else(|| damaged("it is named but not there".into()))?;
    let letters = ports.shared.archive.read_dead_letters(&bytes);
    let letters = letters.map_err(|error| damaged(error.to_string()))?;
    match topic.send(&letters).await {
        // It never will be taken, and would keep all others from the topic.
        Err(SourceError::TooLarge(cause)) => {
            tracing::error!(cause, path, "a dead letter is too large for its topic, it is only in the file");
        }
        sent => sent?,
    }
    shard.draft.dead_letters.retain(|waiting| *waiting != path);
    shard.news = true;
    Ok(())
}

/// Deletes what the shard needs no more: snapshots that no checkpoint names, and once in a while old checkpoints. Only
/// its latest owner may, after its own decision.
pub(super) async fn sweep(ports: &StreamPorts, shard: &mut LiveShard) -> Result<()> {
    let now = ports.shared.clock.now();
    for path in std::mem::take(&mut shard.dropped) {
        ports.shared.store.delete(&path).await?;
    }
    if now.0 - shard.swept_at.0 < SWEEP_MICROS {
        return Ok(());
    }
    shard.swept_at = now;
    let listed = ports.shared.store.list(&names::state_folder(shard.shard)).await?;
    let mut seqs: Vec<u64> = listed
        .iter()
        .filter_map(|object| names::parse_checkpoint(&object.path))
        .map(|(_, seq)| seq)
        .collect();
    seqs.sort_unstable();
    seqs.retain(|seq| seq + 1 < shard.draft.seq);
    for seq in seqs.into_iter().take(SWEPT_MAX) {
        match log::read(&*ports.shared.store, shard.shard, seq).await {
            Ok(old) if now.0 - old.written_at.0 < KEPT_MICROS => break,
            Ok(_) => {}
            Err(WorkerError::Damaged { object, cause }) => {
                tracing::warn!(object, cause, "an old checkpoint cannot be read, it stays");
                continue;
            }
            Err(error) => return Err(error),
        }
        ports.shared.store.delete(&names::checkpoint(shard.shard, seq)).await?;
    }
    Ok(())
}
