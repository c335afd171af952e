//! A worker continues a worker's root. Kafka is in memory. The topics end where the stored worker stopped
//! reading, with the records that it read last. Storage, archive, tables and decoder are real.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prorata_connectors::archive::{AvroArchive, read_events};
use prorata_connectors::messages::{MessageEncoder, SingleObjectMessages};
use prorata_connectors::store::Store;
use prorata_connectors::{DeltaTables, ParquetEncoder};
use prorata_schemas::event::{EventRecord, Payload};
use prorata_schemas::time::{Hour, WallTime};
use prorata_testkit::fakes::{FakeBroker, FakeDeadLetterTopic, FakeSource, Record, SteppedClock};
use prorata_tests::clocked::ClockedStore;
use prorata_tests::lake::{EVERY_HOUR, Goal, StoredLake, taken};
use prorata_worker::Ports;
use prorata_worker::checkpoint::LastRecord;
use prorata_worker::names::Shard;
use prorata_worker::ports::Clock;
use prorata_worker::root::{KeyHash, Root};
use prorata_worker::source::Message;
use prorata_worker::stream::{StreamPorts, Worker, WorkerOptions};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{STORED, Stored};

const TOPICS: [&str; 2] = ["nodes", "pods"];

/// Time between two steps.
const STEP: Duration = Duration::from_secs(5);

/// Maximum number of looks at the lake, each after some steps. All looks together last half an hour, in which
/// no further hour ends.
const LOOKS_MAX: usize = 60;

/// Returns the group and the cluster of the stored worker, as the root names them.
fn consumer(root: &str) -> String {
    let stored = std::fs::read(Path::new(root).join("consumer/0001.json")).unwrap();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    format!("{}@{}", stored["group_id"].as_str().unwrap(), stored["cluster_id"].as_str().unwrap())
}

/// A worker on a stored root.
struct Continued<'a> {
    runtime: &'a Runtime,
    broker: FakeBroker,
    clock: SteppedClock,
    worker: Worker<FakeSource>,
    lake: StoredLake,
    messages: i64,
}

/// Returns all events in the files below a folder.
fn events(folder: &Path) -> Vec<EventRecord> {
    let mut events = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            events.extend(self::events(&entry.path()));
        } else {
            let file = std::fs::read(entry.path()).unwrap();
            read_events(&file[..], &mut |_, event| events.push(event.unwrap().into_owned())).unwrap();
        }
    }
    events
}

fn topic_of(event: &EventRecord) -> &'static str {
    match event.event.payload {
        Payload::PodStarted(_) | Payload::PodStopped(_) | Payload::PodUsage(_) => TOPICS[1],
        _ => TOPICS[0],
    }
}

/// Returns the message of an event, as `prorata generate` sends it without a registry.
fn record(event: &EventRecord, timestamp_millis: i64) -> Record {
    let value = MessageEncoder::single_object().encode(event.event.payload.kind(), &event.body);
    let key = event.event.organization_id.as_bytes().to_vec();
    Record { timestamp_millis, key: Some(key.into()), value: Some(value.into()), headers: Vec::new() }
}

/// Recreates a topic partition as retention leaves it: with the last record that was read, at its old offset,
/// and nothing before.
fn recreate(broker: &FakeBroker, topic: &str, shard: Shard, last: &LastRecord, archived: &[EventRecord]) {
    let found = archived.iter().find_map(|event| {
        let record = record(event, last.timestamp_millis);
        let message = Message {
            topic: topic.into(),
            partition: shard,
            offset: last.offset,
            timestamp_millis: last.timestamp_millis,
            key: record.key.clone(),
            value: record.value.clone(),
            headers: Vec::new(),
        };
        (LastRecord::of(&message) == *last).then_some(record)
    });
    let record = found.unwrap_or_else(|| panic!("no archived event is record {last:?} of {topic} {shard}"));
    broker.skip_offsets(topic, shard, u32::try_from(last.offset).unwrap()).unwrap();
    assert_eq!(broker.produce(topic, shard, record), Ok(last.offset));
}

impl<'a> Continued<'a> {
    fn open(runtime: &'a Arc<Runtime>, root: &str, shards: Shard, now: WallTime) -> Self {
        let lake = StoredLake::open(root, Arc::clone(runtime));
        let (broker, clock) = (FakeBroker::default(), SteppedClock::new(now));
        TOPICS.iter().for_each(|topic| broker.set_partitions(topic, shards));
        let archived = events(&Path::new(root).join("events"));
        let mut messages = 0;
        for (shard, checkpoint) in lake.checkpoints() {
            messages += taken(&checkpoint);
            for (topic, offsets) in &checkpoint.offsets {
                recreate(&broker, topic, shard, offsets.last.as_ref().unwrap(), &archived);
            }
        }
        let store = Store::open(root).unwrap();
        let ports = StreamPorts {
            shared: Ports {
                store: Arc::new(ClockedStore { store: store.clone(), clock: clock.clone() }),
                tables: Arc::new(DeltaTables::new(store)),
                archive: Arc::new(AvroArchive),
                encoder: Arc::new(ParquetEncoder),
                clock: Arc::new(clock.clone()),
            },
            decoder: Arc::new(SingleObjectMessages::new().unwrap()),
            dead_letters: Some(Arc::new(FakeDeadLetterTopic::default())),
            budgets: None,
            status: Arc::default(),
        };
        let source = broker.source("continued", &TOPICS);
        let mut options = WorkerOptions::new("continued".into());
        options.max_watermark_hold = options.out_of_orderness;
        options.moved_from = consumer(root);
        let worker = runtime.block_on(Worker::open(source, ports, options)).unwrap();
        Self { runtime, broker, clock, worker, lake, messages }
    }

    /// Sends events as producers do, with the current time.
    fn send(&mut self, events: &[&EventRecord], root: &Root) {
        let now = self.clock.now();
        for event in events {
            let shard = root.shard_of(&event.event.organization_id);
            self.broker.produce(topic_of(event), shard, record(event, now.0 / 1_000)).unwrap();
            self.messages += 1;
        }
    }

    /// Steps until everything sent is taken, every hour up to this one is closed, and the tables equal the
    /// checkpoints. Fails if a later hour is closed.
    fn closes(&mut self, through: Hour) {
        let goal = Goal { messages: self.messages, through };
        let mut missing = String::new();
        for _ in 0..LOOKS_MAX {
            for _ in 0..6 {
                self.runtime.block_on(self.worker.step(Duration::ZERO)).unwrap();
                self.clock.advance(STEP);
            }
            match self.lake.reached(goal) {
                Ok(()) => {
                    let closed = self.lake.checkpoints().into_values().map(|shard| shard.closed_through);
                    assert!(closed.eq([Some(through); 2]), "hours are closed that the world has not reached");
                    return;
                }
                Err(why) => missing = why,
            }
        }
        panic!("{missing}");
    }
}

/// Returns the revisions of all hours in the checkpoints.
fn revisions(lake: &StoredLake) -> BTreeMap<(Shard, Hour), i64> {
    let of = |(shard, checkpoint): (Shard, prorata_worker::checkpoint::Checkpoint)| {
        let hours: Vec<_> =
            checkpoint.hours.iter().map(|(hour, entry)| ((shard, *hour), entry.revision)).collect();
        hours
    };
    lake.checkpoints().into_iter().flat_map(of).collect()
}

fn continues_and_restates(stored: &Stored, runtime: &Arc<Runtime>) {
    let temporary = TempDir::new().unwrap();
    let folder = temporary.path();
    stored.unpack(folder);
    let path = folder.join("lake").to_str().unwrap().to_owned();
    let root = Root { format: 1, shards: stored.shards, key_hash: KeyHash::Murmur2 };
    let lake = StoredLake::open(&path, Arc::clone(runtime));
    let closed = lake.checkpoints().into_values().filter_map(|shard| shard.closed_through).max().unwrap();
    let (files, before) = (lake.files(EVERY_HOUR), revisions(&lake));

    let later = events(&stored.path("-later"));
    let last = later.iter().map(|event| event.event.event_time.hour()).max().unwrap();
    assert!(last > closed, "no hour is left to close");
    let (new, late): (Vec<_>, Vec<_>) =
        later.iter().partition(|event| event.event.event_time.hour() > closed);
    assert!(!late.is_empty(), "no event is late");

    // The clock stands at the end of the last hour with events.
    let mut worker = Continued::open(runtime, &path, stored.shards, WallTime(last.end().0));
    worker.send(&new, &root);
    worker.closes(last);
    let continued = revisions(&lake);
    assert!(before.iter().all(|(hour, revision)| continued.get(hour) == Some(revision)), "nothing came late");
    let kept = lake.files(closed);
    assert!(files.iter().all(|(key, file)| kept.get(key) == Some(file)), "an old hour was written again");

    worker.send(&late, &root);
    worker.closes(last);
    let restated = revisions(&lake);
    assert!(before.iter().any(|(hour, revision)| restated[hour] > *revision), "nothing is restated");
    runtime.block_on(worker.worker.drain());

    stored.backfill(folder, &folder.join("lake/events"), "fresh", "", &[]);
    lake.assert_equals(
        &StoredLake::open(folder.join("fresh").to_str().unwrap(), Arc::clone(runtime)),
        EVERY_HOUR,
    );
}

#[test]
fn a_workers_root_is_continued_by_a_worker() {
    let runtime = Arc::new(Runtime::new().unwrap());
    let by_workers: Vec<&Stored> = STORED.iter().filter(|stored| stored.by == "worker").collect();
    assert!(!by_workers.is_empty());
    by_workers.into_iter().for_each(|stored| continues_and_restates(stored, &runtime));
}
