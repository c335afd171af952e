//! Recomputation of closed hours for some organizations; the rows of all others stay as they are.
//!
//! Each organization has its own run. The run starts at the nearest snapshot before the first dirty hour and
//! folds hour by hour. It ends when the state equals the state in a kept snapshot, or after the last closed
//! hour. A slice is a span of hours, limited by the bytes of the table files that it rewrites. Runs pause at
//! the end of a slice and continue in the next slice.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange};

use super::{Marks, OrganizationRun, OrganizationRuns, RecomputeShard, Recomputed, Recomputer, States};
use crate::checkpoint::snapshot::idle::RunState;
use crate::checkpoint::snapshot::{self, PackedState, PackedStates};
use crate::checkpoint::{Dirty, Draft, HourEntry};
use crate::error::{Result, WorkerError};
use crate::names::ShardHour;
use crate::objects::CONCURRENCY;
use crate::ports::FormatError;
use crate::shard::base;
use crate::shard::emit::EncodedHour;
use crate::shard::fold::{self, SomeFolded, SomeHour};
use crate::shard::patch::{self, PatchedSnapshot};
use crate::shard::splice::{self, RestatedHour, RestatedRows, Spliced, UnusableFile};
use crate::shard::window::WINDOW_HOURS_MAX;

/// The result of a slice of some organizations.
pub(super) enum SomeSlice<T> {
    /// There was nothing to do.
    Nothing,
    /// Hours were folded and encoded.
    Recomputed(Recomputed<T>),
    /// Only a fold of all organizations helps.
    Impossible {
        /// The reason.
        cause: String,
        /// The table file that cannot be used, if that is the reason.
        unusable: Option<(Hour, Table)>,
    },
}

/// One organization's part of a slice.
struct Part {
    run: OrganizationRun,
    /// The first hour whose rows are wanted.
    from: Hour,
    /// The hour at whose end the state equalled the recorded state; `None` if there was no such hour yet.
    ended: Option<Hour>,
}

/// Organizations that are recomputed together.
struct SliceParts {
    /// The last hour whose rows are wanted.
    last: Hour,
    parts: BTreeMap<OrganizationId, Part>,
    /// Number of hours folded so far, counted once per organization.
    folded: u64,
}

impl Recomputer<'_> {
    /// Recomputes a slice of the hours that are dirty for some organizations, through `end` at most.
    pub(super) async fn slice_of_some<T: Send + 'static>(
        &self,
        shard: &mut RecomputeShard<'_>,
        end: Hour,
        summarize: fn(&[HourTables]) -> T,
    ) -> Result<SomeSlice<T>> {
        let Some(closed) = shard.draft.closed_through else { return Ok(SomeSlice::Nothing) };
        let runs = shard.run.some.clone();
        let mut wanted = wanted(&shard.draft.dirty, &runs, shard.run.through);
        let waiting = self.take_waiting(shard.draft, &runs, &mut wanted);
        let Some(first) = wanted.values().min().copied() else {
            return match waiting {
                Some(hour) => self.rules.of(shard.draft, hour).map(|_| SomeSlice::Nothing),
                None => Ok(SomeSlice::Nothing),
            };
        };
        let Some(last) = self.last(shard.draft, first, end.min(closed)) else {
            let cause = format!("hour {first} is not in the checkpoint");
            return Ok(SomeSlice::Impossible { cause, unusable: None });
        };
        let wanted: BTreeMap<_, _> = wanted.into_iter().filter(|(_, from)| *from <= last).collect();
        let Some(parts) = self.parts(shard, &runs, wanted).await? else {
            let cause = "no usable snapshot before the first dirty hour".to_owned();
            return Ok(SomeSlice::Impossible { cause, unusable: None });
        };
        let mut slice = SliceParts { last, parts, folded: 0 };
        let mut hours = self.fold_runs(shard, &mut slice).await?;
        loop {
            self.load_files(&mut hours).await?;
            match splice::splice_all(Arc::clone(&self.ports.encoder), hours, summarize).await? {
                Spliced::Done(hours) => {
                    let recomputed = finished(shard, slice, hours, closed)?;
                    return Ok(SomeSlice::Recomputed(recomputed));
                }
                Spliced::Wants(again) => hours = again,
                Spliced::Unusable(UnusableFile { hour, table, cause }) => {
                    let cause =
                        format!("the file of {} of hour {hour} cannot be used: {cause}", table.name());
                    return Ok(SomeSlice::Impossible { cause, unusable: Some((hour, table)) });
                }
            }
        }
    }

    /// Removes from `wanted` the organizations with an hour whose rules this release does not compute.
    /// Returns one such hour, if any. These organizations wait for a release that computes the rules; all
    /// others are recomputed.
    fn take_waiting(
        &self,
        draft: &Draft,
        runs: &OrganizationRuns,
        wanted: &mut BTreeMap<OrganizationId, Hour>,
    ) -> Option<Hour> {
        let mut unknown = None;
        wanted.retain(|organization_id, from| {
            let base = || draft.kept_before(*from).next().map(|(base, _)| base.next());
            let begin = runs.get(organization_id).map(|run| run.next).or_else(base);
            let begin = begin.or(draft.archive_from).unwrap_or(*from).min(*from);
            let waits = (begin.0..=from.0).map(Hour).find(|hour| !self.rules.computes(draft, *hour));
            unknown = unknown.or(waits);
            waits.is_none()
        });
        unknown
    }

    /// Returns the last hour of the next slice. The slice has as many hours as fit, by the bytes of their
    /// table files, and at least one. Returns `None` if one of the hours has left the checkpoint.
    fn last(&self, draft: &Draft, first: Hour, end: Hour) -> Option<Hour> {
        let (mut bytes, mut last) = (0_u64, first);
        for hour in (first.0..=end.0.min(first.0 + WINDOW_HOURS_MAX - 1).max(first.0)).map(Hour) {
            bytes += draft.hours.get(&hour)?.file_bytes();
            if hour > first && bytes > self.limits.event_bytes {
                break;
            }
            last = hour;
        }
        Some(last)
    }

    /// Returns the organizations of a slice, each with its run, or with a new run from the nearest usable
    /// snapshot. Returns `None` if a new run has no starting point, or one that is too far away.
    async fn parts(
        &self,
        shard: &mut RecomputeShard<'_>,
        runs: &OrganizationRuns,
        wanted: BTreeMap<OrganizationId, Hour>,
    ) -> Result<Option<BTreeMap<OrganizationId, Part>>> {
        let mut loaded: BTreeMap<Hour, Option<PackedStates>> = BTreeMap::new();
        let mut parts = BTreeMap::new();
        let archive_from = shard.draft.archive_from;
        for (organization_id, from) in wanted {
            if let Some(run) = runs.get(&organization_id) {
                parts.insert(organization_id, Part { run: run.clone(), from, ended: None });
                continue;
            }
            let mut run = None;
            for (hour, entry) in shard.draft.kept_before(from) {
                let packed = match loaded.entry(hour) {
                    Entry::Occupied(met) => met.into_mut(),
                    Entry::Vacant(new) => new.insert(base::load_packed(&*self.ports.store, entry).await?),
                };
                let Some(packed) = packed else { continue };
                let state = packed.get(&organization_id).map(snapshot::unpack).transpose();
                let state = state.map_err(|error| unreadable(entry, &error.to_string()))?;
                let state = state.map(|state| RunState::Unpacked(Arc::new(state)));
                run = Some(OrganizationRun { next: hour.next(), state });
                break;
            }
            let from_begin = |first: Hour| OrganizationRun { next: first.min(from), state: None };
            let Some(run) = run.or(archive_from.map(from_begin)) else { return Ok(None) };
            if from.0 - run.next.0 > WINDOW_HOURS_MAX {
                return Ok(None);
            }
            parts.insert(organization_id, Part { run, from, ended: None });
        }
        let unusable = loaded.iter().filter(|(_, packed)| packed.is_none()).map(|(hour, _)| *hour);
        let unusable: Vec<Hour> = unusable.collect();
        shard.draft.drop_snapshots(&unusable);
        Ok(Some(parts))
    }

    /// Folds the organizations of a slice hour by hour. Returns the hours with wanted rows, and only the
    /// organizations whose rows are wanted.
    async fn fold_runs(
        &self,
        shard: &mut RecomputeShard<'_>,
        slice: &mut SliceParts,
    ) -> Result<Vec<RestatedHour>> {
        let mut restated = Vec::new();
        let last = slice.last;
        let under_way = |part: &&Part| part.ended.is_none() && part.run.next <= last;
        while let Some(hour) = slice.parts.values().filter(under_way).map(|part| part.run.next).min() {
            let folded = self.fold_hour(shard, slice, hour).await?;
            let emitted = slice.parts.iter().filter(|(_, part)| {
                part.from <= hour && part.ended.is_none() && part.run.next == hour.next()
            });
            let organizations: BTreeSet<OrganizationId> = emitted.map(|(id, _)| id.clone()).collect();
            if !organizations.is_empty() {
                restated.extend(self.restated_hour(shard, slice, hour, organizations, folded).await?);
            }
        }
        Ok(restated)
    }

    /// Folds an hour for the organizations of a slice whose runs have reached it, and moves their runs past
    /// it.
    async fn fold_hour(
        &self,
        shard: &mut RecomputeShard<'_>,
        slice: &mut SliceParts,
        hour: Hour,
    ) -> Result<SomeFolded> {
        let store = &*self.ports.store;
        shard.archive.ensure(store, HourRange::new(hour, hour)).await?;
        let number = shard.draft.shard;
        let files = shard.archive.to_read(hour);
        let rules = self.rules.of(shard.draft, hour)?;
        let before_it = |part: &Part| part.ended.is_none() && part.run.next == hour;
        let states = slice.parts.iter().filter(|(_, part)| before_it(part));
        let states = states.map(|(id, part)| (id.clone(), part.run.state.clone())).collect();
        let rests = hour == slice.last;
        let some = SomeHour { shard: number, hour, rules, files, states, rests };
        let folded = fold::fold_some(self.ports, some).await?;
        slice.folded += folded.len() as u64;
        for (organization_id, part) in &mut slice.parts {
            if before_it(part) {
                let state = folded.get(organization_id).map(|(state, _)| state.clone());
                part.run = OrganizationRun { next: hour.next(), state };
            }
        }
        Ok(folded)
    }

    /// Returns the new snapshot and rows of an hour. The run of an organization ends here if its state equals
    /// the recorded state. Returns `None` if the hour has left the checkpoint.
    async fn restated_hour(
        &self,
        shard: &RecomputeShard<'_>,
        slice: &mut SliceParts,
        hour: Hour,
        organizations: BTreeSet<OrganizationId>,
        mut folded: SomeFolded,
    ) -> Result<Option<RestatedHour>> {
        let next: &Draft = shard.draft;
        let Some(before) = next.hours.get(&hour).cloned() else { return Ok(None) };
        let namer = shard.namer.clone();
        folded.retain(|id, _| organizations.contains(id));
        let packed =
            |id: &OrganizationId| -> Option<&PackedState> { folded.get(id).map(|(_, one)| &one.packed) };
        let mut patched = PatchedSnapshot::default();
        if let Some(stored) = base::load_stored(&*self.ports.store, &before).await? {
            for organization_id in &organizations {
                let digest = |packed: Option<&PackedState>| packed.map(snapshot::state_digest);
                let is_recorded =
                    digest(stored.states.get(organization_id)) == digest(packed(organization_id));
                let marks = next.dirty.of_organizations().get(organization_id);
                let later = marks.and_then(|hours| hours.first_after(hour));
                if let Some(part) = slice.parts.get_mut(organization_id)
                    && is_recorded
                    && later.is_none_or(|later| later > slice.last)
                {
                    part.ended = Some(hour);
                }
            }
            let changed = organizations.iter().map(|id| (id.clone(), packed(id))).collect();
            let at = ShardHour { shard: next.shard, hour };
            patched = patch::patch_snapshot(at, &before, stored, changed, &namer)?;
        }
        let folded = folded.into_values().map(|(_, one)| one).collect();
        Ok(Some(RestatedHour {
            shard: next.shard,
            hour,
            files: BTreeMap::new(),
            wanted: splice::files_with(&before, &organizations),
            organizations,
            rows: RestatedRows::new(folded, &before, self.now),
            snapshot: patched,
            before,
            file_rows: self.ports.encoder.file_rows(),
            namer,
            now: self.now,
        }))
    }

    /// Reads the wanted table files, because the rows of other organizations in them are kept.
    async fn load_files(&self, hours: &mut [RestatedHour]) -> Result<()> {
        let store = &*self.ports.store;
        let paths = hours.iter().enumerate().flat_map(|(index, hour)| {
            let files = hour.wanted.iter().filter_map(|(table, place)| {
                Some(((*table, *place), hour.before.files_of(*table).get(*place)?))
            });
            files.map(move |(place, file)| (index, place, format!("{}/{}", place.0.name(), file.path)))
        });
        let reads = paths.map(|(index, place, path)| async move {
            Ok::<_, WorkerError>((index, place, store.get(&path).await?))
        });
        let reads = stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY);
        let read: Vec<(usize, (Table, usize), Option<Bytes>)> = reads.try_collect().await?;
        for (index, place, bytes) in read {
            if let Some(hour) = hours.get_mut(index) {
                hour.wanted.remove(&place);
                hour.files.insert(place, bytes);
            }
        }
        Ok(())
    }
}

/// Returns the result of a folded slice, and moves the runs to the end of the slice.
fn finished<T>(
    shard: &mut RecomputeShard<'_>,
    slice: SliceParts,
    hours: Vec<EncodedHour<T>>,
    closed: Hour,
) -> Result<Recomputed<T>> {
    let SliceParts { last, parts, folded } = slice;
    let (mut runs, mut states, mut marks) = (OrganizationRuns::new(), BTreeMap::new(), Vec::new());
    for (organization_id, Part { run, from, ended }) in parts {
        let continues_at = (ended.is_none() && last < closed).then_some(run.next);
        let done = HourRange::new(from, ended.unwrap_or(last));
        marks.push((organization_id.clone(), done, continues_at));
        if continues_at.is_some() {
            runs.insert(organization_id, run);
        } else if ended.is_none() {
            let state = run.state.map(|state| state.idle(&organization_id)).transpose();
            let state = state.map_err(|error| FormatError::new("encode a state", error))?;
            states.insert(organization_id, state);
        }
    }
    (shard.run.some, shard.run.through) = (runs, Some(last));
    Ok(Recomputed { hours, states: States::Some(states), folded, marks: Marks::Some(marks), fallback: None })
}

/// Returns the hour from which each organization of the next slice is wanted. While runs are under way, the
/// slice includes only their organizations and marks ahead of them. All other marks wait for the next run.
fn wanted(dirty: &Dirty, runs: &OrganizationRuns, through: Option<Hour>) -> BTreeMap<OrganizationId, Hour> {
    let marks = dirty.of_organizations();
    let first = |id: &OrganizationId| Some((id.clone(), marks.get(id)?.first()?));
    if runs.is_empty() {
        return marks.keys().filter_map(first).collect();
    }
    let ahead = |(_, hour): &(OrganizationId, Hour)| through.is_none_or(|through| *hour > through);
    let under_way = runs.iter().map(|(id, run)| (id.clone(), run.next));
    let mut wanted: BTreeMap<OrganizationId, Hour> = marks.keys().filter_map(first).filter(ahead).collect();
    wanted.extend(under_way);
    wanted
}

fn unreadable(entry: &HourEntry, cause: &str) -> WorkerError {
    let object = entry.snapshot.clone().unwrap_or_default();
    WorkerError::Damaged { object, cause: cause.to_owned() }
}
