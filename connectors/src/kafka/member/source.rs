//! The worker's side of a group member.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{ConsumerId, Source, SourceError, SourceEvent, Start};
use rdkafka::consumer::{BaseConsumer, Consumer};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::context::Member;
use super::group::{Command, Group};
use super::queue::Queue;
use crate::kafka::admin::Probe;
use crate::kafka::client::failure;
use crate::kafka::client::settings::{KafkaSettings, wrong};

/// Maximum time that closing may take. The library waits for brokers that may be gone.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// The wait before the brokers are asked a second time about lost offsets. The first answer alone does not
/// count, because an answer just after a change of leaders may be outdated.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The source of messages for the shards that a consumer group on Kafka assigns.
pub struct KafkaSource {
    topics: Vec<Text>,
    group: String,
    queue: Arc<Queue>,
    commands: Sender<Command>,
    probe: Probe,
    /// The longest wait for the group's answer.
    patience: Duration,
    /// Resolves when the thread has ended.
    ended: Option<oneshot::Receiver<()>>,
}

impl KafkaSource {
    /// Connects, checks that the topics exist, and joins the group.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if no later attempt can succeed: wrong credentials, a missing topic.
    /// [`SourceError::Unavailable`] if no broker answers in time.
    pub async fn connect(settings: KafkaSettings) -> Result<Self, SourceError> {
        let config = settings.member()?;
        let topics: Vec<Text> = settings.topics.iter().map(|topic| Text::from(topic.as_str())).collect();
        let probe = Probe::start(&settings.connection)?;
        let asked = topics.clone();
        let found = probe.ask(move |client| client.partitions(&asked)).await?;
        if let Some((topic, _)) = found.iter().find(|(_, partitions)| **partitions == 0) {
            return Err(wrong(format!(
                "Kafka at {} has no topic {topic}: create it with as many partitions as root.shards, \
                 or correct kafka.topics",
                settings.connection.brokers
            )));
        }
        let member = Member::new(&settings.connection);
        let consumer: BaseConsumer<Member> =
            config.create_with_context(member).map_err(|error| failure::creation(&error))?;
        let names: Vec<&str> = settings.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&names).map_err(|error| failure::creation(&error))?;
        Self::spawn(settings, found, probe, consumer)
    }

    fn spawn(
        settings: KafkaSettings,
        counts: BTreeMap<Text, u32>,
        probe: Probe,
        consumer: BaseConsumer<Member>,
    ) -> Result<Self, SourceError> {
        let topics: Vec<Text> = counts.keys().cloned().collect();
        let (queue, patience) = (Arc::new(Queue::new(settings.queue_bytes)), settings.connection.timeout);
        let (commands, received) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        let group = settings.group.clone();
        let (to, asked) = (Arc::clone(&queue), probe.clone());
        let run = move || {
            let consumer = Arc::new(consumer);
            // The worker is notified in whatever way the thread ends.
            let ending = Ending(Arc::clone(&to));
            match Group::new(&settings, &consumer, to, received, asked, counts) {
                Some(group) => group.run(),
                None => consumer.context().close(),
            }
            drop(ending);
            drop(consumer);
            // The caller may have given up.
            let _ = end.send(());
        };
        let spawned = thread::Builder::new().name("kafka-group".into()).spawn(run);
        spawned.map_err(|error| SourceError::Unavailable(format!("a thread cannot be started: {error}")))?;
        Ok(Self { topics, group, queue, commands, probe, patience, ended: Some(ended) })
    }

    /// Sends a command to the thread. If the thread has ended, the command is dropped, and the next poll
    /// returns the error.
    fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::debug!("the thread that reads Kafka has ended");
        }
    }

    /// Returns the first offset and the end of topic partitions of a shard.
    async fn ranges(
        &self,
        shard: Shard,
        topics: Vec<Text>,
    ) -> Result<BTreeMap<Text, (i64, i64)>, SourceError> {
        self.probe
            .ask(move |client| {
                let range = |topic: Text| client.range(&topic, i32::from(shard)).map(|range| (topic, range));
                topics.into_iter().map(range).collect()
            })
            .await
    }

    /// Returns a signal for each offset that Kafka does not have.
    async fn lost(&self, shard: Shard, at: &BTreeMap<Text, i64>) -> Result<Vec<SourceEvent>, SourceError> {
        let ranges = self.ranges(shard, at.keys().cloned().collect()).await?;
        let lost = at.iter().filter_map(|(topic, at)| {
            let (low, high) = ranges.get(topic)?;
            let outside = at < low || at > high;
            outside.then(|| SourceEvent::OffsetsLost {
                topic: topic.clone(),
                partition: shard,
                earliest: (at < low).then_some(*low),
                cause: format!("offset {at} no longer exists: Kafka has {low} to {high}"),
            })
        });
        Ok(lost.collect())
    }
}

/// A guard that, when it is dropped, notifies the worker that no more signals will come.
struct Ending(Arc<Queue>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.fail(SourceError::Unavailable("the source is closed".into()));
    }
}

#[async_trait]
impl Source for KafkaSource {
    async fn consumer(&mut self) -> Result<ConsumerId, SourceError> {
        let cluster_id = self.probe.ask(|client| Ok(client.cluster_id())).await?;
        Ok(ConsumerId { group_id: self.group.clone(), cluster_id })
    }

    async fn partitions(&mut self) -> Result<BTreeMap<Text, u32>, SourceError> {
        let topics = self.topics.clone();
        self.probe.ask(move |client| client.partitions(&topics)).await
    }

    async fn poll(&mut self, wait: Duration) -> Result<Vec<SourceEvent>, SourceError> {
        self.queue.poll(wait).await
    }

    async fn start(&mut self, shard: Shard, mut from: BTreeMap<Text, Start>) -> Result<(), SourceError> {
        if let Some(topic) = from.keys().find(|topic| !self.topics.contains(*topic)) {
            return Err(wrong(format!(
                "topic {topic} is not in kafka.topics, but shard {shard} was read from it: add it"
            )));
        }
        let at = from.iter().filter_map(|(topic, start)| match start {
            Start::Earliest => None,
            Start::At(offset) => Some((topic.clone(), *offset)),
        });
        let at: BTreeMap<Text, i64> = at.collect();
        let mut lost = self.lost(shard, &at).await?;
        if !lost.is_empty() {
            sleep(ASK_AGAIN).await;
            lost = self.lost(shard, &at).await?;
        }
        let Some(reading) = self.queue.begin(shard) else { return Ok(()) };
        for event in &lost {
            if let SourceEvent::OffsetsLost { topic, .. } = event {
                from.remove(topic);
            }
        }
        self.send(Command::Start { shard, reading, from });
        for event in lost {
            self.queue.read(shard, reading, event);
        }
        Ok(())
    }

    async fn release(&mut self, shards: &[Shard]) {
        self.queue.end(shards);
        self.send(Command::Release(shards.to_vec()));
    }

    async fn assigned(&mut self, shard: Shard) -> Result<bool, SourceError> {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Assigned { shard, answer });
        let silent = || Err(SourceError::Unavailable("the consumer group does not answer".into()));
        timeout(self.patience, answered)
            .await
            .map_or_else(|_| silent(), |answer| answer.unwrap_or_else(|_| silent()))
    }

    fn commit(&mut self, shard: Shard, next: &BTreeMap<Text, i64>) {
        self.send(Command::Commit { shard, next: next.clone() });
    }

    async fn close(&mut self) {
        self.send(Command::Close);
        let Some(ended) = self.ended.take() else { return };
        if timeout(CLOSE_MAX, ended).await.is_err() {
            tracing::warn!(
                "Kafka did not answer while this member left its group; the group will notice on its own"
            );
        }
    }
}
