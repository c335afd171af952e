//! Folders of foreign events: local folders, single files, and object stores read in pieces.
//!
//! A local folder is read in place. Links to files inside it are followed. Links to folders are not: a folder
//! inside it is listed at its own path. Files elsewhere, and anything that is not a regular file (a pipe has
//! no end), are refused when they are opened.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use object_store::ObjectStoreExt;
use prorata_worker::ports::{ErrorKind, Input, InputFile, ObjectStore, StoreError};
use tokio::runtime::Handle;
use url::Url;

use super::{Explained, LocationError, Store, kind_of};

/// Number of bytes of an object that one request reads.
const PIECE_BYTES: u64 = 8 << 20;

/// The depth limit of nested folders.
const DEPTH_MAX: usize = 64;

/// A stand-in for the files in a linked folder elsewhere, so that they are refused and not silently left out.
const ELSEWHERE: &str = "*.avro";

/// Opens a folder, file or URL of foreign events.
///
/// # Errors
/// If the location does not exist, or is not a URL of a store that prorata knows.
pub fn open_input(location: &str) -> Result<Arc<dyn Input>, LocationError> {
    let path = match Url::parse(location) {
        Ok(url) if url.scheme() == "file" => {
            let path = url.to_file_path();
            path.map_err(|()| {
                LocationError(format!("'{location}' is not a local folder; write file:///folder"))
            })?
        }
        Ok(url) if url.scheme().len() > 1 => return Ok(Arc::new(Objects { store: Store::open(location)? })),
        _ => PathBuf::from(location),
    };
    let Ok(metadata) = path.metadata() else {
        return Err(LocationError(format!("--events '{location}' does not exist; name an existing folder")));
    };
    if !metadata.is_dir() && !metadata.is_file() {
        return Err(LocationError(format!("--events '{location}' is neither a folder nor a regular file")));
    }
    Ok(Arc::new(Files { path }))
}

/// A local folder, or one file.
struct Files {
    path: PathBuf,
}

#[async_trait]
impl Input for Files {
    async fn list(&self) -> Result<Vec<InputFile>, StoreError> {
        let mut files = Vec::new();
        if self.path.is_file() {
            let name =
                self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let bytes = self.path.metadata().map_or(0, |metadata| metadata.len());
            files.push(InputFile { path: name, bytes });
        } else {
            let error = |error: io::Error| StoreError::io("list", self.path.to_string_lossy(), error);
            let root = self.path.canonicalize().map_err(error)?;
            walk(&root, &root, "", 0, &mut files).map_err(error)?;
        }
        files.sort();
        Ok(files)
    }

    async fn open(&self, file: &InputFile) -> Result<Box<dyn Read + Send>, StoreError> {
        let opened = self.open_regular(&file.path);
        let opened = opened.map_err(|error| StoreError::io("read", &file.path, error))?;
        Ok(Box::new(BufReader::with_capacity(1 << 16, opened)))
    }
}

impl Files {
    fn open_regular(&self, path: &str) -> io::Result<File> {
        let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let path = if self.path.is_file() { self.path.clone() } else { self.path.join(path) };
        let folder = self.path.canonicalize()?;
        // For a link whose target is missing, this is the link's folder.
        let real = path.ancestors().find_map(|path| path.canonicalize().ok()).unwrap_or_default();
        if !real.starts_with(&folder) {
            return refused(format!("it is a link that leads out of --events, to {}", real.display()));
        }
        // The type is checked before the file is opened: opening a pipe waits for a writer.
        if !path.metadata()?.is_file() {
            return refused("it is not a regular file".to_owned());
        }
        File::open(path)
    }
}

fn walk(
    root: &Path,
    folder: &Path,
    prefix: &str,
    depth: usize,
    files: &mut Vec<InputFile>,
) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!("folders are nested deeper than {DEPTH_MAX}")));
    }
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        // A file that is gone or whose metadata cannot be read is reported when it is opened.
        let metadata = std::fs::metadata(entry.path()).ok();
        let bytes = metadata.as_ref().map_or(0, |metadata| metadata.len());
        match metadata.filter(|metadata| metadata.is_dir()) {
            None => files.push(InputFile { path, bytes }),
            Some(_) if !entry.file_type()?.is_symlink() => {
                walk(root, &entry.path(), &format!("{path}/"), depth + 1, files)?;
            }
            Some(_) if entry.path().canonicalize().is_ok_and(|real| real.starts_with(root)) => {}
            Some(_) => files.push(InputFile { path: format!("{path}/{ELSEWHERE}"), bytes: 0 }),
        }
    }
    Ok(())
}

/// A folder in an object store.
struct Objects {
    store: Store,
}

#[async_trait]
impl Input for Objects {
    async fn list(&self) -> Result<Vec<InputFile>, StoreError> {
        let listed = self.store.list("").await?;
        Ok(listed.into_iter().map(|object| InputFile { path: object.path, bytes: object.bytes }).collect())
    }

    async fn open(&self, file: &InputFile) -> Result<Box<dyn Read + Send>, StoreError> {
        let store = self.store.clone();
        let path = store.listed(&file.path)?;
        let runtime = Handle::current();
        Ok(Box::new(ObjectReader { store, path, bytes: file.bytes, offset: 0, piece: Bytes::new(), runtime }))
    }
}

/// A reader of an object in pieces, so that the object's size does not matter.
struct ObjectReader {
    store: Store,
    path: object_store::path::Path,
    bytes: u64,
    offset: u64,
    piece: Bytes,
    runtime: Handle,
}

impl Read for ObjectReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && self.offset < self.bytes {
            let end = self.bytes.min(self.offset + PIECE_BYTES);
            let get = self.store.root.get_range(&self.path, self.offset..end);
            self.piece = self.runtime.block_on(get).map_err(read_error)?;
            self.offset = end;
        }
        let length = into.len().min(self.piece.len());
        if let Some(into) = into.get_mut(..length) {
            self.piece.copy_to_slice(into);
        }
        Ok(length)
    }
}

/// Returns a store's error as a read error of the same kind.
fn read_error(error: object_store::Error) -> io::Error {
    let kind = kind_of(&error);
    let as_io = match kind {
        ErrorKind::Permission => io::ErrorKind::PermissionDenied,
        ErrorKind::Missing => io::ErrorKind::NotFound,
        ErrorKind::Invalid => io::ErrorKind::InvalidInput,
        ErrorKind::Transient | ErrorKind::Conflict => io::ErrorKind::Other,
    };
    io::Error::new(as_io, Explained::new(kind, error))
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use object_store::path::Path as Key;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn keys_of_other_writers_are_opened_as_they_are_listed() {
        let keys = ["a~b#c.avro", "hour=00%3A00/x.avro", "{x}/[y] *?^|.avro", "\u{fc}.avro"];
        let root = Arc::new(InMemory::new());
        for key in keys {
            root.put(&Key::parse(format!("in%2Fput/{key}")).unwrap(), key.into()).await.unwrap();
        }
        let url = Url::parse("s3://bucket/in%252Fput/").unwrap();
        let input = Objects { store: Store { root, prefix: Key::parse("in%2Fput").unwrap(), url } };
        let files = input.list().await.unwrap();
        assert_eq!(files.iter().map(|file| &*file.path).collect::<Vec<_>>(), keys);
        for file in files {
            let mut opened = input.open(&file).await.unwrap();
            let mut text = String::new();
            let read = move || opened.read_to_string(&mut text).map(|_| text);
            assert_eq!(tokio::task::spawn_blocking(read).await.unwrap().unwrap(), file.path);
        }
    }
}
