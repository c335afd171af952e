//! Storage as the worker hears it: every answer is a sign of life, and an error says what the worker waits for.
//!
//! One step may take minutes while storage is slow or silent, and is no less alive for that.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::tables::Table;

use super::StreamPorts;
use crate::ports::{
    CommitOutcome, Listed, LiveTable, ObjectStore, Put, StoreError, TableCommit, TableCommitter, TableError,
};
use crate::shard::Ports;
use crate::status::{Dependency, Status};

struct Heard<P: ?Sized> {
    port: Arc<P>,
    status: Arc<Status>,
}

/// The same ports, whose storage is heard.
pub(super) fn heard(ports: StreamPorts) -> StreamPorts {
    let status = || Arc::clone(&ports.status);
    let store = Arc::new(Heard { port: Arc::clone(&ports.shared.store), status: status() });
    let tables = Arc::new(Heard { port: Arc::clone(&ports.shared.tables), status: status() });
    StreamPorts { shared: Ports { store, tables, ..ports.shared }, ..ports }
}

impl<P: ?Sized> Heard<P> {
    fn note<T, E: Display>(&self, result: Result<T, E>) -> Result<T, E> {
        let mut status = self.status.lock();
        status.ticked = Some(Instant::now());
        status.heard(Dependency::Storage, &result.as_ref().map_err(|error| format!("storage: {error}")));
        drop(status);
        result
    }
}

#[async_trait]
impl ObjectStore for Heard<dyn ObjectStore> {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        self.note(self.port.get(path).await)
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<Put, StoreError> {
        self.note(self.port.put_if_absent(path, bytes).await)
    }

    async fn list(&self, folder: &str) -> Result<Vec<Listed>, StoreError> {
        self.note(self.port.list(folder).await)
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.note(self.port.delete(path).await)
    }
}

#[async_trait]
impl TableCommitter for Heard<dyn TableCommitter> {
    async fn load(&self, table: Table) -> Result<LiveTable, TableError> {
        self.note(self.port.load(table).await)
    }

    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError> {
        self.note(self.port.transactions(table, base, names).await)
    }

    async fn commit(
        &self,
        table: Table,
        base: u64,
        commit: &TableCommit,
    ) -> Result<CommitOutcome, TableError> {
        self.note(self.port.commit(table, base, commit).await)
    }
}
