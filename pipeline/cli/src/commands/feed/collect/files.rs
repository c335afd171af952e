//! Events as files of a folder or object store, which `prorata backfill` folds, and the state in a file of
//! its own next to them.

use async_trait::async_trait;
use prorata_collector::{Batch, CollectorState};
use prorata_connectors::store::Store;
use prorata_schemas::time::Timestamp;
use prorata_worker::ports::{ObjectStore, StoreError};

use super::journal::{Journal, put_changes, put_intents};
use crate::commands::feed::archive_file::archive_file;
use crate::failure::Failure;

/// Files in a folder.
pub struct FileJournal {
    store: Store,
    organization_id: String,
    /// Path of the state. Its name does not end in `.avro`: a backfill passes it over.
    state_path: String,
    /// What is stored.
    stored: CollectorState,
}

impl FileJournal {
    /// A journal in this folder.
    pub fn new(store: Store, organization_id: &str, cluster_id: &str) -> Self {
        Self {
            store,
            organization_id: organization_id.to_owned(),
            state_path: format!("collector-state/{cluster_id}.json"),
            stored: CollectorState::default(),
        }
    }

    async fn write_state(&self, state: &CollectorState) -> Result<(), Failure> {
        let text = serde_json::to_vec(state).map_err(Failure::storage)?;
        self.store.replace(&self.state_path, text.into()).await.map_err(|error| failure(&error))
    }

    async fn write_events(&self, batch: &Batch) -> Result<(), Failure> {
        let (digest, file) = archive_file(&batch.events).map_err(Failure::storage)?;
        // Files sort by the time of their first event; equal batches have one name.
        let first = batch.events.iter().map(|event| event.event_time).min().unwrap_or(Timestamp(0));
        let first = first.to_string().get(..19).unwrap_or_default().replace(':', "");
        let path = format!("{}/{first}-{digest}.avro", self.organization_id);
        self.store.put_if_absent(&path, file.into()).await.map(drop).map_err(|error| failure(&error))
    }
}

#[async_trait]
impl Journal for FileJournal {
    async fn load(&mut self) -> Result<CollectorState, Failure> {
        let path = &self.state_path;
        let Some(text) = self.store.get(path).await.map_err(|error| failure(&error))? else {
            return Ok(CollectorState::default());
        };
        self.stored = serde_json::from_slice(&text).map_err(|error| {
            Failure::usage(format!(
                "the collector's state {path} cannot be read: {error}; restore it, or remove it to start \
                 from nothing"
            ))
        })?;
        Ok(self.stored.clone())
    }

    async fn store(&mut self, batch: &Batch) -> Result<(), Failure> {
        if !batch.intents.is_empty() {
            put_intents(&mut self.stored, batch);
            self.write_state(&self.stored).await?;
        }
        if !batch.events.is_empty() {
            self.write_events(batch).await?;
        }
        put_changes(&mut self.stored, batch);
        self.write_state(&self.stored).await
    }
}

fn failure(error: &StoreError) -> Failure {
    if error.kind.is_retryable() { Failure::storage(error) } else { Failure::usage(error) }
}
