//! Objects in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use prorata_samples::trace::START;
use prorata_schemas::time::WallTime;
use prorata_worker::ports::{Clock, ObjectMeta, ObjectStore, PutOutcome, StoreError};

use super::clock::SteppedClock;
use super::faults::Effect;
use super::faults::{Failed, Faults};

/// Time of storage in a store without a clock: 2,000 hours after the first event of the trace.
pub const STORED_AT: WallTime = WallTime((START + 2_000) * 3_600_000_000);

/// Objects in memory. Clones share the objects; each process has its own faults.
#[derive(Clone, Debug, Default)]
pub struct FakeStore {
    objects: Objects,
    faults: Faults,
    clock: Option<SteppedClock>,
}

#[derive(Clone, Debug)]
struct Stored {
    bytes: Bytes,
    modified: WallTime,
}

impl FakeStore {
    /// Returns these objects for a process with these faults.
    pub fn with_faults(&self, faults: Faults) -> Self {
        Self { faults, ..self.clone() }
    }

    /// Returns these objects with a clock, which gives the time of new objects. Without a clock, the time is
    /// `STORED_AT`.
    pub fn with_clock(&self, clock: SteppedClock) -> Self {
        Self { clock: Some(clock), ..self.clone() }
    }

    /// Returns all objects, for comparison.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        self.lock().iter().map(|(path, stored)| (path.clone(), stored.bytes.clone())).collect()
    }

    /// Returns one object, regardless of faults.
    pub fn object(&self, path: &str) -> Option<Bytes> {
        self.lock().get(path).map(|stored| stored.bytes.clone())
    }

    /// Returns the paths that begin with this prefix, in order.
    pub fn paths_under(&self, prefix: &str) -> Vec<String> {
        let objects = self.lock();
        let from = objects.range(prefix.to_owned()..).map(|(path, _)| path);
        from.take_while(|path| path.starts_with(prefix)).cloned().collect()
    }

    /// Replaces an object, which no real writer of prorata does.
    pub fn overwrite(&self, path: &str, bytes: Bytes) {
        let modified = self.now();
        self.lock().insert(path.to_owned(), Stored { bytes, modified });
    }

    /// Returns the time at which an object would be stored now.
    pub fn now(&self) -> WallTime {
        self.clock.as_ref().map_or(STORED_AT, SteppedClock::now)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        lock(&self.objects)
    }
}

type Objects = Arc<Mutex<BTreeMap<String, Stored>>>;

fn lock(objects: &Objects) -> MutexGuard<'_, BTreeMap<String, Stored>> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(operation: &'static str, path: &str, failed: Failed) -> StoreError {
    StoreError::new(failed.kind, operation, path, failed.cause)
}

#[async_trait]
impl ObjectStore for FakeStore {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        let found = self.lock().get(path).map(|stored| stored.bytes.clone());
        self.faults.read(found).map_err(|cause| failed("read", path, cause))
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError> {
        let (objects, name) = (Arc::clone(&self.objects), path.to_owned());
        let modified = self.now();
        let create = move || match lock(&objects).entry(name.clone()) {
            Entry::Occupied(_) => PutOutcome::Exists,
            Entry::Vacant(free) => {
                free.insert(Stored { bytes: bytes.clone(), modified });
                PutOutcome::Created
            }
        };
        let put = self.faults.effect(Effect::Write, path, create).await;
        put.map_err(|cause| failed("write", path, cause))
    }

    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.faults.look().map_err(|cause| failed("list", folder, cause))?;
        let objects = self.lock();
        let listed = objects.range(folder.to_owned()..).take_while(|(path, _)| path.starts_with(folder));
        let meta = |(path, stored): (&String, &Stored)| ObjectMeta {
            path: path.clone(),
            bytes: stored.bytes.len() as u64,
            modified: stored.modified,
        };
        Ok(listed.map(meta).collect())
    }

    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.faults.look().map_err(|cause| failed("read", path, cause))?;
        Ok(self.lock().get(path).map(|stored| ObjectMeta {
            path: path.to_owned(),
            bytes: stored.bytes.len() as u64,
            modified: stored.modified,
        }))
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        let (objects, name) = (Arc::clone(&self.objects), path.to_owned());
        let remove = move || {
            lock(&objects).remove(&name);
        };
        let deleted = self.faults.effect(Effect::Delete, path, remove).await;
        deleted.map_err(|cause| failed("delete", path, cause))
    }
}
