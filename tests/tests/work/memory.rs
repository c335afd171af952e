//! Memory stays within the configuration, however many messages arrive and however slow storage is.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use prorata_connectors::archive::write_events;
use prorata_connectors::kafka::{Connection, KafkaProducer};
use prorata_connectors::messages::MessageEncoder;
use prorata_samples::trace;
use prorata_schemas::body::encode;
use prorata_schemas::event::{Event, EventKind, EventRecord, NodeStopped, Payload, PodUsage};
use prorata_schemas::time::{Hour, Timestamp};
use prorata_testkit::wait::eventually;
use prorata_tests::proxy::{Proxy, Weather};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::world::{World, tuned, variable};

const MIB: u64 = 1 << 20;

/// Limit on the events of open hours.
const MEMORY_LIMIT: u64 = 16 * MIB;

/// Limit on messages fetched ahead.
const QUEUE: u64 = 4 * MIB;

/// Total size of the new events that make a checkpoint due, in bytes. The worker encodes the checkpoint while
/// it reads the next events.
const CHECKPOINT: u64 = 2 * MIB;

/// Memory outside of all settings: the program itself, the Kafka library, storage clients, an hour being
/// folded, and memory that the allocator keeps. Without limits the burst takes far more.
const BASE: u64 = 200 * MIB;

/// Number of hours of the burst.
const HOURS: i64 = 6;

/// Returns the stop of a node that never started, which leaves no row and no state. The names have the
/// greatest allowed length.
fn event(number: u64, all: u64, first: Hour, rng: &mut ChaCha8Rng) -> Event {
    let mut name = || -> String { (0..64).map(|_| format!("{:016x}", rng.random::<u64>())).collect() };
    let micros = HOURS * 3_600_000_000 / i64::try_from(all).unwrap() * i64::try_from(number).unwrap();
    Event::new(
        format!("organization-{}", number % 12).into(),
        Timestamp(first.start().0 + micros),
        Payload::NodeStopped(NodeStopped { cluster_id: name().into(), node_id: name().into() }),
    )
}

/// Sends a burst, and writes the same events into a folder.
fn send(world: &World, events: u64, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(81);
    let encoder = MessageEncoder::single_object();
    let connection = Connection::plaintext(variable("PRORATA_TEST_KAFKA"));
    let producer = KafkaProducer::new(&connection, Duration::from_secs(60)).unwrap();
    let first = Hour(world.now.0 - HOURS - 1);
    for file in 0..events.div_ceil(1_000) {
        let numbers = file * 1_000..events.min((file + 1) * 1_000);
        let made: Vec<Event> = numbers.map(|number| event(number, events, first, &mut rng)).collect();
        let bodies: Vec<Vec<u8>> = made.iter().map(encode).collect();
        for (event, body) in made.iter().zip(&bodies) {
            let value = encoder.encode(EventKind::NodeStopped, body);
            producer.send(&world.topics[0], event.organization_id.as_bytes(), &value).unwrap();
        }
        let bodies: Vec<(EventKind, &[u8])> =
            bodies.iter().map(|body| (EventKind::NodeStopped, body.as_slice())).collect();
        std::fs::write(folder.join(format!("{file:04}.avro")), write_events(&bodies).unwrap()).unwrap();
    }
    assert_eq!(producer.flush().unwrap(), events);
}

/// Samples the memory of a process until `stop`. The thread returns the peak in bytes, without mapped files.
fn watch(process: u32, stop: Arc<AtomicBool>) -> JoinHandle<u64> {
    let bytes = move || -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        Some(line.trim().split(' ').next()?.parse::<u64>().ok()? * 1_024)
    };
    thread::spawn(move || {
        let mut most = 0;
        while !stop.load(Ordering::Relaxed) {
            most = most.max(bytes().unwrap_or(0));
            // A peak between two samples is missed.
            thread::sleep(Duration::from_millis(10));
        }
        most
    })
}

#[test]
fn a_burst_before_a_slow_storage_stays_within_the_configured_memory() {
    let mut world = World::new("burst");
    world.root = format!("s3://{}/{}", variable("PRORATA_TEST_BUCKET"), world.name);
    for (key, value) in [
        ("registry.url", json!("")),
        ("kafka.queue_bytes", json!(QUEUE)),
        ("work.memory_limit", json!(MEMORY_LIMIT)),
        ("work.checkpoint_bytes", json!(CHECKPOINT)),
    ] {
        world.set(key, value);
    }
    let proxy = Proxy::before(&variable("AWS_ENDPOINT_URL"));
    world.environment("AWS_ENDPOINT_URL", &proxy.url(&variable("AWS_ENDPOINT_URL")));
    let (events, folder) = (tuned("PRORATA_BURST_EVENTS", 80_000), world.folder.path().join("events"));
    send(&world, events, &folder);
    proxy.set(Weather::Slow(Duration::from_millis(5)));
    let mut worker = world.worker();
    let stop = Arc::new(AtomicBool::new(false));
    let watched = watch(worker.program.id(), Arc::clone(&stop));
    worker.ready();
    let before = worker.counter("rebalances");
    eventually("the burst is read", || match worker.counter("events") {
        read if read == events => Ok(()),
        read => Err(format!("{read} of {events} are")),
    });
    proxy.set(Weather::Clear);
    world.drained(std::slice::from_mut(&mut worker), i64::try_from(events).unwrap());
    assert_eq!(worker.counter("rebalances"), before, "the group took shards away meanwhile");
    stop.store(true, Ordering::Relaxed);
    let (peak, bound) = (watched.join().unwrap(), MEMORY_LIMIT + QUEUE + CHECKPOINT + BASE);
    println!("{events} events, at most {} MiB", peak / MIB);
    assert!(peak <= bound, "{} MiB, more than {} MiB", peak / MIB, bound / MIB);
    worker.stop();
    let expected = world.backfill(folder.to_str().unwrap(), "expected");
    world.lake().assert_holds(&expected, world.through());
}

const PODS_OF_A_NODE: u64 = 50;

/// Number of pods of one organization for which a worker of 512 MiB has memory, each with a sample a minute.
const PODS_ALL: u64 = 62_500;
const LIMIT: u64 = 512 * MIB;

fn pod_uid(pod: u64) -> String {
    format!("01234567-89ab-cdef-0123-{pod:012}")
}

/// Returns an hour of one organization: nodes, pods on them, and a sample of each pod every minute.
fn hour_of_pods(pods: u64, first: Hour) -> impl Iterator<Item = Event> {
    let (start, node_of) = (first.start().0, |pod: u64| format!("node-{:05}", pod / PODS_OF_A_NODE));
    let at = move |mut event: EventRecord, node: Option<String>| {
        event.event.event_time = Timestamp(start);
        if let (Payload::NodeStarted(started), Some(node)) = (&mut event.event.payload, node) {
            started.node_id = node.into();
        }
        event.event
    };
    let nodes = (0..pods).step_by(PODS_OF_A_NODE as usize);
    let nodes = nodes.map(move |pod| at(trace::node("acme", 0, 10), Some(node_of(pod))));
    let started = move |pod| trace::pod_on(&node_of(pod), "acme", 0, &pod_uid(pod), 1);
    let starts = (0..pods).map(move |pod| at(started(pod), None));
    let samples = (0..60).flat_map(move |minute| (0..pods).map(move |pod| (minute, pod)));
    let samples = samples.map(move |(minute, pod)| {
        let event_time = Timestamp(start + minute * 60_000_000);
        let usage = PodUsage {
            pod_uid: pod_uid(pod).into(),
            interval_end: Timestamp(event_time.0 + 60_000_000),
            cpu_millis: 500 + minute,
            memory_bytes: (1 << 30) + minute * 4_096,
            gpu_millis: 0,
            gpu_memory_bytes: None,
        };
        Event::new("acme".into(), event_time, Payload::PodUsage(usage))
    });
    nodes.chain(starts).chain(samples)
}

/// `PRORATA_HOUR_PODS=62500` is the full size. A shard's open hour is in storage, not in memory.
#[test]
fn an_hour_of_many_pods_on_one_shard_stays_within_512_mib() {
    let mut world = World::new("pods");
    let pods = tuned("PRORATA_HOUR_PODS", PODS_ALL / 16);
    for (key, value) in [
        ("registry.url", json!("")),
        ("kafka.queue_bytes", json!(LIMIT / 32)),
        ("work.memory_limit", json!(LIMIT / 4)),
        ("work.checkpoint_bytes", json!(LIMIT / 32)),
        ("work.checkpoint_interval", json!("10s")),
    ] {
        world.set(key, value);
    }
    let encoder = MessageEncoder::single_object();
    let connection = Connection::plaintext(variable("PRORATA_TEST_KAFKA"));
    let producer = KafkaProducer::new(&connection, Duration::from_secs(60)).unwrap();
    let mut worker = world.worker();
    let stop = Arc::new(AtomicBool::new(false));
    let watched = watch(worker.program.id(), Arc::clone(&stop));
    worker.ready();
    let mut sent = 0;
    for event in hour_of_pods(pods, Hour(world.now.0 - 2)) {
        let value = encoder.encode(event.payload.kind(), &encode(&event));
        producer.send(&world.topics[0], event.organization_id.as_bytes(), &value).unwrap();
        sent += 1;
    }
    assert_eq!(producer.flush().unwrap(), sent);
    world.drained(std::slice::from_mut(&mut worker), i64::try_from(sent).unwrap());
    stop.store(true, Ordering::Relaxed);
    let (peak, bound) = (watched.join().unwrap(), BASE + (LIMIT - BASE) * pods / PODS_ALL);
    println!("{pods} pods, {sent} events, at most {} MiB", peak / MIB);
    assert!(peak <= bound, "{} MiB, more than {} MiB", peak / MIB, bound / MIB);
    worker.stop();
}
