//! Second part of a checkpoint: hours that are folded, those to be folded again first, then those that the watermark
//! lets close.
//!
//! Folding again runs aside, a slice per checkpoint: it starts from the newest snapshot before the first dirty hour,
//! moves the dirty mark behind each slice, and ends where the state at an hour's end is the recorded one and no later
//! hour is dirty. Meanwhile hours go on closing from the state at hand; they lie behind the mark, so they are folded
//! again where that state was not the right one. A late event of an hour that was just folded again marks that hour; it
//! does not stop what goes on, or late events that keep coming would keep the last hours from ever being folded again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use prorata_schemas::time::{Hour, Timestamp};
use rayon::prelude::{IntoParallelIterator, ParallelIterator};

use super::StreamPorts;
use super::shard::{LiveShard, Refold};
use super::window::{self, Reader};
use crate::bases;
use crate::checkpoint::{HourEntry, RulesFrom};
use crate::error::Result;
use crate::fold::{self, Body, FoldedHour, FoldedShard, Window};
use crate::hour_files::{self, EncodedHour, Job, Stamper};
use crate::retention;
use crate::rules::RuleBook;
use crate::snapshot::ShardState;
use crate::status::Counts;

/// Most hours of one window.
const WINDOW_MAX: i64 = 96;

/// What folding takes beside the shard.
pub(super) struct Folding<'a> {
    pub ports: &'a StreamPorts,
    pub stamper: &'a Stamper,
    pub rules: &'a mut RuleBook,
    /// The configured rules, for a shard that has none yet.
    pub configured: &'a prorata_schemas::rules::Rules,
    pub now: Timestamp,
    /// Rows to hold in memory at a time.
    pub rows_in_flight: u64,
    /// Bytes of events to hold in memory at a time.
    pub bytes_in_flight: u64,
    pub counts: &'a mut Counts,
}

impl Folding<'_> {
    /// Folds one slice again where hours are dirty. Events that came since the last checkpoint must not be among the
    /// dirty hours': they are not readable yet.
    pub async fn slice(&mut self, shard: &mut LiveShard) -> Result<()> {
        let (Some(dirty), Some(closed)) = (shard.draft.dirty.first(), shard.draft.closed_through) else {
            return Ok(());
        };
        if shard.refold.is_none() {
            shard.refold = Some(self.begin(shard, dirty).await?);
            if !shard.refold_goes_on() {
                shard.refold_at = Some(self.now);
            }
        }
        let Some((next, emit_from)) = shard.refold.as_ref().map(|refold| (refold.next, refold.emit_from))
        else {
            return Ok(());
        };
        // A late event that has come meanwhile may be of an hour that is only led up to.
        let dirty = shard.draft.dirty.first_after(next.previous());
        let emit_from = dirty.map_or(emit_from, |dirty| dirty.min(emit_from));
        let last = Hour(closed.0.min(next.0 + shard.window - 1));
        let (hours, files) = self.reader().read(shard, (next, last), |_| true).await?;
        let last = hours.last().map_or(last, |(hour, _)| *hour);
        let states = shard.refold.take().map(|refold| refold.states).unwrap_or_default();
        let window = Window { hours, files, bodies: BTreeMap::new(), states };
        let (mut folded, states) = self.fold(shard, window).await?;
        let stop = shard.states.as_ref().and_then(|_| fold::converged(&shard.draft, &folded, emit_from));
        if let Some(stop) = stop {
            folded.split_off(&stop.next());
        }
        let through = stop.unwrap_or(last);
        folded.retain(|hour, _| *hour >= emit_from);
        self.emit(shard, folded, |hour| retention::keeps_snapshot(hour, closed)).await?;
        // What became dirty in hours folded before this slice stays so, for the next time.
        shard.draft.dirty.clear(next, through);
        shard.refolded_through = Some(through);
        if stop.is_none() && last < closed {
            shard.draft.dirty.insert(last.next().max(emit_from));
            shard.refold = Some(Refold { next: last.next(), emit_from: last.next().max(emit_from), states });
        } else if stop.is_none() {
            shard.states = Some(states);
        }
        shard.news = true;
        Ok(())
    }

    /// Closes the next hours that the watermark lets close, one window of them.
    pub async fn close(&mut self, shard: &mut LiveShard) -> Result<()> {
        let (Some(first), Some(closable)) = (shard.next_hour(), shard.closable()) else { return Ok(()) };
        self.list_rules(shard, first).await?;
        let last = Hour(closable.0.min(first.0 + shard.window - 1));
        shard.archive.ensure(&*self.ports.shared.store, &shard.draft, (first, last)).await?;
        shard.note_archived(first, last);
        let spilled: Vec<Hour> =
            shard.open.range(first..=last).filter(|(_, open)| open.spilled).map(|(hour, _)| *hour).collect();
        let (hours, files) = self.reader().read(shard, (first, last), |hour| spilled.contains(&hour)).await?;
        let last = hours.last().map_or(last, |(hour, _)| *hour);
        let later = shard.open.split_off(&last.next());
        let open = std::mem::replace(&mut shard.open, later);
        let bodies: BTreeMap<Hour, Vec<Body>> =
            open.into_iter().map(|(hour, open)| (hour, open.events)).collect();
        let states = shard.states.take().unwrap_or_default();
        let (folded, states) = self.fold(shard, Window { hours, files, bodies, states }).await?;
        self.counts.closed_hours += folded.len() as u64;
        self.emit(shard, folded, |hour| retention::keeps_snapshot(hour, closable) || hour == last).await?;
        shard.states = Some(states);
        shard.draft.closed_through = Some(last);
        shard.news = true;
        Ok(())
    }

    /// Where folding of a dirty hour begins.
    async fn begin(&self, shard: &mut LiveShard, dirty: Hour) -> Result<Refold> {
        let store = &*self.ports.shared.store;
        if let Some((hour, states)) = bases::nearest(store, &shard.draft, dirty).await? {
            return Ok(Refold { next: hour.next(), emit_from: dirty, states });
        }
        shard.archive.ensure_all(store, &shard.draft).await?;
        let first = shard.archive.hours().next().map_or(dirty, |first| first.min(dirty));
        Ok(Refold { next: first, emit_from: dirty, states: ShardState::new() })
    }

    fn reader(&self) -> Reader<'_> {
        Reader { ports: self.ports, rules: &*self.rules, bytes_in_flight: self.bytes_in_flight }
    }

    async fn fold(&mut self, shard: &mut LiveShard, window: Window) -> Result<FoldedShard> {
        let started = Instant::now();
        let folded = window::fold(self.ports, shard.shard, window).await?;
        self.counts.fold.observe(started.elapsed());
        let rows: usize = folded.0.values().flatten().map(|folded| folded.tables.cost_allocation.len()).sum();
        let rows_an_hour = (rows / folded.0.len().max(1) + 1) as u64;
        let fitting = i64::try_from(self.rows_in_flight / rows_an_hour).unwrap_or(WINDOW_MAX);
        shard.window = fitting.clamp(1, WINDOW_MAX);
        Ok(folded)
    }

    /// Encodes folded hours, and takes them into the draft.
    async fn emit(
        &mut self,
        shard: &mut LiveShard,
        folded: BTreeMap<Hour, Vec<FoldedHour>>,
        keeps: impl Fn(Hour) -> bool,
    ) -> Result<()> {
        let forgotten = self.forgotten(shard, &folded).await?;
        let jobs: Vec<Job> = folded
            .into_iter()
            .map(|(hour, organizations)| Job {
                shard: shard.shard,
                hour,
                organizations,
                before: shard.draft.hours.get(&hour).or(forgotten.get(&hour)).cloned(),
                snapshot: keeps(hour),
                stamper: self.stamper.clone(),
                now: self.now,
            })
            .collect();
        let encoder = Arc::clone(&self.ports.shared.encoder);
        let encode = move || -> Result<Vec<(Hour, EncodedHour)>> {
            let encode = |job: Job| {
                let (hour, encoded) = (job.hour, hour_files::encode(&*encoder, job)?);
                // Its rows are not needed any more.
                Ok((hour, EncodedHour { tables: Vec::new(), ..encoded }))
            };
            jobs.into_par_iter().map(encode).collect()
        };
        let encoded = tokio::task::spawn_blocking(encode).await;
        for (hour, encoded) in encoded?? {
            self.counts.restated_hours += u64::from(encoded.restated);
            shard.state_bytes = encoded.state_bytes;
            shard.unpublished |= !encoded.entry.held;
            shard.objects.extend(encoded.objects);
            let snapshot = encoded.entry.snapshot.clone();
            let before = shard.draft.hours.insert(hour, encoded.entry);
            shard.replaced.extend(
                before.and_then(|before| before.snapshot).filter(|old| Some(old) != snapshot.as_ref()),
            );
        }
        Ok(())
    }

    /// Entries of closed hours that have left the checkpoint, as far as tables have them.
    async fn forgotten(
        &self,
        shard: &LiveShard,
        folded: &BTreeMap<Hour, Vec<FoldedHour>>,
    ) -> Result<BTreeMap<Hour, HourEntry>> {
        let missing = |hour: &Hour| shard.is_closed(*hour) && !shard.draft.hours.contains_key(hour);
        if !folded.keys().any(missing) {
            return Ok(BTreeMap::new());
        }
        let live = hour_files::live(&*self.ports.shared.tables).await?;
        let entries = folded.keys().filter(|hour| missing(hour)).filter_map(|hour| {
            let tables = live.get(&(shard.shard, *hour))?.clone();
            let revision = shard.draft.revision_of(*hour);
            Some((*hour, HourEntry { revision, tables, held: true, ..HourEntry::default() }))
        });
        Ok(entries.collect())
    }

    /// A shard's first hour brings the configured rules.
    async fn list_rules(&mut self, shard: &mut LiveShard, first: Hour) -> Result<()> {
        if shard.draft.rules.is_empty() {
            self.rules.store(&*self.ports.shared.store, self.configured).await?;
            let version = self.configured.version.clone();
            shard.draft.rules.push(RulesFrom { from: first, version });
        }
        Ok(())
    }
}
