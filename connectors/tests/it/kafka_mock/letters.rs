//! Conformance of the topic of dead letters, on in-memory brokers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use async_trait::async_trait;
use prorata_connectors::kafka::{Connection, KafkaDeadLetters};
use prorata_testkit::conformance::Harness;
use prorata_testkit::conformance::dead_letters::{DeadLetterPlace, dead_letter_topic};
use prorata_tests::kafka::topic::all_messages;
use prorata_worker::source::{DeadLetterTopic, Message, SourceError};

use super::{cluster, settings};

/// In-memory brokers, which must stay on their thread.
struct Mock {
    brokers: String,
    orders: Sender<Order>,
    places: AtomicU64,
}

enum Order {
    /// Create a topic of this name.
    Create(String),
    /// Start or stop answering, and confirm it.
    Answer(bool, Sender<()>),
}

impl Mock {
    fn start() -> Self {
        let ((orders, taken), (address, replies)) = (channel(), channel());
        std::thread::spawn(move || obey(&taken, &address));
        Self { brokers: replies.recv().unwrap(), orders, places: AtomicU64::new(0) }
    }
}

fn obey(orders: &Receiver<Order>, address: &Sender<String>) {
    let cluster = cluster(&[], 0);
    address.send(cluster.bootstrap_servers()).unwrap();
    for order in orders {
        match order {
            Order::Create(topic) => cluster.create_topic(&topic, 3, 1).unwrap(),
            Order::Answer(true, done) => {
                cluster.broker_up(-1).unwrap();
                done.send(()).unwrap();
            }
            Order::Answer(false, done) => {
                cluster.broker_down(-1).unwrap();
                done.send(()).unwrap();
            }
        }
    }
}

struct Topic {
    brokers: String,
    name: String,
    orders: Sender<Order>,
}

#[async_trait(?Send)]
impl Harness for Mock {
    type Place = dyn DeadLetterPlace;

    async fn place(&self) -> Result<Box<dyn DeadLetterPlace>, String> {
        let name = format!("letters-{}", self.places.fetch_add(1, Ordering::Relaxed));
        self.orders.send(Order::Create(name.clone())).unwrap();
        Ok(Box::new(Topic { brokers: self.brokers.clone(), name, orders: self.orders.clone() }))
    }
}

#[async_trait(?Send)]
impl DeadLetterPlace for Topic {
    async fn topic(&self) -> Result<Box<dyn DeadLetterTopic>, String> {
        let connected = KafkaDeadLetters::connect(Connection::plaintext(&self.brokers), &self.name).await;
        connected.map(|topic| Box::new(topic) as Box<dyn DeadLetterTopic>).map_err(|error| error.to_string())
    }

    async fn messages(&self) -> Result<Vec<Message>, String> {
        all_messages(self.brokers.clone(), self.name.clone()).await
    }

    fn large(&self) -> (usize, usize) {
        // The brokers keep five million bytes of a partition.
        (900_000, 5)
    }

    fn too_large(&self) -> Option<usize> {
        None
    }

    async fn set_available(&self, available: bool) -> Result<bool, String> {
        let (done, replies) = channel();
        self.orders.send(Order::Answer(available, done)).unwrap();
        replies.recv().unwrap();
        Ok(true)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_on_brokers_in_memory_keep_their_promises() {
    assert_eq!(dead_letter_topic(&Mock::start()).await.unwrap(), ["letters that are too large"]);
}

#[tokio::test]
async fn a_missing_topic_is_reported_at_once() {
    let cluster = cluster(&["dead"], 1);
    let connection = settings(&cluster, &["dead"]).connection;
    KafkaDeadLetters::connect(connection.clone(), "dead").await.map(drop).unwrap();
    let refused = KafkaDeadLetters::connect(connection, "nowhere").await.err().unwrap();
    let SourceError::Configuration(message) = &refused else { panic!("{refused}") };
    assert!(message.contains("kafka.dead_letter_topic"), "{message}");
}
