//! Destination of events and of the collector's state.
//!
//! Each batch is stored in three steps: intents, events, changes. A failed step or the whole batch may be
//! repeated, because state is replaced and repeated events count once.

use std::collections::BTreeMap;

use async_trait::async_trait;
use prorata_collector::object::ObjectKind;
use prorata_collector::{Announced, Batch, CollectorState, Key, PodsVersion};
use prorata_schemas::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The reason that a batch is not stored.
#[derive(Debug)]
pub enum NotStored {
    /// Another collector of the cluster has begun, so this collector must end.
    ShutOut(Failure),
    /// The destination does not accept the batch now. The collector tries again.
    Fails(Failure),
}

impl From<Failure> for NotStored {
    fn from(failure: Failure) -> Self {
        Self::Fails(failure)
    }
}

/// Destination of events and of the state. Only the collector of a cluster that loaded last may write. An
/// earlier collector detects this before it sends more events.
#[async_trait]
pub trait Journal: Send {
    /// Loads the last stored state. From then on, every earlier collector of the cluster is shut out.
    async fn load(&mut self) -> Result<CollectorState, Failure>;

    /// Stores a batch and `state`, which is the state after the batch. Returns after all of it is stored.
    async fn store(&mut self, batch: &Batch, state: &CollectorState) -> Result<(), NotStored>;
}

/// The changes that a batch makes to a stored state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStep {
    since: Option<Timestamp>,
    entries: Vec<(Key, Option<Announced>)>,
    /// Time up to which each kind is known, and the version from which a watch of pods continues; `None` if
    /// unchanged.
    progress: Option<(BTreeMap<ObjectKind, Timestamp>, Option<PodsVersion>)>,
}

impl StateStep {
    /// Returns the changes that are stored before the batch is sent.
    pub fn intents(batch: &Batch) -> Self {
        let intents = batch.intents.iter().map(|(key, intent)| (key.clone(), Some(intent.clone())));
        Self { since: batch.since, entries: intents.collect(), progress: None }
    }

    /// Returns the changes that are stored after the batch was sent.
    pub fn changes(batch: &Batch) -> Self {
        let progress = Some((batch.caught_up.clone(), batch.pods_version.clone()));
        Self { since: batch.since, entries: batch.changes.clone(), progress }
    }

    /// Applies the changes to a stored state.
    pub fn put(self, state: &mut CollectorState) {
        state.since = self.since;
        for (key, entry) in self.entries {
            match entry {
                Some(announced) => drop(state.announced.insert(key, announced)),
                None => drop(state.announced.remove(&key)),
            }
        }
        if let Some((caught_up, pods_version)) = self.progress {
            (state.caught_up, state.pods_version) = (caught_up, pods_version);
        }
    }
}

/// Returns the error for a collector that another collector has shut out.
pub fn shut_out(cluster_id: &str, place: &str) -> Failure {
    Failure::usage(format!(
        "another collector of cluster {cluster_id} has begun to write to {place}, so this one ends: run only \
         one collector for a cluster"
    ))
}
