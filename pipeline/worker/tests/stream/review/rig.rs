//! What these tests share: sources that fail, and a worker made by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::Text;
use prorata_testkit::fakes::{FakeArchive, FakeEncoder, FakeSource};
use prorata_worker::Ports;
use prorata_worker::names::Shard;
use prorata_worker::source::{Source, SourceError, SourceEvent, Start};
use prorata_worker::status::Status;
use prorata_worker::stream::{StreamPorts, Worker, WorkerOptions};

use crate::world::World;

/// A source whose `start` fails: a partition without a leader.
pub struct Leaderless {
    pub inner: FakeSource,
    /// How often `start` has failed.
    pub fails: Arc<AtomicU32>,
}

#[async_trait]
impl Source for Leaderless {
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

/// A worker on this source, and what it reports.
pub async fn worker<S: Source>(world: &World, source: S, owner: &str) -> (Worker<S>, Arc<Status>) {
    let status = Arc::new(Status::default());
    let ports = StreamPorts {
        shared: Ports {
            store: Arc::new(world.lake.store.clone()),
            tables: Arc::new(world.lake.tables.clone()),
            archive: Arc::new(FakeArchive),
            encoder: Arc::new(FakeEncoder),
            clock: Arc::new(world.clock.clone()),
        },
        decoder: Arc::new(world.registry.decoder()),
        letters: Some(Arc::new(world.letters.clone())),
        status: Arc::clone(&status),
    };
    let mut options = WorkerOptions::new(owner.into());
    options.shards = Some(world.shards);
    (Worker::open(source, ports, options).await.unwrap(), status)
}

/// A root that a worker has read the trace into, and has left by a clean stop.
pub async fn read() -> World {
    let world = World::default();
    world.produce(&prorata_samples::trace::trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    member.drain().await;
    world
}
