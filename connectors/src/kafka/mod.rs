//! Kafka: events of the shards that a consumer group assigns, a producer, and the topic of dead letters.
//!
//! `README.md` in this folder says which thread calls what. Reading order:
//! - `client`: settings, the client library's configuration, its callbacks, and the meaning of its errors;
//! - `admin`: requests to the brokers about topics and offsets, sent by a thread of their own;
//! - `member`: the consumer ([`KafkaSource`]), owned by one thread;
//! - `produce`: the producer ([`KafkaProducer`]), and the topics of dead letters ([`KafkaDeadLetters`]) and
//!   exceeded budgets ([`KafkaBudgets`]);
//! - `reader`: topics read to their end, without joining a group ([`KafkaReader`]).

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
pub use produce::{KafkaBudgets, KafkaDeadLetters, KafkaProducer};
pub use reader::KafkaReader;

/// Returns the number of partitions of each topic; 0 for a topic that does not exist. Blocks for up to the
/// connection's timeout, so do not call it from asynchronous code.
///
/// # Errors
/// [`SourceError::Unavailable`] if no answer comes in time, [`SourceError::Configuration`] if no later
/// attempt can succeed.
pub fn partitions(connection: &Connection, topics: &[Text]) -> Result<BTreeMap<Text, u32>, SourceError> {
    admin::MetadataClient::new(connection)?.partitions(topics)
}
