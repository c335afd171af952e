//! The consumer group, on librdkafka's in-memory broker: shards that are assigned, started, revoked, lost, or
//! kept. This broker has no transactions; `tests/tests/kafka` tests them on real brokers.

mod letters;
mod unreadable;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prorata_connectors::kafka::{Connection, KafkaProducer, KafkaSettings, KafkaSource};
use prorata_schemas::Text;
use prorata_testkit::wait::{Deadline, PATIENCE};
use prorata_tests::kafka::{assigned, from, hurried, is_end, joined, messages, signals_for, until};
use prorata_worker::source::{Source, SourceError, SourceEvent, Start};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster(topics: &[&str], partitions: i32) -> Cluster {
    let cluster = MockCluster::new(1).unwrap();
    for topic in topics {
        cluster.create_topic(topic, partitions, 1).unwrap();
    }
    cluster
}

fn settings(cluster: &Cluster, topics: &[&str]) -> KafkaSettings {
    let connection =
        Connection { timeout: Duration::from_secs(5), ..Connection::plaintext(cluster.bootstrap_servers()) };
    hurried(connection, topics, "group")
}

fn produce(cluster: &Cluster, topic: &str, partition: i32, count: usize, size: usize) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("queue.buffering.max.messages", "1000000")
        .create()
        .unwrap();
    for number in 0..count {
        let value = format!("{number:size$}");
        let record = BaseRecord::to(topic).partition(partition).key("acme").payload(&value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

#[tokio::test]
async fn a_started_shard_is_read_from_given_offsets_and_reports_its_end_repeatedly() {
    let cluster = cluster(&["a", "b"], 2);
    produce(&cluster, "a", 1, 10, 1);
    produce(&cluster, "b", 1, 5, 1);
    let mut source = KafkaSource::connect(settings(&cluster, &["a", "b"])).await.unwrap();
    assert_eq!(source.partitions().await.unwrap(), BTreeMap::from([("a".into(), 2), ("b".into(), 2)]));
    assert_eq!(assigned(&mut source).await, BTreeSet::from([0, 1]));
    assert_eq!(signals_for(&mut source, Duration::from_secs(1)).await, []);
    let starts = BTreeMap::from([("a".into(), Start::At(7)), ("b".into(), Start::Earliest)]);
    source.start(1, starts).await.unwrap();
    let mut ends = 0;
    let seen = until(&mut source, |signal| {
        ends += usize::from(is_end(signal, 5));
        ends == 3
    })
    .await;
    let offsets = |topic: &str| -> Vec<i64> {
        messages(&seen).iter().filter(|one| &*one.topic == topic).map(|one| one.offset).collect()
    };
    assert_eq!((offsets("a"), offsets("b")), (vec![7, 8, 9], vec![0, 1, 2, 3, 4]));
    let first_end = seen.iter().position(|signal| is_end(signal, 10)).unwrap();
    let last_of_a = seen
        .iter()
        .rposition(|signal| messages(std::slice::from_ref(signal)).iter().any(|one| &*one.topic == "a"));
    assert!(last_of_a.unwrap() < first_end, "{seen:?}");
    produce(&cluster, "a", 1, 1, 1);
    let seen = until(&mut source, |signal| is_end(signal, 11)).await;
    assert_eq!(messages(&seen).len(), 1);
    source.close().await;
}

#[tokio::test]
async fn starting_further_shards_neither_skips_nor_repeats_messages_of_those_that_are_read() {
    let (partitions, count) = (6_u16, 3_000_usize);
    let cluster = cluster(&["a", "b"], partitions.into());
    for partition in 0..partitions {
        produce(&cluster, "a", partition.into(), count, 20);
        produce(&cluster, "b", partition.into(), count, 20);
    }
    let mut source = joined(settings(&cluster, &["a", "b"])).await;
    let mut offsets: BTreeMap<(Text, u16), Vec<i64>> = BTreeMap::new();
    let mut note = |signals: Vec<SourceEvent>| {
        for message in messages(&signals) {
            offsets.entry((message.topic.clone(), message.partition)).or_default().push(message.offset);
        }
        offsets.values().map(Vec::len).sum::<usize>()
    };
    for shard in 0..partitions {
        source.start(shard, from(&["a", "b"], Start::Earliest)).await.unwrap();
        note(source.poll(Duration::from_millis(50)).await.unwrap());
    }
    let (deadline, all) = (Deadline::start(), 2 * count * usize::from(partitions));
    while note(source.poll(Duration::from_millis(100)).await.unwrap()) < all {
        assert!(!deadline.passed());
    }
    note(signals_for(&mut source, Duration::from_secs(1)).await);
    let expected: Vec<i64> = (0..i64::try_from(count).unwrap()).collect();
    assert_eq!(offsets.len(), 2 * usize::from(partitions));
    assert!(offsets.values().all(|offsets| *offsets == expected));
    source.close().await;
}

#[tokio::test]
async fn a_released_shard_brings_nothing_more_and_may_be_started_again() {
    let cluster = cluster(&["a"], 2);
    produce(&cluster, "a", 0, 5_000, 100);
    produce(&cluster, "a", 1, 10, 1);
    let mut source = joined(settings(&cluster, &["a"])).await;
    source.start(0, from(&["a"], Start::Earliest)).await.unwrap();
    until(&mut source, |signal| matches!(signal, SourceEvent::Messages(_))).await;
    source.release(&[0]).await;
    assert_eq!(signals_for(&mut source, Duration::from_secs(1)).await, []);
    source.start(0, from(&["a"], Start::At(4_000))).await.unwrap();
    source.start(1, from(&["a"], Start::Earliest)).await.unwrap();
    let seen = until(&mut source, |signal| is_end(signal, 5_000)).await;
    let of_0: Vec<i64> =
        messages(&seen).iter().filter(|one| one.partition == 0).map(|one| one.offset).collect();
    assert_eq!(of_0, (4_000..5_000).collect::<Vec<_>>());
    source.close().await;
}

#[tokio::test]
async fn the_group_waits_until_revoked_shards_are_released() {
    let cluster = cluster(&["a", "b"], 4);
    produce(&cluster, "a", 0, 1_000, 10);
    let mut first = joined(settings(&cluster, &["a", "b"])).await;
    for shard in 0..4 {
        first.start(shard, from(&["a", "b"], Start::Earliest)).await.unwrap();
    }
    let mut second = KafkaSource::connect(settings(&cluster, &["a", "b"])).await.unwrap();
    let seen = until(&mut first, |signal| matches!(signal, SourceEvent::Revoked(_))).await;
    assert_eq!(seen.last(), Some(&SourceEvent::Revoked(vec![0, 1, 2, 3])));
    assert!(!first.assigned(2).await.unwrap());
    // The wait is longer than the session: the member stays in the group while the worker is busy.
    assert_eq!(signals_for(&mut second, Duration::from_secs(8)).await, []);
    assert_eq!(first.poll(Duration::from_millis(1)).await.unwrap(), []);
    first.release(&[0, 1]).await;
    assert_eq!(signals_for(&mut second, Duration::from_secs(1)).await, []);
    first.release(&[2, 3]).await;
    let [of_first, of_second] = shared([&mut first, &mut second]).await;
    assert_eq!(&of_first | &of_second, BTreeSet::from([0, 1, 2, 3]));
    let shard = *of_second.first().unwrap();
    assert!(second.assigned(shard).await.unwrap() && !first.assigned(shard).await.unwrap());
    first.close().await;
    second.close().await;
}

/// Returns the shards of two members once each has half of four shards. The in-memory broker may assign all
/// to the first member that joins, and take them back for the second.
async fn shared(members: [&mut KafkaSource; 2]) -> [BTreeSet<u16>; 2] {
    let (deadline, mut held) = (Deadline::start(), [BTreeSet::new(), BTreeSet::new()]);
    let mut members = members;
    while held.iter().any(|held| held.len() != 2) {
        for (member, held) in members.iter_mut().zip(&mut held) {
            for signal in member.poll(Duration::from_millis(100)).await.unwrap_or_default() {
                match signal {
                    SourceEvent::Assigned(shards) => *held = shards.into_iter().collect(),
                    SourceEvent::Revoked(shards) | SourceEvent::Lost(shards) => {
                        held.clear();
                        member.release(&shards).await;
                    }
                    _ => {}
                }
            }
        }
        assert!(!deadline.passed(), "{held:?}");
    }
    held
}

#[tokio::test]
async fn a_shard_that_is_not_released_in_time_is_taken() {
    let cluster = cluster(&["a"], 2);
    let mut hurried = settings(&cluster, &["a"]);
    hurried.revoke_timeout = Duration::from_secs(2);
    // The in-memory broker waits for about a session, then continues without a member that has not released
    // its shards. The other member would have both shards. A real broker waits for five minutes, longer than
    // `assigned`.
    hurried.session_timeout = Duration::from_secs(15);
    let mut first = joined(hurried.clone()).await;
    let mut second = KafkaSource::connect(hurried).await.unwrap();
    until(&mut first, |signal| matches!(signal, SourceEvent::Revoked(_))).await;
    assert_eq!(assigned(&mut second).await.len(), 1);
    first.close().await;
    second.close().await;
}

#[tokio::test]
async fn a_full_queue_stops_reading_and_keeps_membership() {
    let cluster = cluster(&["a"], 1);
    let count = 30_000;
    produce(&cluster, "a", 0, count, 100);
    let mut small = settings(&cluster, &["a"]);
    small.queue_bytes = 100_000;
    let mut source = joined(small).await;
    source.start(0, from(&["a"], Start::Earliest)).await.unwrap();
    // The wait is longer than a session: the member stays in the group although nobody polls.
    tokio::time::sleep(Duration::from_secs(9)).await;
    let waited = source.poll(Duration::ZERO).await.unwrap();
    let bytes: u64 = messages(&waited).iter().map(|message| message.bytes()).sum();
    assert!((100_000..1_000_000).contains(&bytes), "{bytes}");
    let rest = until(&mut source, |signal| is_end(signal, i64::try_from(count).unwrap())).await;
    let offsets: Vec<i64> =
        [&waited, &rest].into_iter().flat_map(|seen| messages(seen)).map(|one| one.offset).collect();
    assert_eq!(offsets, (0..i64::try_from(count).unwrap()).collect::<Vec<_>>());
    assert!(!rest.iter().any(|signal| matches!(
        signal,
        SourceEvent::Revoked(_) | SourceEvent::Lost(_) | SourceEvent::Assigned(_)
    )));
    source.close().await;
}

#[tokio::test]
async fn a_member_that_the_group_has_dropped_loses_its_shards_and_joins_again() {
    let cluster = cluster(&["a"], 2);
    produce(&cluster, "a", 0, 10, 1);
    let mut source = joined(settings(&cluster, &["a"])).await;
    source.start(0, from(&["a"], Start::Earliest)).await.unwrap();
    until(&mut source, |signal| is_end(signal, 10)).await;
    assert!(source.assigned(0).await.unwrap());
    cluster.request_errors(RDKafkaApiKey::Heartbeat, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID]);
    let seen =
        until(&mut source, |signal| matches!(signal, SourceEvent::Lost(_) | SourceEvent::Revoked(_))).await;
    assert_eq!(seen.last(), Some(&SourceEvent::Lost(vec![0, 1])));
    assert_eq!(assigned(&mut source).await, BTreeSet::from([0, 1]));
    source.start(0, from(&["a"], Start::At(9))).await.unwrap();
    let seen = until(&mut source, |signal| is_end(signal, 10)).await;
    assert_eq!(messages(&seen).len(), 1);
    source.close().await;
}

#[tokio::test]
async fn a_commit_that_the_group_refuses_says_that_the_shard_is_anothers() {
    let cluster = cluster(&["a"], 1);
    let mut source = joined(settings(&cluster, &["a"])).await;
    cluster
        .request_errors(RDKafkaApiKey::OffsetCommit, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION]);
    assert_eq!(source.assigned(0).await, Ok(false));
    assert_eq!(source.assigned(7).await, Ok(false));
    source.close().await;
}

#[tokio::test]
async fn a_static_member_that_another_one_replaced_is_fenced() {
    let cluster = cluster(&["a"], 1);
    let mut fixed = settings(&cluster, &["a"]);
    fixed.instance = Some("worker-0".into());
    let mut source = joined(fixed).await;
    cluster.request_errors(RDKafkaApiKey::Heartbeat, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID]);
    let deadline = Deadline::start();
    let mut seen = Vec::new();
    let error = loop {
        match source.poll(Duration::from_millis(100)).await {
            Ok(signals) => seen.extend(signals),
            Err(error) => break error,
        }
        assert!(!deadline.passed());
    };
    assert_eq!((seen, error), (vec![SourceEvent::Lost(vec![0])], SourceError::Fenced("worker-0".into())));
    source.close().await;
}

#[tokio::test]
async fn offsets_that_kafka_does_not_have_are_lost() {
    let cluster = cluster(&["a"], 1);
    produce(&cluster, "a", 0, 10, 1);
    let mut source = joined(settings(&cluster, &["a"])).await;
    source.start(0, from(&["a"], Start::At(11))).await.unwrap();
    let cause = "offset 11 no longer exists: Kafka has 0 to 10".to_owned();
    let lost = SourceEvent::OffsetsLost { topic: "a".into(), partition: 0, earliest: None, cause };
    let seen = until(&mut source, |event| matches!(event, SourceEvent::OffsetsLost { .. })).await;
    assert_eq!(seen, [lost]);
    assert_eq!(signals_for(&mut source, Duration::from_secs(1)).await, []);
    source.start(0, from(&["a"], Start::At(10))).await.unwrap();
    let seen = until(&mut source, |signal| is_end(signal, 10)).await;
    assert_eq!(messages(&seen).len(), 0);
    source.close().await;
}

#[tokio::test]
async fn an_unreachable_broker_does_not_count_as_the_end() {
    let cluster = cluster(&["a"], 1);
    produce(&cluster, "a", 0, 10, 1);
    let mut patient = settings(&cluster, &["a"]);
    patient.session_timeout = Duration::from_secs(60);
    let mut source = joined(patient).await;
    source.start(0, from(&["a"], Start::Earliest)).await.unwrap();
    until(&mut source, |signal| is_end(signal, 10)).await;
    cluster.broker_down(-1).unwrap();
    signals_for(&mut source, Duration::from_secs(1)).await;
    let (window, deadline) = (Deadline::after(Duration::from_secs(4)), Deadline::start());
    let (mut received, mut unavailable) = (Vec::new(), 0);
    while !window.passed() || (unavailable == 0 && !deadline.passed()) {
        match source.poll(Duration::from_millis(100)).await {
            Ok(signals) => received.extend(signals),
            Err(SourceError::Unavailable(_)) => unavailable += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(received.is_empty() && unavailable > 0, "{received:?} {unavailable}");
    cluster.broker_up(-1).unwrap();
    until(&mut source, |signal| is_end(signal, 10)).await;
    source.close().await;
}

#[tokio::test]
async fn closing_is_bounded_while_brokers_are_gone() {
    let cluster = cluster(&["a"], 1);
    let mut source = joined(settings(&cluster, &["a"])).await;
    source.start(0, from(&["a"], Start::Earliest)).await.unwrap();
    cluster.broker_down(-1).unwrap();
    source.commit(0, &BTreeMap::from([("a".into(), 0)]));
    // Nobody will ever answer, so it only returns if it is bounded.
    source.close().await;
    assert!(matches!(source.poll(Duration::ZERO).await, Ok(_) | Err(SourceError::Unavailable(_))));
}

#[tokio::test]
async fn next_offsets_are_committed_to_the_group() {
    let cluster = cluster(&["a"], 1);
    produce(&cluster, "a", 0, 10, 1);
    let mut source = joined(settings(&cluster, &["a"])).await;
    source.start(0, from(&["a"], Start::Earliest)).await.unwrap();
    source.commit(0, &BTreeMap::from([("a".into(), 8)]));
    assert!(source.assigned(0).await.unwrap());
    let other: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "group")
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition("a", 0);
    let committed = other.committed_offsets(list, PATIENCE).unwrap();
    assert_eq!(committed.find_partition("a", 0).unwrap().offset(), Offset::Offset(8));
    source.close().await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_reported() {
    let nobody = Connection { timeout: Duration::from_secs(3), ..Connection::plaintext("127.0.0.1:1") };
    let refused =
        KafkaSource::connect(KafkaSettings::new(nobody, vec!["a".into()], "group")).await.err().unwrap();
    let SourceError::Unavailable(message) = &refused else { panic!("{refused}") };
    assert!(message.contains("127.0.0.1:1") && message.contains("refused"), "{message}");
    let cluster = cluster(&["a"], 1);
    let unknown = KafkaSource::connect(settings(&cluster, &["a", "b"])).await.err().unwrap();
    let SourceError::Configuration(message) = &unknown else { panic!("{unknown}") };
    assert!(message.contains("has no topic b"), "{message}");
}

#[tokio::test]
async fn a_producer_waits_for_room_and_counts_what_the_brokers_have() {
    let cluster = cluster(&["a"], 4);
    let connection = settings(&cluster, &["a"]).connection;
    let brokers = connection.clone();
    let sent = tokio::task::spawn_blocking(move || {
        let producer = KafkaProducer::new(&brokers, PATIENCE).unwrap();
        for number in 0..250_000_u32 {
            producer.send("a", &(number % 16).to_be_bytes(), b"value").unwrap();
        }
        producer.flush().unwrap()
    });
    assert_eq!(sent.await.unwrap(), 250_000);
    cluster.broker_down(-1).unwrap();
    let failure = tokio::task::spawn_blocking(move || {
        let producer = KafkaProducer::new(&connection, Duration::from_secs(2)).unwrap();
        producer.send("a", b"key", b"value").unwrap();
        producer.flush().unwrap_err()
    });
    assert!(matches!(failure.await.unwrap(), SourceError::Unavailable(_)));
}
