//! The source on real Kafka, for features that brokers in memory lack: transactions, deleted and damaged
//! records, logins, encryption, static members.
//!
//! `tests/python/servers.py --kafka 1 --kafka-sasl --kafka-tls` starts the brokers, so these tests need the
//! feature `servers`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests may")]

mod contract;
mod damage;
mod members;
mod reading;
mod security;

use prorata_connectors::kafka::{Connection, KafkaSettings};
use prorata_testkit::wait::PATIENCE;
use prorata_tests::kafka::admin;
use prorata_tests::kafka::{assigned, from, hurried, is_end, joined, messages, signals_for, until};
use prorata_worker::source::SourceEvent;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

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

/// Returns the settings of a group that reads only these topics.
fn settings(topics: &[&str]) -> KafkaSettings {
    hurried(connection(), topics, format!("group-of-{}", topics.join("-")))
}

async fn topics(names: &[&str], partitions: i32) {
    admin::create_topics(&connection().brokers, names, partitions, 1).await;
    // Creating existing topics again does nothing.
    admin::create_topics(&connection().brokers, names, partitions, 1).await;
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

fn offsets(signals: &[SourceEvent]) -> Vec<i64> {
    messages(signals).iter().map(|message| message.offset).collect()
}
