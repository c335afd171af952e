//! The source on real Kafka: what brokers in memory do not know. Transactions, deleted and damaged records, logins,
//! encryption, static members.
//!
//! The brokers are started by `tests/python/servers.py --kafka 1 --kafka-sasl --kafka-tls`, so these tests stand behind
//! the feature `servers`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests may")]

mod contract;
mod damage;
mod members;
mod reading;
mod security;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use prorata_connectors::kafka::{Connection, KafkaSettings, KafkaSource, create_topics};
use prorata_schemas::Text;
use prorata_worker::source::{Message, Signal, Source, Start};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

/// Longest that anything may take here.
const PATIENCE: Duration = Duration::from_secs(60);

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set: run tests/python/servers.py --kafka 1 --kafka-sasl --kafka-tls cargo test .."
        )
    })
}

fn connection() -> Connection {
    Connection::plaintext(variable("PRORATA_TEST_KAFKA"))
}

/// Settings of a group of these topics' own.
fn settings(topics: &[&str]) -> KafkaSettings {
    let group = format!("group-of-{}", topics.join("-"));
    let mut settings =
        KafkaSettings::new(connection(), topics.iter().map(|&topic| topic.into()).collect(), group);
    settings.session_timeout = Duration::from_secs(6);
    settings.revoke_timeout = Duration::from_secs(20);
    settings.end_every = Duration::from_millis(500);
    settings
}

async fn topics(names: &[&str], partitions: i32) {
    create_topics(&connection(), names, partitions, 1).await.unwrap();
    // It is nothing to create them again.
    create_topics(&connection(), names, partitions, 1).await.unwrap();
}

fn producer(options: &[(&str, &str)]) -> BaseProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", variable("PRORATA_TEST_KAFKA"));
    for (key, value) in options {
        config.set(*key, *value);
    }
    config.create().unwrap()
}

fn send(producer: &BaseProducer, topic: &str, partition: i32, count: usize) {
    for number in 0..count {
        let value = format!("value {number}");
        let record = BaseRecord::to(topic).partition(partition).key("acme").payload(&value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

/// Signals until the wish is granted.
async fn until(source: &mut KafkaSource, mut granted: impl FnMut(&Signal) -> bool) -> Vec<Signal> {
    let (deadline, mut seen) = (Instant::now() + PATIENCE, Vec::new());
    loop {
        let mut done = false;
        for signal in source.poll(Duration::from_millis(200)).await.unwrap_or_default() {
            done |= granted(&signal);
            seen.push(signal);
        }
        if done {
            return seen;
        }
        assert!(Instant::now() < deadline, "{seen:?}");
    }
}

async fn signals_for(source: &mut KafkaSource, time: Duration) -> Vec<Signal> {
    let (deadline, mut seen) = (Instant::now() + time, Vec::new());
    while Instant::now() < deadline {
        seen.extend(source.poll(Duration::from_millis(100)).await.unwrap_or_default());
    }
    seen
}

async fn assigned(source: &mut KafkaSource) -> BTreeSet<u16> {
    let seen = until(source, |signal| matches!(signal, Signal::Assigned(_))).await;
    let Some(Signal::Assigned(shards)) = seen.last() else { panic!("{seen:?}") };
    shards.iter().copied().collect()
}

async fn joined(settings: KafkaSettings) -> KafkaSource {
    let mut source = KafkaSource::connect(settings).await.unwrap();
    assigned(&mut source).await;
    source
}

fn from(topics: &[&str], start: Start) -> BTreeMap<Text, Start> {
    topics.iter().map(|&topic| (topic.into(), start)).collect()
}

fn messages(signals: &[Signal]) -> Vec<&Message> {
    fn of(signal: &Signal) -> &[Message] {
        if let Signal::Messages(messages) = signal { messages } else { &[] }
    }
    signals.iter().flat_map(of).collect()
}

fn offsets(signals: &[Signal]) -> Vec<i64> {
    messages(signals).iter().map(|message| message.offset).collect()
}

fn is_end(signal: &Signal, at: i64) -> bool {
    matches!(signal, Signal::End { offset, .. } if *offset == at)
}
