//! The topic of dead letters: rejected messages as they came, with headers that hold the reason and the
//! place.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::Text;
use prorata_worker::dead_letters::{message_headers, message_key};
use prorata_worker::ports::DeadLetter;
use prorata_worker::source::{DeadLetterTopic, SourceError};
use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::{Instant, sleep, timeout_at};

use super::QUEUE_FULL_WAIT;
use super::sender::{Delivery, Record, Sender};
use crate::kafka::admin::Probe;
use crate::kafka::client::settings::{Connection, wrong};

/// Approximate size of the dead letters in one batch, in bytes. Brokers compare a whole batch with the
/// topic's `max.message.bytes`, so batches are small for topics of small messages.
const BATCH_BYTES: u32 = 65_536;

/// The topic of dead letters on Kafka.
pub struct KafkaDeadLetters {
    topic: String,
    sender: Sender,
    /// Maximum time that brokers may take to accept a message. The worker waits in the meantime, even if it
    /// has shards to release.
    patience: Duration,
}

impl KafkaDeadLetters {
    /// Connects, and checks that the topic exists.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if there is no such topic or the credentials are wrong;
    /// [`SourceError::Unavailable`] if no broker answers.
    pub async fn connect(connection: Connection, topic: impl Into<String>) -> Result<Self, SourceError> {
        let topic = topic.into();
        require_topic(&connection, &topic, "kafka.dead_letter_topic").await?;
        let patience = connection.timeout;
        let sender = Sender::new(&connection, patience, BATCH_BYTES)?;
        Ok(Self { topic, sender, patience })
    }
}

/// Checks that the topic named by a configuration key exists.
///
/// # Errors
/// [`SourceError::Configuration`] if there is no such topic; [`SourceError::Unavailable`] if no broker
/// answers.
pub(super) async fn require_topic(
    connection: &Connection,
    topic: &str,
    key: &str,
) -> Result<(), SourceError> {
    let probe = Probe::start(connection)?;
    let asked = [Text::from(topic)];
    let found = probe.ask(move |client| client.partitions(&asked)).await?;
    if found.values().all(|partitions| *partitions == 0) {
        return Err(wrong(format!(
            "Kafka at {} has no topic {topic}: create it, or correct {key}",
            connection.brokers
        )));
    }
    Ok(())
}

/// A dead letter that the brokers refused, and why.
type Refused<'l> = (&'l DeadLetter, Code, String);

impl KafkaDeadLetters {
    /// Sends dead letters and waits for the answer to each. Returns the letters that were refused.
    async fn deliver<'l>(
        &self,
        letters: &[&'l DeadLetter],
        deadline: Instant,
    ) -> Result<Vec<Refused<'l>>, SourceError> {
        let late = || SourceError::Unavailable(format!("topic {}: brokers do not answer", self.topic));
        let mut deliveries = Vec::with_capacity(letters.len());
        for letter in letters {
            let delivery = Arc::new(Delivery::default());
            let headers = message_headers(letter);
            let record = Record {
                topic: &self.topic,
                key: message_key(letter),
                value: Some(&letter.rejected.bytes),
                headers: &headers,
            };
            while !self.sender.offer(&record, &delivery)? {
                if Instant::now() >= deadline {
                    return Err(late());
                }
                sleep(QUEUE_FULL_WAIT).await;
            }
            deliveries.push(delivery);
        }
        let mut refused = Vec::new();
        for (letter, delivery) in letters.iter().zip(deliveries) {
            timeout_at(deadline, delivery.done()).await.map_err(|_| late())?;
            refused.extend(delivery.failure().map(|(code, reason, _)| (*letter, code, reason)));
        }
        Ok(refused)
    }
}

#[async_trait]
impl DeadLetterTopic for KafkaDeadLetters {
    async fn send(&self, letters: &[DeadLetter]) -> Result<(), SourceError> {
        let deadline = Instant::now() + self.patience + self.patience / 2;
        let letters: Vec<&DeadLetter> = letters.iter().collect();
        let (mut failure, mut too_large) = (None, None);
        for (letter, code, reason) in self.deliver(&letters, deadline).await? {
            // Brokers refuse a batch for the size of all its messages. A letter that is sent alone is judged
            // by its own size.
            let refused = match code {
                Code::MessageSizeTooLarge => self.deliver(&[letter], deadline).await?.pop(),
                _ => Some((letter, code, reason)),
            };
            match refused {
                Some((_, Code::MessageSizeTooLarge, _)) => too_large = too_large.or(refused),
                _ => failure = failure.or(refused),
            }
        }
        // Size is the reason to report only if everything else was accepted.
        failure.or(too_large).map_or(Ok(()), |(_, code, reason)| Err(self.sender.meaning(code, &reason)))
    }
}
