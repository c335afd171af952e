//! Objects in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::faults::{Fate, Faults};
use crate::ports::{Listed, ObjectStore, Put, StoreError};

/// Objects in memory. Clones share the objects; each process has its own faults.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    faults: Faults,
}

impl MemoryStore {
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
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self, operation: &'static str, path: &str) -> Result<(), StoreError> {
        self.faults.alive().map_err(|cause| StoreError::new(operation, path, cause))
    }
}

#[async_trait]
impl ObjectStore for MemoryStore {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        self.alive("read", path)?;
        Ok(self.lock().get(path).cloned())
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<Put, StoreError> {
        let create = || {
            let mut objects = self.lock();
            if objects.contains_key(path) {
                return Put::Exists;
            }
            objects.insert(path.to_owned(), bytes);
            Put::Created
        };
        match self.faults.effect() {
            Fate::Happens => Ok(create()),
            Fate::HappensUnanswered(cause) => {
                create();
                Err(StoreError::new("write", path, cause))
            }
            Fate::Fails(cause) => Err(StoreError::new("write", path, cause)),
        }
    }

    async fn list(&self, folder: &str) -> Result<Vec<Listed>, StoreError> {
        self.alive("list", folder)?;
        let objects = self.lock();
        let listed = objects.iter().filter(|(path, _)| path.starts_with(folder));
        Ok(listed.map(|(path, bytes)| Listed { path: path.clone(), bytes: bytes.len() as u64 }).collect())
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        let answer = match self.faults.effect() {
            Fate::Happens => Ok(()),
            Fate::HappensUnanswered(cause) => Err(StoreError::new("delete", path, cause)),
            Fate::Fails(cause) => return Err(StoreError::new("delete", path, cause)),
        };
        self.lock().remove(path);
        answer
    }
}
