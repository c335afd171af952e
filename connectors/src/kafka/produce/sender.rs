//! The client library's producer with our configuration. Each message goes to the partition of its key as
//! Kafka's own clients choose it (murmur2). A message counts as sent once all in-sync replicas have it.
//!
//! The producer is not idempotent on purpose. Delivery is at least once by contract, and duplicates do no
//! harm. An event is identified by its natural key and its content, a dead letter by the topic, partition and
//! offset in its headers. Order needs no guarantee either. The engine orders events by their time and natural
//! key, whatever order they arrive in, and the watermark tolerates some lateness.
//!
//! So `enable.idempotence` would gain nothing, and it costs a lot. The brokers may be unable to assign a
//! producer id, in a cluster that has just started or after an outage. Meanwhile the client library's broker
//! threads spin (librdkafka issues 3692 and 2565, open). Measured on a fresh cluster of three at 173 messages
//! a second: 11.3 s of processor time in 7 s with it, 0.25 s without.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use prorata_worker::source::{Header, SourceError};
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{DeliveryResult, Header as Sent, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, Producer, ProducerContext, ThreadedProducer};
use tokio::sync::Notify;

use crate::kafka::client::context::{Watch, lock};
use crate::kafka::client::failure;
use crate::kafka::client::settings::{Connection, wrong};

/// Maximum number of requests that await one broker's answer. The limit bounds the data that is sent again to
/// an unreachable broker. It also bounds the number of batches that may overtake a repeated batch. The
/// library's own default is a million.
const REQUESTS_IN_FLIGHT_MAX: &str = "5";

/// A set of messages whose answers are awaited together.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    waiting: AtomicU64,
    sent: AtomicU64,
    failed: AtomicU64,
    first: std::sync::Mutex<Option<(Code, String)>>,
    done: Notify,
}

impl Delivery {
    /// Counts one more message to wait for.
    fn expect(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// Stops waiting for a message that was not sent.
    fn forget(&self) {
        self.answered(None);
    }

    fn answered(&self, failure: Option<(Code, String)>) {
        if let Some(failure) = failure {
            self.failed.fetch_add(1, Ordering::AcqRel);
            lock(&self.first).get_or_insert(failure);
        }
        if self.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }

    /// Counts a message that the library has accepted.
    pub(super) fn count_sent(&self) {
        self.sent.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how many messages the library has accepted.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Returns whether all messages have been answered.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Waits until all messages have been answered.
    pub(super) async fn done(&self) {
        while !self.is_done() {
            self.done.notified().await;
        }
    }

    /// Returns the first failure, and the number of failures; `None` if no message has failed.
    pub(super) fn failure(&self) -> Option<(Code, String, u64)> {
        let (code, reason) = lock(&self.first).clone()?;
        Some((code, reason, self.failed.load(Ordering::Acquire)))
    }
}

/// The context of a producer.
pub(super) struct Sending {
    watch: Watch,
    /// Whether brokers have ever accepted a message. If so, the credentials are right, whatever a broker says
    /// later.
    answered: AtomicBool,
}

impl ClientContext for Sending {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.watch.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.watch.error(error, reason);
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.watch.generate_oauth_token(config)
    }
}

impl ProducerContext<NoCustomPartitioner> for Sending {
    type DeliveryOpaque = Arc<Delivery>;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Arc<Delivery>) {
        if result.is_ok() {
            self.answered.store(true, Ordering::Relaxed);
        }
        delivery.answered(result.as_ref().err().map(|(error, message)| {
            let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
            (code, format!("topic {}: {code}", message.topic()))
        }));
    }
}

/// A message to send.
pub(super) struct Record<'r> {
    pub(super) topic: &'r str,
    pub(super) key: Option<&'r [u8]>,
    pub(super) value: Option<&'r [u8]>,
    pub(super) headers: &'r [Header],
}

/// The library's producer with our configuration.
pub(super) struct Sender {
    producer: ThreadedProducer<Sending>,
    connection: Connection,
}

impl Sender {
    /// Makes the producer, which connects in the background. Messages are sent in batches of `batch_bytes`, a
    /// larger message alone. A message fails if no broker has accepted it after `patience`.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if the settings can never work.
    pub(super) fn new(
        connection: &Connection,
        patience: Duration,
        batch_bytes: u32,
    ) -> Result<Self, SourceError> {
        let mut config = connection.client()?;
        for (key, value) in [
            // At least once: all in-sync replicas answer, and a failed message is sent again until
            // `message.timeout.ms`.
            ("acks", "all"),
            ("enable.idempotence", "false"),
            ("retries", "2147483647"),
            ("max.in.flight.requests.per.connection", REQUESTS_IN_FLIGHT_MAX),
            ("partitioner", "murmur2_random"),
            ("compression.type", "lz4"),
            ("linger.ms", "20"),
            ("message.timeout.ms", &patience.as_millis().to_string()),
            // The brokers decide how large a message may be.
            ("message.max.bytes", "1000000000"),
            ("batch.size", &batch_bytes.to_string()),
            ("queue.buffering.max.messages", "200000"),
            ("queue.buffering.max.kbytes", "65536"),
        ] {
            config.set(key, value);
        }
        let context = Sending { watch: Watch::new(connection), answered: AtomicBool::new(false) };
        let producer = ThreadedProducer::from_config_and_context(&config, context);
        Ok(Self {
            producer: producer.map_err(|error| failure::creation(&error))?,
            connection: connection.clone(),
        })
    }

    /// Passes a message to the library. Returns whether the library's queue had room.
    ///
    /// # Errors
    /// If the library refuses the message.
    pub(super) fn offer(&self, record: &Record<'_>, delivery: &Arc<Delivery>) -> Result<bool, SourceError> {
        delivery.expect();
        let mut base = BaseRecord::with_opaque_to(record.topic, Arc::clone(delivery));
        base.key = record.key;
        base.payload = record.value;
        if !record.headers.is_empty() {
            let headers = OwnedHeaders::new_with_capacity(record.headers.len());
            base.headers =
                Some(record.headers.iter().fold(headers, |headers, (key, value)| {
                    headers.insert(Sent { key, value: value.as_ref() })
                }));
        }
        let Err((error, _)) = self.producer.send(base) else { return Ok(true) };
        delivery.forget();
        match error.rdkafka_error_code() {
            Some(Code::QueueFull) => Ok(false),
            code => {
                Err(self.meaning(code.unwrap_or(Code::Unknown), &format!("topic {}: {error}", record.topic)))
            }
        }
    }

    /// Returns the meaning of a failed message.
    pub(super) fn meaning(&self, code: Code, reason: &str) -> SourceError {
        match code {
            Code::MessageSizeTooLarge => {
                SourceError::TooLarge(format!("{reason}: raise max.message.bytes of the topic"))
            }
            Code::UnknownTopicOrPartition | Code::UnknownTopic => {
                wrong(format!("Kafka at {} has no such topic: {reason}; create it", self.connection.brokers))
            }
            Code::TopicAuthorizationFailed => wrong(format!(
                "Kafka at {} does not let this user write to a topic: {reason}; grant it WRITE",
                self.connection.brokers
            )),
            // A message that waited too long does not say why no broker accepted it; earlier errors do.
            Code::MessageTimedOut => {
                let context = self.producer.context();
                let errors = context.watch.errors();
                let reported = errors.into_iter().rev().find(|(code, _)| *code != Code::AllBrokersDown);
                let (code, reason) = reported.unwrap_or((code, reason.to_owned()));
                let answered = context.answered.load(Ordering::Relaxed);
                let meaning = if answered { failure::running } else { failure::at_start };
                meaning(&self.connection, code, &reason)
            }
            _ => failure::running(&self.connection, code, reason),
        }
    }
}
