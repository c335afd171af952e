//! The release before, as this one meets it: it knows no root that is raised and no consumer, and checkpoints
//! of the newer format are damaged to it.

use async_trait::async_trait;
use bytes::Bytes;
use prorata_worker::names;
use prorata_worker::ports::{ObjectMeta, ObjectStore, PutOutcome, StoreError};

use super::audit::AuditedStore;

/// What checkpoints of the newer format have in them.
const NEWER: &[u8] = br#""format":2,"#;

/// The store as the release before reads it.
pub struct OldReleaseStore(pub AuditedStore);

#[async_trait]
impl ObjectStore for OldReleaseStore {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        let found = self.0.get(path).await?;
        let is_newer = |bytes: &Bytes| bytes.windows(NEWER.len()).any(|window| window == NEWER);
        if path == names::ROOT_RAISED || path.starts_with("consumer/") {
            return Ok(None);
        }
        if names::parse_checkpoint(path).is_some() && found.as_ref().is_some_and(is_newer) {
            return Ok(Some(Bytes::from_static(b"{}")));
        }
        Ok(found)
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError> {
        if path.starts_with("consumer/") {
            return Ok(PutOutcome::Created);
        }
        self.0.put_if_absent(path, bytes).await
    }

    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.0.list(folder).await
    }

    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.0.stat(path).await
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.0.delete(path).await
    }
}
