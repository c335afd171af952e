//! Recomputation of some organizations alone: late events cost what they change.
//!
//! Each organization runs its own course: from the nearest snapshot before its first dirty hour, hour by
//! hour, until its state is the one that a kept snapshot has of it, or through the last closed hour. A slice
//! of a run is a span of hours, bounded by the bytes of the table files that it rewrites; its courses end
//! with it and go on in the next slice. Late events that never end wait for one another, so that they write
//! no more than live hours do; see `reach` in [`super::schedule`]. A late event of an hour behind a run waits
//! for the next run, so that a steady flow of them does not keep the last hours from being recomputed.
//!
//! What cannot be done for some organizations alone is done for all of them, by the same marks: hours that
//! have left the checkpoint, table files that cannot be read, snapshots that are all gone.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;

use super::LiveShard;
use super::fold::Folding;
use super::schedule::Reach;
use crate::checkpoint::snapshot::{self, OrganizationState, PackedState, PackedStates};
use crate::checkpoint::{ArchiveBegin, Dirty, HourEntry};
use crate::error::{Result, WorkerError};
use crate::objects::CONCURRENCY;
use crate::shard::cursor;
use crate::shard::emit::{self, EncodedHour};
use crate::shard::fold::{self, OrganizationHour, SomeFolded, SomeHour};
use crate::shard::restate::{self, PatchedSnapshot, RestatedHour, UnusableFile};
use crate::shard::window::WINDOW_HOURS_MAX;

/// One organization on its way through hours that are dirty for it.
#[derive(Clone, Debug)]
pub(super) struct OrganizationCourse {
    /// The next hour to fold.
    pub next: Hour,
    /// Its state before that; none of one that is new.
    pub state: Option<Arc<OrganizationState>>,
}

/// Organizations on their way, by id.
pub(super) type Courses = BTreeMap<OrganizationId, OrganizationCourse>;

/// One organization's part of a slice.
struct Part {
    course: OrganizationCourse,
    /// The first hour whose rows are wanted.
    from: Hour,
    /// The hour at whose end its state was the recorded one.
    ended: Option<Hour>,
}

/// Hours to be recomputed together.
struct CourseSlice {
    /// The first hour whose rows are wanted, and the last.
    hours: (Hour, Hour),
    parts: BTreeMap<OrganizationId, Part>,
}

/// How a slice came out.
pub(super) enum Restated {
    /// It is in the draft, or there was nothing to do.
    Done,
    /// It takes all organizations; why.
    NeedsAll(String),
}

impl Folding<'_> {
    /// Recomputes a slice of the hours that are dirty for some organizations.
    pub(super) async fn restate_slice(&mut self, shard: &mut LiveShard) -> Result<Restated> {
        let Some(closed) = shard.next().closed_through else { return Ok(Restated::Done) };
        let wanted = wanted(&shard.next().dirty, &shard.recompute.courses, shard.recompute.through);
        let end = self.end(shard, closed);
        let Some((first, last)) = self.span(shard, &wanted, end) else { return Ok(Restated::Done) };
        let Some(last) = last else {
            return Ok(Restated::NeedsAll(format!("hour {first} is not in the checkpoint")));
        };
        if shard.recompute.courses.is_empty() && !shard.recompute_goes_on() {
            shard.recompute.began_at = Some(self.now);
        }
        let wanted: BTreeMap<_, _> = wanted.into_iter().filter(|(_, from)| *from <= last).collect();
        let Some(parts) = self.parts(shard, wanted).await? else {
            return Ok(Restated::NeedsAll("no snapshot before the first dirty hour can be used".to_owned()));
        };
        let mut slice = CourseSlice { hours: (first, last), parts };
        let hours = self.fold_courses(shard, &mut slice).await?;
        let spliced = restate::splice_all(Arc::clone(&self.ports.encoder), hours).await?;
        match spliced {
            Ok(hours) => {
                self.take_restated(shard, slice, hours, closed);
                Ok(Restated::Done)
            }
            Err(UnusableFile { hour, table, cause }) => {
                shard.recompute.unusable.insert((hour, table));
                let table = table.name();
                Ok(Restated::NeedsAll(format!("the file of {table} of hour {hour} cannot be used: {cause}")))
            }
        }
    }

    /// The last hour that the next slice may have. A run that may not take all that is dirty begins with as
    /// many dirty hours as it may write; where they change hours behind them, it takes along what is dirty
    /// there.
    fn end(&self, shard: &LiveShard, closed: Hour) -> Hour {
        if !shard.recompute.courses.is_empty() {
            return closed;
        }
        let most = match shard.reach(self.now, self.pace.delay_max) {
            Some(Reach::All) => return closed,
            Some(Reach::Through(hour)) => return hour,
            Some(Reach::Bytes(most)) => most,
            None => 0,
        };
        let (mut bytes, mut last) = (0_u64, None);
        for hour in shard.recompute.waiting.keys() {
            bytes += shard.file_bytes(*hour);
            if last.is_some() && bytes > most {
                break;
            }
            last = Some(*hour);
        }
        last.unwrap_or(closed)
    }

    /// First and last hour of the next slice: as many hours as their table files leave memory for, at least
    /// one. No last hour where one has left the checkpoint.
    fn span(
        &self,
        shard: &LiveShard,
        wanted: &BTreeMap<OrganizationId, Hour>,
        end: Hour,
    ) -> Option<(Hour, Option<Hour>)> {
        let first = wanted.values().min().copied()?;
        let (mut bytes, mut last) = (0_u64, None);
        for hour in (first.0..=end.0.min(first.0 + WINDOW_HOURS_MAX - 1).max(first.0)).map(Hour) {
            let Some(entry) = shard.next().hours.get(&hour) else { return Some((first, None)) };
            bytes += entry.file_bytes();
            if last.is_some() && bytes > self.limits.event_bytes {
                break;
            }
            last = Some(hour);
        }
        Some((first, last))
    }

    /// Organizations of a slice, each from where it stands or from its nearest snapshot; none where that is
    /// too far away.
    async fn parts(
        &self,
        shard: &mut LiveShard,
        wanted: BTreeMap<OrganizationId, Hour>,
    ) -> Result<Option<BTreeMap<OrganizationId, Part>>> {
        let mut loaded: BTreeMap<Hour, Option<PackedStates>> = BTreeMap::new();
        let mut parts = BTreeMap::new();
        let begin = shard.next().archive_begin();
        for (organization_id, from) in wanted {
            if let Some(course) = shard.recompute.courses.get(&organization_id) {
                parts.insert(organization_id, Part { course: course.clone(), from, ended: None });
                continue;
            }
            let mut course = None;
            for (hour, entry) in shard.next.kept_before(from) {
                let packed = match loaded.entry(hour) {
                    Entry::Occupied(met) => met.into_mut(),
                    Entry::Vacant(new) => new.insert(cursor::load_packed(&*self.ports.store, entry).await?),
                };
                let Some(packed) = packed else { continue };
                let state = packed.get(&organization_id).map(snapshot::unpack).transpose();
                let state = state.map_err(|error| unreadable(entry, &error.to_string()))?;
                course = Some(OrganizationCourse { next: hour.next(), state: state.map(|(_, state)| state) });
                break;
            }
            let course = match (course, begin) {
                (Some(course), _) => course,
                (None, ArchiveBegin::At(first)) => OrganizationCourse { next: first.min(from), state: None },
                (None, ArchiveBegin::Empty | ArchiveBegin::Unknown) => return Ok(None),
            };
            if from.0 - course.next.0 > WINDOW_HOURS_MAX {
                return Ok(None);
            }
            parts.insert(organization_id, Part { course, from, ended: None });
        }
        let unusable = loaded.iter().filter(|(_, packed)| packed.is_none()).map(|(hour, _)| *hour);
        let unusable: Vec<Hour> = unusable.collect();
        if let Some(draft) = shard.draft() {
            draft.drop_snapshots(&unusable);
        }
        Ok(Some(parts))
    }

    /// Folds the organizations of a slice hour by hour. Only what is wanted of an hour is kept.
    async fn fold_courses(
        &mut self,
        shard: &mut LiveShard,
        slice: &mut CourseSlice,
    ) -> Result<Vec<RestatedHour>> {
        let mut restated = Vec::new();
        let (_, last) = slice.hours;
        let under_way = |part: &&Part| part.ended.is_none() && part.course.next <= last;
        while let Some(hour) = slice.parts.values().filter(under_way).map(|part| part.course.next).min() {
            let folded = self.fold_hour(shard, slice, hour).await?;
            let emitted = slice.parts.iter().filter(|(_, part)| {
                part.from <= hour && part.ended.is_none() && part.course.next == hour.next()
            });
            let organizations: BTreeSet<OrganizationId> = emitted.map(|(id, _)| id.clone()).collect();
            if !organizations.is_empty() {
                restated.extend(self.restated_hour(shard, slice, hour, organizations, folded).await?);
            }
        }
        self.load_files(&mut restated).await?;
        Ok(restated)
    }

    /// Folds the organizations of a slice that stand before this hour, and moves them on.
    async fn fold_hour(
        &mut self,
        shard: &mut LiveShard,
        slice: &mut CourseSlice,
        hour: Hour,
    ) -> Result<SomeFolded> {
        let store = &*self.ports.store;
        shard.archive.ensure(store, &shard.next, (hour, hour)).await?;
        let number = shard.shard();
        let files = shard.archive.to_read(number, hour);
        let rules = self.rules.of(&shard.next, hour)?;
        let before_it = |part: &Part| part.ended.is_none() && part.course.next == hour;
        let states = slice.parts.iter().filter(|(_, part)| before_it(part));
        let states = states.map(|(id, part)| (id.clone(), part.course.state.clone())).collect();
        let some = SomeHour { shard: number, hour, rules, files, states };
        let folded = fold::fold_some(self.ports, some).await?;
        self.counts.folded_organization_hours += folded.len() as u64;
        for (organization_id, part) in &mut slice.parts {
            if before_it(part) {
                let state = folded.get(organization_id).map(|(state, _)| Arc::clone(state));
                part.course = OrganizationCourse { next: hour.next(), state };
            }
        }
        Ok(folded)
    }

    /// What an hour's snapshot and rows become. Organizations whose state is the recorded one have arrived.
    async fn restated_hour(
        &self,
        shard: &LiveShard,
        slice: &mut CourseSlice,
        hour: Hour,
        organizations: BTreeSet<OrganizationId>,
        folded: SomeFolded,
    ) -> Result<Option<RestatedHour>> {
        let next = shard.next();
        let (Some(before), Some(namer)) = (next.hours.get(&hour).cloned(), shard.namer()) else {
            return Ok(None);
        };
        let folded: Vec<OrganizationHour> = folded
            .into_iter()
            .filter(|(id, _)| organizations.contains(id))
            .map(|(_, (_, folded))| folded)
            .collect();
        let packed = |id: &OrganizationId| -> Option<&PackedState> {
            folded.iter().map(|one| &one.packed).find(|packed| packed.organization_id == *id)
        };
        let mut patched = PatchedSnapshot::default();
        if let Some(stored) = cursor::load_stored(&*self.ports.store, &before).await? {
            for organization_id in &organizations {
                let digest = |packed: Option<&PackedState>| packed.map(snapshot::state_digest);
                let is_recorded =
                    digest(stored.states.get(organization_id)) == digest(packed(organization_id));
                let marks = next.dirty.of_organizations().get(organization_id);
                let later = marks.and_then(|hours| hours.first_after(hour));
                if let Some(part) = slice.parts.get_mut(organization_id)
                    && is_recorded
                    && later.is_none_or(|later| later > slice.hours.1)
                {
                    part.ended = Some(hour);
                }
            }
            let changed = organizations.iter().map(|id| (id.clone(), packed(id))).collect();
            let at = (shard.shard(), hour);
            patched = restate::patch_snapshot(at, &before, stored, changed, &namer, next.format >= 2)?;
        }
        Ok(Some(RestatedHour {
            shard: shard.shard(),
            hour,
            before,
            files: BTreeMap::new(),
            organizations,
            folded,
            snapshot: patched,
            namer,
            now: self.now,
        }))
    }

    /// Reads the table files that keep a part of their rows; those that are gone are missing.
    async fn load_files(&self, hours: &mut [RestatedHour]) -> Result<()> {
        let store = &*self.ports.store;
        let paths = hours.iter().enumerate().flat_map(|(index, hour)| {
            let tables = hour.before.tables.iter();
            tables.map(move |(table, file)| (index, *table, format!("{}/{}", table.name(), file.path)))
        });
        let reads = paths.map(|(index, table, path)| async move {
            Ok::<_, WorkerError>((index, table, store.get(&path).await?))
        });
        let reads = stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY);
        let read: Vec<(usize, Table, Option<Bytes>)> = reads.try_collect().await?;
        for (index, table, bytes) in read {
            if let (Some(hour), Some(bytes)) = (hours.get_mut(index), bytes) {
                hour.files.insert(table, bytes);
            }
        }
        Ok(())
    }

    /// Takes a slice into the draft, and notes where its organizations stand.
    fn take_restated(
        &mut self,
        shard: &mut LiveShard,
        slice: CourseSlice,
        hours: Vec<EncodedHour<()>>,
        closed: Hour,
    ) {
        let (_, last) = slice.hours;
        let recompute = &mut shard.recompute;
        recompute.debt += hours.iter().map(|hour| hour.file_bytes).sum::<u64>();
        recompute.through = Some(last);
        recompute.courses.clear();
        let mut marks = Vec::new();
        for (organization_id, part) in slice.parts {
            let Part { course, from, ended } = part;
            let goes_on = (ended.is_none() && last < closed).then_some(course.next);
            marks.push((organization_id.clone(), (from, ended.unwrap_or(last)), goes_on));
            if goes_on.is_some() {
                recompute.courses.insert(organization_id, course);
            } else if ended.is_none()
                && let Some(states) = &mut shard.states
            {
                match course.state {
                    Some(state) => states.insert(organization_id, state),
                    None => states.remove(&organization_id),
                };
            }
        }
        let Some(draft) = shard.draft() else { return };
        for hour in hours {
            self.counts.restated_hours += u64::from(hour.restated);
            emit::take_into(draft, hour);
        }
        for (organization_id, hours, goes_on) in marks {
            draft.recomputed_of(&organization_id, hours, goes_on);
        }
    }
}

/// Where each organization of the next slice begins. While a run is under way, those that are part of it or
/// lie before it: all other marks wait for the next.
fn wanted(dirty: &Dirty, courses: &Courses, through: Option<Hour>) -> BTreeMap<OrganizationId, Hour> {
    let marks = dirty.of_organizations();
    let first = |id: &OrganizationId| Some((id.clone(), marks.get(id)?.first()?));
    if courses.is_empty() {
        return marks.keys().filter_map(first).collect();
    }
    let ahead = |(_, hour): &(OrganizationId, Hour)| through.is_none_or(|through| *hour > through);
    let under_way = courses.iter().map(|(id, course)| (id.clone(), course.next));
    let mut wanted: BTreeMap<OrganizationId, Hour> = marks.keys().filter_map(first).filter(ahead).collect();
    wanted.extend(under_way);
    wanted
}

fn unreadable(entry: &HourEntry, cause: &str) -> WorkerError {
    let object = entry.snapshot.clone().unwrap_or_default();
    WorkerError::Damaged { object, cause: cause.to_owned() }
}
