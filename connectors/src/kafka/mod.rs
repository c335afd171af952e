//! Kafka: events of the shards that a consumer group assigns, a producer, and the topic of dead letters.
//!
//! `README.md` in this folder says which thread calls what. Reading order:
//! - `client`: settings, the client library's configuration, what it calls back, and what its errors mean;
//! - `admin`: questions to the brokers about topics and offsets, asked on a thread of their own;
//! - `member`: the consumer ([`KafkaSource`]), owned by one thread;
//! - `produce`: the producer ([`KafkaProducer`]) and the topic of dead letters ([`KafkaDeadLetters`]);
//! - `reader`: topics read to their end, by nobody's member ([`KafkaReader`]).

mod admin;
mod client;
mod member;
mod produce;
mod reader;

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_worker::source::SourceError;

pub use admin::topic_setting;
pub use client::config::fetch_settings;
pub use client::settings::{Connection, KafkaSettings, Login, Security};
pub use member::KafkaSource;
pub use produce::{KafkaDeadLetters, KafkaProducer};
pub use reader::KafkaReader;

/// Number of partitions of each topic; 0 for a topic that does not exist. Blocks for up to the connection's
/// timeout, so call it from no asynchronous code.
///
/// # Errors
/// [`SourceError::Unavailable`] without an answer in time, [`SourceError::Configuration`] when there can be
/// none.
pub fn partitions(connection: &Connection, topics: &[Text]) -> Result<BTreeMap<Text, u32>, SourceError> {
    admin::MetadataClient::new(connection)?.partitions(topics)
}
