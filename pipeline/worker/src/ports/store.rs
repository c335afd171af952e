//! Object stores: everything under the root, and folders of foreign events.

use std::io::Read;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::time::WallTime;

use super::dead_letter::DeadLetter;
use super::error::StoreError;

/// The answer to a write that may only create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object exists now, and did not before.
    Created,
    /// An object of that name existed already, and is unchanged. A retried write may find its own object.
    Exists,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectMeta {
    /// Path under the root.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// The time at which the object was stored, by the store's clock. Only differences between objects of one
    /// store mean anything.
    pub modified: WallTime,
}

/// Everything under the root: objects that are created whole, read whole and never changed.
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// Returns the object; `None` if it does not exist.
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError>;

    /// Creates the object unless one of that name exists. Of any number of concurrent writers exactly one
    /// creates it, and nobody ever reads a part of it.
    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError>;

    /// Returns all objects whose path begins with `folder`, which is empty or ends in a slash, in ascending
    /// order of path.
    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError>;

    /// Returns the object at this path without its content; `None` if there is none.
    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError>;

    /// Removes the object; a missing object is not an error.
    async fn delete(&self, path: &str) -> Result<(), StoreError>;
}

/// A file of foreign events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputFile {
    /// The file's path under the folder that was named.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// A folder of foreign events.
#[async_trait]
pub trait Input: Send + Sync {
    /// Returns all files in the folder and below, in ascending order of path.
    async fn list(&self) -> Result<Vec<InputFile>, StoreError>;

    /// Opens a file for reading from its start. Reading may block: callers read off the async threads.
    async fn open(&self, file: &InputFile) -> Result<Box<dyn Read + Send>, StoreError>;

    /// Returns the dead letters: records that could not become part of a file.
    fn rejected(&self) -> &[DeadLetter] {
        &[]
    }
}
