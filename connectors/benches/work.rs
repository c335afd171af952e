//! The cost of the stream worker relative to a backfill of the same events, as a ratio measured in one run.
//! The worker and the backfill each fold one day into a folder, and must produce the same content. Messages,
//! archive, Parquet and Delta tables are real. Kafka is in memory; reading it without a worker is measured
//! separately.
//!
//! The ratio is the worker's processor time over the backfill's: 1 would mean that offsets, checkpoints and
//! late events cost nothing. It is measured at both extremes of a catch-up:
//! - All messages are read before an hour closes. Each hour is folded once, so the ratio shows the cost of a
//!   message's path: 1.1 to 1.4 was measured.
//! - Each event hour brings a checkpoint of every shard, as at 480 times real time. Late events find their
//!   hours closed, two or three times as many hours are folded, and there are many small files for few
//!   events: 2.8 to 3.0 was measured.

#![expect(clippy::unwrap_used, reason = "benchmarks may")]

#[path = "work/load.rs"]
mod load;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prorata_connectors::SystemClock;
use prorata_connectors::archive::{AvroArchive, write_events};
use prorata_connectors::messages::{MessageEncoder, SingleObjectMessages};
use prorata_connectors::store::{Store, open_input};
use prorata_connectors::{DeltaTables, ParquetEncoder};
use prorata_schemas::event::EventKind;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, WallTime};
use prorata_testkit::fakes::{FakeBroker, Record, SteppedClock};
use prorata_worker::backfill;
use prorata_worker::names::{Shard, TableFile};
use prorata_worker::ports::{Silent, TableCommitter};
use prorata_worker::root::Root;
use prorata_worker::source::{Source, SourceEvent, Start};
use prorata_worker::status::{Counts, Status, WorkerStatus};
use prorata_worker::stream::{self, Worker};
use tempfile::TempDir;

use load::{Sent, TOPICS};

/// The same allocator as in the program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SHARDS: Shard = 4;
const ROUNDS: usize = 3;
/// Number of messages of one poll.
const POLL_MESSAGES: usize = 2_000;
/// Maximum number of polls until a worker must be done.
const POLLS_MAX: usize = 100_000;
/// Minimum time between two closings of hours in a shard while messages flow: an eighth of the time between
/// two checkpoints.
const CLOSES_EVERY: Duration = Duration::from_millis(7_500);

/// Content digests of live files.
type Digests = BTreeMap<(&'static str, Shard, Hour), String>;

/// The time that a run took.
#[derive(Clone, Copy)]
struct Spent {
    processor: Duration,
    wall: Duration,
}

/// A clock that measures from its creation.
struct Watch(Duration, Instant);

impl Watch {
    fn start() -> Self {
        Self(processor(), Instant::now())
    }

    fn spent(&self) -> Spent {
        Spent { processor: processor() - self.0, wall: self.1.elapsed() }
    }
}

/// Returns the processor time of the process, including ended threads. The kernel counts it in hundredths of
/// a second.
fn processor() -> Duration {
    let found = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = found.rsplit_once(')').unwrap().1.split_whitespace().collect();
    Duration::from_millis(fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum())
}

fn shard_of(sent: &Sent) -> Shard {
    let root = Root::new(SHARDS);
    root.shard_of(&sent.record.event.organization_id)
}

/// Fills the topics with all messages.
fn fill(broker: FakeBroker, messages: &[Sent]) -> FakeBroker {
    broker.set_poll_messages(POLL_MESSAGES);
    TOPICS.iter().for_each(|topic| broker.set_partitions(topic, SHARDS));
    let encoder = MessageEncoder::single_object();
    for sent in messages {
        let event = &sent.record.event;
        let record = Record {
            timestamp_millis: sent.arrives.0 / 1_000,
            key: Some(event.organization_id.as_bytes().to_vec().into()),
            value: Some(encoder.encode(event.payload.kind(), &sent.record.body).into()),
            headers: Vec::new(),
        };
        broker.produce(sent.topic, shard_of(sent), record).unwrap();
    }
    broker
}

/// Writes the same events as files, one per topic partition.
fn write_files(messages: &[Sent], folder: &Path) {
    let mut partitions: BTreeMap<_, Vec<(EventKind, &[u8])>> = BTreeMap::new();
    for sent in messages {
        let body = (sent.record.event.payload.kind(), &*sent.record.body);
        partitions.entry((sent.topic, shard_of(sent))).or_default().push(body);
    }
    assert_eq!(partitions.len(), TOPICS.len() * usize::from(SHARDS), "each partition has events");
    for ((topic, shard), events) in partitions {
        fs::write(folder.join(format!("{topic}-{shard}.avro")), write_events(&events).unwrap()).unwrap();
    }
}

async fn digests(store: &Store) -> Digests {
    let tables = DeltaTables::new(store.clone());
    let mut digests = Digests::new();
    for table in Table::HOURLY {
        for file in tables.load(table).await.unwrap().files {
            let file = TableFile::parse(&file.path).unwrap();
            let before = digests.insert((table.name(), file.shard, file.hour), file.digest);
            assert_eq!(before, None, "one file per table, shard and hour");
        }
    }
    digests
}

async fn run_backfill(events: &str, messages: usize) -> (Spent, Digests) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    let watch = Watch::start();
    let ports = backfill::BackfillPorts {
        shared: prorata_worker::Ports {
            store: Arc::new(store.clone()),
            tables: Arc::new(DeltaTables::new(store.clone())),
            archive: Arc::new(AvroArchive),
            encoder: Arc::new(ParquetEncoder),
            clock: Arc::new(SystemClock),
        },
        input: open_input(events).unwrap(),
        progress: Arc::new(Silent),
    };
    let options = backfill::BackfillOptions {
        shards: Some(SHARDS),
        ..backfill::BackfillOptions::new("backfill".into())
    };
    let outcome = backfill::run(ports, options).await.unwrap();
    let spent = watch.spent();
    assert_eq!((outcome.events_read, outcome.closed_through), (messages as u64, Some(load::last_hour())));
    assert!(outcome.dead_letters.is_empty(), "{:?}", outcome.dead_letters);
    (spent, digests(&store).await)
}

/// Returns whether every hour is closed, no hour must be folded again, and the tables are up to date.
fn done(status: &WorkerStatus) -> bool {
    let settled = |shard: &prorata_worker::status::ShardStatus| {
        let read = shard.topics.len() == TOPICS.len() && shard.topics.values().all(|topic| topic.at_end);
        let folded = shard.closed_through == Some(load::last_hour()) && shard.dirty_from.is_none();
        read && folded && shard.published_at >= shard.checkpoint_at
    };
    status.shards.len() == usize::from(SHARDS) && status.shards.values().all(settled)
}

/// Runs a worker until everything is done, and stops it cleanly. Every poll takes `poll_takes` on the
/// worker's clock.
async fn run_worker(broker: &FakeBroker, poll_takes: Duration) -> (Spent, Digests, Counts) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    // Only hours up to the last one with events may close.
    let clock = SteppedClock::new(WallTime(load::last_hour().next().end().0));
    let status = Arc::new(Status::default());
    let source = broker.source("worker", &TOPICS);
    let watch = Watch::start();
    let ports = stream::StreamPorts {
        shared: prorata_worker::Ports {
            store: Arc::new(store.clone()),
            tables: Arc::new(DeltaTables::new(store.clone())),
            archive: Arc::new(AvroArchive),
            encoder: Arc::new(ParquetEncoder),
            clock: Arc::new(clock.clone()),
        },
        decoder: Arc::new(SingleObjectMessages::new().unwrap()),
        dead_letters: None,
        budgets: None,
        status: Arc::clone(&status),
    };
    let options =
        stream::WorkerOptions { shards: Some(SHARDS), ..stream::WorkerOptions::new("worker".into()) };
    let mut worker = Worker::open(source, ports, options).await.unwrap();
    let mut polls = 0;
    while !done(&status.lock()) {
        assert!(polls < POLLS_MAX, "{:?}", status.lock().shards);
        worker.step(Duration::ZERO).await.unwrap();
        clock.advance(poll_takes);
        polls += 1;
    }
    worker.drain().await;
    let spent = watch.spent();
    let counts = status.lock().counts.clone();
    assert!(counts.dead_letters.is_empty(), "{:?}", counts.dead_letters);
    (spent, digests(&store).await, counts)
}

/// Reads all messages and discards them.
async fn run_dry(broker: &FakeBroker, messages: usize) -> Spent {
    let mut source = broker.source("dry", &TOPICS);
    let watch = Watch::start();
    let (mut received, mut polls) = (0, 0);
    while received < messages {
        assert!(polls < POLLS_MAX, "{received} of {messages} messages");
        for signal in source.poll(Duration::ZERO).await.unwrap() {
            match signal {
                SourceEvent::Assigned(shards) => {
                    for shard in shards {
                        let topics = TOPICS.map(|topic| (topic.into(), Start::Earliest));
                        source.start(shard, topics.into()).await.unwrap();
                    }
                }
                SourceEvent::Messages(messages) => received += messages.len(),
                _ => {}
            }
        }
        polls += 1;
    }
    watch.spent()
}

fn median(all: &[Spent]) -> Spent {
    let middle = |of: fn(&Spent) -> Duration| {
        let mut values: Vec<Duration> = all.iter().map(of).collect();
        values.sort_unstable();
        values[values.len() / 2]
    };
    Spent { processor: middle(|spent| spent.processor), wall: middle(|spent| spent.wall) }
}

/// A way in which the worker catches up.
struct CatchUp {
    name: &'static str,
    /// Whether hours close while messages arrive, so that late events belong to closed hours.
    hourly: bool,
    spent: Vec<Spent>,
}

#[tokio::main]
async fn main() {
    let messages = load::messages();
    let files = TempDir::new().unwrap();
    write_files(&messages, files.path());
    let (events, count) = (files.path().to_str().unwrap(), messages.len());
    let polls_an_hour = count / POLL_MESSAGES / load::HOURS.unsigned_abs() as usize;
    let hourly = CLOSES_EVERY / u32::try_from(polls_an_hour.max(1)).unwrap();
    let mut catch_ups = [("worker, all read first", false), ("worker, hour by hour", true)]
        .map(|(name, hourly)| CatchUp { name, hourly, spent: Vec::new() });
    let (mut backfills, mut dry) = (Vec::new(), Vec::new());
    println!("{count} messages of {} hours, {SHARDS} shards, {ROUNDS} rounds, medians", load::HOURS);
    for round in 0..ROUNDS {
        let (spent, wanted) = run_backfill(events, count).await;
        backfills.push(spent);
        for catch_up in &mut catch_ups {
            // The broker delivers one partition after the other, or, if seeded, random numbers of messages
            // from random partitions.
            let broker = if catch_up.hourly { FakeBroker::seeded(1) } else { FakeBroker::default() };
            let broker = fill(broker, &messages);
            let poll_takes = if catch_up.hourly { hourly } else { Duration::ZERO };
            let (spent, found, counts) = run_worker(&broker, poll_takes).await;
            assert!(found == wanted, "{} and the backfill differ", catch_up.name);
            assert_eq!(counts.late_events > 0, catch_up.hourly, "{} late events", counts.late_events);
            catch_up.spent.push(spent);
            dry.push(run_dry(&broker, count).await);
            if round == 0 {
                println!(
                    "{}: {} late events, {} hours closed, {} restated, {} checkpoints, {} commits",
                    catch_up.name,
                    counts.late_events,
                    counts.closed_hours,
                    counts.restated_hours,
                    counts.checkpoints,
                    counts.commits
                );
            }
        }
    }
    let (base, dry) = (median(&backfills), median(&dry));
    let print = |name: &str, spent: Spent| {
        let (processor, wall) = (spent.processor.as_secs_f64(), spent.wall.as_secs_f64());
        let rate = count as f64 / processor;
        println!(
            "{name:<24} {processor:>6.2} s of processor, {wall:>6.2} s, {rate:>8.0} events a processor second"
        );
    };
    let ratio = |of: Duration, to: Duration| of.as_secs_f64() / to.as_secs_f64();
    print("backfill", base);
    for catch_up in &catch_ups {
        let spent = median(&catch_up.spent);
        print(catch_up.name, spent);
        println!(
            "{:<24} {:.2} of the backfill's processor time, {:.2} of its wall time; fake broker: {:.0} %",
            "",
            ratio(spent.processor, base.processor),
            ratio(spent.wall, base.wall),
            100.0 * ratio(dry.processor, spent.processor)
        );
    }
}
