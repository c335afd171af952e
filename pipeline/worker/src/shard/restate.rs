//! Some organizations of closed hours, folded again while all others stay as they are: their rows are
//! replaced in the table files, their states in the snapshots.
//!
//! What comes out is what folding all organizations again would give: the same table files, byte for byte. A
//! snapshot gets a patch instead of being written again: an object with the states that have changed. Patches
//! of one snapshot are merged before they are many, and the snapshot is written again before they are large.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{EncodedFile, HourClock, Table, TableSplice};
use prorata_schemas::time::{Hour, WallTime};
use rayon::prelude::{IntoParallelIterator, ParallelIterator};

use super::emit::{self, EncodedHour, HourFiles};
use super::fold::OrganizationHour;
use crate::checkpoint::snapshot::{self, PackedState, PackedStates};
use crate::checkpoint::{HourEntry, ObjectNamer};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::ports::{FormatError, TableEncoder};

/// Most patches of one snapshot: each is a name in the checkpoint and an object to read.
const PATCHES_MAX: usize = 3;

/// A snapshot is written again once its patches would be this part of it: a half, so that over time no more
/// is written than twice what has changed.
const PATCHES_PART: usize = 2;

/// The snapshot of an hour as it was.
#[derive(Clone, Debug, Default)]
pub struct StoredStates {
    /// All organizations.
    pub states: PackedStates,
    /// Those that its patches hold.
    pub patched: BTreeSet<OrganizationId>,
}

/// The snapshot of an hour with the new states of some organizations.
#[derive(Debug, Default)]
pub struct PatchedSnapshot {
    /// Digest of the state of all organizations; empty where it is not known, which equals none.
    pub state: String,
    /// The object with all of it.
    pub snapshot: Option<String>,
    /// Objects with what has changed since.
    pub patches: Vec<String>,
    /// Objects that are yet to be stored.
    pub objects: Vec<(String, Bytes)>,
}

/// Puts new states into an hour's snapshot; an organization without one has left. `patches` says whether the
/// checkpoint may name patches.
///
/// # Errors
/// When a state cannot be encoded.
pub fn patch_snapshot(
    (shard, hour): (Shard, Hour),
    before: &HourEntry,
    stored: StoredStates,
    changed: BTreeMap<OrganizationId, Option<&PackedState>>,
    namer: &ObjectNamer,
    patches: bool,
) -> Result<PatchedSnapshot> {
    let StoredStates { mut states, mut patched } = stored;
    let mut fresh = BTreeSet::new();
    for (organization_id, packed) in changed {
        if states.get(&organization_id) == packed {
            continue;
        }
        match packed {
            Some(packed) => states.insert(organization_id.clone(), packed.clone()),
            None => states.remove(&organization_id),
        };
        fresh.insert(organization_id);
    }
    let mut new = PatchedSnapshot {
        state: before.state.clone(),
        snapshot: before.snapshot.clone(),
        patches: before.patches.clone(),
        objects: Vec::new(),
    };
    if fresh.is_empty() {
        return Ok(new);
    }
    new.state = digest(&states);
    let mut write = |states: &[&PackedState]| -> Result<String> {
        let bytes = snapshot::encode(states).map_err(|error| FormatError::new("encode a snapshot", error))?;
        let path = names::snapshot(shard, hour, &namer.next());
        new.objects.push((path.clone(), bytes.into()));
        Ok(path)
    };
    let merges = before.patches.len() >= PATCHES_MAX;
    if merges {
        patched.append(&mut fresh);
    }
    let of_patch = if merges { &patched } else { &fresh };
    let bytes =
        |organization_id: &OrganizationId| states.get(organization_id).map_or(0, |one| one.state.len());
    let all: usize = states.values().map(|one| one.state.len()).sum();
    let of_patches: usize = patched.union(&fresh).map(bytes).sum();
    if !patches || of_patches > all / PATCHES_PART {
        new.snapshot = Some(write(&states.values().collect::<Vec<_>>())?);
        new.patches.clear();
        return Ok(new);
    }
    let gone: Vec<PackedState> =
        of_patch.iter().filter(|id| !states.contains_key(*id)).map(PackedState::gone).collect();
    let mut of_patch: Vec<&PackedState> =
        of_patch.iter().filter_map(|id| states.get(id)).chain(&gone).collect();
    of_patch.sort_by(|left, right| left.organization_id.cmp(&right.organization_id));
    let path = write(&of_patch)?;
    if merges {
        new.patches.clear();
    }
    new.patches.push(path);
    Ok(new)
}

fn digest(states: &PackedStates) -> String {
    let digests: Vec<(&OrganizationId, [u8; 32])> =
        states.iter().map(|(id, packed)| (id, snapshot::state_digest(packed))).collect();
    snapshot::shard_digest(digests.iter().map(|(id, digest)| (*id, digest)))
}

/// An hour of which some organizations were folded again.
pub struct RestatedHour {
    /// The shard.
    pub shard: Shard,
    /// The hour.
    pub hour: Hour,
    /// As it was before.
    pub before: Arc<HourEntry>,
    /// Its table files as they were before.
    pub files: BTreeMap<Table, Bytes>,
    /// Which organizations were folded.
    pub organizations: BTreeSet<OrganizationId>,
    /// What they came to, ascending; one that is missing has no rows.
    pub folded: Vec<OrganizationHour>,
    /// Its snapshot.
    pub snapshot: PatchedSnapshot,
    /// Gives names.
    pub namer: ObjectNamer,
    /// The wall clock, for `last_updated`.
    pub now: WallTime,
}

/// A table file that cannot keep a part of its rows.
#[derive(Debug)]
pub struct UnusableFile {
    /// Its hour.
    pub hour: Hour,
    /// Its table.
    pub table: Table,
    /// Why.
    pub cause: String,
}

/// What became of hours.
pub type Spliced<T> = Result<Vec<EncodedHour<T>>, UnusableFile>;

/// Puts new rows into the files of hours, on all cores, off the async threads. The first file that cannot be
/// used ends it. `summarize` looks at the new rows of an hour before they are dropped.
///
/// # Errors
/// When rows cannot be encoded.
pub async fn splice_all<T: Send + 'static>(
    encoder: Arc<dyn TableEncoder>,
    hours: Vec<RestatedHour>,
    summarize: fn(&[HourTables]) -> T,
) -> Result<Spliced<T>> {
    let splice = move || -> Result<Spliced<T>> {
        let hours = hours.into_par_iter().map(|hour| splice(&*encoder, hour, summarize));
        let hours: Vec<_> = hours.collect::<Result<_>>()?;
        Ok(hours.into_iter().collect())
    };
    tokio::task::spawn_blocking(splice).await?
}

/// A table's file with the new rows; none without rows.
type NewFile = Result<Option<EncodedFile>, UnusableFile>;

fn splice<T>(
    encoder: &dyn TableEncoder,
    of: RestatedHour,
    summarize: fn(&[HourTables]) -> T,
) -> Result<Result<EncodedHour<T>, UnusableFile>> {
    let RestatedHour { shard, hour, before, files, organizations, folded, snapshot, namer, now } = of;
    let revision = before.revision + 1;
    let clocks: Vec<HourClock> =
        folded.iter().map(|one| emit::clock(one, &before.late_events, revision, now)).collect();
    let held = emit::held(&folded);
    let hours: Vec<_> = folded.into_iter().map(|folded| folded.tables).collect();
    let PatchedSnapshot { state, snapshot, patches, mut objects } = snapshot;
    let mut becoming = HourFiles::new((shard, hour), Some(&before));
    for table in Table::ALL {
        let old = before.files_of(table).first();
        let new: NewFile = match (old, files.get(&table)) {
            (Some(entry), Some(bytes)) => {
                let (organizations, last_updated) = (&organizations, now);
                let (hours, clocks) = (&hours, &clocks);
                let splice = TableSplice { old: bytes, organizations, hours, clocks, revision, last_updated };
                spliced_file(encoder, (hour, table), &splice, &entry.digest)
            }
            (Some(_), None) => Err(UnusableFile { hour, table, cause: "it is not there".to_owned() }),
            (None, _) => {
                let encoded = emit::encode_table(encoder, table, (&hours, &clocks), &held);
                Ok(encoded.map_err(|source| WorkerError::Encode { table, shard, hour, source })?)
            }
        };
        match new {
            Ok(new) => becoming.take(table, new.into_iter().collect(), &namer),
            Err(unusable) => return Ok(Err(unusable)),
        }
    }
    let HourFiles { entries, objects: table_files, changed, .. } = becoming;
    let (files, file_bytes) = emit::sizes(&table_files);
    objects.extend(table_files);
    let entry = HourEntry {
        revision: if changed { revision } else { before.revision },
        state,
        snapshot,
        patches,
        tables: entries,
        late_events: before.late_events.clone(),
        published: !changed && before.published,
    };
    let (restated, state_bytes, summary) = (changed, 0, summarize(&hours));
    Ok(Ok(EncodedHour { shard, hour, entry, restated, files, file_bytes, state_bytes, objects, summary }))
}

/// Why a table file cannot be used, if it cannot.
pub fn look_at(encoder: &dyn TableEncoder, of: (Hour, Table), bytes: &Bytes, digest: &str) -> Option<String> {
    let (organizations, last_updated) = (&BTreeSet::new(), WallTime(0));
    let splice =
        TableSplice { old: bytes, organizations, hours: &[], clocks: &[], revision: 0, last_updated };
    spliced_file(encoder, of, &splice, digest).err().map(|unusable| unusable.cause)
}

/// A file with new rows of some organizations; it was what its digest says.
fn spliced_file(
    encoder: &dyn TableEncoder,
    (hour, table): (Hour, Table),
    splice: &TableSplice<'_>,
    digest: &str,
) -> NewFile {
    let unusable = |cause: String| UnusableFile { hour, table, cause };
    let spliced = encoder.splice(table, splice).map_err(|error| unusable(error.to_string()))?;
    if emit::with_held(spliced.old_digest, spliced.old_incomplete.iter()) != digest {
        return Err(unusable("its content is not what its name says".to_owned()));
    }
    let incomplete = spliced.incomplete;
    Ok(spliced
        .file
        .map(|file| EncodedFile { digest: emit::with_held(file.digest, incomplete.iter()), ..file }))
}
