//! Folding of windows of hours, hour by hour, all organizations on all cores.
//!
//! An organization is the unit of a fold: what it comes to stays by itself, with its own digest, until it is
//! encoded.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use prorata_engine::State;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::reject::Reject;
use prorata_schemas::rows::{HourRow, HourTables};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use rayon::prelude::{IntoParallelIterator, IntoParallelRefIterator, ParallelIterator};

use crate::checkpoint::snapshot::{self, Hold, OrganizationState, PackedState, ShardState};
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::objects::StoredObject;
use crate::ports::{Archive, FormatError};
use crate::root::rules::HourRules;

/// An event's kind and canonical body.
pub type Body = (EventKind, Box<[u8]>);

/// One organization's folded hour.
pub struct OrganizationHour {
    /// Its rows.
    pub tables: HourTables,
    /// Its state at the hour's end.
    pub packed: PackedState,
    /// Digest of that.
    pub digest: [u8; 32],
}

/// Consecutive hours of one shard, with everything that folding them takes.
pub struct Window {
    /// The hours with their rules, ascending.
    pub hours: Vec<(Hour, HourRules)>,
    /// Archive files of these hours.
    pub files: Vec<(Hour, StoredObject)>,
    /// Events of these hours that are in memory.
    pub bodies: BTreeMap<Hour, Arc<Vec<Body>>>,
    /// State before the first hour.
    pub states: ShardState,
}

/// A folded window.
#[derive(Default)]
pub struct FoldedWindow {
    /// Its hours, each with its organizations, ascending.
    pub hours: BTreeMap<Hour, Vec<OrganizationHour>>,
    /// State at the end of the last hour.
    pub states: ShardState,
}

impl FoldedWindow {
    /// Rows of `cost_allocation` over all hours.
    pub fn rows(&self) -> u64 {
        let organizations = self.hours.values().flatten();
        organizations.map(|folded| folded.tables.cost_allocation.len() as u64).sum()
    }
}

/// A window on its way.
struct Course {
    hours: std::vec::IntoIter<(Hour, HourRules)>,
    files: BTreeMap<Hour, Vec<StoredObject>>,
    bodies: BTreeMap<Hour, Arc<Vec<Body>>>,
    folded: FoldedWindow,
}

/// One shard's hour that is about to be folded.
struct ShardHour {
    shard: Shard,
    hour: Hour,
    rules: HourRules,
    files: Vec<StoredObject>,
    bodies: Arc<Vec<Body>>,
    states: ShardState,
}

/// One organization's part of it.
struct OrganizationPart {
    shard: Shard,
    hour: Hour,
    rules: HourRules,
    organization_id: OrganizationId,
    state: Option<Arc<OrganizationState>>,
    events: Vec<EventRecord>,
}

/// Folds windows of several shards on all cores, hour by hour: events take several times as much memory once
/// they are decoded, so only one hour of each shard is at a time. It blocks: call it off the async threads.
///
/// # Errors
/// When an archive file is damaged.
pub fn fold(
    archive: &dyn Archive,
    windows: BTreeMap<Shard, Window>,
) -> Result<BTreeMap<Shard, FoldedWindow>> {
    let mut courses: BTreeMap<Shard, Course> =
        windows.into_iter().map(|(shard, window)| (shard, Course::of(window))).collect();
    loop {
        let next: Vec<ShardHour> =
            courses.iter_mut().filter_map(|(shard, course)| course.next(*shard)).collect();
        if next.is_empty() {
            return Ok(courses.into_iter().map(|(shard, course)| (shard, course.folded)).collect());
        }
        let items: Vec<Vec<OrganizationPart>> =
            next.into_par_iter().map(|hour| organizations(archive, hour, |_| true)).collect::<Result<_>>()?;
        let items: Vec<OrganizationPart> = items.into_iter().flatten().collect();
        let folded: Vec<Folded> = items.into_par_iter().map(fold_organization).collect::<Result<_>>()?;
        for Folded { shard, hour, organization_id, state, tables } in folded {
            let Some(course) = courses.get_mut(&shard) else { continue };
            course.folded.hours.entry(hour).or_default().push(tables);
            course.folded.states.insert(organization_id, Arc::new(state));
        }
    }
}

/// One hour of some organizations of a shard.
pub struct SomeHour {
    /// The shard.
    pub shard: Shard,
    /// The hour.
    pub hour: Hour,
    /// Its rules.
    pub rules: HourRules,
    /// Its archive files.
    pub files: Vec<StoredObject>,
    /// The organizations, each with its state before; none where it is new.
    pub states: BTreeMap<OrganizationId, Option<Arc<OrganizationState>>>,
}

/// What some organizations came to; one without state and events comes to nothing.
pub type SomeFolded = BTreeMap<OrganizationId, (Arc<OrganizationState>, OrganizationHour)>;

/// Folds an hour of some organizations, off the async threads. Events of all others are passed over.
///
/// # Errors
/// When an archive file is damaged.
pub async fn fold_some(archive: &Arc<dyn Archive>, some: SomeHour) -> Result<SomeFolded> {
    let archive = Arc::clone(archive);
    let fold = move || {
        let SomeHour { shard, hour, rules, files, states } = some;
        let wanted: BTreeSet<OrganizationId> = states.keys().cloned().collect();
        let states = states.into_iter().filter_map(|(id, state)| Some((id, state?))).collect();
        let of = ShardHour { shard, hour, rules, files, bodies: Arc::default(), states };
        let items = organizations(&*archive, of, |organization_id| wanted.contains(organization_id))?;
        let folded: Vec<Folded> = items.into_par_iter().map(fold_organization).collect::<Result<_>>()?;
        let named = folded.into_iter().map(|one| (one.organization_id, (Arc::new(one.state), one.tables)));
        Ok(named.collect())
    };
    tokio::task::spawn_blocking(fold).await?
}

/// Folds windows off the async threads.
///
/// # Errors
/// See [`fold`].
pub async fn fold_aside(
    archive: &Arc<dyn Archive>,
    windows: BTreeMap<Shard, Window>,
) -> Result<BTreeMap<Shard, FoldedWindow>> {
    let archive = Arc::clone(archive);
    tokio::task::spawn_blocking(move || fold(&*archive, windows)).await?
}

impl Course {
    fn of(window: Window) -> Self {
        let Window { hours, files, bodies, states } = window;
        let mut by_hour: BTreeMap<Hour, Vec<StoredObject>> = BTreeMap::new();
        for (hour, file) in files {
            by_hour.entry(hour).or_default().push(file);
        }
        Self {
            hours: hours.into_iter(),
            files: by_hour,
            bodies,
            folded: FoldedWindow { hours: BTreeMap::new(), states },
        }
    }

    fn next(&mut self, shard: Shard) -> Option<ShardHour> {
        let (hour, rules) = self.hours.next()?;
        // An hour in which nobody is left is one, too.
        self.folded.hours.entry(hour).or_default();
        Some(ShardHour {
            shard,
            hour,
            rules,
            files: self.files.remove(&hour).unwrap_or_default(),
            bodies: self.bodies.remove(&hour).unwrap_or_default(),
            states: std::mem::take(&mut self.folded.states),
        })
    }
}

/// Decodes an hour's events, and sorts states and the events of wanted organizations, ascending. One that
/// does not have the hour is left out of it, and of the state at its end.
fn organizations(
    archive: &dyn Archive,
    of: ShardHour,
    wanted: impl Fn(&OrganizationId) -> bool + Sync,
) -> Result<Vec<OrganizationPart>> {
    let ShardHour { shard, hour, rules, files, bodies, states } = of;
    let mut decoded: Vec<Vec<EventRecord>> = files
        .into_par_iter()
        .map(|file| {
            let mut records = Vec::new();
            read_archive(archive, &file, |record| {
                if wanted(&record.event.organization_id) {
                    records.push(record);
                }
            })?;
            Ok(records)
        })
        .collect::<Result<_>>()?;
    let in_memory = bodies.par_iter().map(|(kind, body)| {
        let event = prorata_schemas::body::decode(*kind, body)
            .map_err(|reject| in_memory_damaged(shard, hour, &reject))?;
        Ok(EventRecord { event, body: body.clone() })
    });
    decoded.push(in_memory.collect::<Result<_>>()?);
    let new = |organization_id: OrganizationId| {
        let rules = rules.clone();
        OrganizationPart { shard, hour, rules, organization_id, state: None, events: Vec::new() }
    };
    let mut items: BTreeMap<OrganizationId, OrganizationPart> = BTreeMap::new();
    for (organization_id, state) in states {
        items
            .insert(organization_id.clone(), OrganizationPart { state: Some(state), ..new(organization_id) });
    }
    for record in decoded.into_iter().flatten() {
        let organization_id = record.event.organization_id.clone();
        let item = items.entry(organization_id.clone()).or_insert_with(|| new(organization_id));
        item.events.push(record);
    }
    Ok(items.into_values().filter(has_hour).collect())
}

/// Whether an organization has the hour. One that is held has, until it goes on.
fn has_hour(part: &OrganizationPart) -> bool {
    let Some(before) = &part.state else { return true };
    before.hold.is_some() || prorata_engine::has_hour(part.rules.meaning, &before.state, &part.events)
}

/// One organization's hour, folded.
struct Folded {
    shard: Shard,
    hour: Hour,
    organization_id: OrganizationId,
    state: OrganizationState,
    tables: OrganizationHour,
}

/// Folds an organization's hour, unless it is held. One whose hour the engine refuses is held from then on:
/// it keeps the state before, and has no rows until that hour is folded again and succeeds.
fn fold_organization(item: OrganizationPart) -> Result<Folded> {
    let OrganizationPart { shard, hour, rules, organization_id, state, events } = item;
    let new =
        || OrganizationState { state: State::new(organization_id.clone()), max_event_time: None, hold: None };
    let before = state.unwrap_or_else(|| Arc::new(new()));
    let latest = events.iter().map(|record| record.event.event_time).max();
    let count = events.len();
    let closed = match &before.hold {
        Some(hold) => Err(hold.clone()),
        None => close_hour(&before.state, hour, events, &rules).map_err(|cause| {
            tracing::error!(%organization_id, %hour, cause, "the organization is held, all others go on");
            Hold { since: hour, cause }
        }),
    };
    let (state, tables, hold) = match closed {
        Ok((state, tables)) => (state, tables, None),
        Err(hold) => (before.state.clone(), held_hour(&organization_id, hour, &rules, count), Some(hold)),
    };
    let max_event_time = before.max_event_time.max(latest);
    let state = OrganizationState { state, max_event_time, hold };
    let packed = snapshot::pack(&organization_id, &state)
        .map_err(|error| FormatError::new("encode a state", error))?;
    let digest = snapshot::state_digest(&packed);
    Ok(Folded { shard, hour, organization_id, state, tables: OrganizationHour { tables, packed, digest } })
}

/// Folds an hour; why the engine refuses it, if it does, even by a panic.
fn close_hour(
    state: &State,
    hour: Hour,
    events: Vec<EventRecord>,
    rules: &Rules,
) -> Result<(State, HourTables), String> {
    let close = AssertUnwindSafe(|| prorata_engine::close_hour(state.clone(), hour, events, rules));
    match catch_unwind(close) {
        Ok(closed) => closed.map_err(|error| error.to_string()),
        Err(_) => Err("an internal error of the engine; report it".to_owned()),
    }
}

/// What the tables say of an hour that is not folded: no rows, and sums of nothing.
fn held_hour(organization_id: &OrganizationId, hour: Hour, rules: &Rules, events: usize) -> HourTables {
    let totals = HourRow { events: i64::try_from(events).unwrap_or(i64::MAX), ..HourRow::default() };
    HourTables {
        organization_id: organization_id.clone(),
        currency: rules.currency_of(organization_id).clone(),
        rules_version: rules.version.clone(),
        gpu_resources: rules.gpu_resources.clone(),
        hour,
        cost_allocation: Vec::new(),
        reservation_usage: Vec::new(),
        commitment_utilization: Vec::new(),
        quota_usage: Vec::new(),
        pool_usage: Vec::new(),
        totals,
    }
}

/// Reads a file of our own archive: every record must be an event.
///
/// # Errors
/// What is damaged, and where.
pub fn read_archive(
    archive: &dyn Archive,
    file: &StoredObject,
    mut each: impl FnMut(EventRecord),
) -> Result<()> {
    let mut damage = None;
    let damaged = |cause: String| WorkerError::Damaged { object: file.path.clone(), cause };
    let read = archive.read(&mut &*file.bytes, &mut |position, record| match record {
        Ok(record) => each(record),
        Err(rejected) => {
            let place = position.map_or(String::new(), |position| format!("{position}: "));
            damage.get_or_insert(format!("{place}{}", rejected.reject));
        }
    });
    read.map_err(|error| damaged(error.to_string()))?;
    damage.map_or(Ok(()), |cause| Err(damaged(cause)))
}

/// Those of these events that none of these files of their hour holds, each once, in the order of their
/// bodies.
///
/// # Errors
/// What is damaged, and where.
pub fn unknown_events(
    archive: &dyn Archive,
    files: &[StoredObject],
    mut events: Vec<Body>,
) -> Result<Vec<Body>> {
    events.sort_unstable();
    events.dedup();
    let mut known = vec![false; events.len()];
    for file in files {
        read_archive(archive, file, |record| {
            let body = (record.event.payload.kind(), record.body);
            let known = events.binary_search(&body).ok().and_then(|at| known.get_mut(at));
            known.into_iter().for_each(|known| *known = true);
        })?;
    }
    let mut known = known.into_iter();
    events.retain(|_| !known.next().unwrap_or_default());
    Ok(events)
}

fn in_memory_damaged(shard: Shard, hour: Hour, reject: &Reject) -> WorkerError {
    let object = format!("an event in memory, hour {hour}, shard {shard}");
    WorkerError::Damaged { object, cause: reject.to_string() }
}
