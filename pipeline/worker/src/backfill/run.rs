//! Pass 2: folds the open hours of every shard, a window of hours at a time. It folds hour by hour, with all
//! organizations on all cores. While a window is folded, the previous window is encoded and stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::rows::HourTables;
use prorata_schemas::time::{Hour, HourRange};
use tokio::task::JoinHandle;

use super::Run;
use super::outcome::HourTotals;
use super::plan::{self, Ends, Segment};
use crate::error::Result;
use crate::names::Shard;
use crate::objects;
use crate::shard::emit::{self, EncodedHour, Job};
use crate::shard::fold::{self, OrganizationHour};
use crate::shard::window::{EventPlaces, WindowLimits, WindowReader, memory_for_events};

/// Number of hours in a shard's first window, when the number of rows per hour is not known yet.
const WINDOW_HOURS_FIRST: u64 = 8;

/// Number of windows of a shard in memory: one is folded while the previous one is encoded.
const WINDOWS_PER_SHARD: usize = 2;

/// A folded window of one shard.
struct ShardWindow {
    shard: Shard,
    /// Last hour of the window.
    last: Hour,
    emit_from: Hour,
    /// The last hour of the shard to fold.
    end: Hour,
    hours: BTreeMap<Hour, Vec<OrganizationHour>>,
}

/// A window whose objects are stored, to be taken into the draft.
struct StoredWindow {
    shard: Shard,
    last: Hour,
    hours: Vec<EncodedHour<HourTotals>>,
}

type Writing = JoinHandle<Result<Vec<StoredWindow>>>;

/// Folds every shard to its end.
pub(super) async fn fold_all(run: &mut Run, ends: &Ends) -> Result<()> {
    let shards: Vec<Shard> = run.shards.iter().map(|(shard, _)| *shard).collect();
    let mut segments: BTreeMap<Shard, Segment> = BTreeMap::new();
    let mut writing: Option<Writing> = None;
    let mut progress = Hours::default();
    let mut hours = run.options.rows_in_flight.clamp(1, WINDOW_HOURS_FIRST).cast_signed();
    for shard in shards {
        if let Some(segment) = plan::segment(run, shard, ends).await? {
            progress.all += plan::hours_left(run, shard, &segment)?;
            segments.insert(shard, segment);
        }
    }
    while !segments.is_empty() {
        let windows = fold_windows(run, &mut segments, hours).await?;
        segments.retain(|_, segment| segment.position.next <= segment.end);
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
    settle(run, &mut writing).await
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

/// Folds the next window of every segment, and moves the segment's position past it.
async fn fold_windows(
    run: &mut Run,
    segments: &mut BTreeMap<Shard, Segment>,
    hours: i64,
) -> Result<Vec<ShardWindow>> {
    let limits = limits(run, segments.len());
    let (mut windows, mut lasts) = (BTreeMap::new(), BTreeMap::new());
    for (shard, Segment { position, end }) in segments.iter_mut() {
        let range = HourRange::new(position.next, Hour(position.next.0 + hours - 1).min(*end));
        let states = std::mem::take(&mut position.states);
        let (rules, owned) = run.shards.with_rules(*shard)?;
        let reader = WindowReader { store: &*run.ports.shared.store, rules, limits };
        let (draft, archive) = (&owned.draft, &mut owned.archive);
        let window = reader.read(draft, archive, range, states, |_| EventPlaces::archived()).await?;
        let last = window.hours.last().map_or(position.next, |(hour, _)| *hour);
        lasts.insert(*shard, last);
        position.next = last.next();
        windows.insert(*shard, window);
    }
    let event_bytes = memory_for_events(run.options.memory_limit, 0);
    let folded = fold::fold(&run.ports.shared, windows, event_bytes).await?;
    let mut result = Vec::new();
    for (shard, folded) in folded {
        let (Some(segment), Some(last)) = (segments.get_mut(&shard), lasts.get(&shard)) else { continue };
        let Segment { position, end } = segment;
        run.outcome.note_held(&folded.states);
        run.outcome.organization_hours += folded.hours.values().map(Vec::len).sum::<usize>() as u64;
        position.states = folded.states;
        let (last, emit_from, hours) = (*last, position.emit_from, folded.hours);
        result.push(ShardWindow { shard, last, emit_from, end: *end, hours });
    }
    Ok(result)
}

/// Starts to encode and store windows in the background, and returns the task. `checkpoint` says whether a
/// checkpoint follows, which needs a snapshot of each window's last hour.
async fn start_writing(run: &mut Run, windows: Vec<ShardWindow>, checkpoint: bool) -> Result<Writing> {
    let mut stored = BTreeMap::new();
    let mut jobs = Vec::new();
    let now = run.ports.shared.clock.now();
    for window in windows {
        let ShardWindow { shard, last, emit_from, end, hours } = window;
        stored.insert(shard, StoredWindow { shard, last, hours: Vec::new() });
        let namer = run.shards.namer(shard)?;
        for (hour, organizations) in hours.into_iter().filter(|(hour, _)| *hour >= emit_from) {
            let snapshot = run.options.retention.keeps_snapshot(hour, end) || (checkpoint && hour == last);
            let file_rows = run.ports.shared.encoder.file_rows();
            let namer = namer.clone();
            jobs.push(Job { shard, hour, organizations, before: None, snapshot, file_rows, namer, now });
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

/// Takes stored windows into the drafts.
fn apply(run: &mut Run, windows: Vec<StoredWindow>) -> Result<()> {
    for window in windows {
        let draft = &mut run.shards.get_mut(window.shard)?.draft;
        for hour in window.hours {
            run.outcome.take(&hour);
            emit::take_into(draft, hour);
        }
        draft.close_through(window.last);
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
