//! Objects that are created once, and the check of their format. If the store answers "exists" or the answer
//! is lost, the existing object is read. [`days`] joins and splits table files, which are such objects.

pub(crate) mod days;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;

use crate::backoff;
use crate::error::{Result, WorkerError};
use crate::ports::{ErrorKind, ObjectStore, PutOutcome, StoreError};

/// The number of objects written or read at a time.
pub const CONCURRENCY: usize = 16;

/// Creates an object unless it exists. Returns the content that the object then has: the same bytes, or
/// another writer's bytes.
///
/// # Errors
/// If storage is unavailable. Then it is not known whether the object exists.
pub async fn create(store: &dyn ObjectStore, path: &str, bytes: &Bytes) -> Result<Bytes, StoreError> {
    let mut failure = None;
    for _ in backoff::OBJECT.attempts() {
        match store.put_if_absent(path, bytes.clone()).await {
            Ok(PutOutcome::Created) => return Ok(bytes.clone()),
            Ok(PutOutcome::Exists) => {}
            Err(error) if error.kind.is_retryable() => failure = Some(error),
            Err(error) => return Err(error),
        }
        match store.get(path).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) if error.kind.is_retryable() => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failure.unwrap_or_else(|| {
        StoreError::new(ErrorKind::Transient, "write", path, "it exists, but cannot be read")
    }))
}

/// Stores an object under a name that only this owner uses.
///
/// # Errors
/// If storage is unavailable.
pub async fn put(store: &dyn ObjectStore, path: String, bytes: Bytes) -> Result<(), StoreError> {
    if create(store, &path, &bytes).await? == bytes {
        return Ok(());
    }
    Err(StoreError::new(ErrorKind::Conflict, "write", path, "another object has its name"))
}

/// Stores objects under names that only this owner uses, in any order.
///
/// # Errors
/// If storage is unavailable.
pub async fn put_all(
    store: &dyn ObjectStore,
    objects: impl IntoIterator<Item = (String, Bytes)>,
) -> Result<(), StoreError> {
    let puts = objects.into_iter().map(|(path, bytes)| put(store, path, bytes));
    stream::iter(puts.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY).try_collect().await
}

/// An object as read from the store.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// The object's path under the root.
    pub path: String,
    /// The object's content.
    pub bytes: Bytes,
}

/// Reads objects that must exist, and returns them in the order of `paths`.
///
/// # Errors
/// If an object does not exist, or storage is unavailable.
pub async fn get_all(store: &dyn ObjectStore, paths: Vec<String>) -> Result<Vec<StoredObject>> {
    let gets = paths.into_iter().map(|path| async move {
        match store.get(&path).await? {
            Some(bytes) => Ok(StoredObject { path, bytes }),
            None => {
                let cause = "it is named but does not exist".to_owned();
                Err(WorkerError::Damaged { object: path, cause })
            }
        }
    });
    stream::iter(gets.collect::<Vec<_>>()).buffered(CONCURRENCY).try_collect().await
}

/// Refuses a JSON object whose format is not `known`. Only the number of the format is read, because another
/// format may have fields that this release does not know.
///
/// # Errors
/// If the format differs, or there is none.
pub fn check_format(object: &str, json: &[u8], known: u32) -> Result<()> {
    #[derive(Deserialize)]
    struct Numbered {
        format: u32,
    }
    let Numbered { format } = serde_json::from_slice(json)
        .map_err(|error| WorkerError::Damaged { object: object.to_owned(), cause: error.to_string() })?;
    if format != known {
        return Err(WorkerError::Configuration(format!(
            "'{object}' has format {format}, this program knows {known}; use the release that wrote it, or a \
             newer one"
        )));
    }
    Ok(())
}
