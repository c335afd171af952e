//! Processor time of clients, which is the same on brokers that have just started as on running brokers. Each
//! test measures both in one run and compares them as a ratio, so it holds on any machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prorata_connectors::kafka::{Connection, KafkaDeadLetters, KafkaProducer, KafkaSettings, KafkaSource};
use prorata_schemas::reject::Reject;
use prorata_testkit::wait::Deadline;
use prorata_tests::kafka::admin;
use prorata_worker::ports::{DeadLetter, Origin, Rejected};
use prorata_worker::source::{DeadLetterTopic, Source, Start};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use super::{BROKERS, PATIENCE, brokers, restart, signal, variable};

/// Number of messages a second. It is low, so that the floor is mostly the fixed cost of a client.
const RATE: u32 = 173;

/// The time for which messages are sent.
const SPAN: Duration = Duration::from_secs(7);

/// Maximum cost of a producer, as a multiple of the floor. On fresh clusters, 0.5 to 1.2 times was measured.
/// With `enable.idempotence` it was 6 times and more, on its first use and for a while after it.
const PRODUCER_RATIO_MAX: u64 = 3;

/// Maximum cost of a client in an outage and after it, as a multiple of the floor. Up to 1.3 times was
/// measured.
const OUTAGE_RATIO_MAX: u64 = 5;

/// A stopwatch for this process's processor time.
struct Watch(u64, Instant);

impl Watch {
    fn start() -> Self {
        Self(processor_ticks(), Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.1.elapsed()
    }

    /// Returns clock ticks of processor time, scaled to an hour because starting brokers make some runs
    /// longer.
    fn hourly_ticks(&self) -> u64 {
        let millis = u64::try_from(self.elapsed().as_millis()).unwrap();
        (processor_ticks() - self.0) * 3_600_000 / millis
    }
}

/// Returns the processor time of this process in clock ticks, including ended threads.
fn processor_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Kills all brokers, waits, and restarts them. They take seconds until they answer. The pause is the outage,
/// in which the test measures clients.
fn restart_all(pause: Duration) {
    let brokers = brokers();
    brokers.iter().for_each(|broker| signal(broker, "-KILL"));
    std::thread::sleep(pause);
    brokers.iter().for_each(restart);
}

fn assert_ratio(what: &str, floor: u64, cost: u64, most: u64) {
    println!("{what}: {cost} ticks an hour, the floor is {floor}");
    assert!(floor > 0, "the kernel counted nothing");
    assert!(cost <= most * floor, "{what}: {cost} ticks an hour are more than {most} times {floor}");
}

/// Sends at [`RATE`] for [`SPAN`].
fn send_for_a_while(watch: &Watch, mut send: impl FnMut(&[u8])) {
    for number in 0_u32.. {
        let due = Duration::from_secs(1) * number / RATE;
        if due >= SPAN {
            break;
        }
        // This wait sets the rate of sending.
        std::thread::sleep(due.saturating_sub(watch.elapsed()));
        send(&number.to_be_bytes());
    }
}

/// Creates one of our producers, and sends with it at once. Returns the cost of the producer.
fn send_with_a_new_producer() -> u64 {
    let watch = Watch::start();
    let connection = Connection::plaintext(variable("PRORATA_TEST_KAFKA"));
    let producer = KafkaProducer::new(&connection, PATIENCE).unwrap();
    send_for_a_while(&watch, |key| producer.send("processor", key, b"value").unwrap());
    producer.flush().unwrap();
    watch.hourly_ticks()
}

/// Sends with the client library's own producer, which is certainly not idempotent. Returns the cost of the
/// producer, which is the floor.
fn send_with_a_plain_producer() -> u64 {
    let watch = Watch::start();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", variable("PRORATA_TEST_KAFKA")).set("enable.idempotence", "false");
    config.set("linger.ms", "20").set("compression.type", "lz4");
    let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
    send_for_a_while(&watch, |key| {
        let record = BaseRecord::to("processor").key(key).payload("value");
        producer.send(record).map_err(|(error, _)| error).unwrap();
    });
    producer.flush(PATIENCE).unwrap();
    watch.hourly_ticks()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_costs_no_more_while_brokers_have_just_started() {
    let _alone = BROKERS.lock().await;
    admin::create_topics(&variable("PRORATA_TEST_KAFKA"), &["processor"], 6, 3).await;
    let measured = tokio::task::spawn_blocking(|| {
        // An idempotent producer also costs more on running brokers, so it cannot be its own floor.
        let first = send_with_a_new_producer();
        let floor = send_with_a_plain_producer();
        let running = send_with_a_new_producer();
        restart_all(Duration::ZERO);
        (floor, [first, running, send_with_a_new_producer()])
    });
    let (floor, [first, running, restarted]) = measured.await.unwrap();
    assert_ratio("a producer, first use", floor, first, PRODUCER_RATIO_MAX);
    assert_ratio("a producer on brokers that run", floor, running, PRODUCER_RATIO_MAX);
    assert_ratio("a producer on brokers that have just started", floor, restarted, PRODUCER_RATIO_MAX);
}

/// Sends dead letters one by one, and sends them again if brokers do not take them in time. Returns the cost.
async fn send_dead_letters(topic: &KafkaDeadLetters) -> u64 {
    let letter = DeadLetter {
        origin: Origin::File { path: "file".into(), position: None },
        rejected: Rejected { reject: Reject::malformed("no event"), bytes: b"no event".to_vec() },
    };
    let (watch, deadline) = (Watch::start(), Deadline::start());
    let mut delivered = false;
    while watch.elapsed() < SPAN || !delivered {
        assert!(!deadline.passed(), "no dead letter is delivered");
        delivered = topic.send(std::slice::from_ref(&letter)).await.is_ok();
        // This wait sets the rate of sending.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    watch.hourly_ticks()
}

/// Polls for a while. Returns the cost.
async fn poll_for(source: &mut KafkaSource, span: Duration) -> u64 {
    let watch = Watch::start();
    while watch.elapsed() < span {
        // Polling fails with `Unavailable` while brokers start.
        drop(source.poll(Duration::from_millis(100)).await);
    }
    watch.hourly_ticks()
}

/// Polls until it succeeds.
async fn poll_until_answered(source: &mut KafkaSource) {
    let deadline = Deadline::start();
    while !source.poll(Duration::from_millis(100)).await.is_ok_and(|signals| !signals.is_empty()) {
        assert!(!deadline.passed(), "the source brings nothing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_and_a_source_cost_no_more_after_an_outage() {
    let _alone = BROKERS.lock().await;
    let connection = Connection::plaintext(variable("PRORATA_TEST_KAFKA"));
    admin::create_topics(&connection.brokers, &["outage", "outage-letters"], 6, 3).await;
    let letters = KafkaDeadLetters::connect(connection.clone(), "outage-letters").await.unwrap();
    let settings = KafkaSettings::new(connection, vec!["outage".into()], "outage");
    let mut source = KafkaSource::connect(settings).await.unwrap();
    poll_until_answered(&mut source).await;
    for shard in 0..6 {
        source.start(shard, BTreeMap::from([("outage".into(), Start::At(0))])).await.unwrap();
    }
    poll_for(&mut source, SPAN).await;
    let floor = poll_for(&mut source, SPAN).await;
    let letters_floor = send_dead_letters(&letters).await;
    let outage = Duration::from_secs(20);
    let down = tokio::task::spawn_blocking(move || restart_all(outage));
    let during = poll_for(&mut source, outage).await;
    down.await.unwrap();
    let letters_cost = send_dead_letters(&letters).await;
    let letters_after = send_dead_letters(&letters).await;
    poll_for(&mut source, SPAN).await;
    let cost = poll_for(&mut source, SPAN).await;
    assert_ratio("a source without brokers", floor, during, OUTAGE_RATIO_MAX);
    assert_ratio("a source after an outage", floor, cost, OUTAGE_RATIO_MAX);
    assert_ratio("dead letters while brokers start", letters_floor, letters_cost, OUTAGE_RATIO_MAX);
    assert_ratio("dead letters after an outage", letters_floor, letters_after, OUTAGE_RATIO_MAX);
    source.close().await;
}
