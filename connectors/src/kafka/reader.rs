//! A reader of topics from an offset to their end, without joining a group.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::Text;
use prorata_worker::dead_letters::TopicReader;
use prorata_worker::names::Shard;
use prorata_worker::source::{Message, SourceError};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::admin::MetadataClient;
use super::client::context::{Watch, lock};
use super::client::failure;
use super::client::settings::{Connection, KafkaSettings};

/// Number of bytes of messages that one call reads.
const READ_BYTES: u64 = 8 << 20;

/// The time that a poll waits.
const POLL: Duration = Duration::from_millis(100);

/// Maximum time that a partition may be silent before its end is reached, in timeouts of the connection.
const PATIENCE: u32 = 3;

/// A client that reads topics from a given offset to their end.
pub struct KafkaReader(Arc<Mutex<Clients>>);

struct Clients {
    metadata: MetadataClient,
    consumer: BaseConsumer<Watch>,
    connection: Connection,
}

impl KafkaReader {
    /// Makes the clients, which connect in the background. The brokers see the name of the settings' group,
    /// but the clients do not join the group.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if the settings can never work.
    pub fn new(settings: &KafkaSettings) -> Result<Self, SourceError> {
        let connection = settings.connection.clone();
        let metadata = MetadataClient::new(&connection)?;
        let consumer = settings
            .member()?
            .create_with_context(Watch::new(&connection))
            .map_err(|error| failure::creation(&error))?;
        Ok(Self(Arc::new(Mutex::new(Clients { metadata, consumer, connection }))))
    }

    /// Runs a request on a thread that may block.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Clients) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let clients = Arc::clone(&self.0);
        let asked = tokio::task::spawn_blocking(move || question(&lock(&clients))).await;
        asked.map_err(|error| SourceError::Unavailable(error.to_string()))?
    }
}

#[async_trait]
impl TopicReader for KafkaReader {
    async fn ranges(&self, topic: &Text) -> Result<Vec<(i64, i64)>, SourceError> {
        let topic = topic.clone();
        self.ask(move |clients| {
            let counts = clients.metadata.partitions(std::slice::from_ref(&topic))?;
            let count = counts.get(&topic).copied().unwrap_or_default();
            (0..count.cast_signed()).map(|partition| clients.metadata.range(&topic, partition)).collect()
        })
        .await
    }

    async fn read(
        &self,
        topic: &Text,
        partition: Shard,
        offsets: Range<i64>,
    ) -> Result<(Vec<Message>, i64), SourceError> {
        let topic = topic.clone();
        self.ask(move |clients| clients.read(&topic, partition, offsets)).await
    }
}

impl Clients {
    fn read(
        &self,
        topic: &Text,
        partition: Shard,
        offsets: Range<i64>,
    ) -> Result<(Vec<Message>, i64), SourceError> {
        let mut list = TopicPartitionList::new();
        let assigned = list
            .add_partition_offset(topic, i32::from(partition), Offset::Offset(offsets.start))
            .and_then(|()| self.consumer.assign(&list));
        assigned.map_err(|error| self.failed(topic, partition, &error))?;
        let patience = PATIENCE * self.connection.timeout;
        let (mut messages, mut bytes, mut next, mut heard) = (Vec::new(), 0, offsets.start, Instant::now());
        while next < offsets.end && bytes < READ_BYTES {
            match self.consumer.poll(POLL) {
                Some(Ok(read)) if read.topic() == &**topic && read.partition() == i32::from(partition) => {
                    heard = Instant::now();
                    next = read.offset() + 1;
                    if read.offset() < offsets.end {
                        let message = message(topic, partition, &read);
                        bytes += message.bytes();
                        messages.push(message);
                    }
                }
                // All records before the end were read: only offsets without a record are left.
                Some(Err(KafkaError::PartitionEOF(of))) if of == i32::from(partition) => next = offsets.end,
                Some(Err(error)) => match self.failed(topic, partition, &error) {
                    SourceError::Unavailable(reason) => tracing::debug!(reason, "polling again"),
                    failure => return Err(failure),
                },
                Some(Ok(_)) | None => {}
            }
            if heard.elapsed() > patience {
                return Err(SourceError::Unavailable(format!(
                    "{}: topic {topic}, partition {partition}: no data for {} s",
                    self.connection.brokers,
                    patience.as_secs()
                )));
            }
        }
        Ok((messages, next.min(offsets.end)))
    }

    fn failed(&self, topic: &Text, partition: Shard, error: &KafkaError) -> SourceError {
        let reason = format!("topic {topic}, partition {partition}: {error}");
        match error.rdkafka_error_code() {
            Some(code) => failure::running(&self.connection, code, &reason),
            None => SourceError::Unavailable(format!("{}: {reason}", self.connection.brokers)),
        }
    }
}

fn message(topic: &Text, partition: Shard, read: &BorrowedMessage<'_>) -> Message {
    let headers = read.headers().into_iter().flat_map(|headers| headers.iter());
    Message {
        topic: topic.clone(),
        partition,
        offset: read.offset(),
        timestamp_millis: read.timestamp().to_millis().unwrap_or(-1),
        key: read.key().map(Bytes::copy_from_slice),
        value: read.payload().map(Bytes::copy_from_slice),
        headers: headers.map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect(),
    }
}
