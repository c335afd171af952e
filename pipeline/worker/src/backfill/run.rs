//! Pass 2: folds every shard hour by hour, all organizations on all cores, a window of hours at a time.
//!
//! While a window is folded, the previous window is encoded and stored. A shard stops early if the state at
//! an hour's end equals the recorded one and no later hour is dirty.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use tokio::task::JoinHandle;

use super::Run;
use super::outcome::HourTotals;
use super::plan::{self, Ends, Segment};
use crate::checkpoint::{Checkpoint, HourEntry};
use crate::error::Result;
use crate::names::Shard;
use crate::objects;
use crate::shard::converge::converged;
use crate::shard::emit::{self, EncodedHour, Job};
use crate::shard::fold::{self, OrganizationHour};
use crate::shard::window::{EventPlaces, WindowLimits, WindowReader, memory_for_events};

/// Hours in a shard's first window, before rows are counted.
const WINDOW_HOURS_FIRST: u64 = 8;

/// Windows of a shard in memory: one is folded while the previous one is encoded.
const WINDOWS_PER_SHARD: usize = 2;

/// A folded window of one shard.
struct ShardWindow {
    shard: Shard,
    /// First and last hour of the window, both inclusive.
    range: (Hour, Hour),
    emit_from: Hour,
    /// The last hour of the shard to fold.
    end: Hour,
    hours: BTreeMap<Hour, Vec<OrganizationHour>>,
    /// Whether the shard continues right after the window.
    continues: bool,
}

/// A window whose objects are stored, to be taken into the draft.
struct StoredWindow {
    shard: Shard,
    range: (Hour, Hour),
    emit_from: Hour,
    continues: bool,
    hours: Vec<EncodedHour<HourTotals>>,
}

type Writing = JoinHandle<Result<Vec<StoredWindow>>>;

/// Folds every shard to its end.
pub(super) async fn fold_all(run: &mut Run, ends: &Ends) -> Result<()> {
    let mut unplanned: BTreeSet<Shard> = run.shards.iter().map(|(shard, _)| *shard).collect();
    let mut segments: BTreeMap<Shard, Segment> = BTreeMap::new();
    let mut writing: Option<Writing> = None;
    let mut progress = Hours::default();
    let mut hours = run.options.rows_in_flight.clamp(1, WINDOW_HOURS_FIRST).cast_signed();
    loop {
        if !unplanned.is_empty() {
            settle(run, &mut writing).await?;
            for shard in std::mem::take(&mut unplanned) {
                if let Some(segment) = plan::next_segment(run, shard, ends).await? {
                    progress.all += plan::hours_left(run, shard, &segment)?;
                    segments.insert(shard, segment);
                }
            }
        }
        if segments.is_empty() {
            return Ok(());
        }
        let mut windows = fold_windows(run, &mut segments, hours).await?;
        stop_early(run, &mut windows, &mut segments, &mut unplanned)?;
        settle(run, &mut writing).await?;
        progress.report(run, &windows);
        hours = next_hours(run, &windows);
        let due = run.checkpointed.elapsed() >= run.options.checkpoint_interval;
        let started = start_writing(run, windows, due).await?;
        if due {
            apply(run, join(started).await?)?;
            let now = run.checkpointed_by();
            run.shards.checkpoint(&run.ports.shared, now).await?;
        } else {
            writing = Some(started);
        }
    }
}

#[derive(Default)]
struct Hours {
    done: i64,
    all: i64,
}

impl Hours {
    fn report(&mut self, run: &Run, windows: &[ShardWindow]) {
        self.done += windows.iter().map(|window| window.hours.len() as i64).sum::<i64>();
        run.ports.progress.folding(self.done.unsigned_abs(), self.all.max(self.done).unsigned_abs());
    }
}

async fn join(writing: Writing) -> Result<Vec<StoredWindow>> {
    writing.await?
}

async fn settle(run: &mut Run, writing: &mut Option<Writing>) -> Result<()> {
    match writing.take() {
        Some(writing) => apply(run, join(writing).await?),
        None => Ok(()),
    }
}

pub(super) fn limits(run: &Run, shards: usize) -> WindowLimits {
    let bytes = memory_for_events(run.options.memory_limit, 0);
    WindowLimits { event_bytes: bytes / (shards as u64).max(1), rows: run.options.rows_in_flight }
}

fn next_hours(run: &Run, windows: &[ShardWindow]) -> i64 {
    let hours = || windows.iter().flat_map(|window| window.hours.values());
    let rows: usize = hours().flatten().map(|folded| folded.tables.cost_allocation.len()).sum();
    limits(run, windows.len()).next_hours(
        rows as u64,
        hours().count(),
        WINDOWS_PER_SHARD * windows.len().max(1),
    )
}

/// Folds the next window of every segment, and moves its cursor.
async fn fold_windows(
    run: &mut Run,
    segments: &mut BTreeMap<Shard, Segment>,
    hours: i64,
) -> Result<Vec<ShardWindow>> {
    let limits = limits(run, segments.len());
    let (mut windows, mut ranges) = (BTreeMap::new(), BTreeMap::new());
    for (shard, Segment { cursor, end }) in segments.iter_mut() {
        let range = (cursor.next, Hour(cursor.next.0 + hours - 1).min(*end));
        let states = std::mem::take(&mut cursor.states);
        let (rules, owned) = run.shards.with_rules(*shard)?;
        let reader = WindowReader { store: &*run.ports.shared.store, rules, limits };
        let (draft, archive) = (&owned.draft, &mut owned.archive);
        let window = reader.read(draft, archive, range, states, |_| EventPlaces::archived()).await?;
        let last = window.hours.last().map_or(cursor.next, |(hour, _)| *hour);
        ranges.insert(*shard, (cursor.next, last));
        cursor.next = last.next();
        windows.insert(*shard, window);
    }
    let event_bytes = memory_for_events(run.options.memory_limit, 0);
    let folded = fold::fold(&run.ports.shared, windows, event_bytes).await?;
    let mut result = Vec::new();
    for (shard, folded) in folded {
        let (Some(segment), Some(range)) = (segments.get_mut(&shard), ranges.get(&shard)) else { continue };
        let Segment { cursor, end } = segment;
        run.outcome.note_held(&folded.states);
        run.outcome.organization_hours += folded.hours.values().map(Vec::len).sum::<usize>() as u64;
        cursor.states = folded.states;
        let (range, emit_from, hours) = (*range, cursor.emit_from, folded.hours);
        result.push(ShardWindow { shard, range, emit_from, end: *end, hours, continues: true });
    }
    Ok(result)
}

/// Ends shards that have reached their end, or whose state equals the recorded one again; the others
/// continue.
fn stop_early(
    run: &Run,
    windows: &mut [ShardWindow],
    segments: &mut BTreeMap<Shard, Segment>,
    unplanned: &mut BTreeSet<Shard>,
) -> Result<()> {
    for window in windows {
        let shard = window.shard;
        let stop = converged(&run.shards.get(shard)?.draft, &window.hours, window.emit_from);
        if let Some(stop) = stop {
            window.hours.split_off(&stop.next());
            window.range.1 = stop;
        }
        if stop.is_some() || window.range.1 >= window.end {
            window.continues = false;
            segments.remove(&shard);
            unplanned.insert(shard);
        }
    }
    Ok(())
}

/// Starts encoding and storing windows. `checkpoint` says that a checkpoint is due after them, which needs
/// the last state.
async fn start_writing(run: &mut Run, windows: Vec<ShardWindow>, checkpoint: bool) -> Result<Writing> {
    let mut stored = BTreeMap::new();
    let mut jobs = Vec::new();
    let now = run.ports.shared.clock.now();
    ensure_live(run, &windows).await?;
    for window in windows {
        let ShardWindow { shard, range, emit_from, end, hours, continues } = window;
        stored.insert(shard, StoredWindow { shard, range, emit_from, continues, hours: Vec::new() });
        let namer = run.shards.namer(shard)?;
        for (hour, organizations) in hours.into_iter().filter(|(hour, _)| *hour >= emit_from) {
            let draft = &run.shards.get(shard)?.draft;
            let mut before = emit::entry_before(draft, Some(&run.live.hours), hour);
            forget_unusable(&run.unusable, (shard, hour), before.as_mut());
            let keeps = crate::checkpoint::retention::keeps_snapshot(hour, end);
            let snapshot = keeps || (checkpoint && hour == range.1);
            let file_rows = run.ports.shared.encoder.file_rows();
            let namer = namer.clone();
            jobs.push(Job { shard, hour, organizations, before, snapshot, file_rows, namer, now });
        }
    }
    let encoder = Arc::clone(&run.ports.shared.encoder);
    let store = Arc::clone(&run.ports.shared.store);
    Ok(tokio::spawn(async move {
        let mut new = Vec::new();
        for mut hour in emit::encode_all(encoder, jobs, totals).await? {
            new.append(&mut hour.objects);
            if let Some(window) = stored.get_mut(&hour.shard) {
                window.hours.push(hour);
            }
        }
        objects::put_all(&*store, new).await?;
        Ok(stored.into_values().collect())
    }))
}

/// Loads which files the tables have of hours that have left the checkpoints.
async fn ensure_live(run: &mut Run, windows: &[ShardWindow]) -> Result<()> {
    let mut wanted: Vec<(&Checkpoint, Hour)> = Vec::new();
    for window in windows {
        let draft = &run.shards.get(window.shard)?.draft;
        let hours = window.hours.keys().copied().filter(|hour| *hour >= window.emit_from);
        wanted.extend(hours.map(|hour| (&**draft, hour)));
    }
    run.live.ensure(&run.ports.shared, &run.options.owner, wanted).await?;
    run.live.refuse_lost(&run.unusable)
}

/// Removes unusable files from an hour's entry, so that they are rewritten even if their rows are the same.
fn forget_unusable(
    unusable: &BTreeSet<(Shard, Hour, Table)>,
    (shard, hour): (Shard, Hour),
    before: Option<&mut Arc<HourEntry>>,
) {
    let Some(before) = before else { return };
    for table in Table::ALL.into_iter().filter(|table| unusable.contains(&(shard, hour, *table))) {
        Arc::make_mut(before).tables.remove(&table);
    }
}

/// Takes stored windows into the drafts.
fn apply(run: &mut Run, windows: Vec<StoredWindow>) -> Result<()> {
    for window in windows {
        let draft = &mut run.shards.get_mut(window.shard)?.draft;
        for hour in window.hours {
            run.outcome.take(&hour);
            emit::take_into(draft, hour);
        }
        let (first, last) = window.range;
        let next = last.next().max(window.emit_from);
        let continues = window.continues && draft.closed_through.is_some_and(|closed| next <= closed);
        draft.recomputed((first, last), continues.then_some(next));
        draft.close_through(last);
    }
    Ok(())
}

pub(super) fn totals(tables: &[HourTables]) -> HourTotals {
    let mut sums = HourTotals::new();
    for organization in tables {
        sums.entry(organization.currency.to_string()).or_default().add(organization);
    }
    sums
}
