//! What the worker needs from Kafka, as traits: messages of the shards that the consumer group assigns,
//! decoding, and the topic of dead letters.
//!
//! A shard is one partition number of all topics. An implementation of [`Source`] owns poll, pause and
//! assignment in one place, keeps membership of the group alive however long the worker takes between two
//! calls, and holds only a bounded number of bytes: beyond that it pauses the consumer.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::reject::{Reason, Reject, excerpt};
use serde::{Deserialize, Serialize};

use super::archive::DeadLetter;
use super::error::ErrorKind;
use crate::names::Shard;

/// A message's header: its name, and its value if any.
pub type Header = (String, Option<Vec<u8>>);

/// One message of a topic partition. Partition numbers are shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its topic.
    pub topic: Text,
    /// Its partition.
    pub partition: Shard,
    /// Its offset.
    pub offset: i64,
    /// The broker's or the producer's timestamp in milliseconds since the epoch; -1 without one.
    pub timestamp_millis: i64,
    /// Its key. Messages that came together share one block of memory.
    pub key: Option<Bytes>,
    /// Its value, in the same block; none is a tombstone.
    pub value: Option<Bytes>,
    /// Its headers, in their order.
    pub headers: Vec<Header>,
}

impl Message {
    /// Bytes that the message takes in memory, about.
    pub fn bytes(&self) -> u64 {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let header = |(name, value): &Header| name.len() + value.as_ref().map_or(0, Vec::len) + 48;
        let headers: usize = self.headers.iter().map(header).sum();
        (length(&self.key) + length(&self.value) + headers + 128) as u64
    }

    /// The same message with memory of its own. One that is kept would keep those that came with it.
    #[must_use]
    pub fn detached(self) -> Self {
        let copy = |bytes: Option<Bytes>| bytes.map(|bytes| Bytes::copy_from_slice(&bytes));
        Self { key: copy(self.key), value: copy(self.value), ..self }
    }

    /// What is to be decoded to an event.
    ///
    /// # Errors
    /// A tombstone is no event.
    pub fn event_bytes(&self) -> Result<&[u8], Reject> {
        self.value.as_deref().ok_or_else(|| Reject::malformed("a message without a value is not an event"))
    }

    /// Whether its key is the organization of its event.
    ///
    /// # Errors
    /// `key_mismatch` when it is not.
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

/// Where reading of a topic partition starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the earliest message that Kafka still has.
    Earliest,
    /// At this offset, which Kafka must still have; it may be the end.
    At(i64),
}

/// What a source reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// The group assigns these shards, besides those assigned before. Nothing of them is read until
    /// [`Source::start`].
    Assigned(Vec<Shard>),
    /// The group takes these shards back, and waits until [`Source::release`] names them, but not longer than
    /// its session allows: then they are released without. No message of theirs follows.
    Revoked(Vec<Shard>),
    /// The group has taken these shards away already; others may own them. No message of theirs follows. Once
    /// this process is a member again, [`SourceEvent::Assigned`] says so, even without a shard.
    Lost(Vec<Shard>),
    /// Messages of one topic partition, offsets ascending. Offsets may have holes.
    Messages(Vec<Message>),
    /// A broker has just confirmed that `offset` is the end of the topic partition, and all messages before
    /// it were reported. Reported again every few seconds, as long as the broker confirms it.
    End {
        /// The topic.
        topic: Text,
        /// The partition.
        partition: Shard,
        /// Its next offset.
        offset: i64,
    },
    /// Kafka does not have the offset at which reading was to start or to go on.
    OffsetsLost {
        /// The topic.
        topic: Text,
        /// The partition.
        partition: Shard,
        /// The earliest offset that Kafka has, where that one is known to lie before it, as after retention.
        /// Anywhere else, as behind the end, the log is another one.
        earliest: Option<i64>,
        /// What Kafka said.
        cause: String,
    },
    /// A batch of messages cannot be read, however often it is fetched: it does not unpack, or it is damaged.
    /// Nothing more of its topic partition is read until its shard is started again.
    Unreadable {
        /// The topic.
        topic: Text,
        /// The partition.
        partition: Shard,
        /// The batch's first offset.
        offset: i64,
        /// Why.
        cause: String,
    },
    /// A topic has another number of partitions than before, as the brokers were asked a few seconds ago.
    Partitions {
        /// The topic.
        topic: Text,
        /// How many it has now; at least one.
        partitions: u32,
    },
}

/// A source did not do what was asked, or did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Unavailable; it may be tried again.
    #[error("Kafka is unavailable: {0}")]
    Unavailable(String),
    /// What is configured can never work: wrong credentials, no such topic. The message says how to fix it.
    #[error("{0}")]
    Configuration(String),
    /// A message is larger than the topic takes; all others that were to be sent with it have been.
    #[error("{0}")]
    TooLarge(String),
    /// Another member with the same static membership has taken over: this one must stop.
    #[error(
        "another member of the consumer group uses the same kafka.group_instance_id: {0}; give each worker \
         its own"
    )]
    Fenced(String),
}

impl SourceError {
    /// Whether it may be tried again.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// A consumer group, and the Kafka cluster that it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerId {
    /// The group.
    pub group_id: String,
    /// The cluster's id; none: its brokers do not tell one.
    pub cluster_id: Option<String>,
}

impl ConsumerId {
    /// Whether both are the same, as far as is known.
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
    /// The group that this is a member of, and its cluster.
    async fn consumer(&mut self) -> Result<ConsumerId, SourceError>;

    /// Number of partitions of every configured topic; 0: there is no such topic.
    async fn partitions(&mut self) -> Result<BTreeMap<Text, u32>, SourceError>;

    /// What has happened since the last call, in order; waits up to `wait` for something to happen. Bounded:
    /// at most a few MiB of messages, however much is there.
    async fn poll(&mut self, wait: Duration) -> Result<Vec<SourceEvent>, SourceError>;

    /// Starts reading of an assigned shard: each of its topic partitions where named.
    async fn start(&mut self, shard: Shard, from: BTreeMap<Text, Start>) -> Result<(), SourceError>;

    /// Stops reading shards, and releases them where the group waits for that. What was read of them but not
    /// polled yet is dropped and never comes out. A shard that is still assigned, but released, may be
    /// started again.
    async fn release(&mut self, shards: &[Shard]);

    /// Whether the group, asked again, still assigns the shard to this member.
    async fn assigned(&mut self, shard: Shard) -> Result<bool, SourceError>;

    /// Tells the group how far topic partitions are read: next offsets. For lag monitors alone, never read
    /// back; errors are the source's own affair.
    fn commit(&mut self, shard: Shard, next: &BTreeMap<Text, i64>);

    /// Leaves the group for good.
    async fn close(&mut self);
}

/// Why a message was not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeFailure {
    /// It cannot become an event.
    Reject(Reject),
    /// Its writer's schema has this id in the registry, and is not known yet: fetch it, then decode again.
    NeedsSchema(u32),
}

/// The schema registry did not do what was asked. What it does not know is no error for long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the schema registry {}: {message}",
    if kind.is_retryable() { "is unavailable" } else { "cannot be used" }
)]
pub struct RegistryError {
    /// Transient: it may be asked again. Permission or invalid: a person must change something.
    pub kind: ErrorKind,
    /// What happened, without naming the registry.
    pub message: String,
    /// Whether it is about the one schema alone: the registry answers about others.
    pub is_of_schema: bool,
}

impl RegistryError {
    /// An error that may end by itself.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Transient, message: message.into(), is_of_schema: false }
    }

    /// An error about one schema, which ends once it counts as unknown.
    pub fn of_schema(message: impl Into<String>) -> Self {
        Self { is_of_schema: true, ..Self::transient(message) }
    }
}

/// Turns messages' values into events.
#[async_trait]
pub trait MessageDecoder: Send + Sync {
    /// Decodes a value. Never waits.
    fn decode<'a>(&self, value: &'a [u8]) -> Result<EventRecordRef<'a>, DecodeFailure>;

    /// Asks the registry once for a schema, within seconds. Afterwards [`Self::decode`] knows it, or rejects
    /// its messages as `unknown_schema` where the registry does not give it though it answers about others.
    /// That is an error of this schema for some seconds, till it has been asked again: one of the registry's
    /// nodes may know less than another.
    async fn fetch(&self, schema_id: u32) -> Result<(), RegistryError>;
}

/// The topic of dead letters.
#[async_trait]
pub trait DeadLetterTopic: Send + Sync {
    /// Sends letters with their original bytes, key and headers, and headers that say why and where from;
    /// returns once the brokers have all of them. [`SourceError::TooLarge`] says that they have all but those
    /// that are too large.
    async fn send(&self, letters: &[DeadLetter]) -> Result<(), SourceError>;
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
