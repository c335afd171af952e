//! The worker's view of Kafka, as traits: messages of assigned shards, their decoding, and the topic of dead
//! letters.
//!
//! A shard is one partition number of all topics. An implementation of [`Source`] handles poll, pause and
//! assignment in one place. It stays a member of the group, however long the worker takes between two calls.
//! It holds only a limited number of bytes: beyond the limit it pauses the consumer.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::reject::{Reason, Reject, excerpt};
use serde::{Deserialize, Serialize};

use super::dead_letter::{DeadLetter, Origin, Rejected};
use super::error::ErrorKind;
use crate::names::Shard;

/// A message's header: its name and, if it has one, its value.
pub type Header = (String, Option<Vec<u8>>);

/// One message of a topic partition. Partition numbers are shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message's topic.
    pub topic: Text,
    /// The message's partition.
    pub partition: Shard,
    /// The message's offset.
    pub offset: i64,
    /// The broker's or the producer's timestamp in milliseconds since the epoch; -1 if there is none.
    pub timestamp_millis: i64,
    /// The message's key. Messages that were fetched together share one block of memory.
    pub key: Option<Bytes>,
    /// The message's value, in the same block of memory as the key; `None` for a tombstone.
    pub value: Option<Bytes>,
    /// The message's headers, in order.
    pub headers: Vec<Header>,
}

impl Message {
    /// Returns the approximate number of bytes that the message takes in memory.
    pub fn bytes(&self) -> u64 {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let header = |(name, value): &Header| name.len() + value.as_ref().map_or(0, Vec::len) + 48;
        let headers: usize = self.headers.iter().map(header).sum();
        (length(&self.key) + length(&self.value) + headers + 128) as u64
    }

    /// Returns the same message in memory of its own. Otherwise, one kept message would keep all messages in
    /// memory that were fetched with it.
    #[must_use]
    pub fn detached(self) -> Self {
        let copy = |bytes: Option<Bytes>| bytes.map(|bytes| Bytes::copy_from_slice(&bytes));
        Self { key: copy(self.key), value: copy(self.value), ..self }
    }

    /// Returns the bytes to be decoded to an event.
    ///
    /// # Errors
    /// If the message is a tombstone, which is not an event.
    pub fn event_bytes(&self) -> Result<&[u8], Reject> {
        self.value.as_deref().ok_or_else(|| Reject::malformed("a message without a value is not an event"))
    }

    /// Checks that the key is the organization of the event.
    ///
    /// # Errors
    /// Returns `key_mismatch` if it is not.
    pub fn check_key(&self, organization_id: &str) -> Result<(), Reject> {
        if self.key.as_deref() == Some(organization_id.as_bytes()) {
            return Ok(());
        }
        let key = self.key.as_deref().map(String::from_utf8_lossy);
        let key =
            key.map_or("none".to_owned(), |key| format!("'{}'", key.chars().take(100).collect::<String>()));
        let organization_id = excerpt(organization_id);
        let message = format!(
            "the message key is {key}, but its organization_id is '{organization_id}'; they must be equal"
        );
        Err(Reject::new(Reason::KeyMismatch, message))
    }
}

/// The place at which reading of a topic partition starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the earliest message that Kafka still has.
    Earliest,
    /// At this offset, which Kafka must still have, unless it is the end of the log.
    At(i64),
}

/// An event that a source reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// The group assigns these shards, in addition to the shards assigned before. No message of a shard is
    /// read until [`Source::start`] is called for the shard.
    Assigned(Vec<Shard>),
    /// The group revokes these shards. It waits until [`Source::release`] names them, but no longer than its
    /// session timeout; after that, they are released anyway. No message of these shards follows.
    Revoked(Vec<Shard>),
    /// The group has already taken these shards away, and others may own them. No message of these shards
    /// follows. When this process is a member again, the source reports [`SourceEvent::Assigned`], even if no
    /// shard is assigned.
    Lost(Vec<Shard>),
    /// Messages of one topic partition, in ascending order of offset. Offsets may have gaps.
    Messages(Vec<Message>),
    /// A broker has just confirmed that `offset` is the end of the topic partition, and all messages before
    /// it were reported. The event is repeated every few seconds, as long as the broker confirms it.
    End {
        /// The topic.
        topic: Text,
        /// The partition.
        partition: Shard,
        /// The partition's next offset.
        offset: i64,
    },
    /// Kafka does not have the offset at which reading was to start or continue.
    OffsetsLost {
        /// The topic.
        topic: Text,
        /// The partition.
        partition: Shard,
        /// The earliest offset that Kafka has, if the requested offset is known to lie before it, for example
        /// after retention. `None` in all other cases, such as an offset past the end: then the log is not
        /// the log that was read before.
        earliest: Option<i64>,
        /// The reason that Kafka gave.
        cause: String,
    },
    /// A batch of messages cannot be read, however often it is fetched, because it cannot be decompressed or
    /// is damaged. No further message of the topic partition is read until its shard is started again.
    Unreadable {
        /// The topic.
        topic: Text,
        /// The partition.
        partition: Shard,
        /// The batch's first offset.
        offset: i64,
        /// The reason.
        cause: String,
    },
    /// The number of partitions of a topic has changed, according to the brokers a few seconds ago.
    Partitions {
        /// The topic.
        topic: Text,
        /// The present number of partitions; at least one.
        partitions: u32,
    },
}

/// A failure of a source, which did not carry out a request or did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Kafka is unavailable; the request may be repeated.
    #[error("Kafka is unavailable: {0}")]
    Unavailable(String),
    /// The configuration can never work: wrong credentials, no such topic. The message says how to fix it.
    #[error("{0}")]
    Configuration(String),
    /// A message is larger than the topic accepts; all other messages of the same call have been sent.
    #[error("{0}")]
    TooLarge(String),
    /// Another member with the same static membership has taken over, so this member must stop.
    #[error(
        "another member of the consumer group uses the same kafka.group_instance_id: {0}; give each worker \
         its own"
    )]
    Fenced(String),
}

impl SourceError {
    /// Returns whether the request may be repeated.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// A consumer group, and the Kafka cluster that it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerId {
    /// The group.
    pub group_id: String,
    /// The cluster's id; `None` if its brokers report none.
    pub cluster_id: Option<String>,
}

impl ConsumerId {
    /// Returns whether both have the same group and the same cluster. An unknown cluster counts as the same.
    pub fn is(&self, other: &Self) -> bool {
        let cluster = self.cluster_id.as_ref().zip(other.cluster_id.as_ref());
        self.group_id == other.group_id && cluster.is_none_or(|(one, other)| one == other)
    }
}

impl fmt::Display for ConsumerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.group_id, self.cluster_id.as_deref().unwrap_or_default())
    }
}

/// Messages of the shards that a consumer group assigns.
#[async_trait]
pub trait Source: Send {
    /// Returns the consumer group of this member, and its cluster.
    async fn consumer(&mut self) -> Result<ConsumerId, SourceError>;

    /// Returns the number of partitions of every configured topic; 0 if there is no such topic.
    async fn partitions(&mut self) -> Result<BTreeMap<Text, u32>, SourceError>;

    /// Returns the events since the last call, in order; waits up to `wait` for an event. Returns at most a
    /// few MiB of messages, however many there are.
    async fn poll(&mut self, wait: Duration) -> Result<Vec<SourceEvent>, SourceError>;

    /// Starts reading an assigned shard, each of its topic partitions at the given place.
    async fn start(&mut self, shard: Shard, from: BTreeMap<Text, Start>) -> Result<(), SourceError>;

    /// Stops reading shards, and releases them if the group waits for that. Messages that were read but not
    /// polled yet are dropped and never returned. A released shard that is still assigned may be started
    /// again.
    async fn release(&mut self, shards: &[Shard]);

    /// Asks the group whether it still assigns the shard to this member, and returns the answer.
    async fn assigned(&mut self, shard: Shard) -> Result<bool, SourceError>;

    /// Reports the next offsets of the shard's topic partitions to the group. Only lag monitors use these
    /// offsets; the worker never reads them back. The source handles errors itself.
    fn commit(&mut self, shard: Shard, next: &BTreeMap<Text, i64>);

    /// Leaves the group for good.
    async fn close(&mut self);
}

/// The reason that a message was not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeFailure {
    /// The message cannot become an event.
    Reject(Reject),
    /// The writer's schema has this id in the registry, and is not known yet: fetch it, then decode again.
    NeedsSchema(u32),
}

/// A failure of the schema registry. A schema that the registry does not have is an error only for a short
/// time; see [`MessageDecoder::fetch`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the schema registry {}: {message}",
    if kind.is_retryable() { "is unavailable" } else { "cannot be used" }
)]
pub struct RegistryError {
    /// The kind of the error. If it is transient, the registry may be asked again. If it is permission or
    /// invalid, a person must change something.
    pub kind: ErrorKind,
    /// The description of the error, without the registry's name.
    pub message: String,
    /// Whether the error concerns only this schema, and the registry answers for other schemas.
    pub is_of_schema: bool,
}

impl RegistryError {
    /// Returns the error of a failure that may end on its own.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Transient, message: message.into(), is_of_schema: false }
    }

    /// Returns an error about one schema, which ends when the schema counts as unknown.
    pub fn of_schema(message: impl Into<String>) -> Self {
        Self { is_of_schema: true, ..Self::transient(message) }
    }
}

/// A decoder of the values of messages into events.
#[async_trait]
pub trait MessageDecoder: Send + Sync {
    /// Decodes a value. Never waits.
    fn decode<'a>(&self, value: &'a [u8]) -> Result<EventRecordRef<'a>, DecodeFailure>;

    /// Asks the registry once for a schema, within seconds. After success, [`Self::decode`] knows the schema.
    /// If the registry returns other schemas but not this one, `fetch` first returns an error of this schema:
    /// one node of the registry may know less than another. If the registry still lacks the schema some
    /// seconds later, `decode` rejects messages with it as `unknown_schema`.
    async fn fetch(&self, schema_id: u32) -> Result<(), RegistryError>;
}

impl DeadLetter {
    /// Returns the dead letter of a message; its bytes are the message's value.
    pub fn of(message: &Message, reject: Reject) -> Self {
        let origin = Origin::Message {
            topic: message.topic.to_string(),
            partition: message.partition.into(),
            offset: message.offset,
            timestamp_millis: message.timestamp_millis,
            key: message.key.as_deref().map(<[u8]>::to_vec),
            headers: message.headers.clone(),
        };
        let bytes = message.value.as_deref().unwrap_or_default().to_vec();
        Self { origin, rejected: Rejected { reject, bytes } }
    }
}

/// The topic of dead letters.
#[async_trait]
pub trait DeadLetterTopic: Send + Sync {
    /// Sends dead letters with their original bytes, key and headers, and with headers for reason and source.
    /// Returns when the brokers have all of them. [`SourceError::TooLarge`] means that the brokers have all
    /// dead letters except the ones that are too large.
    async fn send(&self, dead_letters: &[DeadLetter]) -> Result<(), SourceError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_kept_does_not_keep_those_that_came_with_it() {
        let block = Bytes::from(b"key value of another".to_vec());
        let message = Message {
            topic: "t".into(),
            partition: 1,
            offset: 2,
            timestamp_millis: 3,
            key: Some(block.slice(..3)),
            value: Some(block.slice(4..9)),
            headers: vec![("name".into(), Some(b"text".to_vec()))],
        };
        let kept = message.clone().detached();
        assert_eq!(kept, message);
        drop(message);
        assert!(block.is_unique(), "the kept message shares the block");
    }
}
