//! Recomputation of all organizations of closed hours.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::rows::HourTables;
use prorata_schemas::time::{Hour, HourRange};

use super::{Marks, RecomputeShard, Recomputed, Recomputer, Set, States};
use crate::checkpoint::{Checkpoint, HourEntry};
use crate::error::Result;
use crate::names::ShardHour;
use crate::shard::base::FoldPosition;
use crate::shard::emit::{self, EncodedHour, Job};
use crate::shard::fold::{self, OrganizationHour, state_digest};
use crate::shard::window::{EventPlaces, WindowReader};

/// Folded hours, each with its organizations.
type FoldedHours = BTreeMap<Hour, Vec<OrganizationHour>>;

impl Recomputer<'_> {
    /// Recomputes a window of hours of all organizations. Returns `None` if there is nothing to do.
    pub(super) async fn slice_of_all<T: Send + 'static>(
        &self,
        shard: &mut RecomputeShard<'_>,
        summarize: fn(&[HourTables]) -> T,
    ) -> Result<Option<Recomputed<T>>> {
        let Some(closed) = shard.draft.closed_through else { return Ok(None) };
        let Some(FoldPosition { next, emit_from, states }) = self.position(shard).await? else {
            return Ok(None);
        };
        // A late event that has come meanwhile may belong to an hour that would otherwise be folded without
        // output.
        let dirty = shard.draft.dirty.first_after(next.previous());
        let emit_from = dirty.map_or(emit_from, |dirty| dirty.min(emit_from));
        let last = Hour(closed.0.min(next.0 + shard.run.window_hours - 1));
        let reader = WindowReader { store: &*self.ports.store, rules: self.rules, limits: self.limits };
        let range = HourRange::new(next, last);
        let archived = |_| EventPlaces::archived();
        let window = reader.read(shard.draft, shard.archive, range, states, archived).await?;
        let last = window.hours.last().map_or(last, |(hour, _)| *hour);
        let number = shard.draft.shard;
        let windows = BTreeMap::from([(number, window)]);
        let mut folded = fold::fold(self.ports, windows, self.limits.event_bytes).await?;
        let folded = folded.remove(&number).unwrap_or_default();
        let count = folded.hours.values().map(Vec::len).sum::<usize>() as u64;
        let window_hours = self.limits.next_hours(folded.rows(), folded.hours.len(), 1);
        let (mut hours, states) = (folded.hours, folded.states);
        let stop = if shard.set == Set::AllThrough { None } else { end(shard.draft, &hours, emit_from) };
        let through = stop.unwrap_or(last);
        let led_up: FoldedHours = hours.extract_if(..emit_from, |_, _| true).collect();
        let keeps = |hour| hour == last || self.retention.keeps_snapshot(hour, closed);
        let on_the_way = snapshots_on_the_way(shard, keeps, led_up)?;
        hours.retain(|hour, _| *hour <= through);
        let encoded = self.encode(shard, closed, hours, summarize).await?;
        let continues_at = (stop.is_none() && last < closed).then(|| last.next().max(emit_from));
        let run = &mut *shard.run;
        for hour in &encoded {
            run.unusable.retain(|(of, _)| *of != hour.hour);
        }
        (run.window_hours, run.through) = (window_hours, Some(through));
        run.all = continues_at.map(|emit_from| FoldPosition {
            next: last.next(),
            emit_from,
            states: states.clone(),
        });
        let is_current = stop.is_none() && continues_at.is_none();
        Ok(Some(Recomputed {
            hours: encoded,
            states: States::All { states, is_current },
            folded: count,
            fallback: None,
            marks: Marks::All { done: HourRange::new(next, through), continues_at, on_the_way },
        }))
    }

    /// Returns the position of the run. If no run is under way, begins one that leads to the first dirty
    /// hour; `None` if no hour is dirty.
    async fn position(&self, shard: &mut RecomputeShard<'_>) -> Result<Option<FoldPosition>> {
        if let Some(position) = &shard.run.all {
            return Ok(Some(position.clone()));
        }
        let Some(dirty) = shard.draft.dirty.first() else { return Ok(None) };
        let (position, unusable) = FoldPosition::begin(&*self.ports.store, shard.draft, dirty).await?;
        shard.draft.drop_snapshots(&unusable);
        shard.run.all = Some(position.clone());
        Ok(Some(position))
    }

    /// Encodes folded hours.
    async fn encode<T: Send + 'static>(
        &self,
        shard: &mut RecomputeShard<'_>,
        closed: Hour,
        folded: FoldedHours,
        summarize: fn(&[HourTables]) -> T,
    ) -> Result<Vec<EncodedHour<T>>> {
        let (draft, number) = (&**shard.draft, shard.draft.shard);
        let wanted = folded.keys().map(|hour| (draft, *hour));
        shard.live.ensure(self.ports, self.owner, wanted).await?;
        for hour in folded.keys() {
            let of = ShardHour { shard: number, hour: *hour };
            shard.live.refuse_lost(of, &shard.run.unusable)?;
        }
        let before = |hour| -> Option<Arc<HourEntry>> {
            let mut before = emit::entry_before(draft, Some(&shard.live.hours), hour)?;
            for (_, table) in shard.run.unusable.iter().filter(|(of, _)| *of == hour) {
                // The file is written again even if its rows are the same.
                Arc::make_mut(&mut before).tables.remove(table);
            }
            Some(before)
        };
        let jobs = folded.into_iter().map(|(hour, organizations)| Job {
            shard: number,
            hour,
            organizations,
            before: before(hour),
            snapshot: self.retention.keeps_snapshot(hour, closed),
            file_rows: self.ports.encoder.file_rows(),
            namer: shard.namer.clone(),
            now: self.now,
        });
        emit::encode_all(Arc::clone(&self.ports.encoder), jobs.collect(), summarize).await
    }
}

/// Returns the first hour, `emit_from` or later, at which a run of all organizations may end; `None` if there
/// is none. The state at the end of that hour equals the recorded state. No later hour is dirty, or the next
/// dirty hour has a base snapshot of its own.
fn end(checkpoint: &Checkpoint, folded: &FoldedHours, emit_from: Hour) -> Option<Hour> {
    let has_later_base = |hour: Hour| {
        checkpoint.dirty.first_after(hour).is_none_or(|dirty| {
            checkpoint.hours.range(hour.next()..dirty).any(|(_, entry)| entry.snapshot.is_some())
        })
    };
    let mut hours = folded.range(emit_from..);
    let recorded = hours.find(|(hour, organizations)| {
        let entry = checkpoint.hours.get(hour);
        entry.is_some_and(|entry| entry.state_digest == state_digest(organizations)) && has_later_base(**hour)
    });
    recorded.map(|(hour, _)| *hour)
}

/// Returns snapshots of hours that were folded only to reach the dirty hours: hour, path and content. With
/// these snapshots, the next owner continues from there. They cover only hours that keep a snapshot and whose
/// state equals the recorded state.
fn snapshots_on_the_way(
    shard: &RecomputeShard<'_>,
    keeps: impl Fn(Hour) -> bool,
    led_up: FoldedHours,
) -> Result<Vec<(Hour, String, Bytes)>> {
    let mut snapshots = Vec::new();
    for (hour, organizations) in led_up {
        let entry = shard.draft.hours.get(&hour).filter(|entry| keeps(hour) && entry.snapshot.is_none());
        // If only some organizations were folded since, no digest is recorded.
        let is_recorded = |entry: &Arc<HourEntry>| {
            entry.state_digest.is_empty() || entry.state_digest == state_digest(&organizations)
        };
        if entry.is_some_and(is_recorded) {
            let of = ShardHour { shard: shard.draft.shard, hour };
            let states: Vec<_> = organizations.iter().map(|folded| &folded.packed).collect();
            let (path, bytes) = emit::encode_snapshot(of, &states, &shard.namer)?;
            snapshots.push((hour, path, bytes));
        }
    }
    Ok(snapshots)
}
