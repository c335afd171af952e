//! Where events and the collector's state go.
//!
//! Each batch is stored in three steps: intents, events, changes. A step that failed may be done again, and
//! so may the whole batch: state is replaced, and events that come twice count once.

use async_trait::async_trait;
use prorata_collector::{Batch, CollectorState};

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
