//! Conformance of the topic of dead letters, on brokers that may stop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use prorata_connectors::kafka::{Connection, KafkaDeadLetters};
use prorata_testkit::conformance::Harness;
use prorata_testkit::conformance::dead_letters::{DeadLetterPlace, dead_letter_topic};
use prorata_tests::kafka::topic::all_messages;
use prorata_worker::source::{DeadLetterTopic, Message};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

use super::{BROKERS, brokers, signal, variable};

/// Maximum time that brokers may take for a letter. It is several times the default, for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Real {
    /// The properties of the topics, except for their names.
    like: Topic,
    places: AtomicU64,
}

#[derive(Clone)]
struct Topic {
    name: String,
    /// The topic's `max.message.bytes`, which limits batches of messages.
    batch_bytes_max: usize,
    /// Number of large letters in one call.
    large: usize,
    /// Whether the test stops brokers.
    stops: bool,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[async_trait(?Send)]
impl Harness for Real {
    type Place = dyn DeadLetterPlace;

    async fn place(&self) -> Result<Box<dyn DeadLetterPlace>, String> {
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", self.like.name);
        let mut config = ClientConfig::new();
        let admin: AdminClient<DefaultClientContext> =
            config.set("bootstrap.servers", variable("PRORATA_TEST_KAFKA")).create().map_err(text)?;
        let most = self.like.batch_bytes_max.to_string();
        let topic = NewTopic::new(&name, 3, TopicReplication::Fixed(3)).set("max.message.bytes", &most);
        let created = admin.create_topics([&topic], &AdminOptions::new()).await.map_err(text)?;
        created.into_iter().try_for_each(|one| one.map(drop).map_err(|(_, code)| text(code)))?;
        Ok(Box::new(Topic { name, ..self.like.clone() }))
    }
}

#[async_trait(?Send)]
impl DeadLetterPlace for Topic {
    async fn topic(&self) -> Result<Box<dyn DeadLetterTopic>, String> {
        let brokers = Connection::plaintext(variable("PRORATA_TEST_KAFKA"));
        let connection = Connection { timeout: TIMEOUT, ..brokers };
        let connected = KafkaDeadLetters::connect(connection, &self.name).await;
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

    async fn set_available(&self, available: bool) -> Result<bool, String> {
        if self.stops {
            brokers().iter().for_each(|broker| signal(broker, if available { "-CONT" } else { "-STOP" }));
        }
        Ok(self.stops)
    }
}

/// Runs the suite with topics like this topic, and returns the promises that it leaves out.
async fn left_out(like: Topic) -> Vec<&'static str> {
    let _alone = BROKERS.lock().await;
    dead_letter_topic(&Real { like, places: AtomicU64::new(0) }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_kafka_keeps_the_promises_of_a_dead_letter_topic() {
    let usual = Topic { name: "letters".into(), batch_bytes_max: 300_000, large: 1_000, stops: true };
    assert_eq!(left_out(usual).await, [""; 0]);
}

/// The limit is smaller than a batch of letters, so brokers refuse whole batches although they would take
/// each letter.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_small_messages_keeps_them_too() {
    let small = Topic { name: "small-letters".into(), batch_bytes_max: 30_000, large: 200, stops: false };
    assert_eq!(left_out(small).await, ["brokers that do not answer"]);
}
