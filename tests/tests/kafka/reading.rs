//! Reads real topics with transactions, deleted records and keys.

use std::collections::BTreeMap;
use std::time::Duration;

use prorata_connectors::kafka::{KafkaProducer, KafkaSource};
use prorata_testkit::wait::Deadline;
use prorata_worker::root::Root;
use prorata_worker::source::{Source, SourceEvent, Start};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::{
    PATIENCE, assigned, connection, from, is_end, joined, messages, offsets, producer, send, settings,
    signals_for, topics, until, variable,
};

/// Deletes a topic partition's first records.
pub async fn delete_before(topic: &str, partition: i32, offset: i64) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", variable("PRORATA_TEST_KAFKA")).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
    let deleted = admin.delete_records(&list, &AdminOptions::new()).await.unwrap();
    deleted.find_partition(topic, partition).unwrap().error().unwrap();
}

#[tokio::test]
async fn only_committed_messages_are_read_and_the_end_precedes_open_ones() {
    topics(&["transactions"], 1).await;
    let transaction = |id: &str| {
        let producer = producer(&[("transactional.id", id)]);
        producer.init_transactions(PATIENCE).unwrap();
        producer.begin_transaction().unwrap();
        send(&producer, "transactions", 0, 5);
        producer
    };
    transaction("one").commit_transaction(PATIENCE).unwrap();
    transaction("two").abort_transaction(PATIENCE).unwrap();
    let mut source = joined(settings(&["transactions"])).await;
    source.start(0, from(&["transactions"], Start::Earliest)).await.unwrap();
    // Five messages and a marker, twice.
    let seen = until(&mut source, |signal| is_end(signal, 12)).await;
    assert_eq!(offsets(&seen), [0, 1, 2, 3, 4]);
    let open = transaction("three");
    let mut seen = until(&mut source, |event| is_end(event, 12)).await;
    seen.extend(signals_for(&mut source, Duration::from_secs(2)).await);
    assert!(seen.iter().all(|signal| is_end(signal, 12)), "{seen:?}");
    open.commit_transaction(PATIENCE).unwrap();
    let seen = until(&mut source, |signal| is_end(signal, 18)).await;
    assert_eq!(offsets(&seen), [12, 13, 14, 15, 16]);
    // A marker follows the last message: the source continues after it all the same.
    source.release(&[0]).await;
    source.start(0, from(&["transactions"], Start::At(17))).await.unwrap();
    let seen = until(&mut source, |signal| is_end(signal, 18)).await;
    assert!(messages(&seen).is_empty());
    source.close().await;
}

#[tokio::test]
async fn deleted_records_and_offsets_past_the_end_are_lost_offsets() {
    topics(&["kept", "cut"], 1).await;
    let plain = producer(&[]);
    send(&plain, "kept", 0, 10);
    send(&plain, "cut", 0, 10);
    delete_before("cut", 0, 6).await;
    let mut source = joined(settings(&["kept", "cut"])).await;
    for (kept, cut, topic, cause) in [
        (Start::At(10), Start::At(5), "cut", "offset 5 no longer exists: Kafka has 6 to 10"),
        (Start::At(11), Start::At(10), "kept", "offset 11 no longer exists: Kafka has 0 to 10"),
    ] {
        source.start(0, BTreeMap::from([("kept".into(), kept), ("cut".into(), cut)])).await.unwrap();
        let (mut lost, mut ended) = (false, false);
        let mut seen = until(&mut source, |event| {
            lost |= matches!(event, SourceEvent::OffsetsLost { .. });
            ended |= is_end(event, 10);
            lost && ended
        })
        .await;
        seen.extend(signals_for(&mut source, Duration::from_secs(1)).await);
        // The other topic is read.
        let earlier = seen.len();
        seen.retain(|signal| !is_end(signal, 10));
        assert!(seen.len() < earlier);
        assert_eq!(
            seen,
            [SourceEvent::OffsetsLost {
                topic: topic.into(),
                partition: 0,
                earliest: (topic == "cut").then_some(6),
                cause: cause.into()
            }]
        );
    }
    source.start(0, from(&["kept", "cut"], Start::Earliest)).await.unwrap();
    let mut ended = BTreeMap::new();
    let seen = until(&mut source, |signal| {
        if let SourceEvent::End { topic, offset, .. } = signal {
            ended.insert(topic.clone(), *offset);
        }
        ended.len() == 2
    })
    .await;
    assert_eq!((messages(&seen).len(), ended.values().sum::<i64>()), (14, 20));
    source.close().await;
}

#[tokio::test]
async fn records_that_vanish_while_they_are_read_are_lost_offsets() {
    topics(&["vanishing"], 1).await;
    let plain = producer(&[]);
    send(&plain, "vanishing", 0, 20_000);
    // These messages are more than the library fetches ahead.
    let large = "x".repeat(100_000);
    for _ in 0..400 {
        let record = BaseRecord::to("vanishing").partition(0).key("acme").payload(&large);
        plain.send(record).map_err(|(error, _)| error).unwrap();
        plain.poll(Duration::from_millis(1));
    }
    plain.flush(PATIENCE).unwrap();
    let mut small = settings(&["vanishing"]);
    small.queue_bytes = 10_000;
    let mut source = joined(small).await;
    source.start(0, from(&["vanishing"], Start::Earliest)).await.unwrap();
    let mut read = offsets(&until(&mut source, |signal| matches!(signal, SourceEvent::Messages(_))).await);
    delete_before("vanishing", 0, 20_399).await;
    let seen = until(&mut source, |signal| matches!(signal, SourceEvent::OffsetsLost { .. })).await;
    read.extend(offsets(&seen));
    let next = i64::try_from(read.len()).unwrap();
    assert_eq!(read, (0..next).collect::<Vec<_>>());
    let Some(SourceEvent::OffsetsLost { cause, .. }) = seen.last() else { panic!("{:?}", seen.last()) };
    assert!(cause.starts_with(&format!("offset {next}: ")), "{cause}");
    assert!(messages(&signals_for(&mut source, Duration::from_secs(2)).await).is_empty());
    source.close().await;
}

#[tokio::test]
async fn messages_go_to_the_partition_that_java_clients_choose() {
    topics(&["keyed"], 16).await;
    let sent = tokio::task::spawn_blocking(|| {
        let producer = KafkaProducer::new(&connection(), PATIENCE).unwrap();
        for number in 0..5_000 {
            producer.send("keyed", format!("organization-{}", number % 50).as_bytes(), b"value").unwrap();
        }
        producer.flush().unwrap()
    });
    assert_eq!(sent.await.unwrap(), 5_000);
    let mut source = KafkaSource::connect(settings(&["keyed"])).await.unwrap();
    for shard in assigned(&mut source).await {
        source.start(shard, from(&["keyed"], Start::Earliest)).await.unwrap();
    }
    let root = Root::new(16);
    let (mut count, mut wrong) = (0, Vec::new());
    let deadline = Deadline::start();
    while count < 5_000 {
        let seen = source.poll(Duration::from_millis(100)).await.unwrap();
        for message in messages(&seen) {
            count += 1;
            let key = std::str::from_utf8(message.key.as_deref().unwrap()).unwrap();
            if root.shard_of(key) != message.partition {
                wrong.push(key.to_owned());
            }
        }
        assert!(!deadline.passed());
    }
    assert_eq!((count, wrong), (5_000, Vec::<String>::new()));
    source.close().await;
}
