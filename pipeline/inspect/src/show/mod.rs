//! Shows the stored objects of a shard as JSON: its checkpoint, rules, snapshots and archive.
//!
//! A damaged shard is shown as far as it can be read. Each object that cannot be read is reported as a fault.
//! The message names the object, and says what is wrong and how to fix it.
//!
//! Reading order: [`Shown`] is the result; `newest` finds the checkpoint that the others start from.

mod archive;
mod checkpoint;
mod snapshot;

use prorata_worker::WorkerError;
use prorata_worker::checkpoint::{Decided, log};
use prorata_worker::names::{self, Shard};
use prorata_worker::ports::ObjectStore;
use serde::Serialize;

pub use archive::{ArchiveQuestion, archive};
pub use checkpoint::{checkpoint, rules};
pub use snapshot::snapshot;

/// A document, and messages for the objects that it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// One JSON document.
    pub json: String,
    /// A message for each object that could not be read.
    pub faults: Vec<String>,
}

/// An error that leaves nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// The lake has no such shard, hour or organization; the message says what it has.
    #[error("{0}")]
    NotFound(String),
    /// Storage is unavailable.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The document cannot be written as JSON.
    #[error("internal error: the document cannot be written as JSON: {0}; report it")]
    Json(#[from] serde_json::Error),
}

/// The newest checkpoint of a shard.
struct Newest {
    /// Path of the checkpoint's own object.
    object: String,
    /// The checkpoint, or the message of the fault that keeps it from being read.
    checkpoint: Result<Decided, String>,
}

impl Newest {
    /// Returns the checkpoint. If it cannot be read, adds the fault and returns `None`.
    fn or_fault(self, faults: &mut Vec<String>) -> Option<Decided> {
        self.checkpoint.map_err(|fault| faults.push(fault)).ok()
    }
}

/// Reads the newest checkpoint of a shard.
async fn newest(store: &dyn ObjectStore, shard: Shard) -> Result<Newest, ShowError> {
    let found = match log::latest(store, shard).await {
        Ok(decided) => (decided.seq, Ok(decided)),
        Err(error) if error.storage_kind().is_some() => return Err(error.into()),
        Err(error) => (newest_seq(store, shard).await?, Err(error.to_string())),
    };
    match found {
        (0, _) => Err(ShowError::NotFound(no_checkpoint(store, shard).await?)),
        (seq, checkpoint) => Ok(Newest { object: names::checkpoint(shard, seq), checkpoint }),
    }
}

async fn newest_seq(store: &dyn ObjectStore, shard: Shard) -> Result<u64, ShowError> {
    let listed = store.list(&names::state_folder(shard)).await.map_err(WorkerError::Store)?;
    let seqs = listed.iter().filter_map(|object| names::parse_checkpoint(&object.path));
    Ok(seqs.map(|(_, seq)| seq).max().unwrap_or(0))
}

async fn no_checkpoint(store: &dyn ObjectStore, shard: Shard) -> Result<String, ShowError> {
    let others: Vec<String> = log::latest_seqs(store).await?.keys().map(Shard::to_string).collect();
    Ok(match others.as_slice() {
        [] => "the lake has no checkpoint yet: no worker or backfill has taken a shard".to_owned(),
        others => format!(
            "shard {shard} has no checkpoint; name a shard that has one with --shard: {}",
            others.join(", ")
        ),
    })
}

/// Returns the message about an object that cannot be read.
fn damaged(object: &str, cause: impl ToString) -> String {
    WorkerError::Damaged { object: object.to_owned(), cause: cause.to_string() }.to_string()
}

fn document(value: &impl Serialize, faults: Vec<String>) -> Result<Shown, ShowError> {
    Ok(Shown { json: serde_json::to_string_pretty(value)?, faults })
}
