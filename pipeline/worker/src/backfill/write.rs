//! Folded hours into table files and snapshots, and those into the draft of the next checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::rows::HourTables;
use prorata_schemas::time::Hour;
use rayon::prelude::{IntoParallelIterator, ParallelIterator};
use tokio::task::JoinHandle;

use super::Run;
use super::fold::FoldedWindow;
use super::outcome::Totals;
use super::plan::Cursor;
use crate::checkpoint::HourEntry;
use crate::error::Result;
use crate::hour_files::{self, EncodedHour, Job};
use crate::names::Shard;
use crate::objects::{self, CONCURRENCY};
use crate::ports::TableEncoder;
use crate::retention;

/// A shard's written window, to go into the draft.
pub(super) struct Written {
    shard: Shard,
    hours: BTreeMap<Hour, WrittenHour>,
    last: Option<Hour>,
    continues: bool,
}

struct WrittenHour {
    entry: HourEntry,
    restated: bool,
    files: u64,
    totals: BTreeMap<String, Totals>,
}

/// An encoded hour with the objects that are yet to be stored.
struct Encoded {
    shard: Shard,
    hour: Hour,
    written: WrittenHour,
    objects: Vec<(String, Bytes)>,
}

/// Reads from the tables which files old hours have, once such an hour is to be folded again.
pub(super) async fn load_live(run: &mut Run, cursors: &BTreeMap<Shard, Cursor>) -> Result<()> {
    let forgotten = cursors.iter().any(|(shard, cursor)| {
        let draft = run.held.get(*shard).map(|held| &held.draft);
        draft.is_ok_and(|draft| {
            // Hours leave one by one, but for the one with the oldest snapshot: the rest is not contiguous.
            let closed = draft.closed_through.unwrap_or(cursor.emit_from.previous());
            let known = draft.hours.range(cursor.emit_from..closed.next().max(cursor.emit_from)).count();
            (known as i64) < closed.0 - cursor.emit_from.0 + 1
        })
    });
    if !forgotten || run.live.is_some() {
        return Ok(());
    }
    let live = hour_files::live(&*run.ports.shared.tables).await?;
    run.live = Some(live);
    Ok(())
}

/// Starts encoding and storing windows; `checkpoint` says that one is due behind them, which wants the last state.
pub(super) fn start(
    run: &Run,
    windows: Vec<FoldedWindow>,
    end: Hour,
    checkpoint: bool,
) -> Result<JoinHandle<Result<Vec<Written>>>> {
    let mut written = BTreeMap::new();
    let mut jobs = Vec::new();
    let now = run.ports.shared.clock.now();
    for window in windows {
        let shard = window.shard;
        let stamper = run.held.stamper(shard)?;
        let last = window.hours.keys().next_back().copied();
        let continues = window.continues;
        written.insert(shard, Written { shard, hours: BTreeMap::new(), last, continues });
        for (hour, organizations) in window.hours.into_iter().filter(|(hour, _)| *hour >= window.emit_from) {
            let snapshot = retention::keeps_snapshot(hour, end) || (checkpoint && Some(hour) == last);
            let before = published(run, shard, hour)?;
            let stamper = stamper.clone();
            jobs.push(Job { shard, hour, organizations, before, snapshot, stamper, now });
        }
    }
    let encoder = Arc::clone(&run.ports.shared.encoder);
    let store = Arc::clone(&run.ports.shared.store);
    Ok(tokio::spawn(async move {
        let encode = move || -> Result<Vec<Encoded>> {
            jobs.into_par_iter().map(|job| encode_hour(&*encoder, job)).collect()
        };
        let encoded = tokio::task::spawn_blocking(encode).await;
        let encoded = encoded??;
        let mut puts = Vec::new();
        for mut hour in encoded {
            let objects = std::mem::take(&mut hour.objects);
            puts.extend(objects.into_iter().map(|(path, bytes)| objects::put(&*store, path, bytes)));
            if let Some(window) = written.get_mut(&hour.shard) {
                window.hours.insert(hour.hour, hour.written);
            }
        }
        stream::iter(puts).buffer_unordered(CONCURRENCY).try_collect::<Vec<()>>().await?;
        Ok(written.into_values().collect())
    }))
}

/// An hour as it was published last.
fn published(run: &Run, shard: Shard, hour: Hour) -> Result<Option<HourEntry>> {
    let draft = &run.held.get(shard)?.draft;
    if let Some(entry) = draft.hours.get(&hour) {
        return Ok(Some(entry.clone()));
    }
    let live = run.live.as_ref().and_then(|live| live.get(&(shard, hour)));
    Ok(live.map(|tables| HourEntry {
        revision: draft.revision_of(hour),
        tables: tables.clone(),
        held: true,
        ..HourEntry::default()
    }))
}

/// Takes written windows into the drafts.
pub(super) fn apply(run: &mut Run, windows: Vec<Written>) -> Result<()> {
    for window in windows {
        let Some(last) = window.last else { continue };
        for (hour, written) in window.hours {
            run.outcome.fold(hour);
            run.outcome.files_written += written.files;
            run.outcome.hours_restated += u64::from(written.restated);
            for (currency, totals) in &written.totals {
                run.outcome.totals.entry(currency.clone()).or_default().merge(totals);
            }
            let held = run.held.get_mut(window.shard)?;
            held.changed = true;
            held.draft.hours.insert(hour, written.entry);
        }
        let draft = &mut run.held.get_mut(window.shard)?.draft;
        let closed = draft.closed_through;
        draft.dirty.clear_through(last);
        if window.continues && closed.is_some_and(|closed| last < closed) {
            draft.dirty.insert(last.next());
        }
        draft.closed_through = closed.max(Some(last));
    }
    Ok(())
}

fn encode_hour(encoder: &dyn TableEncoder, job: Job) -> Result<Encoded> {
    let (shard, hour) = (job.shard, job.hour);
    let EncodedHour { entry, restated, files, objects, tables, .. } = hour_files::encode(encoder, job)?;
    let written = WrittenHour { entry, restated, files, totals: totals(&tables) };
    Ok(Encoded { shard, hour, written, objects })
}

fn totals(tables: &[HourTables]) -> BTreeMap<String, Totals> {
    let mut sums: BTreeMap<String, Totals> = BTreeMap::new();
    for organization in tables {
        sums.entry(organization.currency.to_string()).or_default().add(organization);
    }
    sums
}
