//! The contract suite of the topic of dead letters, on real Kafka.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use prorata_connectors::kafka::KafkaDeadLetters;
use prorata_worker::contract_dead_letters::{Harness, Place, dead_letter_topic};
use prorata_worker::source::{DeadLetterTopic, Message};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

use crate::{all_messages, connection, variable};

struct Real {
    /// The topics' `max.message.bytes`, which limits batches of messages.
    batch_bytes_max: usize,
    /// How many large letters are sent in one call.
    large: usize,
    places: AtomicU64,
}

struct Topic {
    name: String,
    batch_bytes_max: usize,
    large: usize,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[async_trait]
impl Harness for Real {
    async fn place(&self) -> Result<Box<dyn Place>, String> {
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        let name = format!("letters-{}-{number}", self.batch_bytes_max);
        let mut config = ClientConfig::new();
        let admin: AdminClient<DefaultClientContext> =
            config.set("bootstrap.servers", variable("PRORATA_TEST_KAFKA")).create().map_err(text)?;
        let most = self.batch_bytes_max.to_string();
        let topic = NewTopic::new(&name, 3, TopicReplication::Fixed(1)).set("max.message.bytes", &most);
        let created = admin.create_topics([&topic], &AdminOptions::new()).await.map_err(text)?;
        created.into_iter().try_for_each(|one| one.map(drop).map_err(|(_, code)| text(code)))?;
        Ok(Box::new(Topic { name, batch_bytes_max: self.batch_bytes_max, large: self.large }))
    }
}

#[async_trait]
impl Place for Topic {
    async fn topic(&self) -> Result<Box<dyn DeadLetterTopic>, String> {
        let connected = KafkaDeadLetters::connect(connection(), &self.name).await;
        connected.map(|topic| Box::new(topic) as Box<dyn DeadLetterTopic>).map_err(text)
    }

    async fn messages(&self) -> Result<Vec<Message>, String> {
        all_messages(variable("PRORATA_TEST_KAFKA"), self.name.clone()).await
    }

    fn large(&self) -> (usize, usize) {
        (self.batch_bytes_max / 4, self.large)
    }

    fn too_large(&self) -> Option<usize> {
        Some(self.batch_bytes_max + 1)
    }

    async fn set_available(&self, _: bool) -> Result<bool, String> {
        // Other tests need these brokers.
        Ok(false)
    }
}

async fn keeps_its_promises(batch_bytes_max: usize, large: usize) {
    let real = Real { batch_bytes_max, large, places: AtomicU64::new(0) };
    assert_eq!(dead_letter_topic(&real).await.unwrap(), ["brokers that do not answer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_kafka_keeps_the_promises_of_a_dead_letter_topic() {
    keeps_its_promises(300_000, 1_000).await;
}

/// Less than a batch of letters has, so that brokers refuse whole batches whose letters they would take.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_small_messages_keeps_them_too() {
    keeps_its_promises(30_000, 200).await;
}
