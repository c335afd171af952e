//! Counts the requests to storage of one simulated day of a worker that holds all shards, with the default
//! configuration. Kafka and the clock are simulated. Storage is a real folder, and tables have real logs.
//!
//! usage: cargo bench -p prorata-tests --bench requests

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops on a broken assumption"
)]

use std::sync::Arc;
use std::time::Duration;

use prorata_connectors::archive::AvroArchive;
use prorata_connectors::messages::{MessageEncoder, SingleObjectMessages};
use prorata_connectors::store::Store;
use prorata_connectors::{DeltaTables, ParquetEncoder};
use prorata_generate::Load;
use prorata_schemas::event::EventRecord;
use prorata_schemas::time::{Hour, WallTime};
use prorata_testkit::fakes::{FakeBroker, FakeDeadLetterTopic, Record, SteppedClock};
use prorata_tests::clocked::ClockedStore;
use prorata_worker::Ports;
use prorata_worker::names::Shard;
use prorata_worker::root::Root;
use prorata_worker::status::{Counts, RequestKind, Status};
use prorata_worker::stream::{StreamPorts, Worker, WorkerOptions};
use tempfile::TempDir;

/// Hours of the run: a day, and before it the hours in which the root begins.
const HOURS: u64 = 26;
const WARM_UP_HOURS: i64 = 2;

const START: Hour = Hour(498_648);
const SHARDS: Shard = 16;
const TOPIC: &str = "events";

/// Simulated time between two steps of the worker.
const STEP: Duration = Duration::from_secs(5);

/// Days of a month.
const MONTH_DAYS: u64 = 30;

/// Prices of S3 in us-east-1, in millionths of a dollar per 1,000 requests.
const fn price(kind: RequestKind) -> u64 {
    match kind {
        RequestKind::Put | RequestKind::List => 5_000,
        RequestKind::Get => 400,
        RequestKind::Delete => 0,
    }
}

/// Runs a worker for a day, with the producers of a load. Returns the counts of the day.
async fn day(organizations: u64, pods: u64) -> Counts {
    let folder = TempDir::new().unwrap();
    let status = Arc::<Status>::default();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap().counted(Arc::clone(&status));
    let (broker, clock) = (FakeBroker::default(), SteppedClock::new(WallTime(START.start().0)));
    broker.set_partitions(TOPIC, SHARDS);
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
        status: Arc::clone(&status),
    };
    let options = WorkerOptions::new("counted".into());
    let mut worker = Worker::open(broker.source("counted", &[TOPIC]), ports, options).await.unwrap();
    let load = Load {
        organizations,
        pods,
        hours: HOURS,
        start: START,
        seed: 1,
        late_per_million: 0,
        duplicates_per_million: 0,
        usage_interval: Some(Duration::from_secs(60)),
    };
    let root = Root::new(SHARDS);
    let encoder = MessageEncoder::single_object();
    let mut arrivals = load.arrivals();
    let day_begins = Hour(START.0 + WARM_UP_HOURS).start().0;
    let mut before = None;
    while let Some(next) = arrivals.clock() {
        let now = prorata_worker::ports::Clock::now(&clock).0;
        while arrivals.clock().is_some_and(|sent_at| sent_at.0 <= now) {
            let Some(event) = arrivals.next().map(EventRecord::new) else { break };
            let organization = &event.event.organization_id;
            let value = encoder.encode(event.event.payload.kind(), &event.body);
            let key = organization.as_bytes().to_vec();
            let record = Record {
                timestamp_millis: now / 1_000,
                key: Some(key.into()),
                value: Some(value.into()),
                headers: Vec::new(),
            };
            broker.produce(TOPIC, root.shard_of(organization), record).unwrap();
        }
        if before.is_none() && next.0 >= day_begins {
            before = Some(status.lock().counts.clone());
        }
        while worker.step(Duration::ZERO).await.unwrap() {}
        clock.advance(STEP);
    }
    let mut counts = status.lock().counts.clone();
    let before = before.unwrap();
    counts.checkpoints -= before.checkpoints;
    counts.commits -= before.commits;
    for (kind, count) in before.requests {
        *counts.requests.entry(kind).or_default() -= count;
    }
    counts
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!(
        "requests a month, {SHARDS} shards | checkpoints | commits | put | get | list | delete | dollars"
    );
    for (name, organizations, pods) in [("one organization", 1, 100), ("48 organizations", 48, 20)] {
        let counts = day(organizations, pods).await;
        let mut cells = vec![counts.checkpoints * MONTH_DAYS, counts.commits * MONTH_DAYS];
        let mut micros = 0;
        for kind in RequestKind::ALL {
            let count = counts.requests.get(&kind).copied().unwrap_or_default() * MONTH_DAYS;
            cells.push(count);
            micros += count * price(kind) / 1_000;
        }
        let cells: Vec<String> = cells.iter().map(u64::to_string).collect();
        println!("{name}, {pods} pods each | {} | {:.2}", cells.join(" | "), micros as f64 / 1e6);
    }
}
