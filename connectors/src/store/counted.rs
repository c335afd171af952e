//! A store that counts its requests the way providers charge for them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use prorata_worker::status::{RequestKind, Status};

/// Number of names on one page of a list, as at S3.
const PAGE: usize = 1_000;

/// A store whose requests a status counts.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    inner: Arc<dyn ObjectStore>,
    status: Arc<Status>,
}

impl Counted {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, status: Arc<Status>) -> Self {
        Self { inner, status }
    }

    fn count(&self, kind: RequestKind) {
        *self.status.lock().counts.requests.entry(kind).or_default() += 1;
    }

    /// Counts the pages of a list as its names arrive.
    fn count_pages(
        &self,
        names: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let counted = self.clone();
        counted.count(RequestKind::List);
        let mut listed = 0;
        let names = names.inspect(move |_| {
            listed += 1;
            if listed > PAGE {
                counted.count(RequestKind::List);
                listed = 1;
            }
        });
        names.boxed()
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Counted {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.count(RequestKind::Put);
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.count(RequestKind::Put);
        let upload = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(CountedUpload { upload, store: self.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.count(RequestKind::Get);
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        ranges.iter().for_each(|_| self.count(RequestKind::Get));
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let counted = self.clone();
        self.inner.delete_stream(locations.inspect(move |_| counted.count(RequestKind::Delete)).boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.count_pages(self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.count_pages(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.count(RequestKind::List);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.count(RequestKind::Put);
        self.inner.copy_opts(from, to, options).await
    }
}

/// An upload in parts, each of which is a request.
#[derive(Debug)]
struct CountedUpload {
    upload: Box<dyn MultipartUpload>,
    store: Counted,
}

#[async_trait]
impl MultipartUpload for CountedUpload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        self.store.count(RequestKind::Put);
        self.upload.put_part(part)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.store.count(RequestKind::Put);
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.count(RequestKind::Delete);
        self.upload.abort().await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn every_request_counts_and_a_list_counts_its_pages() {
        let status = Arc::<Status>::default();
        let store = Counted::new(Arc::new(InMemory::new()), Arc::clone(&status));
        for number in 0..=PAGE {
            store.put(&Path::from(format!("{number}")), PutPayload::new()).await.unwrap();
        }
        let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
        assert_eq!(listed.len(), PAGE + 1);
        let found = Path::from("7");
        store.get(&found).await.unwrap();
        store.head(&found).await.unwrap();
        store.get(&Path::from("none")).await.unwrap_err();
        store.delete(&found).await.unwrap();
        let counts = [(RequestKind::Put, 1_001), (RequestKind::Get, 3), (RequestKind::List, 2)];
        let counts = BTreeMap::from_iter(counts.into_iter().chain([(RequestKind::Delete, 1)]));
        assert_eq!(status.lock().counts.requests, counts);
    }
}
