//! Snapshots in which the states of some organizations are replaced.
//!
//! Usually the snapshot itself stays, and a patch is added: an object with the changed states. Patches of one
//! snapshot are merged before there are too many, and the snapshot is written again before they are too
//! large.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prorata_schemas::ids::OrganizationId;

use crate::checkpoint::snapshot::{self, PackedState, PackedStates};
use crate::checkpoint::{HourEntry, ObjectNamer};
use crate::error::Result;
use crate::names::ShardHour;
use crate::shard::emit;

/// Maximum number of patches of one snapshot: each patch is a name in the checkpoint and an object to read.
const PATCHES_MAX: usize = 3;

/// The divisor of a snapshot's size. If its patches are larger than the quotient, the snapshot is written
/// again. With 2, the bytes written over time stay within twice the changed bytes.
const PATCHES_PART: usize = 2;

/// An hour's snapshot before a recomputation.
#[derive(Clone, Debug, Default)]
pub struct StoredStates {
    /// States of all organizations.
    pub states: PackedStates,
    /// Organizations that the patches hold.
    pub patched: BTreeSet<OrganizationId>,
}

/// An hour's snapshot with the new states of some organizations.
#[derive(Clone, Debug, Default)]
pub struct PatchedSnapshot {
    /// Digest of the state of all organizations; empty if it is not known, and then equal to no other digest.
    pub state_digest: String,
    /// The object with the whole snapshot.
    pub snapshot: Option<String>,
    /// Objects with changes since that snapshot.
    pub patches: Vec<String>,
    /// Objects that are yet to be stored.
    pub objects: Vec<(String, Bytes)>,
}

/// Replaces states in an hour's snapshot, and returns the new snapshot. An organization without a new state
/// has left.
///
/// # Errors
/// If a state cannot be encoded.
pub fn patch_snapshot(
    of: ShardHour,
    before: &HourEntry,
    stored: StoredStates,
    changed: BTreeMap<OrganizationId, Option<&PackedState>>,
    namer: &ObjectNamer,
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
        state_digest: before.state_digest.clone(),
        snapshot: before.snapshot.clone(),
        patches: before.patches.clone(),
        objects: Vec::new(),
    };
    if fresh.is_empty() {
        return Ok(new);
    }
    new.state_digest = digest(&states);
    let mut write = |states: &[&PackedState]| -> Result<String> {
        let (path, bytes) = emit::encode_snapshot(of, states, namer)?;
        new.objects.push((path.clone(), bytes));
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
    if of_patches > all / PATCHES_PART {
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

/// Returns the digest of a shard's state, as a checkpoint records it.
pub fn digest(states: &PackedStates) -> String {
    let digests: Vec<(&OrganizationId, [u8; 32])> =
        states.iter().map(|(id, packed)| (id, snapshot::state_digest(packed))).collect();
    snapshot::shard_digest(digests.iter().map(|(id, digest)| (*id, digest)))
}
