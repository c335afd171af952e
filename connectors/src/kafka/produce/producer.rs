//! A sender of events, for any number of threads. All events are sent once the brokers have acknowledged
//! them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use prorata_worker::source::{Header, SourceError};

use super::QUEUE_FULL_WAIT;
use super::sender::{Delivery, Record, Sender};
use crate::kafka::client::settings::Connection;

/// Approximate size of the events in one batch, in bytes, within the brokers' default limit
/// (`message.max.bytes` is 1,048,588).
const BATCH_BYTES: u32 = 1_000_000;

/// The time to wait, beyond the producer's patience, for a message that the library should have given up.
const FORGOTTEN_WAIT: Duration = Duration::from_secs(5);

/// A sender of events.
pub struct KafkaProducer {
    sender: Sender,
    delivery: Arc<Delivery>,
    patience: Duration,
}

impl KafkaProducer {
    /// Makes a producer. A message fails if no broker has accepted it after `patience`.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if the settings can never work.
    pub fn new(connection: &Connection, patience: Duration) -> Result<Self, SourceError> {
        Ok(Self {
            sender: Sender::new(connection, patience, BATCH_BYTES)?,
            delivery: Arc::default(),
            patience,
        })
    }

    /// Sends a message to the partition of its key. Blocks while too many messages are in flight. Several
    /// threads may call this at the same time; asynchronous code must not.
    ///
    /// # Errors
    /// The first failure of any message so far.
    pub fn send(&self, topic: &str, key: &[u8], value: &[u8]) -> Result<(), SourceError> {
        self.send_with_headers(topic, key, value, &[])
    }

    /// Sends a message like [`Self::send`], with headers.
    ///
    /// # Errors
    /// The first failure of any message so far.
    pub fn send_with_headers(
        &self,
        topic: &str,
        key: &[u8],
        value: &[u8],
        headers: &[Header],
    ) -> Result<(), SourceError> {
        self.send_record(&Record { topic, key: Some(key), value: Some(value), headers })
    }

    /// Removes a key from a compacted topic.
    ///
    /// # Errors
    /// The first failure of any message so far.
    pub fn remove(&self, topic: &str, key: &[u8]) -> Result<(), SourceError> {
        self.send_record(&Record { topic, key: Some(key), value: None, headers: &[] })
    }

    fn send_record(&self, record: &Record<'_>) -> Result<(), SourceError> {
        loop {
            self.check()?;
            if self.sender.offer(record, &self.delivery)? {
                self.delivery.count_sent();
                return Ok(());
            }
            thread::sleep(QUEUE_FULL_WAIT);
        }
    }

    /// Waits until the brokers have acknowledged every message. Returns the number of messages.
    ///
    /// # Errors
    /// The first failure of any message, with the number of failures; or an error if brokers do not answer.
    pub fn flush(&self) -> Result<u64, SourceError> {
        // The library gives up each message after `patience`. This only bounds the wait for a message that it
        // forgets.
        let deadline = Instant::now() + self.patience + FORGOTTEN_WAIT;
        while !self.delivery.is_done() {
            if Instant::now() >= deadline {
                return Err(SourceError::Unavailable("brokers do not acknowledge what was sent".into()));
            }
            thread::sleep(QUEUE_FULL_WAIT);
        }
        self.check()?;
        Ok(self.delivery.sent())
    }

    fn check(&self) -> Result<(), SourceError> {
        self.delivery.failure().map_or(Ok(()), |(code, reason, failed)| {
            Err(self.sender.meaning(code, &format!("{reason} ({failed} messages were not sent)")))
        })
    }
}
