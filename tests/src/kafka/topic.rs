//! Reads everything that a topic has, on brokers in memory and on real ones.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use prorata_connectors::kafka::fetch_settings;
use prorata_testkit::wait::{Deadline, PATIENCE};
use prorata_worker::source::Message;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// Creates a plain consumer of the client library with the fetch settings of a source. It is the baseline for
/// measuring a source.
pub fn bare_consumer(brokers: &str, group: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", group).set("enable.auto.commit", "false");
    for (key, value) in fetch_settings() {
        config.set(key, value);
    }
    config.create().unwrap()
}

/// Returns all messages that a topic has now, ordered within each partition.
///
/// # Errors
/// If the brokers do not answer.
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
    let (deadline, mut found) = (Deadline::start(), BTreeMap::new());
    while !waiting.is_empty() {
        assert!(!deadline.passed(), "{waiting:?} of {topic} are not read");
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
        timestamp_millis: message.timestamp().to_millis().unwrap_or(-1),
        key: message.key().map(Bytes::copy_from_slice),
        value: message.payload().map(Bytes::copy_from_slice),
        headers: headers.map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect(),
    })
}
