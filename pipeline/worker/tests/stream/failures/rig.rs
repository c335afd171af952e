//! A source that fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::Text;
use prorata_testkit::fakes::FakeSource;
use prorata_worker::names::Shard;
use prorata_worker::source::{ConsumerId, Source, SourceError, SourceEvent, Start};

/// A source whose `start` fails because a partition has no leader.
pub struct Leaderless {
    pub inner: FakeSource,
    /// Number of times that `start` has failed.
    pub fails: Arc<AtomicU32>,
}

#[async_trait]
impl Source for Leaderless {
    async fn consumer(&mut self) -> Result<ConsumerId, SourceError> {
        self.inner.consumer().await
    }

    async fn partitions(&mut self) -> Result<BTreeMap<Text, u32>, SourceError> {
        self.inner.partitions().await
    }

    async fn poll(&mut self, wait: Duration) -> Result<Vec<SourceEvent>, SourceError> {
        self.inner.poll(wait).await
    }

    async fn start(&mut self, _shard: Shard, _from: BTreeMap<Text, Start>) -> Result<(), SourceError> {
        self.fails.fetch_add(1, Ordering::Relaxed);
        Err(SourceError::Unavailable("topic nodes, partition 0: leader not available".into()))
    }

    async fn release(&mut self, shards: &[Shard]) {
        self.inner.release(shards).await;
    }

    async fn assigned(&mut self, shard: Shard) -> Result<bool, SourceError> {
        self.inner.assigned(shard).await
    }

    fn commit(&mut self, shard: Shard, next: &BTreeMap<Text, i64>) {
        self.inner.commit(shard, next);
    }

    async fn close(&mut self) {
        self.inner.close().await;
    }
}
