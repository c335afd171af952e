//! Folds windows of hours, hour by hour, with all organizations on all cores.
//!
//! An organization is the unit of a fold: its result stays separate, with its own digest, until it is
//! encoded.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use prorata_engine::{HourEvents, OrderedEvents, State};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use rayon::prelude::{IntoParallelIterator, ParallelIterator};

use super::Body;
use super::reading::{ArchiveReader, FileToRead, HourIntake, WantedOrganizations};
use crate::checkpoint::snapshot::idle::{IdleState, RunState};
use crate::checkpoint::snapshot::{self, Hold, OrganizationState, PackedState, ShardState};
use crate::error::Result;
use crate::names::{Shard, ShardHour};
use crate::ports::{FormatError, Ports};

/// The bytes of memory that the reduced events of one byte of an archive file take. A sample takes 5 bytes in
/// a file and about 20 in memory.
const REDUCED_FACTOR: u64 = 4;

/// One organization's folded hour.
pub struct OrganizationHour {
    /// Rows of the organization.
    pub tables: HourTables,
    /// State of the organization at the hour's end.
    pub packed: PackedState,
    /// Digest of the state.
    pub digest: [u8; 32],
}

/// Returns the digest of a shard's state at the end of an hour, from the digests of its organizations.
pub fn state_digest(organizations: &[OrganizationHour]) -> String {
    snapshot::shard_digest(
        organizations.iter().map(|folded| (&folded.packed.organization_id, &folded.digest)),
    )
}

/// Consecutive hours of one shard, with everything that is needed to fold them.
pub struct Window {
    /// The hours with their rules, in ascending order.
    pub hours: Vec<(Hour, Arc<Rules>)>,
    /// Archive files of these hours, still to be read.
    pub files: Vec<(Hour, FileToRead)>,
    /// Events of these hours that are in memory.
    pub bodies: BTreeMap<Hour, Arc<Vec<Body>>>,
    /// State before the first hour.
    pub states: ShardState,
}

/// A folded window.
#[derive(Default)]
pub struct FoldedWindow {
    /// The hours, each with its organizations, in ascending order.
    pub hours: BTreeMap<Hour, Vec<OrganizationHour>>,
    /// State at the end of the last hour.
    pub states: ShardState,
}

impl FoldedWindow {
    /// Returns the number of rows of `cost_allocation` over all hours.
    pub fn rows(&self) -> u64 {
        let organizations = self.hours.values().flatten();
        organizations.map(|folded| folded.tables.cost_allocation.len() as u64).sum()
    }
}

/// A window that is being folded.
struct FoldingWindow {
    hours: std::vec::IntoIter<(Hour, Arc<Rules>)>,
    /// Bytes of archive files by hour.
    archived: BTreeMap<Hour, u64>,
    bodies: BTreeMap<Hour, Arc<Vec<Body>>>,
    folded: BTreeMap<Hour, Vec<OrganizationHour>>,
    states: RunStates,
}

/// States of the organizations that are being folded, by id.
type RunStates = BTreeMap<OrganizationId, RunState>;

/// One shard's hour that is about to be folded.
struct HourToFold {
    shard: Shard,
    hour: Hour,
    rules: Arc<Rules>,
    /// Bytes of the hour's archive files.
    archived: u64,
    bodies: Arc<Vec<Body>>,
    states: RunStates,
    /// Whether states become idle, because no other hour follows immediately.
    rests: bool,
}

/// One organization's part of a shard's hour.
struct OrganizationPart {
    shard: Shard,
    rules: Arc<Rules>,
    organization_id: OrganizationId,
    state: Option<RunState>,
    events: HourEvents,
    rests: bool,
}

/// Folds windows of several shards on all cores, off the async threads. It folds hour by hour and reduces
/// events while it reads them. Only the events of one hour are in memory at a time, for as many shards as fit
/// into `event_bytes` but at least one.
///
/// # Errors
/// If an archive file is missing or damaged, or storage is unavailable.
pub async fn fold(
    ports: &Ports,
    windows: BTreeMap<Shard, Window>,
    event_bytes: u64,
) -> Result<BTreeMap<Shard, FoldedWindow>> {
    let mut files = Vec::new();
    let mut folding: BTreeMap<Shard, FoldingWindow> = BTreeMap::new();
    for (shard, Window { hours, files: own, bodies, states }) in windows {
        let mut archived = BTreeMap::new();
        own.iter().for_each(|(hour, file)| *archived.entry(*hour).or_default() += file.bytes);
        let steps: BTreeMap<Hour, usize> = hours.iter().map(|(hour, _)| *hour).zip(0..).collect();
        files.extend(own.into_iter().filter_map(|(hour, file)| Some((*steps.get(&hour)?, shard, file))));
        let states = states.into_iter().map(|(id, state)| (id, RunState::Idle(state))).collect();
        let window =
            FoldingWindow { hours: hours.into_iter(), archived, bodies, folded: BTreeMap::new(), states };
        folding.insert(shard, window);
    }
    let mut reader = ArchiveReader::new(ports, files, None);
    for step in 0.. {
        let next: Vec<HourToFold> =
            folding.iter_mut().filter_map(|(shard, window)| window.next(*shard)).collect();
        if next.is_empty() {
            break;
        }
        let mut next = VecDeque::from(next);
        while let Some(group) = next_group(&mut next, event_bytes) {
            let intake = HourIntake::new(group.iter().map(|of| ShardHour { shard: of.shard, hour: of.hour }));
            let intake = reader.read(step, intake).await?;
            let folded = tokio::task::spawn_blocking(move || fold_hours(group, intake)).await??;
            for Folded { shard, hour, organization_id, state, tables } in folded {
                let Some(window) = folding.get_mut(&shard) else { continue };
                window.folded.entry(hour).or_default().push(tables);
                window.states.insert(organization_id, state);
            }
        }
    }
    folding.into_iter().map(|(shard, window)| Ok((shard, window.folded()?))).collect()
}

/// Removes and returns the shards to fold next: as many as fit into `event_bytes`, and at least one. `None`
/// if no shard is left.
fn next_group(next: &mut VecDeque<HourToFold>, event_bytes: u64) -> Option<Vec<HourToFold>> {
    let (mut bytes, mut group) = (0_u64, Vec::new());
    while let Some(of) = next.pop_front_if(|of| {
        bytes = bytes.saturating_add(of.archived.saturating_mul(REDUCED_FACTOR));
        group.is_empty() || bytes <= event_bytes
    }) {
        group.push(of);
    }
    (!group.is_empty()).then_some(group)
}

/// One hour of some organizations of a shard.
pub struct SomeHour {
    /// The shard.
    pub shard: Shard,
    /// The hour.
    pub hour: Hour,
    /// Rules of the hour.
    pub rules: Arc<Rules>,
    /// Archive files of the hour.
    pub files: Vec<FileToRead>,
    /// The organizations, each with its state before the hour; `None` if the organization is new.
    pub states: BTreeMap<OrganizationId, Option<RunState>>,
    /// Whether states become idle, because this is the last hour for now.
    pub rests: bool,
}

/// Results by organization. An organization that is not held and has neither state nor events has no result.
pub type SomeFolded = BTreeMap<OrganizationId, (RunState, OrganizationHour)>;

/// Folds an hour of some organizations, off the async threads. Events of all other organizations are skipped.
///
/// # Errors
/// If an archive file is missing or damaged, or storage is unavailable.
pub async fn fold_some(ports: &Ports, some: SomeHour) -> Result<SomeFolded> {
    let SomeHour { shard, hour, rules, files, states, rests } = some;
    let wanted: WantedOrganizations = Some(Arc::new(states.keys().cloned().collect()));
    let files = files.into_iter().map(|file| (0, shard, file)).collect();
    let intake = ArchiveReader::new(ports, files, wanted)
        .read(0, HourIntake::new([ShardHour { shard, hour }]))
        .await?;
    let states = states.into_iter().filter_map(|(id, state)| Some((id, state?))).collect();
    let of = HourToFold { shard, hour, rules, archived: 0, bodies: Arc::default(), states, rests };
    let folded = tokio::task::spawn_blocking(move || fold_hours(vec![of], intake)).await??;
    let named = folded.into_iter().map(|one| (one.organization_id, (one.state, one.tables)));
    Ok(named.collect())
}

impl FoldingWindow {
    fn next(&mut self, shard: Shard) -> Option<HourToFold> {
        let (hour, rules) = self.hours.next()?;
        // An hour without any organization counts, too.
        self.folded.entry(hour).or_default();
        Some(HourToFold {
            shard,
            hour,
            rules,
            archived: self.archived.remove(&hour).unwrap_or_default(),
            bodies: self.bodies.remove(&hour).unwrap_or_default(),
            states: std::mem::take(&mut self.states),
            rests: self.hours.len() == 0,
        })
    }

    /// Returns the folded window.
    fn folded(self) -> Result<FoldedWindow> {
        let idle = |(id, state): (OrganizationId, RunState)| {
            let idle = state.idle(&id).map_err(|error| FormatError::new("encode a state", error))?;
            Ok((id, idle))
        };
        let states: Result<ShardState> = self.states.into_iter().map(idle).collect();
        Ok(FoldedWindow { hours: self.folded, states: states? })
    }
}

/// Folds one hour of each given shard, with all organizations on all cores.
fn fold_hours(hours: Vec<HourToFold>, mut intake: HourIntake) -> Result<Vec<Folded>> {
    let mut parts = Vec::new();
    for hour in hours {
        intake.take_bodies(hour.shard, &hour.bodies)?;
        parts.extend(organizations(hour, &mut intake));
    }
    parts.into_par_iter().filter_map(|part| fold_organization(part).transpose()).collect()
}

/// Returns states and events by organization, in ascending order.
fn organizations(of: HourToFold, intake: &mut HourIntake) -> impl Iterator<Item = OrganizationPart> {
    let HourToFold { shard, hour, rules, states, rests, .. } = of;
    let part = |organization_id, state, events| {
        let rules = rules.clone();
        OrganizationPart { shard, rules, organization_id, state, events, rests }
    };
    let mut items: BTreeMap<OrganizationId, OrganizationPart> = BTreeMap::new();
    for (organization_id, state) in states {
        items.insert(organization_id.clone(), part(organization_id, Some(state), HourEvents::new(hour)));
    }
    for (organization_id, events) in intake.finish(shard) {
        match items.get_mut(&organization_id) {
            Some(item) => item.events = events,
            None => {
                items.insert(organization_id.clone(), part(organization_id, None, events));
            }
        }
    }
    items.into_values()
}

/// One organization's folded hour.
struct Folded {
    shard: Shard,
    hour: Hour,
    organization_id: OrganizationId,
    state: RunState,
    tables: OrganizationHour,
}

/// Folds an organization's hour, unless the organization is held. If the engine refuses an hour, the
/// organization is held from then on. It keeps its previous state, and has no rows until the refused hour is
/// folded again with success. Returns `None` if the organization has no part in the hour, and thus no state
/// at the hour's end. A held organization keeps its state as long as it is held.
fn fold_organization(item: OrganizationPart) -> Result<Option<Folded>> {
    let OrganizationPart { shard, rules, organization_id, state, events, rests } = item;
    let before = match state {
        Some(state) => {
            let before = state.unpacked().map_err(|error| FormatError::new("read a state", error))?;
            if before.hold.is_none() && !prorata_engine::has_hour(&before.state, &events) {
                return Ok(None);
            }
            before
        }
        None => {
            let state = State::new(organization_id.clone());
            Arc::new(OrganizationState { state, max_event_time: None, hold: None })
        }
    };
    let (hour, latest) = (events.hour(), events.latest());
    let events = OrderedEvents::from(events);
    let count = events.standing();
    let closed = match &before.hold {
        Some(hold) => Err(hold.clone()),
        None => close_hour(&before.state, events, &rules).map_err(|cause| {
            tracing::error!(%organization_id, %hour, cause, "organization held; the others continue");
            Hold { since: hour, cause }
        }),
    };
    let (state, tables, hold) = match closed {
        Ok((state, tables)) => (state, tables, None),
        Err(hold) => (
            before.state.clone(),
            HourTables::without_rows(&organization_id, hour, &rules, count),
            Some(hold),
        ),
    };
    let max_event_time = before.max_event_time.max(latest);
    let state = OrganizationState { state, max_event_time, hold };
    let packed = snapshot::pack(&organization_id, &state)
        .map_err(|error| FormatError::new("encode a state", error))?;
    let digest = snapshot::state_digest(&packed);
    let state = if rests {
        let idle = IdleState::new(&packed).map_err(|error| FormatError::new("encode a state", error))?;
        RunState::Idle(Arc::new(idle))
    } else {
        RunState::Unpacked(Arc::new(state))
    };
    let tables = OrganizationHour { tables, packed, digest };
    Ok(Some(Folded { shard, hour, organization_id, state, tables }))
}

/// Folds an hour, and returns the new state and the rows. If the engine refuses the hour or panics, returns
/// the reason as the error.
fn close_hour(state: &State, events: OrderedEvents, rules: &Rules) -> Result<(State, HourTables), String> {
    let close = AssertUnwindSafe(|| prorata_engine::close_hour(state.clone(), events, rules));
    match catch_unwind(close) {
        Ok(closed) => closed.map_err(|error| error.to_string()),
        Err(_) => Err("an internal error of the engine; report it".to_owned()),
    }
}
