//! Where events and the collector's state go.
//!
//! Each batch is stored in three steps: intents, events, changes. A step that failed may be done again, and
//! so may the whole batch: state is replaced, and events that come twice count once.

use std::io;

use async_trait::async_trait;
use prorata_collector::{Batch, CollectorState};
use prorata_connectors::archive::write_events;
use prorata_schemas::body;
use prorata_schemas::event::{Event, EventKind};
use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// Where events and the state go.
#[async_trait]
pub trait Journal: Send {
    /// The state that was stored last.
    async fn load(&mut self) -> Result<CollectorState, Failure>;

    /// Stores a batch; returns once all of it is stored.
    async fn store(&mut self, batch: &Batch) -> Result<(), Failure>;
}

/// Puts a batch's intents into a stored state.
pub fn put_intents(state: &mut CollectorState, batch: &Batch) {
    state.since = batch.since;
    for (key, intent) in &batch.intents {
        state.announced.insert(key.clone(), intent.clone());
    }
}

/// Puts a batch's changes, and how far each kind is known, into a stored state.
pub fn put_changes(state: &mut CollectorState, batch: &Batch) {
    state.since = batch.since;
    for (key, change) in &batch.changes {
        match change {
            Some(announced) => drop(state.announced.insert(key.clone(), announced.clone())),
            None => drop(state.announced.remove(key)),
        }
    }
    state.caught_up.clone_from(&batch.caught_up);
    state.pods_version.clone_from(&batch.pods_version);
}

/// An archive file of these events, and a name that equal events share.
///
/// # Errors
/// When memory ran out.
pub fn archive_file(events: &[Event]) -> io::Result<(String, Vec<u8>)> {
    let bodies: Vec<(EventKind, Vec<u8>)> =
        events.iter().map(|event| (event.payload.kind(), body::encode(event))).collect();
    let records: Vec<(EventKind, &[u8])> =
        bodies.iter().map(|(kind, body)| (*kind, body.as_slice())).collect();
    let file = write_events(&records)?;
    let digest = Sha256::digest(&file);
    Ok((digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect(), file))
}
