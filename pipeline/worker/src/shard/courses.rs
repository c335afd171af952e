//! Recomputation of only some organizations, so that late events cost only what they change.
//!
//! Each organization runs its own course. The course starts at the nearest snapshot before the first dirty
//! hour and folds hour by hour. It ends when the state equals the state in a kept snapshot, or after the last
//! closed hour. A slice of a run is a span of hours, limited by the bytes of the table files that it
//! rewrites. Its courses stop at its end and continue in the next slice.
//!
//! All organizations are recomputed, by the same marks, if it is not possible for only some. That is so for
//! hours that have left the checkpoint, unreadable table files, and hours without any usable snapshot.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, WallTime};

use super::archive::ArchiveIndex;
use super::cursor;
use super::emit::{self, EncodedHour};
use super::fold::{self, SomeFolded, SomeHour};
use super::restate::{self, PatchedSnapshot, RestatedHour, RestatedRows, Spliced, UnusableFile};
use super::window::{WINDOW_HOURS_MAX, WindowLimits};
use crate::checkpoint::snapshot::idle::{CourseState, IdleState};
use crate::checkpoint::snapshot::{self, PackedState, PackedStates};
use crate::checkpoint::{Dirty, Draft, HourEntry, ObjectNamer};
use crate::error::{Result, WorkerError};
use crate::objects::CONCURRENCY;
use crate::ports::{FormatError, Ports};
use crate::root::rules::RuleBook;

/// One organization's course through its dirty hours.
#[derive(Clone, Debug)]
pub struct OrganizationCourse {
    /// The next hour to fold.
    pub next: Hour,
    /// The organization's state before that hour; `None` if the organization is new.
    pub state: Option<CourseState>,
}

/// Courses of organizations, by id.
pub type Courses = BTreeMap<OrganizationId, OrganizationCourse>;

/// Everything that folding courses takes besides the shard.
pub struct CourseFolder<'a> {
    /// Ports that every owner runs on.
    pub ports: &'a Ports,
    /// Rules by version.
    pub rules: &'a RuleBook,
    /// Limits of a slice.
    pub limits: WindowLimits,
    /// The wall clock, for `last_updated`.
    pub now: WallTime,
}

/// A shard whose dirty organizations are recomputed.
pub struct CourseShard<'a> {
    /// The shard's next checkpoint.
    pub draft: &'a mut Draft,
    /// The shard's archive.
    pub archive: &'a mut ArchiveIndex,
    /// A source of names for objects of the draft.
    pub namer: ObjectNamer,
}

/// The result of a slice.
pub enum CourseSlice<T> {
    /// There was nothing to do.
    Nothing,
    /// All dirty organizations have an hour like this one, whose rules this release does not compute.
    Waits(Hour),
    /// Hours were folded and encoded.
    Restated(Restated<T>),
    /// All organizations must be recomputed.
    NeedsAll {
        /// The reason.
        cause: String,
        /// The table file that cannot be used, if that is the reason.
        unusable: Option<(Hour, Table)>,
    },
}

/// A slice ready to enter the draft.
pub struct Restated<T> {
    /// Hours of the slice, with objects that are yet to be stored.
    pub hours: Vec<EncodedHour<T>>,
    /// Last hour of the slice.
    pub last: Hour,
    /// Organizations that continue after the slice.
    pub courses: Courses,
    /// States, at the last closed hour, of the organizations that have reached it; `None` if the organization
    /// has left.
    pub states: BTreeMap<OrganizationId, Option<Arc<IdleState>>>,
    /// The number of folded hours of organizations.
    pub folded: u64,
    /// By organization: its finished hours, and the hour at which it continues.
    marks: Vec<(OrganizationId, (Hour, Hour), Option<Hour>)>,
}

impl<T> Restated<T> {
    /// Puts hours and marks into the draft.
    pub fn take_into(self, draft: &mut Draft) {
        self.hours.into_iter().for_each(|hour| emit::take_into(draft, hour));
        for (organization_id, hours, continues_at) in self.marks {
            draft.recomputed_of(&organization_id, hours, continues_at);
        }
    }
}

/// One organization's part of a slice.
struct Part {
    course: OrganizationCourse,
    /// The first hour whose rows are wanted.
    from: Hour,
    /// The hour at whose end the state was the recorded one.
    ended: Option<Hour>,
}

/// Courses that are recomputed together.
struct SliceParts {
    /// The last hour whose rows are wanted.
    last: Hour,
    parts: BTreeMap<OrganizationId, Part>,
    /// Hours of organizations folded so far.
    folded: u64,
}

impl CourseFolder<'_> {
    /// Recomputes a slice of the hours that are dirty for some organizations, through `end` at most. While a
    /// run is under way, `courses` are its courses, and `through` is the last hour that it has finished.
    ///
    /// # Errors
    /// If storage is unavailable, an archive file is damaged, or rows cannot be encoded.
    pub async fn slice<T: Send + 'static>(
        &self,
        mut shard: CourseShard<'_>,
        (courses, through): (&Courses, Option<Hour>),
        end: Hour,
        summarize: fn(&[HourTables]) -> T,
    ) -> Result<CourseSlice<T>> {
        let Some(closed) = shard.draft.closed_through else { return Ok(CourseSlice::Nothing) };
        let mut wanted = wanted(&shard.draft.dirty, courses, through);
        let waiting = self.take_waiting(shard.draft, courses, &mut wanted);
        let Some(first) = wanted.values().min().copied() else {
            return Ok(waiting.map_or(CourseSlice::Nothing, CourseSlice::Waits));
        };
        let Some(last) = self.last(shard.draft, first, end.min(closed)) else {
            let cause = format!("hour {first} is not in the checkpoint");
            return Ok(CourseSlice::NeedsAll { cause, unusable: None });
        };
        let wanted: BTreeMap<_, _> = wanted.into_iter().filter(|(_, from)| *from <= last).collect();
        let Some(parts) = self.parts(&mut shard, courses, wanted).await? else {
            let cause = "no usable snapshot before the first dirty hour".to_owned();
            return Ok(CourseSlice::NeedsAll { cause, unusable: None });
        };
        let mut slice = SliceParts { last, parts, folded: 0 };
        let mut hours = self.fold_courses(&mut shard, &mut slice).await?;
        loop {
            self.load_files(&mut hours).await?;
            match restate::splice_all(Arc::clone(&self.ports.encoder), hours, summarize).await? {
                Spliced::Done(hours) => return Ok(CourseSlice::Restated(restated(slice, hours, closed)?)),
                Spliced::Wants(again) => hours = again,
                Spliced::Unusable(UnusableFile { hour, table, cause }) => {
                    let cause =
                        format!("the file of {} of hour {hour} cannot be used: {cause}", table.name());
                    return Ok(CourseSlice::NeedsAll { cause, unusable: Some((hour, table)) });
                }
            }
        }
    }

    /// Takes out the organizations with an hour whose rules this release does not compute, and returns one
    /// such hour. They wait for a release that does; all others are recomputed.
    fn take_waiting(
        &self,
        draft: &Draft,
        courses: &Courses,
        wanted: &mut BTreeMap<OrganizationId, Hour>,
    ) -> Option<Hour> {
        let mut unknown = None;
        wanted.retain(|organization_id, from| {
            let base = || draft.kept_before(*from).next().map(|(base, _)| base.next());
            let begin = courses.get(organization_id).map(|course| course.next).or_else(base);
            let begin = begin.or(draft.archive_from).unwrap_or(*from).min(*from);
            let waits = (begin.0..=from.0).map(Hour).find(|hour| !self.rules.computes(draft, *hour));
            unknown = unknown.or(waits);
            waits.is_none()
        });
        unknown
    }

    /// Returns the last hour of the next slice: as many hours as their table files leave memory for, and at
    /// least one. Returns `None` if one of the hours has left the checkpoint.
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

    /// Returns the organizations of a slice, each with its course or from its nearest snapshot. Returns
    /// `None` if such a snapshot is missing or too far away.
    async fn parts(
        &self,
        shard: &mut CourseShard<'_>,
        courses: &Courses,
        wanted: BTreeMap<OrganizationId, Hour>,
    ) -> Result<Option<BTreeMap<OrganizationId, Part>>> {
        let mut loaded: BTreeMap<Hour, Option<PackedStates>> = BTreeMap::new();
        let mut parts = BTreeMap::new();
        let archive_from = shard.draft.archive_from;
        for (organization_id, from) in wanted {
            if let Some(course) = courses.get(&organization_id) {
                parts.insert(organization_id, Part { course: course.clone(), from, ended: None });
                continue;
            }
            let mut course = None;
            for (hour, entry) in shard.draft.kept_before(from) {
                let packed = match loaded.entry(hour) {
                    Entry::Occupied(met) => met.into_mut(),
                    Entry::Vacant(new) => new.insert(cursor::load_packed(&*self.ports.store, entry).await?),
                };
                let Some(packed) = packed else { continue };
                let state = packed.get(&organization_id).map(snapshot::unpack).transpose();
                let state = state.map_err(|error| unreadable(entry, &error.to_string()))?;
                let state = state.map(|state| CourseState::Unpacked(Arc::new(state)));
                course = Some(OrganizationCourse { next: hour.next(), state });
                break;
            }
            let from_begin = |first: Hour| OrganizationCourse { next: first.min(from), state: None };
            let Some(course) = course.or(archive_from.map(from_begin)) else { return Ok(None) };
            if from.0 - course.next.0 > WINDOW_HOURS_MAX {
                return Ok(None);
            }
            parts.insert(organization_id, Part { course, from, ended: None });
        }
        let unusable = loaded.iter().filter(|(_, packed)| packed.is_none()).map(|(hour, _)| *hour);
        let unusable: Vec<Hour> = unusable.collect();
        shard.draft.drop_snapshots(&unusable);
        Ok(Some(parts))
    }

    /// Folds the organizations of a slice hour by hour. Keeps only the wanted part of an hour.
    async fn fold_courses(
        &self,
        shard: &mut CourseShard<'_>,
        slice: &mut SliceParts,
    ) -> Result<Vec<RestatedHour>> {
        let mut restated = Vec::new();
        let last = slice.last;
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
        Ok(restated)
    }

    /// Folds the organizations of a slice whose next hour this is, and moves them past it.
    async fn fold_hour(
        &self,
        shard: &mut CourseShard<'_>,
        slice: &mut SliceParts,
        hour: Hour,
    ) -> Result<SomeFolded> {
        let store = &*self.ports.store;
        shard.archive.ensure(store, (hour, hour)).await?;
        let number = shard.draft.shard;
        let files = shard.archive.to_read(hour);
        let rules = self.rules.of(shard.draft, hour)?;
        let before_it = |part: &Part| part.ended.is_none() && part.course.next == hour;
        let states = slice.parts.iter().filter(|(_, part)| before_it(part));
        let states = states.map(|(id, part)| (id.clone(), part.course.state.clone())).collect();
        let rests = hour == slice.last;
        let some = SomeHour { shard: number, hour, rules, files, states, rests };
        let folded = fold::fold_some(self.ports, some).await?;
        slice.folded += folded.len() as u64;
        for (organization_id, part) in &mut slice.parts {
            if before_it(part) {
                let state = folded.get(organization_id).map(|(state, _)| state.clone());
                part.course = OrganizationCourse { next: hour.next(), state };
            }
        }
        Ok(folded)
    }

    /// Returns the new snapshot and rows of an hour. The course of an organization ends here if its state is
    /// the recorded one.
    async fn restated_hour(
        &self,
        shard: &CourseShard<'_>,
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
        if let Some(stored) = cursor::load_stored(&*self.ports.store, &before).await? {
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
            let at = (next.shard, hour);
            patched = restate::patch_snapshot(at, &before, stored, changed, &namer)?;
        }
        let folded = folded.into_values().map(|(_, one)| one).collect();
        Ok(Some(RestatedHour {
            shard: next.shard,
            hour,
            files: BTreeMap::new(),
            wanted: restate::files_with(&before, &organizations),
            organizations,
            rows: RestatedRows::new(folded, &before, self.now),
            snapshot: patched,
            before,
            file_rows: self.ports.encoder.file_rows(),
            namer,
            now: self.now,
        }))
    }

    /// Reads the wanted table files, which keep a part of their rows.
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

/// Returns the result of a folded slice for its organizations.
fn restated<T>(slice: SliceParts, hours: Vec<EncodedHour<T>>, closed: Hour) -> Result<Restated<T>> {
    let SliceParts { last, parts, folded } = slice;
    let (mut courses, mut states, mut marks) = (Courses::new(), BTreeMap::new(), Vec::new());
    for (organization_id, Part { course, from, ended }) in parts {
        let continues_at = (ended.is_none() && last < closed).then_some(course.next);
        marks.push((organization_id.clone(), (from, ended.unwrap_or(last)), continues_at));
        if continues_at.is_some() {
            courses.insert(organization_id, course);
        } else if ended.is_none() {
            let state = course.state.map(|state| state.idle(&organization_id)).transpose();
            let state = state.map_err(|error| FormatError::new("encode a state", error))?;
            states.insert(organization_id, state);
        }
    }
    Ok(Restated { hours, last, courses, states, folded, marks })
}

/// Returns the hour at which each organization of the next slice begins. While a run is under way, it takes
/// only organizations of the run and marks ahead of it; all other marks wait for the next run.
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
