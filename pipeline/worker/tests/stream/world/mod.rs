//! Kafka, registry, root and clock in memory, every message sent, and the workers on them.

pub mod audit;
pub mod cluster;
pub mod greed;
pub mod member;
pub mod oracle;
pub mod script;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use prorata_samples::trace::START;
use prorata_schemas::event::{EventRecord, Payload};
use prorata_schemas::reject::Reason;
use prorata_schemas::time::{Hour, WallTime};
use prorata_testkit::fakes::{
    FakeArchive, FakeBroker, FakeBudgetTopic, FakeDeadLetterTopic, FakeMessages, FakeRegistry, FakeSource,
    Faults, ProcessClock, Record, Resume, SteppedClock,
};
use prorata_worker::Ports;
use prorata_worker::WorkerError;
use prorata_worker::names::{self, Shard};
use prorata_worker::ports::{BudgetTopic, Clock, ObjectStore, TableCommitter};
use prorata_worker::root::Root;
use prorata_worker::source::Source;
use prorata_worker::status::Status;
use prorata_worker::stream::{StreamPorts, Worker, WorkerOptions};

use self::audit::{Audit, AuditedStore, AuditedTables};
use self::member::Member;
use crate::harness::{Lake, five_weeks};

pub const TOPICS: [&str; 2] = ["nodes", "pods"];

/// Time after which a quiet shard writes its next checkpoint, with the default `checkpoint_interval`.
pub const QUIET: Duration = Duration::from_secs(600);

/// The schema with which producers write.
pub const SCHEMA: u32 = 1;

/// Everything that outlives a worker.
#[derive(Clone)]
pub struct World {
    pub lake: Lake,
    pub broker: FakeBroker,
    pub registry: FakeRegistry,
    pub dead_letters: FakeDeadLetterTopic,
    /// The topic of exceeded budgets; `None` if there is none.
    pub budgets: Option<FakeBudgetTopic>,
    /// The true time, with which the store stamps objects.
    pub clock: SteppedClock,
    /// The clocks of processes, by name.
    clocks: Arc<Mutex<BTreeMap<String, ProcessClock>>>,
    pub audit: Audit,
    pub shards: Shard,
    sent: Arc<Mutex<Vec<Sent>>>,
    processes: Arc<AtomicU64>,
}

/// A message that was produced.
#[derive(Clone, Debug)]
pub struct Sent {
    pub topic: &'static str,
    pub partition: Shard,
    pub offset: i64,
    pub sent_at: WallTime,
    pub what: What,
}

/// The kind of a message.
#[derive(Clone, Debug)]
pub enum What {
    Event(EventRecord),
    /// A message that must be rejected for this reason.
    Bad(Reason),
    /// An event whose schema the registry learns later, or never.
    Unregistered(EventRecord),
}

impl Default for World {
    fn default() -> Self {
        Self::on(FakeBroker::default(), 2)
    }
}

impl World {
    /// Creates a world with two topics, seven hours after the start of every trace, so that six hours may
    /// close.
    pub fn on(broker: FakeBroker, shards: Shard) -> Self {
        Self::at(broker, shards, SteppedClock::new(WallTime(Hour(START + 7).start().0)))
    }

    /// Returns a world on the same root for consumers of another group, on another cluster with the same
    /// topics.
    pub fn of_another_group(&self) -> Self {
        let broker = FakeBroker::of_consumer("another", Some("elsewhere"));
        TOPICS.iter().for_each(|topic| broker.set_partitions(topic, self.shards));
        Self { broker, ..self.clone() }
    }

    /// Returns whether the root names the consumer that reads for it.
    pub fn has_consumer(&self) -> bool {
        self.lake.store.object(&names::consumer(1)).is_some()
    }

    /// Returns a copy of the world with an empty audit, for use after an object was removed.
    pub fn fresh_audit(&self) -> Self {
        Self { audit: Audit::of(&self.lake), ..self.clone() }
    }

    /// Creates an empty world at the current time of this world.
    pub fn fresh(&self) -> Self {
        Self::at(FakeBroker::default(), self.shards, self.clock.clone())
    }

    fn at(broker: FakeBroker, shards: Shard, clock: SteppedClock) -> Self {
        TOPICS.iter().for_each(|topic| broker.set_partitions(topic, shards));
        let mut lake = Lake::default();
        lake.store = lake.store.with_clock(clock.clone());
        lake.tables = lake.tables.with_clock(clock.clone());
        Self {
            audit: Audit::of(&lake),
            lake,
            broker,
            registry: FakeRegistry::with([SCHEMA]),
            dead_letters: FakeDeadLetterTopic::default(),
            budgets: None,
            clock,
            clocks: Arc::default(),
            shards,
            sent: Arc::default(),
            processes: Arc::default(),
        }
    }

    pub fn shard_of(&self, organization: &str) -> Shard {
        Root::new(self.shards).shard_of(organization)
    }

    /// Sends these events as a correct producer does.
    pub fn produce(&self, events: &[EventRecord]) {
        for event in events {
            let value = FakeMessages::encode(SCHEMA, event);
            self.send_event(event, value, What::Event(event.clone()));
        }
    }

    /// Sends a value with an event's key to the partition of the event.
    pub fn send_event(&self, event: &EventRecord, value: Vec<u8>, what: What) {
        let organization = event.event.organization_id.to_string();
        let shard = self.shard_of(&organization);
        self.send(topic_of(event), shard, Some(organization.into_bytes()), Some(value), what);
    }

    /// Sends any message.
    pub fn send(
        &self,
        topic: &'static str,
        partition: Shard,
        key: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
        what: What,
    ) {
        let (key, value) = (key.map(Bytes::from), value.map(Bytes::from));
        let headers = vec![("origin".into(), Some(b"test".to_vec()))];
        let record = Record { timestamp_millis: self.now().0 / 1_000, key, value, headers };
        let offset = self.broker.produce(topic, partition, record).unwrap();
        self.sent.lock().unwrap().push(Sent { topic, partition, offset, sent_at: self.now(), what });
    }

    /// Returns all messages so far.
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// Makes every call of storage take the time that `pass` returns.
    pub fn set_slow(&self, pass: impl FnMut() -> Duration + Send + 'static) {
        let (clock, mut pass) = (self.clock.clone(), pass);
        self.audit.on_call(move || clock.advance(pass()));
    }

    /// Starts a process, which joins the group at its first step.
    pub fn start(
        &self,
        name: &str,
        faults: Faults,
        change: impl FnOnce(&mut WorkerOptions) + 'static,
    ) -> Member {
        self.start_on(&TOPICS, name, faults, change)
    }

    /// Starts a process that is configured with other topics.
    pub fn start_with_topics(&self, name: &str, topics: &[&str]) -> Member {
        self.start_on(topics, name, Faults::default(), |_| {})
    }

    /// Starts a process with other topics and options.
    pub fn start_on(
        &self,
        topics: &[&str],
        name: &str,
        faults: Faults,
        change: impl FnOnce(&mut WorkerOptions) + 'static,
    ) -> Member {
        let status = Arc::new(Status::default());
        let opening = self.open(topics, name, faults.clone(), Arc::clone(&status), change);
        Member::new(name, status, faults, Box::pin(opening))
    }

    /// Returns a future that opens a worker.
    pub fn open<C: FnOnce(&mut WorkerOptions) + 'static>(
        &self,
        topics: &[&str],
        name: &str,
        faults: Faults,
        status: Arc<Status>,
        change: C,
    ) -> impl Future<Output = Result<Worker<FakeSource>, WorkerError>> + use<C> {
        let store = AuditedStore::new(self.lake.store.with_faults(faults.clone()), &self.audit);
        let ports = StreamPorts {
            shared: Ports {
                store: Arc::new(store),
                tables: Arc::new(AuditedTables::new(
                    self.lake.tables.with_faults(faults.clone()),
                    &self.audit,
                )),
                archive: Arc::new(FakeArchive),
                encoder: self.lake.encoder(),
                clock: Arc::new(self.clock_of(name)),
            },
            decoder: Arc::new(self.registry.decoder()),
            dead_letters: Some(Arc::new(self.dead_letters.with_faults(faults.clone()))),
            budgets: self.budgets(faults.clone()),
            status,
        };
        let process = self.processes.fetch_add(1, Ordering::Relaxed);
        let mut options = WorkerOptions::new(format!("{name}{process}x").into());
        options.shards = Some(self.shards);
        options.retention = five_weeks();
        change(&mut options);
        Worker::open(self.broker.source(name, topics).with_faults(faults), ports, options)
    }

    /// Opens a worker on this source and store, without audit or faults. Returns the worker and its status.
    pub async fn worker_on<S: Source>(
        &self,
        source: S,
        store: Arc<dyn ObjectStore>,
        owner: &str,
        change: impl FnOnce(&mut WorkerOptions),
    ) -> (Worker<S>, Arc<Status>) {
        self.worker_with(source, store, Arc::new(self.lake.tables.clone()), owner, change).await
    }

    /// Opens a worker like [`Self::worker_on`], on these tables.
    pub async fn worker_with<S: Source>(
        &self,
        source: S,
        store: Arc<dyn ObjectStore>,
        tables: Arc<dyn TableCommitter>,
        owner: &str,
        change: impl FnOnce(&mut WorkerOptions),
    ) -> (Worker<S>, Arc<Status>) {
        let ports = self.ports_on(store, tables);
        let status = Arc::clone(&ports.status);
        let mut options = WorkerOptions::new(owner.into());
        options.shards = Some(self.shards);
        options.retention = five_weeks();
        change(&mut options);
        (Worker::open(source, ports, options).await.unwrap(), status)
    }

    /// Returns the ports of a worker on this store and these tables, without audit or faults.
    pub fn ports_on(&self, store: Arc<dyn ObjectStore>, tables: Arc<dyn TableCommitter>) -> StreamPorts {
        StreamPorts {
            shared: Ports {
                store,
                tables,
                archive: Arc::new(FakeArchive),
                encoder: self.lake.encoder(),
                clock: Arc::new(self.clock.clone()),
            },
            decoder: Arc::new(self.registry.decoder()),
            dead_letters: Some(Arc::new(self.dead_letters.clone())),
            budgets: self.budgets(Faults::default()),
            status: Arc::default(),
        }
    }

    fn budgets(&self, faults: Faults) -> Option<Arc<dyn BudgetTopic>> {
        let topic = self.budgets.as_ref()?.with_faults(faults);
        Some(Arc::new(topic))
    }

    /// Returns the clock of the processes with this name.
    pub fn clock_of(&self, name: &str) -> ProcessClock {
        let mut clocks = self.clocks.lock().unwrap();
        clocks.entry(name.to_owned()).or_insert_with(|| self.clock.of_process()).clone()
    }

    /// Starts a process without faults.
    pub fn member(&self, name: &str) -> Member {
        self.start(name, Faults::default(), |_| {})
    }

    /// Ends the wait of an effect and audits its result. Returns whether the effect waited.
    pub fn resume(&self, faults: &Faults, effect: u64, how: Resume) -> bool {
        let waited = faults.resume(effect, how);
        self.audit.look();
        waited
    }

    /// Lets time pass.
    pub fn pass(&self, duration: Duration) {
        self.clock.advance(duration);
    }

    pub fn now(&self) -> WallTime {
        self.clock.now()
    }

    /// Sets the clock to this many minutes after the start of the trace.
    pub fn set_minutes(&self, minutes: i64) {
        self.clock.set(WallTime(Hour(START).start().0 + minutes * 60_000_000));
    }
}

pub fn topic_of(event: &EventRecord) -> &'static str {
    match event.event.payload {
        Payload::PodStarted(_) | Payload::PodStopped(_) | Payload::PodUsage(_) => "pods",
        _ => "nodes",
    }
}
