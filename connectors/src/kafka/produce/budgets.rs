//! The topic of exceeded budgets.

use std::sync::Arc;

use async_trait::async_trait;
use prorata_worker::ports::{BudgetTopic, ExceededBudget};
use prorata_worker::source::SourceError;
use tokio::time::{Instant, sleep, timeout_at};

use super::QUEUE_FULL_WAIT;
use super::dead_letters::require_topic;
use super::sender::{Delivery, Record, Sender};
use crate::kafka::client::settings::Connection;

/// Approximate size of the messages in one batch, in bytes, as for dead letters.
const BATCH_BYTES: u32 = 65_536;

/// The topic of exceeded budgets on Kafka.
pub struct KafkaBudgets {
    topic: String,
    sender: Sender,
    connection: Connection,
}

impl KafkaBudgets {
    /// Makes a sender, which connects in the background. A missing topic fails each attempt to send rather
    /// than this call, because nothing else depends on the topic.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if the settings can never work.
    pub fn new(connection: &Connection, topic: impl Into<String>) -> Result<Self, SourceError> {
        let sender = Sender::new(connection, connection.timeout, BATCH_BYTES)?;
        Ok(Self { topic: topic.into(), sender, connection: connection.clone() })
    }

    async fn deliver(&self, exceeded: &[ExceededBudget]) -> Result<(), SourceError> {
        let late = || SourceError::Unavailable(format!("topic {}: brokers do not answer", self.topic));
        let deadline = Instant::now() + self.connection.timeout + self.connection.timeout / 2;
        let delivery = Arc::new(Delivery::default());
        for budget in exceeded {
            let (key, value) = (budget.key(), budget.value());
            let record = Record {
                topic: &self.topic,
                key: Some(key.as_bytes()),
                value: Some(value.as_bytes()),
                headers: &[],
            };
            while !self.sender.offer(&record, &delivery)? {
                if Instant::now() >= deadline {
                    return Err(late());
                }
                sleep(QUEUE_FULL_WAIT).await;
            }
        }
        timeout_at(deadline, delivery.done()).await.map_err(|_| late())?;
        delivery.failure().map_or(Ok(()), |(code, reason, _)| Err(self.sender.meaning(code, &reason)))
    }
}

#[async_trait]
impl BudgetTopic for KafkaBudgets {
    async fn send(&self, exceeded: &[ExceededBudget]) -> Result<(), SourceError> {
        match self.deliver(exceeded).await {
            // If the topic does not exist, its messages may just appear to be late.
            Err(late @ SourceError::Unavailable(_)) => {
                require_topic(&self.connection, &self.topic, "kafka.budget_topic").await?;
                Err(late)
            }
            answer => answer,
        }
    }
}
