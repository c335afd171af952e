//! A batch of messages that is damaged on a broker's disk: the client library tells it and goes on behind it.
//! The source does not.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use prorata_testkit::wait::Deadline;
use prorata_worker::source::{Source, SourceError, Start};
use rdkafka::producer::{BaseRecord, Producer};
use serde_json::Value;

use crate::{PATIENCE, from, is_end, joined, offsets, producer, settings, topics, until, variable};

/// The file with the first messages of the topic's only partition, on whichever broker has it.
fn log_of(topic: &str) -> PathBuf {
    let brokers = fs::read(variable("PRORATA_TEST_KAFKA_BROKERS")).unwrap();
    let brokers: Vec<Value> = serde_json::from_slice(&brokers).unwrap();
    let folders = brokers.iter().map(|broker| PathBuf::from(broker["log_dir"].as_str().unwrap()));
    let logs = folders.map(|folder| folder.join(format!("{topic}-0")).join("00000000000000000000.log"));
    logs.into_iter().find(|log| log.exists()).unwrap()
}

#[tokio::test]
async fn damaged_messages_are_not_skipped_but_waited_for() {
    topics(&["damaged"], 1).await;
    let plain = producer(&[]);
    for batch in ["before", "damaged", "behind"] {
        for _ in 0..10 {
            plain
                .send(BaseRecord::to("damaged").key("acme").payload(batch))
                .map_err(|(error, _)| error)
                .unwrap();
        }
        plain.flush(PATIENCE).unwrap();
    }
    let (log, whole) = (log_of("damaged"), fs::read(log_of("damaged")).unwrap());
    let at = whole.windows(7).position(|bytes| bytes == b"damaged").unwrap();
    let mut broken = whole.clone();
    broken[at] ^= 1;
    fs::write(&log, &broken).unwrap();
    let mut source = joined(settings(&["damaged"])).await;
    source.start(0, from(&["damaged"], Start::Earliest)).await.unwrap();
    let (mut read, mut told) = (Vec::new(), String::new());
    let (window, deadline) = (Deadline::after(Duration::from_secs(5)), Deadline::start());
    while !window.passed() || ((told.is_empty() || read.len() < 10) && !deadline.passed()) {
        match source.poll(Duration::from_millis(100)).await {
            Ok(signals) => read.extend(offsets(&signals)),
            Err(SourceError::Unavailable(message)) => told = message,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(read, (0..10).collect::<Vec<i64>>());
    assert!(told.contains("topic damaged, partition 0") && told.contains("CRC"), "{told}");
    fs::write(&log, &whole).unwrap();
    read.extend(offsets(&until(&mut source, |signal| is_end(signal, 30)).await));
    assert_eq!(read, (0..30).collect::<Vec<i64>>());
    source.close().await;
}
