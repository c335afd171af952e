//! Object stores: everything under the root, and folders of foreign events.

use std::io::Read;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::time::WallTime;

use super::dead_letter::DeadLetter;
use super::error::StoreError;

/// The answer to a write that may create an object but never replace one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The write has created the object.
    Created,
    /// An object of this name existed already, and is unchanged. A retried write may find the object of its
    /// own first attempt.
    Exists,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectMeta {
    /// Path under the root.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// The time at which the object was stored, by the store's clock. Only differences between times of the
    /// same store are meaningful.
    pub modified: WallTime,
}

/// Everything under the root: objects that are created whole, read whole and never changed.
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// Returns the object; `None` if it does not exist.
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError>;

    /// Creates the object unless an object of this name exists. Of any number of concurrent writers, exactly
    /// one creates the object. Nobody ever reads a part of an object.
    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError>;

    /// Returns all objects whose path begins with `folder`, in ascending order of path. `folder` is empty or
    /// ends in a slash.
    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError>;

    /// Returns the description of the object at this path; `None` if the object does not exist.
    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError>;

    /// Removes the object; a missing object is not an error.
    async fn delete(&self, path: &str) -> Result<(), StoreError>;
}

/// A file of foreign events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputFile {
    /// The file's path under the folder of foreign events.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// A folder of foreign events.
#[async_trait]
pub trait Input: Send + Sync {
    /// Returns all files in the folder and below, in ascending order of path.
    async fn list(&self) -> Result<Vec<InputFile>, StoreError>;

    /// Opens a file at its start. Reads from it may block, so callers must read off the async threads.
    async fn open(&self, file: &InputFile) -> Result<Box<dyn Read + Send>, StoreError>;

    /// Returns the dead letters: records that could not be written to any file.
    fn rejected(&self) -> &[DeadLetter] {
        &[]
    }
}
