//! Reads everything that is needed to fold one hour of one organization, for a person who inspects a root. It
//! claims nothing and writes nothing.
//!
//! A worker may run meanwhile, merge archive files, and remove snapshots that it no longer needs. So if an
//! object is missing, the look begins again from the newest checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_engine::{HourEvents, State};
use prorata_schemas::body::EventRef;
use prorata_schemas::event::Event;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, HourRange};

use super::Root;
use crate::checkpoint::snapshot::idle::RunState;
use crate::checkpoint::snapshot::{self, Hold};
use crate::checkpoint::{Checkpoint, log};
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::ports::{FormatError, ObjectStore, Ports, Wanted};
use crate::shard::archive::ArchiveIndex;
use crate::shard::base;
use crate::shard::fold::{self, SomeHour};
use crate::shard::reading::{fetch_files, read_own};
use crate::shard::rules::RuleBook;

/// Maximum number of attempts before missing objects are an error.
const ATTEMPTS: usize = 5;

/// The events of one archive file.
#[derive(Clone, Debug)]
pub struct ArchivedEvents {
    /// The file's path under the root.
    pub path: String,
    /// The events of the organization.
    pub events: Vec<Event>,
}

/// Everything that is needed to fold an hour of an organization.
#[derive(Clone, Debug)]
pub struct HourInput {
    /// The organization.
    pub organization_id: OrganizationId,
    /// The organization's shard.
    pub shard: Shard,
    /// The hour.
    pub hour: Hour,
    /// The shard's last closed hour; `None` if no hour is closed.
    pub closed_through: Option<Hour>,
    /// Whether the hour or an earlier hour must still be folded again.
    pub is_dirty: bool,
    /// The rules of the hour; `None` if the shard lists none.
    pub rules: Option<Arc<Rules>>,
    /// The state at the start of the hour; `None` if the organization begins with the hour.
    pub before: Option<State>,
    /// The hold; `None` if the organization is not held.
    pub hold: Option<Hold>,
    /// The hour at whose end the base snapshot was taken; `None` if folding began at the first event.
    pub base: Option<Hour>,
    /// The objects of that snapshot.
    pub snapshot: Vec<String>,
    /// The events of the hour, by archive file.
    pub files: Vec<ArchivedEvents>,
}

impl HourInput {
    /// Returns all events of the hour, to be folded.
    pub fn events(&self) -> HourEvents {
        let events = self.files.iter().flat_map(|file| file.events.iter().cloned());
        HourEvents::of(self.hour, events)
    }

    /// Returns the state at the start of the hour, which is empty if the organization begins with the hour.
    pub fn state(&self) -> State {
        self.before.clone().unwrap_or_else(|| State::new(self.organization_id.clone()))
    }
}

/// Reads everything that is needed to fold an hour: the state before it, which is folded from the nearest
/// snapshot, and the hour's events.
///
/// # Errors
/// If an object of the root is missing or damaged, or storage is unavailable.
pub async fn look(
    ports: &Ports,
    root: &Root,
    organization_id: &OrganizationId,
    hour: Hour,
) -> Result<HourInput> {
    let shard = root.shard_of(organization_id);
    let mut attempts = 1;
    loop {
        let checkpoint = log::latest(&*ports.store, shard).await?;
        let found = Look { ports, checkpoint: &checkpoint, organization_id }.hour(hour).await;
        let is_over = attempts == ATTEMPTS || !matches!(found, Err(WorkerError::Damaged { .. }));
        if is_over || log::latest(&*ports.store, shard).await?.seq == checkpoint.seq {
            return found;
        }
        attempts += 1;
    }
}

/// Returns the paths of the archive files that hold an hour of a shard.
///
/// # Errors
/// If storage is unavailable.
pub async fn archive_files(
    store: &dyn ObjectStore,
    checkpoint: &Checkpoint,
    hour: Hour,
) -> Result<Vec<String>> {
    let mut archive = ArchiveIndex::of(checkpoint);
    archive.ensure(store, HourRange::new(hour, hour)).await?;
    let files = archive.to_read(hour);
    Ok(files.into_iter().map(|file| file.path).collect())
}

/// A look at one organization, from one checkpoint.
struct Look<'a> {
    ports: &'a Ports,
    checkpoint: &'a Checkpoint,
    organization_id: &'a OrganizationId,
}

/// The start of folding.
struct Begin {
    base: Option<Hour>,
    snapshot: Vec<String>,
    next: Hour,
    state: Option<RunState>,
}

impl Look<'_> {
    async fn hour(&self, hour: Hour) -> Result<HourInput> {
        let checkpoint = self.checkpoint;
        let store = &*self.ports.store;
        let mut rules = RuleBook::default();
        rules.load(store, &checkpoint.rules).await?;
        let mut archive = ArchiveIndex::of(checkpoint);
        let Begin { base, snapshot, next, mut state } = self.begin(hour).await?;
        for before in (next.0..hour.0).map(Hour) {
            archive.ensure(store, HourRange::new(before, before)).await?;
            let files = archive.to_read(before);
            if state.is_none() && files.is_empty() {
                continue;
            }
            let states = BTreeMap::from([(self.organization_id.clone(), state.take())]);
            let rules = rules.of(checkpoint, before)?;
            let some = SomeHour { shard: checkpoint.shard, hour: before, rules, files, states, rests: false };
            let mut folded = fold::fold_some(self.ports, some).await?;
            state = folded.remove(self.organization_id).map(|(state, _)| state);
        }
        archive.ensure(store, HourRange::new(hour, hour)).await?;
        let files = self.events(&archive, hour).await?;
        let state = state.map(RunState::unpacked).transpose();
        let state = state.map_err(|error| FormatError::new("read a state", error))?;
        let has_rules = !checkpoint.rules.is_empty();
        Ok(HourInput {
            organization_id: self.organization_id.clone(),
            shard: checkpoint.shard,
            hour,
            closed_through: checkpoint.closed_through,
            is_dirty: checkpoint.dirty.first().is_some_and(|dirty| dirty <= hour),
            rules: if has_rules { Some(rules.of(checkpoint, hour)?) } else { None },
            hold: state.as_ref().and_then(|state| state.hold.clone()),
            before: state.map(|state| state.state.clone()),
            base,
            snapshot,
            files,
        })
    }

    async fn begin(&self, hour: Hour) -> Result<Begin> {
        let (checkpoint, store): (_, &dyn ObjectStore) = (self.checkpoint, &*self.ports.store);
        for (base, entry) in checkpoint.snapshots_before(hour) {
            let Some(packed) = base::load_packed(store, entry).await? else { continue };
            let unpacked = packed.get(self.organization_id).map(snapshot::unpack).transpose();
            let Ok(unpacked) = unpacked else { continue };
            let snapshot = entry.snapshot_objects().cloned().collect();
            let state = unpacked.map(|state| RunState::Unpacked(Arc::new(state)));
            return Ok(Begin { base: Some(base), snapshot, next: base.next(), state });
        }
        let next = checkpoint.archive_from.map_or(hour, |first| first.min(hour));
        Ok(Begin { base: None, snapshot: Vec::new(), next, state: None })
    }

    /// Reads the events of an hour by archive file. Files without events of the organization are left out.
    async fn events(&self, archive: &ArchiveIndex, hour: Hour) -> Result<Vec<ArchivedEvents>> {
        let organizations = BTreeSet::from([self.organization_id.clone()]);
        let wanted = Wanted { organizations: Some(&organizations), bodies: None };
        let mut files = Vec::new();
        for file in archive.to_read(hour) {
            for object in fetch_files(&*self.ports.store, std::iter::once(&file)).await? {
                let mut events = Vec::new();
                let mut each = |event: EventRef<'_>| events.push(event.into_owned());
                read_own(&*self.ports.archive, &object, wanted, &mut each)?;
                if !events.is_empty() {
                    files.push(ArchivedEvents { path: object.path, events });
                }
            }
        }
        Ok(files)
    }
}
