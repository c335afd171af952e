//! Kafka, registry, root and clock in memory, and the workers that live in them.

use std::sync::Arc;
use std::time::Duration;

use prorata_schemas::event::{EventRecord, Payload};
use prorata_schemas::time::{Hour, Timestamp};
use prorata_worker::error::WorkerError;
use prorata_worker::memory::{
    Faults, MemoryArchive, MemoryBroker, MemoryDeadLetterTopic, MemoryEncoder, MemoryMessages,
    MemoryRegistry, MemorySource, Record, SteppedClock,
};
use prorata_worker::ports::Clock;
use prorata_worker::status::Status;
use prorata_worker::stream::{Options, Ports, Worker};

use crate::harness::{Lake, START, shard_of};

pub const TOPICS: [&str; 2] = ["nodes", "pods"];

/// The schema that producers write with.
pub const SCHEMA: u32 = 1;

/// Everything that outlives a worker.
#[derive(Clone)]
pub struct World {
    pub lake: Lake,
    pub broker: MemoryBroker,
    pub registry: MemoryRegistry,
    pub letters: MemoryDeadLetterTopic,
    pub clock: SteppedClock,
}

/// A worker and what tests want of it.
pub struct Member {
    pub worker: Worker<MemorySource>,
    pub status: Arc<Status>,
    pub faults: Faults,
}

impl Default for World {
    fn default() -> Self {
        Self::on(MemoryBroker::default())
    }
}

impl World {
    /// Two topics of two partitions; it is seven hours after the start of every trace, so that six may close.
    pub fn on(broker: MemoryBroker) -> Self {
        TOPICS.iter().for_each(|topic| broker.set_partitions(topic, 2));
        Self {
            lake: Lake::default(),
            broker,
            registry: MemoryRegistry::with([SCHEMA]),
            letters: MemoryDeadLetterTopic::default(),
            clock: SteppedClock::new(Hour(START + 7).start()),
        }
    }

    /// Sends these events as a good producer does.
    pub fn produce(&self, events: &[EventRecord]) {
        for event in events {
            let organization = event.event.organization_id.to_string();
            let record = Record {
                timestamp_millis: event.event.event_time.0 / 1_000,
                key: Some(organization.clone().into_bytes()),
                value: Some(MemoryMessages::encode(SCHEMA, event)),
                headers: vec![("origin".into(), Some(b"test".to_vec()))],
            };
            self.broker.produce(topic_of(event), shard_of(&organization), record).unwrap();
        }
    }

    pub async fn member(&self, name: &str) -> Member {
        self.member_with(name, Faults::default(), |_| {}).await.unwrap()
    }

    pub async fn member_with(
        &self,
        name: &str,
        faults: Faults,
        change: impl FnOnce(&mut Options),
    ) -> Result<Member, WorkerError> {
        let status = Arc::new(Status::default());
        let ports = Ports {
            store: Arc::new(self.lake.store.with_faults(faults.clone())),
            tables: Arc::new(self.lake.tables.with_faults(faults.clone())),
            archive: Arc::new(MemoryArchive),
            encoder: Arc::new(MemoryEncoder),
            decoder: Arc::new(self.registry.decoder()),
            letters: Some(Arc::new(self.letters.with_faults(faults.clone()))),
            clock: Arc::new(self.clock.clone()),
            status: Arc::clone(&status),
        };
        let mut options = Options::new(name.into());
        options.shards = Some(2);
        change(&mut options);
        let source = self.broker.source(name, &TOPICS);
        let worker = Worker::open(source, ports, options).await?;
        Ok(Member { worker, status, faults })
    }

    /// Lets time pass.
    pub fn pass(&self, duration: Duration) {
        self.clock.advance(duration);
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

pub fn topic_of(event: &EventRecord) -> &'static str {
    match event.event.payload {
        Payload::PodStarted(_) | Payload::PodStopped(_) | Payload::PodUsage(_) => "pods",
        _ => "nodes",
    }
}

impl Member {
    /// One step without waiting.
    pub async fn step(&mut self) -> Result<bool, WorkerError> {
        self.worker.step(Duration::ZERO).await
    }

    /// Steps until there is nothing to do, a second each; then a minute passes, so that all that is new is decided.
    pub async fn settle(&mut self, world: &World) -> Result<(), WorkerError> {
        for _ in 0..2 {
            for _ in 0..12 {
                self.step().await?;
                world.pass(Duration::from_secs(1));
            }
            world.pass(Duration::from_secs(60));
        }
        for _ in 0..200 {
            world.pass(Duration::from_secs(1));
            if !self.step().await? {
                return Ok(());
            }
        }
        panic!("the worker does not settle");
    }
}
