//! Shows a shard's checkpoint, and the rules that it lists.

use std::collections::BTreeMap;

use prorata_worker::WorkerError;
use prorata_worker::checkpoint::{Checkpoint, checksum};
use prorata_worker::names::{self, Shard};
use prorata_worker::ports::ObjectStore;
use serde::Serialize;
use serde_json::Value;

use super::{Newest, ShowError, Shown, damaged, document, newest};

/// Folder of the versions of the rules.
const RULES: &str = "rules/";

/// A checkpoint that can be read, joined with its parts.
#[derive(Serialize)]
struct Whole<'a> {
    object: &'a str,
    checkpoint: &'a Checkpoint,
}

/// The objects of a checkpoint that cannot be read, each as it is stored. Nothing is checked.
#[derive(Serialize)]
struct AsStored<'a> {
    object: &'a str,
    as_stored: Option<Value>,
    parts_as_stored: BTreeMap<String, Option<Value>>,
}

/// Shows the newest checkpoint of a shard. If it cannot be read, its objects are shown as they are stored.
///
/// # Errors
/// If the shard has no checkpoint, or storage is unavailable.
pub async fn checkpoint(store: &dyn ObjectStore, shard: Shard) -> Result<Shown, ShowError> {
    let Newest { object, checkpoint } = newest(store, shard).await?;
    let fault = match checkpoint {
        Ok(decided) => return document(&Whole { object: &object, checkpoint: &decided }, Vec::new()),
        Err(fault) => fault,
    };
    let mut faults = vec![fault];
    let as_stored = readable(store, &object, &mut faults).await?;
    let parts = as_stored.as_ref().and_then(|stored| stored.get("parts")?.as_array());
    let parts: Vec<String> =
        parts.into_iter().flatten().filter_map(|part| Some(part.as_str()?.to_owned())).collect();
    let mut parts_as_stored = BTreeMap::new();
    for part in parts {
        let content = readable(store, &part, &mut faults).await?;
        parts_as_stored.insert(part, content);
    }
    document(&AsStored { object: &object, as_stored, parts_as_stored }, faults)
}

/// Reads a JSON object as it is stored, without verifying its checksum. If it cannot be read, adds a fault
/// and returns `None`.
async fn readable(
    store: &dyn ObjectStore,
    object: &str,
    faults: &mut Vec<String>,
) -> Result<Option<Value>, ShowError> {
    let read = match store.get(object).await.map_err(WorkerError::Store)? {
        Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| damaged(object, error)),
        None => Err(damaged(object, "it does not exist")),
    };
    Ok(read.map_err(|fault| add(faults, fault)).ok())
}

/// Adds a fault, unless another read has found it.
fn add(faults: &mut Vec<String>, fault: String) {
    if !faults.contains(&fault) {
        faults.push(fault);
    }
}

/// The rules of a shard.
#[derive(Serialize)]
struct RulesList {
    shard: Shard,
    versions: Vec<RulesVersion>,
}

/// A version of the rules.
#[derive(Serialize)]
struct RulesVersion {
    /// The first hour of the version; `None` if the checkpoint cannot be read.
    from: Option<String>,
    object: String,
    /// The engine's version and the rules; `None` if they cannot be read.
    stored: Option<Value>,
}

/// Shows the rules that a shard lists, each with the hour from which it applies. If its checkpoint cannot be
/// read, all versions under the root are shown.
///
/// # Errors
/// If the shard has no checkpoint, or storage is unavailable.
pub async fn rules(store: &dyn ObjectStore, shard: Shard) -> Result<Shown, ShowError> {
    let mut faults = Vec::new();
    let listed = match newest(store, shard).await?.or_fault(&mut faults) {
        Some(checkpoint) => {
            let listed = checkpoint.rules.iter();
            let listed = listed.map(|rules| (Some(rules.from.to_string()), names::rules(&rules.version)));
            listed.collect()
        }
        None => {
            let listed = store.list(RULES).await.map_err(WorkerError::Store)?;
            listed.into_iter().map(|object| (None, object.path)).collect::<Vec<_>>()
        }
    };
    let mut versions = Vec::new();
    for (from, object) in listed {
        let stored = match store.get(&object).await.map_err(WorkerError::Store)? {
            Some(bytes) => checked(&object, &bytes),
            None => Err(damaged(&object, "it does not exist")),
        };
        let stored = stored.map_err(|fault| add(&mut faults, fault)).ok();
        versions.push(RulesVersion { from, object, stored });
    }
    document(&RulesList { shard, versions }, faults)
}

/// Verifies the checksum in a JSON object, and parses the object. Returns a message if either fails.
fn checked(object: &str, bytes: &[u8]) -> Result<Value, String> {
    let json = checksum::check_json(bytes).map_err(|mismatch| damaged(object, mismatch))?;
    serde_json::from_slice(&json).map_err(|error| damaged(object, error))
}
