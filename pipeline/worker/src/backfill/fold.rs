//! Pass 2: folds every shard hour by hour, all organizations on all cores, a window of hours at a time.
//!
//! While a window is folded, the one before it is encoded and stored. A shard stops early where the state at an hour's
//! end is the recorded one and no later hour is dirty.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::time::Hour;
use tokio::task::JoinHandle;

use super::Run;
use super::plan::{self, Cursor};
use super::write::{self, Written};
use crate::error::Result;
use crate::fold::{self, FoldedHour, Window};
use crate::names::{self, Shard};
use crate::objects;
use crate::snapshot::ShardState;

/// Hours of a shard in one window, at first and at most.
const WINDOW_FIRST: i64 = 8;
const WINDOW_MAX: i64 = 96;

/// A shard's folded window.
pub(super) struct FoldedWindow {
    pub shard: Shard,
    pub hours: BTreeMap<Hour, Vec<FoldedHour>>,
    pub emit_from: Hour,
    /// Whether the shard goes on right behind it.
    pub continues: bool,
}

type Pending = JoinHandle<Result<Vec<Written>>>;

/// Folds every shard through `end`.
pub(super) async fn fold_all(run: &mut Run, end: Hour) -> Result<()> {
    let mut unplanned: BTreeMap<Shard, Option<(Hour, ShardState)>> =
        run.held.iter().map(|(shard, _)| (*shard, None)).collect();
    let mut cursors: BTreeMap<Shard, Cursor> = BTreeMap::new();
    let mut pending: Option<Pending> = None;
    let mut progress = Hours::default();
    let mut window = i64::try_from(run.options.rows_in_flight).unwrap_or(WINDOW_FIRST).clamp(1, WINDOW_FIRST);
    loop {
        if !unplanned.is_empty() {
            settle(run, &mut pending).await?;
            for (shard, here) in std::mem::take(&mut unplanned) {
                if let Some(cursor) = plan::next_segment(run, shard, end, here).await? {
                    progress.all += plan::hours_left(run, shard, &cursor, end)?;
                    cursors.insert(shard, cursor);
                }
            }
            write::load_live(run, &cursors).await?;
        }
        if cursors.is_empty() {
            return Ok(());
        }
        let windows = fold_windows(run, &mut cursors, window, end).await?;
        let windows = stop_early(run, windows, &mut cursors, &mut unplanned, end)?;
        settle(run, &mut pending).await?;
        progress.tell(run, &windows);
        window = next_window(run, &windows);
        let due = run.checkpointed.elapsed() >= run.options.checkpoint_every;
        let writing = write::start(run, windows, end, due)?;
        if due {
            let written = join(writing).await?;
            write::apply(run, written)?;
            let now = run.checkpointed_by();
            run.held.checkpoint(&run.ports, now).await?;
        } else {
            pending = Some(writing);
        }
    }
}

#[derive(Default)]
struct Hours {
    done: i64,
    all: i64,
}

impl Hours {
    fn tell(&mut self, run: &Run, windows: &[FoldedWindow]) {
        self.done += windows.iter().map(|window| window.hours.len() as i64).sum::<i64>();
        run.ports.progress.folding(self.done.unsigned_abs(), self.all.max(self.done).unsigned_abs());
    }
}

async fn join(pending: Pending) -> Result<Vec<Written>> {
    pending.await?
}

async fn settle(run: &mut Run, pending: &mut Option<Pending>) -> Result<()> {
    match pending.take() {
        Some(pending) => {
            let written = join(pending).await?;
            write::apply(run, written)
        }
        None => Ok(()),
    }
}

/// As many hours as keep the rows of two windows within the limit.
fn next_window(run: &Run, windows: &[FoldedWindow]) -> i64 {
    let hours = || windows.iter().flat_map(|window| window.hours.values());
    let rows: usize = hours().flatten().map(|folded| folded.tables.cost_allocation.len()).sum();
    let rows_an_hour = rows / hours().count().max(1) + 1;
    let at_once = rows_an_hour.saturating_mul(2 * windows.len().max(1));
    let fitting = run.options.rows_in_flight / (at_once as u64).max(1);
    i64::try_from(fitting).unwrap_or(WINDOW_MAX).clamp(1, WINDOW_MAX)
}

/// Folds the next window of every cursor, and moves it on.
async fn fold_windows(
    run: &Run,
    cursors: &mut BTreeMap<Shard, Cursor>,
    window: i64,
    end: Hour,
) -> Result<Vec<FoldedWindow>> {
    let mut windows = BTreeMap::new();
    let mut emit = BTreeMap::new();
    for (shard, cursor) in cursors.iter_mut() {
        let loaded = load_window(run, *shard, cursor, window, end).await?;
        let last = loaded.hours.last().map_or(cursor.next, |(hour, _)| *hour);
        cursor.next = last.next();
        emit.insert(*shard, cursor.emit_from);
        windows.insert(*shard, loaded);
    }
    let archive = Arc::clone(&run.ports.shared.archive);
    let fold = move || fold::fold(&*archive, windows);
    let folded = tokio::task::spawn_blocking(fold).await??;
    let mut result = Vec::new();
    for (shard, (hours, states)) in folded {
        if let Some(cursor) = cursors.get_mut(&shard) {
            cursor.states = states;
        }
        let emit_from = emit.get(&shard).copied().unwrap_or_default();
        result.push(FoldedWindow { shard, hours, emit_from, continues: true });
    }
    Ok(result)
}

/// Reads the archive files of a cursor's next hours, as many as fit.
async fn load_window(run: &Run, shard: Shard, cursor: &mut Cursor, window: i64, end: Hour) -> Result<Window> {
    let held = run.held.get(shard)?;
    let mut hours = Vec::new();
    let mut paths = Vec::new();
    let mut bytes = 0;
    let last = end.min(Hour(cursor.next.0 + window - 1));
    for hour in (cursor.next.0..=last.0).map(Hour) {
        let files = held.archive.get(&hour).map(Vec::as_slice).unwrap_or_default();
        bytes += files.iter().map(|file| file.bytes).sum::<u64>();
        if bytes > run.options.buffer_bytes && !hours.is_empty() {
            break;
        }
        hours.push((hour, run.held.rules.of(&held.draft, hour)?));
        paths.extend(files.iter().map(|file| (hour, names::archive(shard, hour, &file.stamp))));
    }
    let (of, paths): (Vec<Hour>, Vec<String>) = paths.into_iter().unzip();
    let files = objects::get_all(&*run.ports.shared.store, paths).await?;
    let states = std::mem::take(&mut cursor.states);
    Ok(Window { hours, files: of.into_iter().zip(files).collect(), bodies: BTreeMap::new(), states })
}

/// Ends shards that are through, or whose state is the recorded one again, and leaves the others to go on.
fn stop_early(
    run: &Run,
    windows: Vec<FoldedWindow>,
    cursors: &mut BTreeMap<Shard, Cursor>,
    unplanned: &mut BTreeMap<Shard, Option<(Hour, ShardState)>>,
    end: Hour,
) -> Result<Vec<FoldedWindow>> {
    let mut kept = Vec::new();
    for mut window in windows {
        let shard = window.shard;
        let draft = &run.held.get(shard)?.draft;
        if let Some(stop) = fold::converged(draft, &window.hours, window.emit_from) {
            window.hours.split_off(&stop.next());
            window.continues = false;
            cursors.remove(&shard);
            unplanned.insert(shard, None);
        } else if cursors.get(&shard).is_some_and(|cursor| cursor.next > end) {
            window.continues = false;
            cursors.remove(&shard);
            unplanned.insert(shard, None);
        }
        kept.push(window);
    }
    Ok(kept)
}
