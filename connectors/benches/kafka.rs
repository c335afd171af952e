//! The cost of taking a message from the client library. The source takes many messages by one call; the
//! library's Rust wrapper takes them one by one. Both copy the message out. One run on an in-memory broker
//! alternates between them.
//!
//! The output is processor time per message, of the reading thread and of the whole process, including the
//! broker. Wall time would measure the broker.

#![expect(clippy::unwrap_used, clippy::panic, reason = "benchmarks may")]

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prorata_connectors::kafka::{Connection, KafkaSettings, KafkaSource};
use prorata_tests::kafka::topic::bare_consumer;
use prorata_worker::source::{Message, Source, SourceEvent, Start};
use rdkafka::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::message::{Headers, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// The same allocator as in the program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PARTITIONS: u16 = 24;
const MESSAGES: u64 = 480_000;
const VALUE_BYTES: usize = 150;
const ROUNDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the processor time of a thread, in nanoseconds.
fn thread_nanos(thread: &str) -> u64 {
    let found = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap();
    found.split(' ').next().unwrap().parse().unwrap()
}

/// Returns the processor time of the process, including ended threads, in nanoseconds. The kernel counts it
/// in hundredths of a second.
fn process_nanos() -> u64 {
    let found = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = found.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap() * 10_000_000).sum()
}

/// Returns the most recently started thread with this name.
fn thread_named(name: &str) -> String {
    let threads = fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|thread| thread.unwrap().file_name().into_string().unwrap());
    let named = threads.filter(|thread| {
        fs::read_to_string(format!("/proc/self/task/{thread}/comm")).is_ok_and(|found| found.trim() == name)
    });
    named.max_by_key(|thread| thread.parse::<u64>().unwrap()).unwrap()
}

/// Measures the library's own calls, which take messages one by one, with the source's settings.
fn one_by_one(brokers: &str) -> (u64, u64) {
    let consumer = bare_consumer(brokers, "one-by-one");
    let mut all = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        all.add_partition_offset("events", partition.into(), Offset::Beginning).unwrap();
    }
    let (thread, process) = (thread_nanos("../../thread-self"), process_nanos());
    consumer.assign(&all).unwrap();
    let (mut count, deadline) = (0, Instant::now() + PATIENCE);
    let topic: prorata_schemas::Text = "events".into();
    while count < MESSAGES {
        assert!(Instant::now() < deadline);
        let Some(read) = consumer.poll(Duration::from_millis(100)) else { continue };
        let read = read.unwrap();
        let headers =
            read.headers().map(|headers| headers.iter().map(|one| (one.key.to_owned(), None)).collect());
        let message = Message {
            topic: topic.clone(),
            partition: u16::try_from(read.partition()).unwrap(),
            offset: read.offset(),
            timestamp_millis: read.timestamp().to_millis().unwrap_or(-1),
            key: read.key().map(Bytes::copy_from_slice),
            value: read.payload().map(Bytes::copy_from_slice),
            headers: headers.unwrap_or_default(),
        };
        std::hint::black_box(&message);
        count += 1;
    }
    (thread_nanos("../../thread-self") - thread, process_nanos() - process)
}

/// Measures the source, which takes many messages by one call.
async fn by_the_source(settings: &KafkaSettings) -> (u64, u64) {
    let mut source = KafkaSource::connect(settings.clone()).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while source.poll(Duration::from_millis(100)).await.unwrap().is_empty() {
        assert!(Instant::now() < deadline);
    }
    let reader = thread_named("kafka-group");
    let (thread, process) = (thread_nanos(&reader), process_nanos());
    for shard in 0..PARTITIONS {
        source.start(shard, BTreeMap::from([("events".into(), Start::Earliest)])).await.unwrap();
    }
    let mut count = 0;
    while count < MESSAGES {
        assert!(Instant::now() < deadline);
        for signal in source.poll(Duration::from_millis(100)).await.unwrap() {
            if let SourceEvent::Messages(messages) = signal {
                count += messages.len() as u64;
            }
        }
    }
    let spent = (thread_nanos(&reader) - thread, process_nanos() - process);
    source.close().await;
    spent
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("events", PARTITIONS.into(), 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("queue.buffering.max.messages", "1000000")
        .create()
        .unwrap();
    let value = "v".repeat(VALUE_BYTES);
    for number in 0..MESSAGES {
        let partition = i32::try_from(number % u64::from(PARTITIONS)).unwrap();
        let record = BaseRecord::to("events").partition(partition).key("organization-1").payload(&value);
        if let Err((error, _)) = producer.send(record) {
            panic!("{error}");
        }
    }
    producer.flush(PATIENCE).unwrap();
    let settings =
        KafkaSettings::new(Connection::plaintext(brokers.clone()), vec!["events".into()], "source");
    let (mut single, mut many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        single.push(one_by_one(&brokers));
        many.push(by_the_source(&settings).await);
    }
    let per_message = |spent: &[(u64, u64)]| {
        let reading = median(spent.iter().map(|(thread, _)| thread / MESSAGES).collect());
        (reading, median(spent.iter().map(|(_, process)| process / MESSAGES).collect()))
    };
    let (single, many) = (per_message(&single), per_message(&many));
    println!(
        "{MESSAGES} messages of {VALUE_BYTES} bytes, {ROUNDS} rounds, medians, ns of processor time a message"
    );
    println!("one by one     reading thread {:>5}, process {:>5}", single.0, single.1);
    println!("by the source  reading thread {:>5}, process {:>5}", many.0, many.1);
    let ratio = |single: u64, many: u64| single as f64 / many as f64;
    println!(
        "ratio          reading thread {:>5.2}, process {:>5.2}",
        ratio(single.0, many.0),
        ratio(single.1, many.1)
    );
}
