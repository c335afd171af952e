//! Replays the messages of topics that no worker will read: topics with more partitions than the root has
//! shards, and other retired topics. Every event goes through a backfill into the shard of its organization,
//! regardless of its partition. An event that comes twice counts once, so a replay may be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::reject::Reason;

use super::replay::{FOLD_BYTES, ReplayError, Undecoded, decode};
use crate::backfill::input::InMemoryFiles;
use crate::backfill::{self, BackfillOptions, BackfillPorts};
use crate::checkpoint::log;
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::ports::{DeadLetter, ObjectStore};
use crate::root::organizations::TopicOrganizations;
use crate::source::{Message, MessageDecoder, SourceError};

/// Maximum number of examples of dead letters that are reported.
const EXAMPLES_MAX: usize = 5;

/// A reader of topics that is not a member of a consumer group.
#[async_trait]
pub trait TopicReader: Send + Sync {
    /// Returns the first offset and the end offset of each partition, in order of partition number. The
    /// result is empty if the topic does not exist.
    async fn ranges(&self, topic: &Text) -> Result<Vec<(i64, i64)>, SourceError>;

    /// Reads messages of a partition from the start of `offsets`, at most a few MiB. Returns the messages,
    /// and the offset to continue from: the end of `offsets` once all messages are read.
    async fn read(
        &self,
        topic: &Text,
        partition: Shard,
        offsets: Range<i64>,
    ) -> Result<(Vec<Message>, i64), SourceError>;
}

/// One replay of topics into a root.
pub struct TopicReplay<'a> {
    /// The ports; their input is not used.
    pub ports: BackfillPorts,
    /// The reader of the topics.
    pub reader: &'a dyn TopicReader,
    /// The decoder of their messages.
    pub decoder: &'a dyn MessageDecoder,
    /// The topics.
    pub topics: Vec<Text>,
    /// The organizations whose events the topics may bring.
    pub organizations: TopicOrganizations,
    /// The only partitions to read; `None` for all.
    pub partitions: Option<BTreeSet<Shard>>,
    /// The options for folding events.
    pub backfill: BackfillOptions,
}

/// The result of a replay of topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicsReplayed {
    /// Messages read, by topic and partition: the first offset, the end, and the number of messages.
    pub read: BTreeMap<(String, Shard), (i64, i64, u64)>,
    /// Number of events that the archive did not already hold.
    pub new: u64,
    /// Number of events that the archive already held.
    pub known: u64,
    /// Number of published hours whose rows have changed, counted once per shard.
    pub hours_restated: u64,
    /// Number of messages and events that cannot count, by reason; they become dead letters of the root.
    pub dead_letters: BTreeMap<Reason, u64>,
    /// Some of these dead letters.
    pub examples: Vec<String>,
    /// Shards that were left out, and why.
    pub left_out: BTreeMap<Shard, String>,
}

/// Events and dead letters that wait to be folded.
#[derive(Default)]
struct Unfolded {
    files: BTreeMap<String, Bytes>,
    rejected: Vec<DeadLetter>,
    bytes: u64,
}

impl TopicReplay<'_> {
    /// Folds the messages that the topics hold now. `done` is always up to date, even after an error.
    ///
    /// # Errors
    /// See [`ReplayError`]; run it again once the cause is fixed.
    pub async fn run(&self, done: &mut TopicsReplayed) -> Result<(), ReplayError> {
        let store = &*self.ports.shared.store;
        let mut unfolded = Unfolded::default();
        for topic in &self.topics {
            let ranges = self.reader.ranges(topic).await.map_err(WorkerError::Source)?;
            if ranges.is_empty() {
                let message = format!(
                    "Kafka has no topic '{topic}', so there is nothing to replay; remove it from \
                     kafka.retired_topics"
                );
                return Err(WorkerError::Configuration(message).into());
            }
            let was_read = read_before(store, topic).await?;
            for (partition, (low, end)) in (0..).zip(ranges) {
                if self.partitions.as_ref().is_some_and(|wanted| !wanted.contains(&partition)) {
                    continue;
                }
                let from = was_read.get(&partition).copied().unwrap_or(low);
                if from < low {
                    tracing::warn!(%topic, partition, from, low, "Kafka has lost messages before `low`");
                }
                let from = from.max(low).min(end);
                self.partition(topic, partition, from..end, &mut unfolded, done).await?;
            }
        }
        self.fold(unfolded, done).await
    }

    /// Reads a partition.
    async fn partition(
        &self,
        topic: &Text,
        partition: Shard,
        offsets: Range<i64>,
        unfolded: &mut Unfolded,
        done: &mut TopicsReplayed,
    ) -> Result<(), ReplayError> {
        let (mut next, mut count) = (offsets.start, 0);
        while next < offsets.end {
            let read = self.reader.read(topic, partition, next..offsets.end).await;
            let (messages, on) = read.map_err(WorkerError::Source)?;
            count += messages.len() as u64;
            self.take(format!("{topic}/{partition}/{next}.avro"), messages, unfolded).await?;
            next = on;
            done.read.insert((topic.to_string(), partition), (offsets.start, next, count));
            if unfolded.bytes >= FOLD_BYTES {
                self.fold(std::mem::take(unfolded), done).await?;
            }
        }
        Ok(())
    }

    /// Decodes messages, checks their keys and organizations, and adds the results to `unfolded`.
    async fn take(
        &self,
        path: String,
        messages: Vec<Message>,
        unfolded: &mut Unfolded,
    ) -> Result<(), ReplayError> {
        let mut events: Vec<EventRecord> = Vec::new();
        for message in messages {
            match self.event(&message).await {
                Ok(record) => events.push(record),
                Err(Undecoded::Registry(error)) => return Err(error.into()),
                Err(Undecoded::Rejected(reject)) => {
                    unfolded.bytes += message.bytes();
                    unfolded.rejected.push(DeadLetter::of(&message, reject));
                }
            }
        }
        let bodies: Vec<(EventKind, &[u8])> =
            events.iter().map(|record| (record.event.payload.kind(), &*record.body)).collect();
        let bytes = Bytes::from(self.ports.shared.archive.write(&bodies).map_err(WorkerError::Format)?);
        unfolded.bytes += bytes.len() as u64;
        unfolded.files.insert(path, bytes);
        Ok(())
    }

    async fn event(&self, message: &Message) -> Result<EventRecord, Undecoded> {
        let value = message.event_bytes().map_err(Undecoded::Rejected)?;
        let record = decode(self.decoder, value).await?;
        let organization = &record.event.organization_id;
        message.check_key(organization).map_err(Undecoded::Rejected)?;
        self.organizations.check(&message.topic, organization).map_err(Undecoded::Rejected)?;
        Ok(record)
    }

    async fn fold(&self, unfolded: Unfolded, done: &mut TopicsReplayed) -> Result<(), ReplayError> {
        let Unfolded { files, rejected, .. } = unfolded;
        if files.is_empty() {
            return Ok(());
        }
        let input = Arc::new(InMemoryFiles { files, rejected });
        let outcome =
            backfill::run(BackfillPorts { input, ..self.ports.clone() }, self.backfill.clone()).await?;
        done.new += outcome.events_new;
        done.known += outcome.events_known;
        done.hours_restated += outcome.hours_restated;
        for (reason, count) in outcome.dead_letters {
            *done.dead_letters.entry(reason).or_default() += count;
        }
        done.examples.extend(outcome.dead_letter_examples);
        done.examples.truncate(EXAMPLES_MAX);
        done.left_out.extend(outcome.left_out);
        Ok(())
    }
}

/// Returns, by shard, the next offset of a topic that workers have reached. A shard whose checkpoint cannot
/// be read is left out: its partition is read from the beginning, and known events change nothing.
async fn read_before(store: &dyn ObjectStore, topic: &Text) -> Result<BTreeMap<Shard, i64>> {
    let mut next = BTreeMap::new();
    let (decided, _broken) = log::latest_of_all(store).await?;
    for (shard, latest) in decided {
        next.extend(latest.offsets.get(topic).and_then(|read| read.next).map(|offset| (shard, offset)));
    }
    Ok(next)
}
