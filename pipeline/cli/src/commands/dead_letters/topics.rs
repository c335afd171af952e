//! Topics to which dead letters are sent back.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prorata_connectors::kafka::KafkaProducer;
use prorata_worker::dead_letters::{MessageSender, Outgoing};
use prorata_worker::source::SourceError;
use tokio::sync::OnceCell;

use crate::config::KafkaConfig;
use crate::failure::Failure;
use crate::wiring::kafka;

/// Maximum time that a message may wait for a broker.
const PATIENCE: Duration = Duration::from_secs(30);

/// The configured Kafka. It connects when there is a message to send.
pub(super) struct KafkaTopics<'a> {
    kafka: &'a KafkaConfig,
    producer: OnceCell<Arc<KafkaProducer>>,
}

impl<'a> KafkaTopics<'a> {
    pub(super) fn new(kafka: &'a KafkaConfig) -> Self {
        Self { kafka, producer: OnceCell::new() }
    }
}

#[async_trait]
impl MessageSender for KafkaTopics<'_> {
    async fn send(&self, messages: Vec<Outgoing>) -> Result<(), SourceError> {
        let producer = self.producer.get_or_try_init(|| async { connect(self.kafka).map(Arc::new) });
        let producer = Arc::clone(producer.await?);
        let send = move || {
            for message in &messages {
                producer.send_with_headers(&message.topic, &message.key, &message.value, &message.headers)?;
            }
            producer.flush().map(|_sent| ())
        };
        let sent = tokio::task::spawn_blocking(send).await;
        sent.map_err(|error| SourceError::Unavailable(error.to_string()))?
    }
}

fn connect(kafka: &KafkaConfig) -> Result<KafkaProducer, SourceError> {
    if kafka.bootstrap_servers.is_empty() {
        let message = "kafka.bootstrap_servers is empty; name the brokers as host:port";
        return Err(SourceError::Configuration(message.to_owned()));
    }
    let connection =
        kafka::connection(kafka).map_err(|failure| SourceError::Configuration(failure.to_string()))?;
    KafkaProducer::new(&connection, PATIENCE)
}

/// Converts an error of Kafka to a failure with an exit code.
pub(super) fn failure(error: &SourceError) -> Failure {
    let message = format!("messages cannot be sent back: {error}");
    match error {
        SourceError::Unavailable(_) => Failure::storage(message),
        SourceError::Configuration(_) | SourceError::TooLarge(_) | SourceError::Fenced(_) => {
            Failure::usage(message)
        }
    }
}
