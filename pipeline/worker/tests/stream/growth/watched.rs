//! A store that records every call, and a worker on this store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use prorata_testkit::fakes::{FakeSource, FakeStore};
use prorata_worker::ports::{ErrorKind, ObjectMeta, ObjectStore, PutOutcome, StoreError};
use prorata_worker::status::Status;
use prorata_worker::stream::{Worker, WorkerOptions};

use crate::world::{TOPICS, World};

/// The calls of a store.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Folders that were listed, each with the number of objects returned.
    pub lists: Vec<(String, usize)>,
    pub gets: Vec<String>,
    /// Objects that were written, with their sizes in bytes.
    pub puts: Vec<(String, usize)>,
    pub deletes: Vec<String>,
}

/// A store that records every call.
#[derive(Clone)]
pub struct WatchedStore {
    inner: FakeStore,
    asked: Arc<Mutex<Asked>>,
    refuses_deletes: Arc<AtomicBool>,
}

impl WatchedStore {
    pub fn of(world: &World) -> Self {
        let inner = world.lake.store.clone();
        Self { inner, asked: Arc::default(), refuses_deletes: Arc::default() }
    }

    /// Makes every deletion fail from now on, or succeed again.
    pub fn refuse_deletes(&self, refuse: bool) {
        self.refuses_deletes.store(refuse, Ordering::Relaxed);
    }

    /// Returns the calls since the previous [`Self::take`].
    pub fn take(&self) -> Asked {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

#[async_trait]
impl ObjectStore for WatchedStore {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        self.asked.lock().unwrap().gets.push(path.to_owned());
        self.inner.get(path).await
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError> {
        self.asked.lock().unwrap().puts.push((path.to_owned(), bytes.len()));
        self.inner.put_if_absent(path, bytes).await
    }

    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        let listed = self.inner.list(folder).await?;
        self.asked.lock().unwrap().lists.push((folder.to_owned(), listed.len()));
        Ok(listed)
    }

    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.inner.stat(path).await
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.asked.lock().unwrap().deletes.push(path.to_owned());
        if self.refuses_deletes.load(Ordering::Relaxed) {
            return Err(StoreError::new(ErrorKind::Permission, "delete", path, "403 access denied"));
        }
        self.inner.delete(path).await
    }
}

/// Opens a worker on a watched store. Returns the worker and its status.
pub async fn worker(
    world: &World,
    store: &WatchedStore,
    name: &str,
    change: impl FnOnce(&mut WorkerOptions),
) -> (Worker<FakeSource>, Arc<Status>) {
    world.worker_on(world.broker.source(name, &TOPICS), Arc::new(store.clone()), name, change).await
}
