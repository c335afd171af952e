//! Local folders whose objects survive a power cut.
//!
//! The library's store leaves a file and its name in the system's cache. So after a power cut, an object may
//! exist by name but be empty. Here the bytes are on disk before the name exists, and the name is on disk
//! before the object counts as stored.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, future};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// A function that waits until a file or folder is on disk.
type Sync = fn(&File) -> io::Result<()>;

/// The local file system, with durable writes. Writes run on threads that may block, as many at the same time
/// as callers start.
#[derive(Clone, Debug, Default)]
pub(super) struct DurableFileSystem {
    inner: LocalFileSystem,
    /// Held while folders are created, so that nobody relies on a folder that is not on disk yet.
    creating: Arc<Mutex<()>>,
}

impl fmt::Display for DurableFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for DurableFileSystem {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let is_new = match options.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            // The library refuses updates.
            PutMode::Update(_) => return self.inner.put_opts(location, payload, options).await,
        };
        let (path, creating) = (self.inner.path_to_filesystem(location)?, Arc::clone(&self.creating));
        let written =
            tokio::task::spawn_blocking(move || write(&path, &payload, is_new, &creating, File::sync_all));
        match written.await? {
            Ok(()) => Ok(PutResult { e_tag: None, version: None }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(Error::AlreadyExists { path: location.to_string(), source: error.into() })
            }
            Err(error) => Err(Error::Generic { store: "local folder", source: error.into() }),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Upload { store: self.clone(), location: location.clone(), parts: Vec::new() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    /// Refuses to copy, because a copy would not be durable. Neither prorata nor its table logs copy.
    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented { operation: "copy".to_owned(), implementer: self.to_string() })
    }
}

/// An upload in parts. It collects the parts, and writes one file at the end.
#[derive(Debug)]
struct Upload {
    store: DurableFileSystem,
    location: Path,
    parts: Vec<Bytes>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        self.parts.extend(part);
        future::ready(Ok(())).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let whole = std::mem::take(&mut self.parts).into_iter().collect();
        self.store.put_opts(&self.location, whole, PutMode::Overwrite.into()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.parts.clear();
        Ok(())
    }
}

/// Writes a file. If `is_new` and the file exists, the existing file stays as it is, and the error is
/// `AlreadyExists`. The existing file is then made durable too, because its writer may still be writing it.
fn write(
    path: &FilePath,
    payload: &PutPayload,
    is_new: bool,
    creating: &Mutex<()>,
    sync: Sync,
) -> io::Result<()> {
    let folder = path.parent().ok_or(ErrorKind::InvalidInput)?;
    {
        let _creating = creating.lock().unwrap_or_else(PoisonError::into_inner);
        create_folder(folder, sync)?;
    }
    let (file, staged) = stage(path)?;
    let placed = fill(file, payload, sync).and_then(|()| match is_new {
        true => fs::hard_link(&staged, path),
        false => fs::rename(&staged, path),
    });
    if is_new || placed.is_err() {
        // A leftover staged file does no harm: no list shows it.
        drop(fs::remove_file(&staged));
    }
    if placed.as_ref().is_err_and(|error| error.kind() != ErrorKind::AlreadyExists) {
        return placed;
    }
    sync_folder(folder, sync)?;
    placed
}

/// Creates a file next to the target, under a name that the library's lists leave out.
fn stage(path: &FilePath) -> io::Result<(File, PathBuf)> {
    let mut number = 1_u64;
    loop {
        let mut staged = path.as_os_str().to_owned();
        staged.push(format!("#{number}"));
        match OpenOptions::new().write(true).create_new(true).open(&staged) {
            // The file belongs to another writer, or to a process that was killed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            opened => return opened.map(|file| (file, staged.into())),
        }
    }
}

fn fill(mut file: File, payload: &PutPayload, sync: Sync) -> io::Result<()> {
    payload.iter().try_for_each(|bytes| file.write_all(bytes))?;
    sync(&file)
}

/// Creates a folder and the folders above it, and makes all of them durable.
fn create_folder(folder: &FilePath, sync: Sync) -> io::Result<()> {
    let Some(parent) = folder.parent().filter(|_| !folder.is_dir()) else { return Ok(()) };
    create_folder(parent, sync)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => sync_folder(parent, sync),
    }
}

fn sync_folder(folder: &FilePath, sync: Sync) -> io::Result<()> {
    match sync(&File::open(folder)?) {
        // Some file systems, mostly network file systems, cannot sync folders.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use object_store::ObjectStoreExt;

    use super::*;
    use crate::store::{Store, kind_of};

    thread_local! {
        /// One text per sync: the size of the file, or `folder`, then the names in the folder under test.
        static SYNCED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
        static IN: RefCell<PathBuf> = const { RefCell::new(PathBuf::new()) };
        static CREATING: &'static Mutex<()> = Box::leak(Box::default());
    }

    fn names(folder: &FilePath) -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn record(file: &File) -> io::Result<()> {
        let kind = file.metadata()?;
        let seen = if kind.is_dir() { "folder".to_owned() } else { format!("{} bytes", kind.len()) };
        let names = IN.with_borrow(|folder| names(folder)).join(" ");
        let others =
            if CREATING.with(|creating| creating.try_lock().is_err()) { ", others wait" } else { "" };
        SYNCED.with_borrow_mut(|synced| synced.push(format!("{seen}: {names}{others}")));
        Ok(())
    }

    fn fail(_: &File) -> io::Result<()> {
        Err(ErrorKind::StorageFull.into())
    }

    fn write_whole(path: &FilePath, is_new: bool, sync: Sync) -> io::Result<()> {
        write(path, &PutPayload::from_static(b"whole"), is_new, CREATING.with(|creating| *creating), sync)
    }

    #[test]
    fn bytes_are_on_disk_before_the_name_and_the_name_before_it_counts() {
        let lake = tempfile::tempdir().unwrap();
        let folder = lake.path().join("a/b");
        IN.set(folder.clone());
        for is_new in [true, false] {
            write_whole(&folder.join("c"), is_new, record).unwrap();
        }
        let expected = [
            "folder: , others wait", // of a
            "folder: , others wait", // of b
            "5 bytes: c#1",
            "folder: c",
            "5 bytes: c c#1",
            "folder: c",
        ];
        assert_eq!(SYNCED.take(), expected);
        let error = write_whole(&folder.join("c"), true, record).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(SYNCED.take(), ["5 bytes: c c#1", "folder: c"], "what another writes is durable, too");
    }

    #[test]
    fn nothing_is_there_if_the_disk_does_not_take_it() {
        let lake = tempfile::tempdir().unwrap();
        for is_new in [true, false] {
            let error = write_whole(&lake.path().join("c"), is_new, fail).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            assert_eq!(names(lake.path()), [""; 0]);
        }
    }

    #[test]
    fn local_folders_are_durable() {
        let lake = tempfile::tempdir().unwrap();
        let store = Store::open(lake.path().to_str().unwrap()).unwrap();
        assert!(format!("{:?}", store.root).starts_with("DurableFileSystem"), "{:?}", store.root);
    }

    #[tokio::test]
    async fn a_file_in_place_of_a_folder_counts_as_a_missing_folder() {
        let lake = tempfile::tempdir().unwrap();
        let path = Path::from_absolute_path(lake.path()).unwrap().join("state").join("shard").join("c");
        let (store, in_the_way) = (DurableFileSystem::default(), lake.path().join("state"));
        fs::write(&in_the_way, "in the way").unwrap();
        let create = || store.put_opts(&path, "whole".into(), PutMode::Create.into());
        assert_eq!(kind_of(&create().await.unwrap_err()), prorata_worker::ports::ErrorKind::Missing);
        fs::remove_file(in_the_way).unwrap();
        create().await.unwrap();
        assert!(matches!(create().await, Err(Error::AlreadyExists { .. })));
    }

    #[tokio::test]
    async fn an_upload_in_parts_is_one_file_at_its_end() {
        let lake = tempfile::tempdir().unwrap();
        let path = Path::from_absolute_path(lake.path()).unwrap().join("parts");
        let store = DurableFileSystem::default();
        let mut upload = store.put_multipart(&path).await.unwrap();
        for part in ["first ", "second"] {
            upload.put_part(part.into()).await.unwrap();
        }
        assert_eq!(names(lake.path()), [""; 0]);
        upload.complete().await.unwrap();
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "first second");
    }
}
