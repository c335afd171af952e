//! A real store that takes its times from the clock of a test.

use async_trait::async_trait;
use bytes::Bytes;
use prorata_connectors::store::Store;
use prorata_testkit::fakes::SteppedClock;
use prorata_worker::ports::{Clock, ObjectMeta, ObjectStore, PutOutcome, StoreError};

/// A store with the test's clock.
pub struct ClockedStore {
    /// The store.
    pub store: Store,
    /// The clock.
    pub clock: SteppedClock,
}

#[async_trait]
impl ObjectStore for ClockedStore {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        self.store.get(path).await
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError> {
        self.store.put_if_absent(path, bytes).await
    }

    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.store.list(folder).await
    }

    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError> {
        let modified = self.clock.now();
        Ok(self.store.stat(path).await?.map(|meta| ObjectMeta { modified, ..meta }))
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.store.delete(path).await
    }
}
