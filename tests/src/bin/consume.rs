//! A bare consumer, which reads all messages that a topic has now, decodes each event, and drops it. This is
//! the lower bound for any program on the client library; `tests/bench/run` measures `prorata work` against
//! it.
//!
//! usage: `consume BROKERS TOPIC`

#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark stops on a broken assumption")]

use std::time::Duration;

use prorata_connectors::messages::SingleObjectMessages;
use prorata_tests::kafka::topic::bare_consumer;
use prorata_worker::source::MessageDecoder;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [brokers, topic] = arguments.as_slice() else { panic!("usage: consume BROKERS TOPIC") };
    let consumer = bare_consumer(brokers, "bare");
    let (all, expected) = everything(&consumer, topic);
    let decoder = SingleObjectMessages::new().unwrap();
    consumer.assign(&all).unwrap();
    let mut events = 0;
    while events < expected {
        let Some(message) = consumer.poll(PATIENCE) else { panic!("{events} of {expected} messages") };
        let message = message.unwrap();
        let decoded = decoder.decode(message.payload().unwrap_or_default());
        std::hint::black_box(decoded.unwrap());
        events += 1;
    }
    println!("{{\"events\": {events}}}");
}

/// Returns all partitions of a topic with their first offsets, and the number of messages in the topic.
fn everything(consumer: &BaseConsumer, topic: &str) -> (TopicPartitionList, i64) {
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
    let (mut all, mut expected) = (TopicPartitionList::new(), 0);
    for partition in metadata.topics()[0].partitions() {
        let (low, high) = consumer.fetch_watermarks(topic, partition.id(), PATIENCE).unwrap();
        all.add_partition_offset(topic, partition.id(), Offset::Offset(low)).unwrap();
        expected += high - low;
    }
    (all, expected)
}
