//! Kafka: messages of the shards that a consumer group assigns, the topic of dead letters, and a producer.
//!
//! One thread of its own owns the consumer ([`KafkaSource`]): it polls, assigns and reads, and so keeps membership of
//! the group alive however long the worker takes. A second one asks the brokers where partitions begin and end, as
//! their answers may take seconds. What the first has read waits in a queue that is bounded by bytes; while it is
//! full, nothing more is taken from the client library, whose own queue then fills, and it stops to fetch.

mod batch;
mod client;
mod context;
mod dead_letters;
mod failure;
mod group;
mod probe;
mod producer;
mod queue;
mod reading;
mod settings;
mod source;
mod token;

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_worker::source::SourceError;

pub use dead_letters::KafkaDeadLetters;
pub use producer::KafkaProducer;
pub use settings::{Connection, KafkaSettings, Login, Password, Security};
pub use source::KafkaSource;

/// Number of partitions of each topic; 0: there is no such topic. Waits for an answer up to the connection's timeout,
/// so not for asynchronous code.
///
/// # Errors
/// [`SourceError::Unavailable`] when there was no answer in time, [`SourceError::Configuration`] when there can be none.
pub fn partitions(connection: &Connection, topics: &[Text]) -> Result<BTreeMap<Text, u32>, SourceError> {
    probe::Probe::new(connection)?.partitions(topics)
}
