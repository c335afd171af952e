//! Local folders.

use std::path::PathBuf;
use std::sync::Arc;

use object_store::path::Path;
use url::Url;

use super::durable::DurableFileSystem;
use super::{LocationError, Store};

/// Returns the URL of a folder given as a path. The folder need not exist.
pub(super) fn folder_url(folder: &str) -> Result<Url, LocationError> {
    if folder.is_empty() {
        return Err(LocationError("the location is empty; name a folder or a URL".into()));
    }
    let absolute = std::path::absolute(folder)
        .map_err(|error| LocationError(format!("'{folder}' is not a valid folder name: {error}")))?;
    Url::from_directory_path(normal(absolute))
        .map_err(|()| LocationError(format!("'{folder}' is not a valid folder name")))
}

/// Resolves `.` and `..` in a path lexically, without reading the file system.
fn normal(path: PathBuf) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::ParentDir => {
                normal.pop();
            }
            std::path::Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// Opens a folder of the file system by its URL.
pub(super) fn open(url: Url) -> Result<Store, LocationError> {
    let folder = url.to_file_path().map_err(|()| {
        LocationError(format!("'{url}' is not a local folder; write file:///folder, or a path"))
    })?;
    let prefix = Path::from_absolute_path(&folder).map_err(|error| {
        LocationError(format!("'{}' is not a valid folder name: {error}", folder.display()))
    })?;
    Ok(Store { root: Arc::new(DurableFileSystem::default()), prefix, url })
}
