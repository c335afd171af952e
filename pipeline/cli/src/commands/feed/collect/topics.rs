//! Events as messages, and the state in a compacted topic: one record for each announced object and one for
//! how far the cluster is known, all keyed by cluster.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prorata_collector::{Announced, Batch, CollectorState, Key};
use prorata_connectors::kafka::{Connection, KafkaProducer, KafkaReader, KafkaSettings};
use prorata_connectors::messages::MessageEncoder;
use prorata_schemas::{Text, body};
use prorata_worker::dead_letters::TopicReader;
use prorata_worker::names::Shard;
use prorata_worker::source::{Message, SourceError};

use super::journal::Journal;
use crate::failure::Failure;
use crate::wiring::kafka;

/// How long a message may wait for a broker before it is sent again.
const PATIENCE: Duration = Duration::from_secs(30);

/// A record's key: the cluster, and the object or none for how far the cluster is known.
type RecordKey = (Text, Option<Key>);

/// A message to send; without a value it removes its key.
struct Outgoing {
    topic: String,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// Topics of events and of the state.
pub struct TopicJournal {
    connection: Connection,
    encoder: MessageEncoder,
    events_topic: String,
    state_topic: String,
    organization_id: String,
    cluster_id: Text,
    producer: Option<Arc<KafkaProducer>>,
    /// How far the cluster is known, as stored; without entries.
    progress: CollectorState,
}

impl TopicJournal {
    /// A journal in these topics. Nothing is connected yet.
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
        // A producer that has failed once says so ever after: only one that has not is kept.
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
        self.record(None, Some(serde_json::to_vec(progress).map_err(Failure::storage)?))
    }

    /// Takes a record into the state; records of other clusters are passed over.
    fn take(&self, state: &mut CollectorState, message: &Message) -> Result<(), Failure> {
        let place = || format!("topic {}, offset {}", message.topic, message.offset);
        let unreadable = |error: serde_json::Error| {
            let message = "is no record of a collector's state; give collect.state_topic a topic of its own";
            Failure::usage(format!("{} {message} ({error})", place()))
        };
        let key = message.key.as_deref().unwrap_or_default();
        let (cluster_id, key): RecordKey = serde_json::from_slice(key).map_err(unreadable)?;
        if cluster_id != self.cluster_id {
            return Ok(());
        }
        match (key, &message.value) {
            (Some(key), None) => drop(state.announced.remove(&key)),
            (Some(key), Some(value)) => {
                state.announced.insert(key, serde_json::from_slice(value).map_err(unreadable)?);
            }
            (None, Some(value)) => {
                let progress: CollectorState = serde_json::from_slice(value).map_err(unreadable)?;
                let announced = std::mem::take(&mut state.announced);
                *state = CollectorState { announced, ..progress };
            }
            (None, None) => {}
        }
        Ok(())
    }
}

#[async_trait]
impl Journal for TopicJournal {
    async fn load(&mut self) -> Result<CollectorState, Failure> {
        let topic = Text::from(self.state_topic.as_str());
        let settings =
            KafkaSettings::new(self.connection.clone(), vec![self.state_topic.clone()], "prorata-collect");
        let reader = KafkaReader::new(&settings).map_err(kafka::failure)?;
        let ranges = reader.ranges(&topic).await.map_err(kafka::failure)?;
        if ranges.is_empty() {
            return Err(Failure::usage(format!(
                "Kafka at {} has no topic {topic}: create it with cleanup.policy=compact, or correct \
                 collect.state_topic",
                self.connection.brokers
            )));
        }
        let mut state = CollectorState::default();
        for (partition, (mut from, end)) in ranges.into_iter().enumerate() {
            let partition = Shard::try_from(partition).map_err(Failure::usage)?;
            while from < end {
                let (messages, next) =
                    reader.read(&topic, partition, (from, end)).await.map_err(kafka::failure)?;
                for message in &messages {
                    self.take(&mut state, message)?;
                }
                from = next;
            }
        }
        self.progress = CollectorState {
            since: state.since,
            caught_up: state.caught_up.clone(),
            pods_version: state.pods_version.clone(),
            ..CollectorState::default()
        };
        Ok(state)
    }

    async fn store(&mut self, batch: &Batch) -> Result<(), Failure> {
        let intents = batch.intents.iter().map(|(key, intent)| self.entry(key, Some(intent)));
        let mut intents = intents.collect::<Result<Vec<_>, _>>()?;
        if self.progress.since != batch.since {
            self.progress.since = batch.since;
            intents.push(self.progress(&self.progress)?);
        }
        self.send(intents).await?;
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
        // How far is known comes last: a restart goes on from there.
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
