//! A batch of 3 kB that unpacks to more than the client accepts.

use prorata_connectors::kafka::KafkaSource;
use prorata_testkit::wait::PATIENCE;
use prorata_tests::kafka::{from, is_end, joined, messages, until};
use prorata_worker::source::{Source, SourceEvent, Start};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::{Cluster, cluster, produce, settings};

/// Number of bytes of the message: more than `receive.message.max.bytes`.
const ZEROS: usize = 110 << 20;

fn produce_zeros(cluster: &Cluster, topic: &str) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("message.max.bytes", "1000000000")
        .set("queue.buffering.max.kbytes", "2000000")
        .set("compression.type", "zstd")
        .create()
        .unwrap();
    let zeros = vec![0; ZEROS];
    let record = BaseRecord::to(topic).partition(0).key("acme").payload(&zeros);
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(PATIENCE).unwrap();
}

#[tokio::test]
async fn a_batch_that_cannot_be_unpacked_is_reported_and_other_partitions_continue() {
    let cluster = cluster(&["a"], 2);
    produce(&cluster, "a", 0, 3, 1);
    produce_zeros(&cluster, "a");
    produce(&cluster, "a", 0, 2, 1);
    produce(&cluster, "a", 1, 5, 1);
    let mut source: KafkaSource = joined(settings(&cluster, &["a"])).await;
    source.start(0, from(&["a"], Start::Earliest)).await.unwrap();
    source.start(1, from(&["a"], Start::Earliest)).await.unwrap();
    let seen = until(&mut source, |signal| matches!(signal, SourceEvent::Unreadable { .. })).await;
    let found = seen.iter().find_map(|signal| match signal {
        SourceEvent::Unreadable { topic, partition, offset, cause } => {
            Some((topic, partition, offset, cause))
        }
        _ => None,
    });
    let (topic, partition, offset, cause) = found.unwrap();
    assert_eq!((&**topic, *partition, *offset), ("a", 0, 3));
    assert!(cause.contains("Decompression"), "{cause}");
    let of_0 =
        messages(&seen).iter().filter(|one| one.partition == 0).map(|one| one.offset).collect::<Vec<_>>();
    assert_eq!(of_0, [0, 1, 2], "what lies before it, once");
    produce(&cluster, "a", 1, 1, 1);
    until(&mut source, |signal| is_end(signal, 6)).await;
    source.start(0, from(&["a"], Start::At(4))).await.unwrap();
    let seen =
        until(&mut source, |signal| matches!(signal, SourceEvent::End { partition: 0, offset: 6, .. })).await;
    let of_0 =
        messages(&seen).iter().filter(|one| one.partition == 0).map(|one| one.offset).collect::<Vec<_>>();
    assert_eq!(of_0, [4, 5]);
    source.close().await;
}
