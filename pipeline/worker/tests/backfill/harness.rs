//! A lake in memory, a small trace, and the tables that a plain fold of it gives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prorata_engine::{State, close_hour};
use prorata_schemas::event::{
    CapacityType, Event, EventRecord, NodeStarted, NodeStopped, Payload, PodStarted, PodStopped, Quantities,
};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, Timestamp};
use prorata_testkit::fakes::{FakeArchive, FakeEncoder, FakeStore, FakeTables, Faults, StoppedClock};
use prorata_worker::Ports;
use prorata_worker::WorkerError;
use prorata_worker::backfill::input::InMemoryFiles;
use prorata_worker::backfill::{self, BackfillOptions, BackfillPorts, Outcome};
use prorata_worker::names::{Shard, TableFile};
use prorata_worker::ports::{Archive, ObjectStore, Silent, TableCommitter, TableEncoder};

/// The first hour of every trace: 2026-11-01T00.
pub const START: i64 = 498_192;

/// A root in memory.
#[derive(Clone, Default)]
pub struct Lake {
    pub store: FakeStore,
    pub tables: FakeTables,
}

/// What a run may differ in.
#[derive(Clone)]
pub struct Run {
    pub options: BackfillOptions,
    pub faults: Faults,
    pub now: Timestamp,
}

impl Run {
    /// A run of its own owner with two shards.
    pub fn new(owner: &str) -> Self {
        let mut options = BackfillOptions::new(owner.into());
        options.shards = Some(2);
        options.readers = 1;
        Self { options, faults: Faults::default(), now: Hour(START + 2_000).start() }
    }

    /// With this fault.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// With other options.
    pub fn with(mut self, change: impl FnOnce(&mut BackfillOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// With a checkpoint behind every window of one hour.
    pub fn hurried(self) -> Self {
        self.with(|options| {
            options.checkpoint_every = Duration::ZERO;
            options.rows_in_flight = 1;
            options.buffer_bytes = 600;
            options.memory_limit = 0;
        })
    }
}

/// Input files by name.
pub type Files = BTreeMap<String, Bytes>;

impl Lake {
    /// Runs a backfill.
    pub async fn run(&self, files: &Files, run: Run) -> Result<Outcome, WorkerError> {
        let store = Arc::new(self.store.with_faults(run.faults.clone()));
        let tables = Arc::new(self.tables.with_faults(run.faults.clone()));
        self.run_on(store, tables, files, run).await
    }

    /// Runs a backfill on ports of its own.
    pub async fn run_on(
        &self,
        store: Arc<dyn ObjectStore>,
        tables: Arc<dyn TableCommitter>,
        files: &Files,
        run: Run,
    ) -> Result<Outcome, WorkerError> {
        let ports = BackfillPorts {
            shared: Ports {
                store,
                tables,
                archive: Arc::new(FakeArchive),
                encoder: Arc::new(FakeEncoder),
                clock: Arc::new(StoppedClock(run.now)),
            },
            input: Arc::new(InMemoryFiles { files: files.clone() }),
            progress: Arc::new(Silent),
        };
        backfill::run(ports, run.options).await
    }

    /// Content of every live file by table, hour and shard, without the clock columns of `hours`.
    pub fn content(&self) -> Content {
        let objects = self.store.objects();
        let mut content = Content::new();
        for (table, log) in self.tables.tables() {
            for file in log.live.files {
                let name = TableFile::parse(&file.path).expect("a file of ours");
                let bytes = &objects[&format!("{}/{}", table.name(), file.path)];
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                let before = content.insert((table, name.hour, name.shard), without_clocks(table, &text));
                assert_eq!(before, None, "{table:?} has two files of {} shard {}", name.hour, name.shard);
            }
        }
        content
    }

    /// Names of the live files by table.
    pub fn files(&self) -> BTreeMap<Table, Vec<String>> {
        let tables = self.tables.tables();
        tables
            .into_iter()
            .map(|(table, log)| (table, log.live.files.into_iter().map(|file| file.path).collect()))
            .collect()
    }

    /// Names of all objects.
    pub fn objects(&self) -> Vec<String> {
        self.store.objects().into_keys().collect()
    }

    /// The clock columns of an hour's file.
    pub fn clocks(&self, hour: i64, shard: Shard) -> String {
        let objects = self.store.objects();
        let files = self.files();
        let path = files[&Table::Hours].iter().find(|path| {
            let name = TableFile::parse(path).unwrap();
            (name.hour, name.shard) == (Hour(hour), shard)
        });
        let bytes = &objects[&format!("hours/{}", path.expect("the hour is published"))];
        String::from_utf8_lossy(bytes).lines().last().unwrap().to_owned()
    }
}

/// Says which hours of which tables differ.
pub fn assert_content(lake: &Lake, expected: &Content, context: &str) {
    let found = lake.content();
    let keys = found.keys().chain(expected.keys());
    let differ: std::collections::BTreeSet<String> = keys
        .filter(|key| found.get(key) != expected.get(key))
        .map(|(table, hour, shard)| format!("{} of hour {} shard {shard}", table.name(), hour.0 - START))
        .collect();
    assert!(differ.is_empty(), "{context}: {differ:?}");
}

pub type Content = BTreeMap<(Table, Hour, Shard), String>;

fn without_clocks(table: Table, text: &str) -> String {
    match (table, text.rsplit_once('\n')) {
        (Table::Hours, Some((rows, _clocks))) => rows.to_owned(),
        _ => text.to_owned(),
    }
}

/// What a plain fold of these events gives, hour after hour from each organization's first.
pub fn expected(
    events: &[EventRecord],
    through: Hour,
    shard_of: impl Fn(&str) -> Shard,
    rules: impl Fn(Hour) -> Rules,
) -> Content {
    let mut organizations: BTreeMap<OrganizationId, Vec<EventRecord>> = BTreeMap::new();
    for event in events {
        organizations.entry(event.event.organization_id.clone()).or_default().push(event.clone());
    }
    let mut hours: BTreeMap<(Shard, Hour), Vec<HourTables>> = BTreeMap::new();
    for (organization, events) in organizations {
        let first = events.iter().map(|event| event.event.event_time.hour()).min().unwrap();
        let mut state = State::new(organization.clone());
        for hour in (first.0..=through.0).map(Hour) {
            let within =
                events.iter().filter(|event| event.event.event_time.hour() == hour).cloned().collect();
            let (next, tables) = close_hour(state, hour, within, &rules(hour)).unwrap();
            state = next;
            hours.entry((shard_of(&organization), hour)).or_default().push(tables);
        }
    }
    let mut content = Content::new();
    for ((shard, hour), tables) in hours {
        for table in Table::ALL {
            if let Some(file) = FakeEncoder.encode(table, &tables, &[]).unwrap() {
                let text = String::from_utf8(file.bytes.to_vec()).unwrap();
                content.insert((table, hour, shard), without_clocks(table, &text));
            }
        }
    }
    content
}

/// The shard of an organization in a root of two.
pub fn shard_of(organization: &str) -> Shard {
    use prorata_worker::root::{KeyHash, Root};
    Root { format: 1, shards: 2, key_hash: KeyHash::Murmur2 }.shard_of(organization)
}

/// Input files of these events.
pub fn files(parts: &[&[EventRecord]]) -> Files {
    let name = |index: usize| format!("part-{index}.avro");
    parts.iter().enumerate().map(|(index, events)| (name(index), file(events))).collect()
}

/// One input file.
pub fn file(events: &[EventRecord]) -> Bytes {
    let bodies: Vec<_> = events.iter().map(|event| (event.event.payload.kind(), &*event.body)).collect();
    FakeArchive.write(&bodies).unwrap().into()
}

/// An event `minutes` after the start.
fn event(organization: &str, minutes: i64, payload: Payload) -> EventRecord {
    let event_time = Timestamp(Hour(START).start().0 + minutes * 60_000_000);
    EventRecord::new(Event { organization_id: organization.into(), event_time, payload })
}

fn quantities(cpu: u32, gib: u32) -> Quantities {
    let quantity = |text: String, amount| Quantity { text: text.into(), amount };
    Quantities::from([
        ("cpu".into(), quantity(format!("{cpu}"), u128::from(cpu) * 1_000)),
        ("memory".into(), quantity(format!("{gib}Gi"), u128::from(gib) << 30)),
    ])
}

pub fn node(organization: &str, minutes: i64, hourly_cost: i64) -> EventRecord {
    node_priced(organization, minutes, UnitPrice::from_nanos(hourly_cost * 1_000_000_000))
}

pub fn node_priced(organization: &str, minutes: i64, hourly_cost: UnitPrice) -> EventRecord {
    let node = NodeStarted {
        cluster_id: "c".into(),
        node_id: "n".into(),
        node_name: "n".into(),
        provider: "aws".into(),
        region: "r".into(),
        zone: None,
        instance_type: "m5.xlarge".into(),
        instance_family: "m5".into(),
        capacity_type: CapacityType::OnDemand,
        capacity: quantities(4, 16),
        gpu_model: None,
        hourly_cost,
        currency: "USD".into(),
        pool_id: None,
    };
    event(organization, minutes, Payload::NodeStarted(node))
}

pub fn node_stop(organization: &str, minutes: i64) -> EventRecord {
    let stop = NodeStopped { cluster_id: "c".into(), node_id: "n".into() };
    event(organization, minutes, Payload::NodeStopped(stop))
}

pub fn pod(organization: &str, minutes: i64, uid: &str, cpu: u32) -> EventRecord {
    let pod = PodStarted {
        cluster_id: "c".into(),
        namespace: "team".into(),
        pod_name: uid.into(),
        pod_uid: uid.into(),
        created_at: Hour(START).start(),
        priority: 0,
        node_id: Some("n".into()),
        region: None,
        zone: None,
        pool_id: None,
        qos: "default".into(),
        gpu_model: None,
        requests: quantities(cpu, 2),
        limits: Quantities::new(),
        workload_kind: None,
        workload_name: None,
        labels: BTreeMap::new(),
        eviction_protected_until: None,
    };
    event(organization, minutes, Payload::PodStarted(Box::new(pod)))
}

pub fn pod_stop(organization: &str, minutes: i64, uid: &str) -> EventRecord {
    let stop =
        PodStopped { cluster_id: "c".into(), namespace: "team".into(), pod_uid: uid.into(), reason: None };
    event(organization, minutes, Payload::PodStopped(stop))
}

/// Six hours of three organizations in two shards, one of them starting late.
pub fn trace() -> Vec<EventRecord> {
    vec![
        node("acme", 0, 10),
        pod("acme", 10, "a1", 1),
        pod("acme", 95, "a2", 2),
        pod_stop("acme", 200, "a1"),
        node("hooli", 130, 3),
        pod("hooli", 140, "b1", 1),
        node_stop("hooli", 250),
        node("gamma", 30, 7),
        pod("gamma", 310, "g1", 3),
        pod_stop("gamma", 355, "g1"),
    ]
}

/// The last hour of [`trace`].
pub const TRACE_END: Hour = Hour(START + 5);

/// Default rules at every hour.
pub fn rules(_hour: Hour) -> Rules {
    Rules::default()
}
