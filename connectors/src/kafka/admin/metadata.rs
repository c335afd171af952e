//! Metadata of topics from the brokers: the number of partitions, and the first and end offset of each
//! partition. Every call blocks.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use prorata_schemas::Text;
use prorata_worker::source::SourceError;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::kafka::client::context::Watch;
use crate::kafka::client::failure;
use crate::kafka::client::settings::{Connection, wrong};

/// Maximum time that one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Maximum number of events that one round takes from the library. A request for an event costs almost
/// nothing.
const EVENTS: usize = 16;

/// Maximum number of partitions of a topic. Partition numbers are shards, and a shard number has 16 bits.
const PARTITIONS_MAX: u32 = 65_535;

/// A client that is not a member of any group.
pub(crate) struct MetadataClient {
    client: BaseConsumer<Watch>,
    connection: Connection,
    /// Whether a broker has ever answered. If so, the credentials are right, whatever a broker says later.
    answered: Cell<bool>,
}

/// The outcome of one request for a topic's metadata.
enum TopicLook {
    /// The topic has this number of partitions.
    Partitions(u32),
    /// There is no such topic.
    Missing,
    /// No broker answered, with the reason if it is known.
    NoAnswer(Option<String>),
}

impl MetadataClient {
    /// Makes the client, which connects in the background.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if the settings can never work.
    pub(crate) fn new(connection: &Connection) -> Result<Self, SourceError> {
        let mut config = connection.client()?;
        // Without this setting the library does not report why a broker closes a connection, which may be why
        // connecting fails.
        config.set("isolation.level", "read_committed").set("log.connection.close", "true");
        let client =
            config.create_with_context(Watch::new(connection)).map_err(|error| failure::creation(&error))?;
        Ok(Self { client, connection: connection.clone(), answered: Cell::new(false) })
    }

    /// Polls the client, which logs, renews tokens and reports errors only when it is polled.
    pub(super) fn serve(&self) {
        for _ in 0..EVENTS {
            // The context has noted this event.
            drop(self.client.poll(Duration::ZERO));
        }
    }

    /// Returns the number of partitions of each topic; 0 for a topic that does not exist. Looks for a missing
    /// topic during half of the timeout, because the brokers learn of a new topic one after another.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`] if no answer comes in time, [`SourceError::Configuration`] if no later
    /// attempt can succeed.
    pub(crate) fn partitions(&self, topics: &[Text]) -> Result<BTreeMap<Text, u32>, SourceError> {
        let began = Instant::now();
        let deadline = began + self.connection.timeout;
        let patience = began + self.connection.timeout / 2;
        if self.answered.get() {
            // Drops errors from before this request.
            self.client.context().errors();
        }
        let mut reason = "no broker answers".to_owned();
        let mut found = BTreeMap::new();
        for topic in topics {
            let count = loop {
                match self.look(topic, deadline)? {
                    TopicLook::Partitions(count) => break count,
                    TopicLook::Missing if Instant::now() >= patience => break 0,
                    TopicLook::Missing => {}
                    TopicLook::NoAnswer(why) => reason = why.unwrap_or(reason),
                }
                if Instant::now() >= deadline {
                    let hint = "if brokers are up, check kafka.bootstrap_servers and kafka.security_protocol";
                    let brokers = &self.connection.brokers;
                    return Err(SourceError::Unavailable(format!("{brokers}: {reason}; {hint}")));
                }
                thread::sleep(Duration::from_millis(200));
            };
            if count > PARTITIONS_MAX {
                return Err(wrong(format!(
                    "topic {topic} has {count} partitions; at most {PARTITIONS_MAX} can be read"
                )));
            }
            found.insert(topic.clone(), count);
        }
        Ok(found)
    }

    /// Returns the cluster's id; `None` if the brokers do not report it.
    pub(crate) fn cluster_id(&self) -> Option<String> {
        self.serve();
        self.client.client().fetch_cluster_id(self.connection.timeout)
    }

    /// Returns the number of partitions of the topics for which a broker answers at once. Asks for each topic
    /// once, and stops at the first topic without an answer. Leaves out missing topics.
    pub(crate) fn partitions_now(&self, topics: &[Text]) -> BTreeMap<Text, u32> {
        let deadline = Instant::now() + ATTEMPT;
        let looks = topics.iter().map_while(|topic| match self.look(topic, deadline) {
            Ok(TopicLook::Partitions(count)) => Some(Some((topic.clone(), count))),
            Ok(TopicLook::Missing) => Some(None),
            Ok(TopicLook::NoAnswer(_)) | Err(_) => None,
        });
        looks.flatten().collect()
    }

    /// Looks at a topic once.
    fn look(&self, topic: &Text, deadline: Instant) -> Result<TopicLook, SourceError> {
        self.serve();
        let left =
            deadline.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(50), ATTEMPT);
        let metadata = match self.client.fetch_metadata(Some(topic), left) {
            Ok(metadata) => {
                self.answered.set(true);
                metadata
            }
            Err(error) => return self.why(&error).map(TopicLook::NoAnswer),
        };
        let Some(found) = metadata.topics().iter().find(|found| found.name() == &**topic) else {
            return Ok(TopicLook::NoAnswer(None));
        };
        match found.error().map(Code::from) {
            None => {
                let partitions = u32::try_from(found.partitions().len());
                Ok(TopicLook::Partitions(partitions.unwrap_or(u32::MAX)))
            }
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(TopicLook::Missing),
            Some(Code::InvalidTopic) => {
                Err(wrong(format!("'{topic}' is not a valid topic name: correct kafka.topics")))
            }
            Some(code) => {
                match failure::at_start(&self.connection, code, &format!("topic {topic}: {code}")) {
                    SourceError::Unavailable(reason) => Ok(TopicLook::NoAnswer(Some(reason))),
                    other => Err(other),
                }
            }
        }
    }

    fn meaning(&self, code: Code, reason: &str) -> SourceError {
        let meaning = if self.answered.get() { failure::running } else { failure::at_start };
        meaning(&self.connection, code, reason)
    }

    /// Returns why a request failed; `None` if the reason is unknown. The errors that the client has reported
    /// in the meantime say more than `error` itself.
    fn why(&self, error: &KafkaError) -> Result<Option<String>, SourceError> {
        self.serve();
        let mut reason = None;
        for (code, text) in self.client.context().errors() {
            match self.meaning(code, &text) {
                SourceError::Unavailable(_) if code == Code::AllBrokersDown => {}
                SourceError::Unavailable(_) => reason = Some(text),
                other => return Err(other),
            }
        }
        tracing::debug!("{error}");
        Ok(reason)
    }

    /// Returns the earliest offset and the end of a topic partition.
    pub(crate) fn range(&self, topic: &str, partition: i32) -> Result<(i64, i64), SourceError> {
        self.serve();
        self.client.fetch_watermarks(topic, partition, self.connection.timeout).map_err(|error| {
            let why = error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string());
            let message = format!("topic {topic}, partition {partition}: {why}");
            failure::running(&self.connection, error.rdkafka_error_code().unwrap_or(Code::Unknown), &message)
        })
    }

    /// Returns the ends of topic partitions; `None` for each end that the brokers do not report in time.
    pub(crate) fn ends(&self, of: &[(Text, i32)]) -> Vec<Option<i64>> {
        self.serve();
        let timeout = self.connection.timeout.min(5 * ATTEMPT);
        self.ends_at_once(of, timeout).unwrap_or_else(|error| {
            tracing::debug!("ends: {error}");
            // One partition without a leader must not hide the ends of the others.
            let deadline = Instant::now() + timeout;
            let ask = |(topic, partition): &(Text, i32)| {
                let left = deadline.saturating_duration_since(Instant::now()).min(ATTEMPT / 2);
                let range =
                    (!left.is_zero()).then(|| self.client.fetch_watermarks(topic, *partition, left).ok());
                range.flatten().map(|(_, high)| high)
            };
            of.iter().map(ask).collect()
        })
    }

    /// Returns the ends of topic partitions, with one request to each broker; `None` for an end that its
    /// broker does not report.
    fn ends_at_once(&self, of: &[(Text, i32)], timeout: Duration) -> Result<Vec<Option<i64>>, KafkaError> {
        let mut list = TopicPartitionList::with_capacity(of.len());
        for (topic, partition) in of {
            list.add_partition_offset(topic, *partition, Offset::End)?;
        }
        let answered = self.client.offsets_for_times(list, timeout)?;
        let end = |(topic, partition): &(Text, i32)| {
            let found = answered.find_partition(topic, *partition)?;
            match (found.error(), found.offset()) {
                (Ok(()), Offset::Offset(end)) => Some(end),
                _ => None,
            }
        };
        Ok(of.iter().map(end).collect())
    }
}
