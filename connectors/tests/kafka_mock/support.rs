//! Listening to sources and to topics of dead letters, on brokers in memory and on real ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use prorata_connectors::kafka::{Connection, KafkaSettings, KafkaSource};
use prorata_schemas::Text;
use prorata_worker::source::{Message, Signal, Source, Start};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientConfig, Timestamp};

/// Longest that anything may take here.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Settings of a group in a hurry.
pub fn hurried(connection: Connection, topics: &[&str], group: impl Into<String>) -> KafkaSettings {
    let topics = topics.iter().map(|&topic| topic.into()).collect();
    let mut settings = KafkaSettings::new(connection, topics, group);
    settings.session_timeout = Duration::from_secs(6);
    settings.revoke_timeout = Duration::from_secs(20);
    settings.end_every = Duration::from_millis(500);
    settings
}

/// Signals until the wish is granted.
pub async fn until(source: &mut KafkaSource, mut granted: impl FnMut(&Signal) -> bool) -> Vec<Signal> {
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

pub async fn signals_for(source: &mut KafkaSource, time: Duration) -> Vec<Signal> {
    let (deadline, mut seen) = (Instant::now() + time, Vec::new());
    while Instant::now() < deadline {
        seen.extend(source.poll(Duration::from_millis(100)).await.unwrap_or_default());
    }
    seen
}

pub async fn assigned(source: &mut KafkaSource) -> BTreeSet<u16> {
    let seen = until(source, |signal| matches!(signal, Signal::Assigned(_))).await;
    let Some(Signal::Assigned(shards)) = seen.last() else { panic!("{seen:?}") };
    shards.iter().copied().collect()
}

pub async fn joined(settings: KafkaSettings) -> KafkaSource {
    let mut source = KafkaSource::connect(settings).await.unwrap();
    assigned(&mut source).await;
    source
}

pub fn from(topics: &[&str], start: Start) -> BTreeMap<Text, Start> {
    topics.iter().map(|&topic| (topic.into(), start)).collect()
}

pub fn messages(signals: &[Signal]) -> Vec<&Message> {
    fn of(signal: &Signal) -> &[Message] {
        if let Signal::Messages(messages) = signal { messages } else { &[] }
    }
    signals.iter().flat_map(of).collect()
}

pub fn is_end(signal: &Signal, at: i64) -> bool {
    matches!(signal, Signal::End { offset, .. } if *offset == at)
}

/// All messages that a topic has now, those of each partition in their order.
pub async fn all_messages(brokers: String, topic: String) -> Result<Vec<Message>, String> {
    let read = move || read(&brokers, &topic).map_err(|error| error.to_string());
    tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?
}

fn read(brokers: &str, topic: &str) -> Result<Vec<Message>, Box<dyn std::error::Error>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "reads-all")
        .set("enable.auto.commit", "false")
        .create()?;
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
    let (mut list, mut waiting) = (TopicPartitionList::new(), BTreeMap::new());
    for partition in partitions.map(|partition| partition.id()) {
        let (low, high) = consumer.fetch_watermarks(topic, partition, PATIENCE)?;
        if low < high {
            list.add_partition_offset(topic, partition, Offset::Offset(low))?;
            waiting.insert(partition, high);
        }
    }
    consumer.assign(&list)?;
    let (deadline, mut found) = (Instant::now() + PATIENCE, BTreeMap::new());
    while !waiting.is_empty() {
        assert!(Instant::now() < deadline, "{waiting:?} of {topic} are not told");
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message?;
        if waiting.get(&message.partition()).is_some_and(|high| message.offset() + 1 >= *high) {
            waiting.remove(&message.partition());
        }
        found.insert((message.partition(), message.offset()), owned(&message)?);
    }
    Ok(found.into_values().collect())
}

fn owned(message: &BorrowedMessage<'_>) -> Result<Message, Box<dyn std::error::Error>> {
    let headers = message.headers().into_iter().flat_map(Headers::iter);
    Ok(Message {
        topic: message.topic().into(),
        partition: message.partition().try_into()?,
        offset: message.offset(),
        timestamp_millis: Timestamp::to_millis(message.timestamp()).unwrap_or(-1),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect(),
    })
}
