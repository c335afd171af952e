//! Events as messages, and the state in a compacted topic. The topic has one record for each announced
//! object, and one progress record for each cluster. All records are keyed by cluster. The progress record
//! holds the time up to which the cluster is known.
//!
//! The progress record names the collector that wrote it, and has a higher number than every earlier progress
//! record. A collector that starts first writes such a record, and only then reads the state. An earlier
//! collector stores its intents, checks whether there is a higher number, and only then sends events. So
//! either the earlier collector finds the new record and ends, or the new collector has read the intents of
//! the earlier collector. If numbers are equal, the name decides.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prorata_collector::{Announced, Batch, CollectorState, Key};
use prorata_connectors::kafka::{Connection, KafkaProducer, KafkaReader, KafkaSettings, topic_setting};
use prorata_connectors::messages::MessageEncoder;
use prorata_schemas::{Text, body};
use prorata_worker::dead_letters::TopicReader;
use prorata_worker::source::{Message, SourceError};
use serde::{Deserialize, Serialize};

use super::journal::{Journal, NotStored, shut_out};
use crate::failure::Failure;
use crate::wiring::kafka;

/// Longest time for which a message may wait for a broker before it is sent again.
const PATIENCE: Duration = Duration::from_secs(30);

/// The key of a record: the cluster, and the object. The object is `None` in the progress record.
type RecordKey = (Text, Option<Key>);

/// Content of the progress record: the state of a cluster without its objects, and the collector that wrote
/// the record.
#[derive(Serialize, Deserialize)]
struct HeldProgress {
    number: u64,
    holder: String,
    #[serde(flatten)]
    state: CollectorState,
}

/// A message to send. A message without a value removes the record of its key.
struct Outgoing {
    topic: String,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// A journal in topics of events and of the state.
pub struct TopicJournal {
    connection: Connection,
    encoder: MessageEncoder,
    events_topic: String,
    state_topic: String,
    organization_id: String,
    cluster_id: Text,
    producer: Option<Arc<KafkaProducer>>,
    reader: Option<KafkaReader>,
    /// Offset up to which each partition of the state topic was read.
    positions: Vec<i64>,
    /// Number and name of this collector.
    holder: (u64, String),
    /// Highest number and name that were read.
    highest: (u64, String),
    /// Stored progress of the cluster, without entries.
    progress: CollectorState,
}

impl TopicJournal {
    /// Creates a journal in these topics. Nothing is connected yet.
    pub fn new(
        connection: Connection,
        encoder: MessageEncoder,
        topics: (String, String),
        organization_id: &str,
        cluster_id: Text,
    ) -> Self {
        let (events_topic, state_topic) = topics;
        Self {
            connection,
            encoder,
            events_topic,
            state_topic,
            organization_id: organization_id.to_owned(),
            cluster_id,
            producer: None,
            reader: None,
            positions: Vec::new(),
            holder: (0, format!("{:032x}", rand::random::<u128>())),
            highest: (0, String::new()),
            progress: CollectorState::default(),
        }
    }

    /// Sends messages, and waits until all are stored.
    async fn send(&mut self, messages: Vec<Outgoing>) -> Result<(), Failure> {
        if messages.is_empty() {
            return Ok(());
        }
        let producer = match &self.producer {
            Some(producer) => Arc::clone(producer),
            None => Arc::new(KafkaProducer::new(&self.connection, PATIENCE).map_err(kafka::failure)?),
        };
        // A producer that has failed once reports the failure forever, so only one that has not failed is
        // kept.
        self.producer = None;
        let sending = Arc::clone(&producer);
        let sent = tokio::task::spawn_blocking(move || {
            for Outgoing { topic, key, value } in &messages {
                match value {
                    Some(value) => sending.send(topic, key, value)?,
                    None => sending.remove(topic, key)?,
                }
            }
            sending.flush().map(drop)
        });
        let sent = sent.await.map_err(|error| SourceError::Unavailable(error.to_string()));
        sent.and_then(|sent| sent).map_err(kafka::failure)?;
        self.producer = Some(producer);
        Ok(())
    }

    fn record(&self, key: Option<Key>, value: Option<Vec<u8>>) -> Result<Outgoing, Failure> {
        let key: RecordKey = (self.cluster_id.clone(), key);
        let key = serde_json::to_vec(&key).map_err(Failure::storage)?;
        Ok(Outgoing { topic: self.state_topic.clone(), key, value })
    }

    fn entry(&self, key: &Key, announced: Option<&Announced>) -> Result<Outgoing, Failure> {
        let value = announced.map(serde_json::to_vec).transpose().map_err(Failure::storage)?;
        self.record(Some(key.clone()), value)
    }

    fn progress(&self, progress: &CollectorState) -> Result<Outgoing, Failure> {
        let (number, holder) = self.holder.clone();
        let held = HeldProgress { number, holder, state: progress.clone() };
        self.record(None, Some(serde_json::to_vec(&held).map_err(Failure::storage)?))
    }

    /// Reads the records that were added to the topic since the last read, and applies them to `state` if it
    /// is given.
    async fn read_on(&mut self, mut state: Option<&mut CollectorState>) -> Result<(), Failure> {
        let topic = Text::from(self.state_topic.as_str());
        let settings =
            KafkaSettings::new(self.connection.clone(), vec![self.state_topic.clone()], "prorata-collect");
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => KafkaReader::new(&settings).map_err(kafka::failure)?,
        };
        let ranges = reader.ranges(&topic).await.map_err(kafka::failure)?;
        if ranges.is_empty() {
            return Err(Failure::usage(format!(
                "Kafka at {} has no topic {topic}: create it with cleanup.policy=compact, or correct \
                 collect.state_topic",
                self.connection.brokers
            )));
        }
        self.positions.resize(ranges.len().max(self.positions.len()), 0);
        for (partition, (first, end)) in (0..).zip(ranges) {
            let position = self.positions.get(usize::from(partition)).copied().unwrap_or_default();
            let mut from = position.max(first);
            while from < end {
                let read = reader.read(&topic, partition, from..end).await;
                let (messages, next) = read.map_err(kafka::failure)?;
                for message in &messages {
                    self.take(state.as_deref_mut(), message)?;
                }
                from = next;
            }
            if let Some(position) = self.positions.get_mut(usize::from(partition)) {
                *position = from;
            }
        }
        self.reader = Some(reader);
        Ok(())
    }

    /// Refuses a topic that drops records by age, because such a topic would lose objects that run longer.
    async fn check_policy(&self) -> Result<(), Failure> {
        let topic = &self.state_topic;
        let policy =
            topic_setting(&self.connection, topic, "cleanup.policy").await.map_err(kafka::failure)?;
        match policy {
            Some(policy) if policy != "compact" => Err(Failure::usage(format!(
                "topic {topic} has cleanup.policy={policy}, which would lose the collector's state: set it \
                 to compact, or correct collect.state_topic"
            ))),
            Some(_) => Ok(()),
            None => {
                tracing::warn!(topic, "cannot check that the topic has cleanup.policy=compact");
                Ok(())
            }
        }
    }

    /// Returns an error if the records read so far show that another collector has begun to write.
    fn check_holder(&self) -> Result<(), Failure> {
        if self.highest == self.holder {
            return Ok(());
        }
        Err(shut_out(&self.cluster_id, &format!("topic {}", self.state_topic)))
    }

    /// Applies a record to the state, if one is given, and remembers the highest progress record. Skips
    /// records of other clusters and of collectors that were shut out.
    fn take(&mut self, state: Option<&mut CollectorState>, message: &Message) -> Result<(), Failure> {
        let place = || format!("topic {}, offset {}", message.topic, message.offset);
        let unreadable = |error: serde_json::Error| {
            let message = "is not a record of a collector's state; set collect.state_topic to a topic of its \
                           own";
            Failure::usage(format!("{} {message} ({error})", place()))
        };
        let key = message.key.as_deref().unwrap_or_default();
        let (cluster_id, key): RecordKey = serde_json::from_slice(key).map_err(unreadable)?;
        if cluster_id != self.cluster_id {
            return Ok(());
        }
        let Some(key) = key else {
            let Some(value) = &message.value else { return Ok(()) };
            let progress: HeldProgress = serde_json::from_slice(value).map_err(unreadable)?;
            let holder = (progress.number, progress.holder);
            // A collector that does not know yet that it is shut out may still write. Its records no longer
            // count.
            if holder < self.highest {
                return Ok(());
            }
            self.highest = holder;
            if let Some(state) = state {
                let announced = std::mem::take(&mut state.announced);
                *state = CollectorState { announced, ..progress.state };
            }
            return Ok(());
        };
        let Some(state) = state else { return Ok(()) };
        match &message.value {
            None => drop(state.announced.remove(&key)),
            Some(value) => {
                state.announced.insert(key, serde_json::from_slice(value).map_err(unreadable)?);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Journal for TopicJournal {
    async fn load(&mut self) -> Result<CollectorState, Failure> {
        let mut state = CollectorState::default();
        self.read_on(Some(&mut state)).await?;
        self.check_policy().await?;
        self.progress = CollectorState {
            since: state.since,
            caught_up: state.caught_up.clone(),
            pods_version: state.pods_version.clone(),
            ..CollectorState::default()
        };
        self.holder.0 = self.highest.0 + 1;
        self.send(vec![self.progress(&self.progress)?]).await?;
        // This reads the records that an earlier collector has stored in the meantime. From now on, that
        // collector finds our record.
        self.read_on(Some(&mut state)).await?;
        self.check_holder()?;
        Ok(state)
    }

    async fn store(&mut self, batch: &Batch, _: &CollectorState) -> Result<(), NotStored> {
        let intents = batch.intents.iter().map(|(key, intent)| self.entry(key, Some(intent)));
        let mut intents = intents.collect::<Result<Vec<_>, _>>()?;
        if self.progress.since != batch.since {
            self.progress.since = batch.since;
            intents.push(self.progress(&self.progress)?);
        }
        self.send(intents).await?;
        if !batch.events.is_empty() {
            self.read_on(None).await?;
            self.check_holder().map_err(NotStored::ShutOut)?;
        }
        let events = batch.events.iter().map(|event| {
            let kind = event.payload.kind();
            Outgoing {
                topic: self.events_topic.clone(),
                key: self.organization_id.as_bytes().to_vec(),
                value: Some(self.encoder.encode(kind, &body::encode(event))),
            }
        });
        let events = events.collect();
        self.send(events).await?;
        let changes = batch.changes.iter().map(|(key, change)| self.entry(key, change.as_ref()));
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        self.send(changes).await?;
        // The progress record comes last, because a restart continues from it.
        let progress = CollectorState {
            since: batch.since,
            caught_up: batch.caught_up.clone(),
            pods_version: batch.pods_version.clone(),
            ..CollectorState::default()
        };
        self.send(vec![self.progress(&progress)?]).await?;
        self.progress = progress;
        Ok(())
    }
}
