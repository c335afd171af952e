//! Object stores: everything under the root, and folders of foreign events.

use std::io::Read;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::time::WallTime;

use super::archive::DeadLetter;
use super::error::StoreError;

/// Answer to a write that may only create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object is there now, and was not before.
    Created,
    /// An object of that name was there already; it is as it was. A retried write may find its own.
    Exists,
}

/// An object as listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectMeta {
    /// Path under the root.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// When it was stored, by the store's clock. Only differences between objects of one store mean anything.
    pub modified: WallTime,
}

/// Everything under the root: objects that are created whole, read whole and never changed.
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// The object, or none.
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError>;

    /// Creates the object unless one of that name exists. Of any number of concurrent writers exactly one
    /// creates it, and nobody ever reads a part.
    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError>;

    /// All objects whose path begins with `folder`, which is empty or ends in a slash, in ascending order of
    /// path.
    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError>;

    /// What is stored at this path, without its content; none: nothing.
    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError>;

    /// Removes the object; one that is not there is no error.
    async fn delete(&self, path: &str) -> Result<(), StoreError>;
}

/// A file of foreign events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputFile {
    /// Its path under the folder that was named.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// A folder of foreign events.
#[async_trait]
pub trait Input: Send + Sync {
    /// All files in it and below, in ascending order of path.
    async fn list(&self) -> Result<Vec<InputFile>, StoreError>;

    /// Opens one of them for reading from its start. Reading may block: it is done off the async threads.
    async fn open(&self, file: &InputFile) -> Result<Box<dyn Read + Send>, StoreError>;

    /// Records that could not become part of a file: they are dead letters.
    fn rejected(&self) -> &[DeadLetter] {
        &[]
    }
}
