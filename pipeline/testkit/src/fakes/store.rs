//! Objects in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use prorata_worker::ports::{ObjectMeta, ObjectStore, PutOutcome, StoreError};

use super::faults::Effect;
use super::faults::{Failed, Faults};

/// Objects in memory. Clones share the objects; each process has its own faults.
#[derive(Clone, Debug, Default)]
pub struct FakeStore {
    objects: Objects,
    faults: Faults,
}

impl FakeStore {
    /// The same objects, seen by a process with these faults.
    pub fn with_faults(&self, faults: Faults) -> Self {
        Self { objects: Arc::clone(&self.objects), faults }
    }

    /// All objects, for comparison.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        self.lock().clone()
    }

    /// Replaces an object, as no writer of ours ever does.
    pub fn overwrite(&self, path: &str, bytes: Bytes) {
        self.lock().insert(path.to_owned(), bytes);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        lock(&self.objects)
    }
}

type Objects = Arc<Mutex<BTreeMap<String, Bytes>>>;

fn lock(objects: &Objects) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(operation: &'static str, path: &str, failed: Failed) -> StoreError {
    StoreError::new(failed.kind, operation, path, failed.cause)
}

#[async_trait]
impl ObjectStore for FakeStore {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        let found = self.lock().get(path).cloned();
        self.faults.read(found).map_err(|cause| failed("read", path, cause))
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError> {
        let (objects, name) = (Arc::clone(&self.objects), path.to_owned());
        let create = move || match lock(&objects).entry(name.clone()) {
            Entry::Occupied(_) => PutOutcome::Exists,
            Entry::Vacant(free) => {
                free.insert(bytes.clone());
                PutOutcome::Created
            }
        };
        let put = self.faults.effect(Effect::Write, path, create).await;
        put.map_err(|cause| failed("write", path, cause))
    }

    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.faults.look().map_err(|cause| failed("list", folder, cause))?;
        let objects = self.lock();
        let listed = objects.iter().filter(|(path, _)| path.starts_with(folder));
        Ok(listed.map(|(path, bytes)| ObjectMeta { path: path.clone(), bytes: bytes.len() as u64 }).collect())
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
