//! Object stores for the worker's ports, addressed by URL: a local folder, S3, GCS, Azure.
//!
//! Credentials and endpoints come only from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`), under the names
//! that the clouds' own tools read.

mod counted;
mod durable;
mod failure;
mod input;
mod local;
mod probe;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};
use prorata_schemas::time::WallTime;
use prorata_worker::ports::{ErrorKind, ObjectMeta, ObjectStore, PutOutcome, StoreError};
use prorata_worker::status::Status;
use url::Url;

pub(crate) use failure::{Explained, causes, kind_of};
pub use input::open_input;

use counted::Counted;
use failure::{failure, no_bucket, without_logins};

/// The prefixes of environment variables that configure object stores.
const ENVIRONMENT: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// A folder in an object store.
#[derive(Clone, Debug)]
pub struct Store {
    /// The bucket, container, or file system.
    root: Arc<dyn object_store::ObjectStore>,
    /// The folder in it.
    prefix: Path,
    /// The folder's URL, ending in a slash.
    url: Url,
}

/// An unusable location. The message says what is wrong, where, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LocationError(pub String);

impl Store {
    /// Opens a folder given as a URL or a path. A local folder need not exist.
    ///
    /// # Errors
    /// If the location is not a URL or path of a store that prorata knows.
    pub fn open(location: &str) -> Result<Self, LocationError> {
        let url = match Url::parse(location) {
            // A drive letter is not a scheme.
            Ok(url) if url.scheme().len() > 1 => url,
            _ => local::folder_url(location)?,
        };
        let url = with_slash(url);
        if url.scheme() == "file" {
            return local::open(url);
        }
        if url.scheme() == "memory" {
            let message = "memory:// keeps nothing after the command ends; name a folder or an s3://, gs:// \
                            or az:// URL";
            return Err(LocationError(message.into()));
        }
        let options = environment();
        let (root, prefix) = object_store::parse_url_opts(&url, options).map_err(|error| {
            let (location, error) = (without_logins(location), without_logins(&error.to_string()));
            LocationError(format!(
                "'{location}' cannot be opened: {error}; name a folder, or a URL such as s3://bucket/folder, \
                 gs://bucket/folder or az://container/folder"
            ))
        })?;
        Ok(Self { root: Arc::from(root), prefix, url })
    }

    /// Returns this store with its requests counted in `status`, including the requests of the tables' logs.
    /// A request counts once, however often it is retried.
    #[must_use]
    pub fn counted(self, status: Arc<Status>) -> Self {
        Self { root: Arc::new(Counted::new(self.root, status)), ..self }
    }

    /// Returns the whole bucket, container or file system, which the Delta log addresses by URL.
    pub fn root(&self) -> Arc<dyn object_store::ObjectStore> {
        Arc::clone(&self.root)
    }

    /// Returns the path of a subfolder in [`Store::root`].
    pub fn folder(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    /// Returns the URL of a subfolder, ending in a slash.
    ///
    /// # Errors
    /// If the name cannot be a part of a URL.
    pub fn folder_url(&self, name: &str) -> Result<Url, LocationError> {
        self.url.join(&format!("{name}/")).map_err(|error| LocationError(format!("folder '{name}': {error}")))
    }

    /// Checks that the store refuses a second writer of the same object, because some clones of S3 ignore the
    /// condition of a conditional write.
    ///
    /// # Errors
    /// If the store cannot be written or read, or ignores the condition.
    pub async fn probe(&self) -> Result<(), StoreError> {
        if self.url.scheme() == "file" {
            return Ok(());
        }
        if probe::creates_once(self).await? {
            return Ok(());
        }
        let cause = "the store lets two writers create the same object (it ignores If-None-Match), so two \
                     owners could both win; use a store with conditional writes";
        Err(StoreError::new(ErrorKind::Invalid, "probe", self.url.as_str(), cause))
    }

    /// Writes an object, whether it exists or not. Readers see the old object or the new one.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn replace(&self, path: &str, bytes: Bytes) -> Result<(), StoreError> {
        let written = self.root.put(&self.path(path), PutPayload::from_bytes(bytes)).await;
        written.map(drop).map_err(|error| failure("write", path, error))
    }

    /// Returns the path of an object of any writer, given its path in a list.
    ///
    /// # Errors
    /// If no object can have this path.
    fn listed(&self, path: &str) -> Result<Path, StoreError> {
        let relative =
            Path::parse(path).map_err(|error| StoreError::new(ErrorKind::Invalid, "read", path, error))?;
        Ok(Path::from_iter(self.prefix.parts().chain(relative.parts())))
    }

    /// Returns the path of one of our objects. Characters that names must not have are encoded.
    fn path(&self, path: &str) -> Path {
        let relative = Path::from(path);
        Path::from_iter(self.prefix.parts().chain(relative.parts()))
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        let result = match self.root.get(&self.path(path)).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        match result {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if no_bucket(&error) => Err(failure("read", path, error)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failure("read", path, error)),
        }
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError> {
        let options = PutOptions::from(PutMode::Create);
        match self.root.put_opts(&self.path(path), PutPayload::from_bytes(bytes), options).await {
            Ok(_) => Ok(PutOutcome::Created),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(PutOutcome::Exists)
            }
            Err(error) => Err(failure("write", path, error)),
        }
    }

    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        let within = self.path(folder);
        let all = self.root.list(Some(&within)).try_collect::<Vec<_>>().await;
        let all = match all {
            Ok(all) => all,
            Err(error) if no_bucket(&error) => return Err(failure("list", folder, error)),
            Err(object_store::Error::NotFound { .. }) => Vec::new(),
            Err(error) => return Err(failure("list", folder, error)),
        };
        let depth = self.prefix.parts().count();
        let relative =
            |path: &Path| path.parts().skip(depth).map(|part| part.as_ref().to_owned()).collect::<Vec<_>>();
        let listed = all.iter().map(|meta| ObjectMeta {
            path: relative(&meta.location).join("/"),
            bytes: meta.size,
            modified: WallTime(meta.last_modified.timestamp_micros()),
        });
        let mut listed: Vec<ObjectMeta> = listed.collect();
        listed.sort();
        Ok(listed)
    }

    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError> {
        match self.root.head(&self.path(path)).await {
            Ok(meta) => Ok(Some(ObjectMeta {
                path: path.to_owned(),
                bytes: meta.size,
                modified: WallTime(meta.last_modified.timestamp_micros()),
            })),
            Err(error) if no_bucket(&error) => Err(failure("read", path, error)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failure("read", path, error)),
        }
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        match self.root.delete(&self.path(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failure("delete", path, error)),
        }
    }
}

/// Returns the environment variable that turns off the verification of certificates; `None` if none does.
pub fn unverified_certificates() -> Option<String> {
    unverified(environment())
}

fn unverified(environment: Vec<(String, String)>) -> Option<String> {
    let is_on = |value: &str| ["1", "true", "on", "yes", "y"].contains(&value.to_ascii_lowercase().as_str());
    let mut found = environment.into_iter();
    let (key, _) = found.find(|(key, value)| key.ends_with("_allow_invalid_certificates") && is_on(value))?;
    Some(key.to_ascii_uppercase())
}

/// Returns the environment variables that configure object stores, with names in lower case like the
/// library's keys.
fn environment() -> Vec<(String, String)> {
    let named = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
    let ours = named.filter(|(key, _)| ENVIRONMENT.iter().any(|prefix| key.starts_with(prefix)));
    ours.map(|(key, value)| (key.to_ascii_lowercase(), value)).collect()
}

fn with_slash(mut url: Url) -> Url {
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_go_unverified_are_found() {
        let found = |key: &str, value: &str| unverified(vec![(key.to_owned(), value.to_owned())]);
        let key = "aws_allow_invalid_certificates";
        for value in ["true", "1", "ON", "Yes"] {
            assert_eq!(found(key, value).as_deref(), Some("AWS_ALLOW_INVALID_CERTIFICATES"));
        }
        assert_eq!(found(key, "false"), None);
        assert_eq!(found("aws_allow_http", "true"), None);
    }
}
