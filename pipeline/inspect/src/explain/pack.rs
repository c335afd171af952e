//! Packs what an explanation reads into a folder, which is then itself a lake for `explain`.
//!
//! Nothing here knows what an explanation needs: [`PackingStore`] copies each object as it is read. The logs
//! of the tables are copied whole, because tables are not read through this store.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::tables::Table;
use prorata_worker::ports::{ErrorKind, ObjectMeta, ObjectStore, PutOutcome, StoreError};

/// Number of log files copied at a time.
const CONCURRENCY: usize = 16;

/// The store of a lake that copies each object into another store when it is read. It refuses to change the
/// lake.
pub struct PackingStore {
    lake: Arc<dyn ObjectStore>,
    pack: Arc<dyn ObjectStore>,
}

impl PackingStore {
    /// Creates a store that reads `lake` and copies into `pack`, which is empty at first.
    pub const fn new(lake: Arc<dyn ObjectStore>, pack: Arc<dyn ObjectStore>) -> Self {
        Self { lake, pack }
    }

    /// Copies the logs of all tables. Existing files stay as they are.
    ///
    /// # Errors
    /// If one of the two stores is unavailable.
    pub async fn copy_logs(&self) -> Result<(), StoreError> {
        for table in Table::HOURLY {
            let log = self.lake.list(&format!("{}/_delta_log/", table.name())).await?;
            let copies = log.iter().map(|file| self.get(&file.path));
            stream::iter(copies.collect::<Vec<_>>())
                .buffer_unordered(CONCURRENCY)
                .try_for_each(|_copied| async { Ok(()) })
                .await?;
        }
        Ok(())
    }
}

#[async_trait]
impl ObjectStore for PackingStore {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        let found = self.lake.get(path).await?;
        if let Some(bytes) = &found {
            // An object never changes, so an existing copy is the same.
            self.pack.put_if_absent(path, bytes.clone()).await?;
        }
        Ok(found)
    }

    async fn put_if_absent(&self, path: &str, _bytes: Bytes) -> Result<PutOutcome, StoreError> {
        Err(read_only("write", path))
    }

    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.lake.list(folder).await
    }

    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.lake.stat(path).await
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        Err(read_only("delete", path))
    }
}

fn read_only(operation: &'static str, path: &str) -> StoreError {
    StoreError::new(ErrorKind::Invalid, operation, path, "a lake is only read while it is packed")
}
