//! Shows a snapshot: the organizations of a shard at the end of an hour, or the state of one of them.

use std::collections::BTreeMap;

use prorata_engine::State;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::Hour;
use prorata_worker::WorkerError;
use prorata_worker::checkpoint::Checkpoint;
use prorata_worker::checkpoint::snapshot::{self, PackedState, PackedStates};
use prorata_worker::names::{self, Shard};
use prorata_worker::ports::ObjectStore;
use serde::Serialize;

use super::{ShowError, Shown, document, newest};

/// A snapshot with the organizations in it.
#[derive(Serialize)]
struct SnapshotView {
    shard: Shard,
    hour: String,
    /// The whole snapshot, and the changes since.
    objects: Vec<ObjectView>,
    organizations: Vec<OrganizationView>,
    /// State of the requested organization.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
}

#[derive(Serialize)]
struct ObjectView {
    object: String,
    /// Size in bytes; `None` if the object does not exist.
    bytes: Option<usize>,
    is_readable: bool,
}

#[derive(Serialize)]
struct OrganizationView {
    organization_id: OrganizationId,
    /// Size of the state in bytes.
    state_bytes: usize,
    digest: String,
    /// Number of running nodes; `None` if the state cannot be read.
    nodes: Option<usize>,
    /// Number of running pods; `None` if the state cannot be read.
    pods: Option<usize>,
    max_event_time: Option<String>,
    /// The reason that the organization is held; `None` if it is not held.
    hold: Option<HoldView>,
}

#[derive(Serialize)]
struct HoldView {
    since: String,
    cause: String,
}

/// Objects of the snapshot of each hour, in the order in which they are applied.
type SnapshotObjects = BTreeMap<Hour, Vec<String>>;

/// Shows the snapshot of an hour, by default the newest. With an organization, shows that organization alone
/// with its state, which may be large.
///
/// # Errors
/// If the shard has no checkpoint, no such snapshot or no such organization, or storage is unavailable.
pub async fn snapshot(
    store: &dyn ObjectStore,
    shard: Shard,
    hour: Option<Hour>,
    organization: Option<&OrganizationId>,
) -> Result<Shown, ShowError> {
    let mut faults = Vec::new();
    let kept = match newest(store, shard).await?.or_fault(&mut faults) {
        Some(checkpoint) => named(&checkpoint),
        None => listed(store, shard).await?,
    };
    let (hour, objects) = choose(&kept, shard, hour)?;
    let (objects, mut states) = read(store, objects, &mut faults).await?;
    let mut state = None;
    if let Some(organization) = organization {
        states.retain(|id, _| id == organization);
        let Some(packed) = states.get(organization) else {
            let message = format!(
                "the snapshot of hour {hour}, shard {shard}, has no organization '{organization}'; leave out \
                 --organization to list those that it has"
            );
            return Err(ShowError::NotFound([vec![message], faults].concat().join("; ")));
        };
        state = snapshot::unpack(packed).map(|unpacked| unpacked.state).ok();
    }
    let organizations = states.values().map(|packed| view(packed, hour, &mut faults)).collect();
    document(&SnapshotView { shard, hour: hour.to_string(), objects, organizations, state }, faults)
}

/// Returns the snapshots that a checkpoint names.
fn named(checkpoint: &Checkpoint) -> SnapshotObjects {
    let kept = checkpoint.hours.iter().filter(|(_, entry)| entry.snapshot.is_some());
    kept.map(|(hour, entry)| (*hour, entry.snapshot_objects().cloned().collect())).collect()
}

/// Returns the snapshots in the shard's folder, oldest object first. Some may be leftovers of dead attempts.
async fn listed(store: &dyn ObjectStore, shard: Shard) -> Result<SnapshotObjects, ShowError> {
    let mut kept = SnapshotObjects::new();
    for object in store.list(&names::state_folder(shard)).await.map_err(WorkerError::Store)? {
        if let Some((hour, _)) = names::parse_snapshot(&object.path) {
            kept.entry(hour).or_default().push(object.path);
        }
    }
    Ok(kept)
}

fn choose(kept: &SnapshotObjects, shard: Shard, hour: Option<Hour>) -> Result<(Hour, &[String]), ShowError> {
    let found = match hour {
        Some(hour) => kept.get_key_value(&hour),
        None => kept.last_key_value(),
    };
    if let Some((hour, objects)) = found {
        return Ok((*hour, objects));
    }
    let (Some(first), Some(last)) = (kept.keys().next(), kept.keys().next_back()) else {
        return Err(ShowError::NotFound(format!("shard {shard} has no snapshot yet: it has closed no hour")));
    };
    let nearest = hour.and_then(|hour| kept.range(..hour).next_back()).map_or(first, |(nearest, _)| nearest);
    Err(ShowError::NotFound(format!(
        "shard {shard} has no snapshot of hour {}; it has {}, from {first} to {last}: try --hour {nearest}",
        hour.unwrap_or_default(),
        kept.len()
    )))
}

/// Reads the objects of a snapshot, and applies the objects that can be read.
async fn read(
    store: &dyn ObjectStore,
    objects: &[String],
    faults: &mut Vec<String>,
) -> Result<(Vec<ObjectView>, PackedStates), ShowError> {
    let (mut views, mut states) = (Vec::new(), PackedStates::new());
    for object in objects {
        let bytes = store.get(object).await.map_err(WorkerError::Store)?;
        let packed = match &bytes {
            Some(bytes) => snapshot::decode_packed(bytes).map_err(|error| error.to_string()),
            None => Err("it does not exist".to_owned()),
        };
        let is_readable = packed.is_ok();
        match packed {
            Ok(packed) => snapshot::apply(&mut states, packed),
            Err(cause) => faults.push(unusable(object, &cause)),
        }
        let bytes = bytes.map(|bytes| bytes.len());
        views.push(ObjectView { object: object.clone(), bytes, is_readable });
    }
    Ok((views, states))
}

/// Returns the message about a snapshot that no worker uses.
fn unusable(object: &str, cause: &str) -> String {
    format!(
        "'{object}' cannot be used: {cause}; nothing is lost: a worker or backfill folds from an older \
         snapshot and the archive instead"
    )
}

fn view(packed: &PackedState, hour: Hour, faults: &mut Vec<String>) -> OrganizationView {
    let organization_id = packed.organization_id.clone();
    let running = match snapshot::unpack(packed) {
        Ok(unpacked) => Some(unpacked.state.running()),
        Err(error) => {
            let object = format!("the snapshot of hour {hour}, organization '{organization_id}'");
            faults.push(unusable(&object, &error.to_string()));
            None
        }
    };
    OrganizationView {
        organization_id,
        state_bytes: packed.state.len(),
        digest: snapshot::hex(&snapshot::state_digest(packed)),
        nodes: running.map(|(nodes, _)| nodes),
        pods: running.map(|(_, pods)| pods),
        max_event_time: packed.max_event_time.map(|time| time.to_string()),
        hold: packed
            .hold
            .as_ref()
            .map(|hold| HoldView { since: hold.since.to_string(), cause: hold.cause.clone() }),
    }
}
