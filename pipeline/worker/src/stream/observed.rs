//! Ports that report storage to the status: every answer is a sign of life, and an error says what the worker
//! waits for.
//!
//! One step may take minutes while storage is slow or silent, yet the worker is alive.
//!
//! A wait ends when the failed request succeeds, not when any request does. A full disk, or a bucket that
//! refuses writes, can still be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Date;

use super::StreamPorts;
use crate::ports::Ports;
use crate::ports::{
    CommitOutcome, ErrorKind, LiveTable, ObjectMeta, ObjectStore, PutOutcome, StoreError, TableCommit,
    TableCommitter, TableError,
};
use crate::status::{Dependency, Status, Wait};

/// A port that reports its answers.
struct Observed<P: ?Sized> {
    port: Arc<P>,
    reports: Arc<Reports>,
}

/// Reports of storage's answers to the status.
struct Reports {
    status: Arc<Status>,
    /// The failed request whose success the worker waits for; `None` if the worker does not wait for storage.
    failed: Mutex<Option<Request>>,
}

/// A request to storage.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Request {
    /// A read or a list of objects.
    Read,
    /// The creation of this object.
    Write(String),
    /// A read of this table's log, or a commit to it.
    Table(Table),
}

/// Wraps the ports, so that they report their answers.
pub(super) fn observed(ports: StreamPorts) -> StreamPorts {
    let reports = Arc::new(Reports { status: Arc::clone(&ports.status), failed: Mutex::default() });
    let store = Arc::new(Observed { port: Arc::clone(&ports.shared.store), reports: Arc::clone(&reports) });
    let tables = Arc::new(Observed { port: Arc::clone(&ports.shared.tables), reports });
    StreamPorts { shared: Ports { store, tables, ..ports.shared }, ..ports }
}

impl Reports {
    /// Notes that storage answered a request that the worker does not wait for.
    fn alive(&self) {
        self.status.lock().heartbeat = Some(Instant::now());
    }

    /// Notes that a request succeeded: the wait ends if `ends` returns `true` for the failed request.
    fn succeeded(&self, ends: impl FnOnce(&Request) -> bool) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = self.status.lock();
        status.heartbeat = Some(Instant::now());
        if failed.as_ref().is_some_and(ends) {
            *failed = None;
            status.waits.remove(&Dependency::Storage);
        }
    }

    /// Notes that a request failed: the worker waits for storage, and continues on its own.
    fn failed(&self, request: Request, kind: ErrorKind, error: &dyn std::error::Error) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = self.status.lock();
        status.heartbeat = Some(Instant::now());
        // A failed write stays the reason for the wait, whatever reads fail or succeed meanwhile.
        if !matches!((&*failed, &request), (Some(Request::Write(_)), Request::Read)) {
            *failed = Some(request);
        }
        let message = if kind.is_retryable() {
            format!("storage: {error}")
        } else {
            format!("storage: {error}; the worker continues as soon as this is corrected")
        };
        status.waits.insert(Dependency::Storage, Wait { kind, message });
    }

    fn store<T>(
        &self,
        request: Request,
        result: Result<T, StoreError>,
        ends: impl FnOnce(&Request, &T) -> bool,
    ) -> Result<T, StoreError> {
        match &result {
            Ok(answer) => self.succeeded(|failed| ends(failed, answer)),
            Err(error) => self.failed(request, error.kind, error),
        }
        result
    }

    /// Reports the result of a table request. A refused commit is retried right after its table was loaded,
    /// so any answer of the table ends the wait.
    fn table<T>(&self, table: Table, result: Result<T, TableError>) -> Result<T, TableError> {
        match &result {
            Ok(_) => self.succeeded(|failed| *failed == Request::Table(table)),
            Err(error) => self.failed(Request::Table(table), error.kind, error),
        }
        result
    }
}

#[async_trait]
impl ObjectStore for Observed<dyn ObjectStore> {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        let result = self.port.get(path).await;
        // A write whose answer was lost is done once the object is found.
        self.reports.store(Request::Read, result, |failed, found| match failed {
            Request::Read => true,
            Request::Write(written) => found.is_some() && written == path,
            Request::Table(_) => false,
        })
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError> {
        let result = self.port.put_if_absent(path, bytes).await;
        self.reports.store(Request::Write(path.to_owned()), result, |failed, _| {
            matches!(failed, Request::Read | Request::Write(_))
        })
    }

    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        let result = self.port.list(folder).await;
        self.reports.store(Request::Read, result, |failed, _| *failed == Request::Read)
    }

    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError> {
        // The worker never waits for a stat.
        let result = self.port.stat(path).await;
        self.reports.alive();
        result
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        // The worker never waits for a deletion: an object that cannot be deleted stays.
        let result = self.port.delete(path).await;
        self.reports.alive();
        result
    }
}

#[async_trait]
impl TableCommitter for Observed<dyn TableCommitter> {
    async fn load(&self, table: Table) -> Result<LiveTable, TableError> {
        self.reports.table(table, self.port.load(table).await)
    }

    async fn load_dates(&self, table: Table, dates: &BTreeSet<Date>) -> Result<LiveTable, TableError> {
        self.reports.table(table, self.port.load_dates(table, dates).await)
    }

    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError> {
        self.reports.table(table, self.port.transactions(table, base, names).await)
    }

    async fn commit(
        &self,
        table: Table,
        base: u64,
        commit: &TableCommit,
    ) -> Result<CommitOutcome, TableError> {
        self.reports.table(table, self.port.commit(table, base, commit).await)
    }
}
