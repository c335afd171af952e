//! The start of a fold: the nearest readable snapshot before an hour.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use prorata_schemas::time::Hour;

use super::patch::{self, StoredStates};
use crate::checkpoint::snapshot::idle::{self, IdleState};
use crate::checkpoint::snapshot::{self, PackedStates, ShardState, SnapshotError};
use crate::checkpoint::{Checkpoint, HourEntry};
use crate::error::Result;
use crate::ports::ObjectStore;

/// The time for which newly loaded states stay uncompressed. A worker that takes over shards needs its
/// processors to load all states and to make its first commits.
const COMPRESS_AFTER: Duration = Duration::from_secs(5);

/// The position of a fold of all organizations of a shard.
#[derive(Clone, Debug)]
pub struct FoldPosition {
    /// The next hour to fold.
    pub next: Hour,
    /// The first hour whose tables are wanted. Earlier hours are folded only to reach it from the base
    /// snapshot.
    pub emit_from: Hour,
    /// State before `next`.
    pub states: ShardState,
}

impl FoldPosition {
    /// Returns the position at which a fold for the tables of `hour` begins: at the nearest base snapshot, or
    /// at the shard's first event. Also returns the hours whose snapshots cannot be used.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn begin(
        store: &dyn ObjectStore,
        checkpoint: &Checkpoint,
        hour: Hour,
    ) -> Result<(Self, Vec<Hour>)> {
        let Nearest { base, unusable } = nearest_base(store, checkpoint, hour).await?;
        if let Some((base, states)) = base {
            return Ok((Self { next: base.next(), emit_from: hour, states }, unusable));
        }
        let next = checkpoint.archive_from.map_or(hour, |first| first.min(hour));
        Ok((Self { next, emit_from: hour, states: ShardState::new() }, unusable))
    }
}

/// A search for a base snapshot.
pub struct Nearest {
    /// The newest base snapshot that can be read: the hour at whose end it was taken, and its state.
    pub base: Option<(Hour, ShardState)>,
    /// Hours whose snapshots cannot be used.
    pub unusable: Vec<Hour>,
}

/// Returns the newest base snapshot before `hour` that can be read and that no dirty hour precedes.
///
/// # Errors
/// If storage is unavailable.
pub async fn nearest_base(store: &dyn ObjectStore, checkpoint: &Checkpoint, hour: Hour) -> Result<Nearest> {
    let mut unusable = Vec::new();
    for (hour, entry) in checkpoint.snapshots_before(hour) {
        if let Some(states) = load_base(store, entry).await? {
            return Ok(Nearest { base: Some((hour, states)), unusable });
        }
        unusable.push(hour);
    }
    Ok(Nearest { base: None, unusable })
}

/// Returns the state of an hour's snapshot; `None` if the snapshot cannot be used, so that the caller must
/// use an older snapshot.
///
/// # Errors
/// If storage is unavailable.
pub async fn load_base(store: &dyn ObjectStore, entry: &HourEntry) -> Result<Option<ShardState>> {
    let Some(packed) = load_packed(store, entry).await? else { return Ok(None) };
    let states = snapshot::loaded(packed);
    // States that a fold has replaced meanwhile are dropped.
    let aside: Vec<Weak<IdleState>> = states.values().map(Arc::downgrade).collect();
    // Nobody waits for the compression; until then the states only take more memory.
    drop(tokio::spawn(async move {
        tokio::time::sleep(COMPRESS_AFTER).await;
        drop(tokio::task::spawn_blocking(move || idle::compress(&aside)));
    }));
    Ok(Some(states))
}

/// Returns the state of an hour's snapshot in bytes; `None` if the snapshot cannot be used.
///
/// # Errors
/// If storage is unavailable.
pub async fn load_packed(store: &dyn ObjectStore, entry: &HourEntry) -> Result<Option<PackedStates>> {
    Ok(load_stored(store, entry).await?.map(|stored| stored.states))
}

/// Returns an hour's snapshot as it is stored; `None` if the snapshot cannot be used.
///
/// # Errors
/// If storage is unavailable.
pub async fn load_stored(store: &dyn ObjectStore, entry: &HourEntry) -> Result<Option<StoredStates>> {
    let mut stored: Option<StoredStates> = None;
    for object in entry.snapshot_objects() {
        let Some(bytes) = store.get(object).await? else {
            tracing::warn!(object, "snapshot missing; using an older one");
            return Ok(None);
        };
        match snapshot::decode_packed(&bytes) {
            Ok(packed) => match &mut stored {
                Some(StoredStates { states, patched }) => {
                    patched.extend(packed.keys().cloned());
                    snapshot::apply(states, packed);
                }
                None => stored = Some(StoredStates { states: packed, patched: BTreeSet::new() }),
            },
            Err(error) => {
                warn_unusable(entry, &error);
                return Ok(None);
            }
        }
    }
    // Checksums detect only damage; this check detects the snapshot of another lake.
    let is_recorded = |stored: &StoredStates| patch::digest(&stored.states) == entry.state_digest;
    if !entry.state_digest.is_empty() && stored.as_ref().is_some_and(|stored| !is_recorded(stored)) {
        warn_unusable(entry, &SnapshotError::Unrecorded);
        return Ok(None);
    }
    Ok(stored)
}

fn warn_unusable(entry: &HourEntry, error: &SnapshotError) {
    let objects: Vec<&String> = entry.snapshot_objects().collect();
    tracing::warn!(?objects, %error, "snapshot unusable; using an older one");
}
