//! Damages a batch of messages on a broker's disk. The client library reports the damage and continues after
//! it. The source does not continue. It fetches the batch again, and then reports the position of the batch.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use prorata_worker::source::{Source, SourceEvent, Start};
use rdkafka::producer::{BaseRecord, Producer};
use serde_json::Value;

use crate::{
    PATIENCE, from, is_end, joined, offsets, producer, settings, signals_for, topics, until, variable,
};

/// Returns the file with the first messages of the topic's only partition, on whichever broker has it.
fn log_of(topic: &str) -> PathBuf {
    let brokers = fs::read(variable("PRORATA_TEST_KAFKA_BROKERS")).unwrap();
    let brokers: Vec<Value> = serde_json::from_slice(&brokers).unwrap();
    let folders = brokers.iter().map(|broker| PathBuf::from(broker["log_dir"].as_str().unwrap()));
    let logs = folders.map(|folder| folder.join(format!("{topic}-0")).join("00000000000000000000.log"));
    logs.into_iter().find(|log| log.exists()).unwrap()
}

#[tokio::test]
async fn damaged_messages_are_reported_with_their_place_instead_of_skipped() {
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
    let seen = until(&mut source, |signal| matches!(signal, SourceEvent::Unreadable { .. })).await;
    let mut read = offsets(&seen);
    assert_eq!(read, (0..10).collect::<Vec<i64>>());
    let Some(SourceEvent::Unreadable { topic, partition, offset, cause }) = seen.last() else { panic!() };
    assert_eq!((&**topic, *partition, *offset), ("damaged", 0, 10));
    assert!(cause.contains("CRC"), "{cause}");
    let later = signals_for(&mut source, Duration::from_secs(2)).await;
    assert_eq!(later, [], "nothing more is read of it");
    fs::write(&log, &whole).unwrap();
    source.start(0, from(&["damaged"], Start::At(10))).await.unwrap();
    read.extend(offsets(&until(&mut source, |signal| is_end(signal, 30)).await));
    assert_eq!(read, (0..30).collect::<Vec<i64>>());
    source.close().await;
}
