//! Kills a broker and restarts it: no message is lost or repeated, and no end is reported too early. Dead
//! letters are tested too, also while no broker answers.
//!
//! `tests/python/servers.py --kafka 3` starts the brokers, so these tests need the feature `servers`. These
//! tests are a separate program and run one after another, because other tests would not survive them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests may")]

mod letters;
mod processor;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use prorata_connectors::kafka::{Connection, KafkaProducer, KafkaSettings, KafkaSource};
use prorata_testkit::wait::{Deadline, PATIENCE};
use prorata_tests::kafka::admin;
use prorata_worker::source::{Source, SourceEvent, Start};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::Value;

/// A lock on the brokers.
static BROKERS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Process ids of restarted brokers, by broker id.
static RESTARTED: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: run this by tests/python/servers.py --kafka 3"))
}

/// Returns the brokers as they were started.
fn brokers() -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(variable("PRORATA_TEST_KAFKA_BROKERS")).unwrap()).unwrap()
}

/// Sends a broker a signal, such as `-KILL`.
fn signal(broker: &Value, name: &str) {
    let restarted = RESTARTED.lock().unwrap().get(&broker["id"].to_string()).copied();
    let pid = restarted.map_or_else(|| broker["pid"].to_string(), |pid| pid.to_string());
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// Restarts a broker with its first arguments. The broker ends when the script of the servers ends.
fn restart(broker: &Value) {
    let command: Vec<&str> =
        broker["command"].as_array().unwrap().iter().map(|part| part.as_str().unwrap()).collect();
    let (program, arguments) = command.split_first().unwrap();
    let log = std::fs::File::options().append(true).open(broker["log"].as_str().unwrap()).unwrap();
    let errors = log.try_clone().unwrap();
    let started =
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
    RESTARTED.lock().unwrap().insert(broker["id"].to_string(), started.unwrap().id());
}

/// Polls, and checks that every sent message arrives once and in order. No end may be reported before the
/// last message.
struct Reader {
    source: KafkaSource,
    next: BTreeMap<u16, i64>,
    read: u64,
    unavailable: u64,
}

impl Reader {
    async fn poll(&mut self) {
        let signals = match self.source.poll(Duration::from_millis(50)).await {
            Ok(signals) => signals,
            Err(error) => {
                println!("{error}");
                self.unavailable += 1;
                return;
            }
        };
        for signal in signals {
            match signal {
                SourceEvent::Messages(messages) => {
                    for message in messages {
                        let next = self.next.entry(message.partition).or_default();
                        assert_eq!(message.offset, *next, "partition {}", message.partition);
                        *next += 1;
                        self.read += 1;
                    }
                }
                SourceEvent::End { partition, offset, .. } => assert_eq!(offset, self.next[&partition]),
                other => panic!("{other:?}"),
            }
        }
    }

    async fn until(&mut self, sent: u64) {
        let deadline = Deadline::start();
        while self.read < sent {
            assert!(!deadline.passed(), "{} of {sent}: {:?}", self.read, self.next);
            self.poll().await;
        }
    }
}

async fn send(count: u32) {
    let connection = Connection::plaintext(variable("PRORATA_TEST_KAFKA"));
    let sent = tokio::task::spawn_blocking(move || {
        let producer = KafkaProducer::new(&connection, PATIENCE).unwrap();
        for number in 0..count {
            producer.send("failover", &number.to_be_bytes(), b"value").unwrap();
        }
        producer.flush().unwrap()
    });
    assert_eq!(sent.await.unwrap(), u64::from(count));
}

/// Returns whether the replicas of every partition are in sync.
fn all_in_sync(brokers: &str) -> bool {
    let client: BaseConsumer = ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    client.fetch_metadata(None, PATIENCE).is_ok_and(|metadata| {
        let mut partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        partitions.all(|partition| partition.isr().len() == partition.replicas().len())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_and_comes_back_costs_no_message_and_moves_no_shard() {
    let _alone = BROKERS.lock().await;
    let brokers = brokers();
    assert_eq!(brokers.len(), 3);
    let connection = Connection::plaintext(variable("PRORATA_TEST_KAFKA"));
    admin::create_topics(&connection.brokers, &["failover"], 6, 3).await;
    send(10_000).await;
    let mut settings = KafkaSettings::new(connection, vec!["failover".into()], "failover");
    settings.session_timeout = Duration::from_secs(45);
    let mut source = KafkaSource::connect(settings).await.unwrap();
    while source.poll(Duration::from_millis(100)).await.unwrap().is_empty() {}
    for shard in 0..6 {
        source.start(shard, BTreeMap::from([("failover".into(), Start::At(0))])).await.unwrap();
    }
    let mut reader =
        Reader { source, next: (0..6).map(|shard| (shard, 0)).collect(), read: 0, unavailable: 0 };
    reader.until(10_000).await;
    for (round, broker) in (2_u64..).zip(&brokers) {
        signal(broker, "-KILL");
        send(10_000).await;
        reader.until(round * 10_000).await;
        restart(broker);
        // Waits until the broker has caught up: the next one to die may hold messages that only the other two
        // have.
        let (deadline, brokers) = (Deadline::start(), variable("PRORATA_TEST_KAFKA"));
        while !tokio::task::block_in_place(|| all_in_sync(&brokers)) {
            assert!(!deadline.passed(), "{broker} does not catch up");
            reader.poll().await;
        }
    }
    assert_eq!(reader.read, 40_000);
    assert_eq!(reader.unavailable, 0, "two of three brokers were there all the time");
    reader.source.close().await;
}
