//! Replay: sends messages back to their topics, passes events through a backfill, and records both in the
//! root.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::reject::{Reason, Reject};

use super::files::{DeadLetterObject, DeadLetters, StoredDeadLetter, note_replayed};
use super::judge::{Currencies, Judge, Verdict, decode_file_letter};
use crate::backfill::input::InMemoryFiles;
use crate::backfill::{self, BackfillOptions, BackfillPorts};
use crate::error::WorkerError;
use crate::names::Shard;
use crate::ports::{DeadLetter, Origin};
use crate::root::Root;
use crate::root::organizations::TopicOrganizations;
use crate::source::{DecodeFailure, Header, MessageDecoder, RegistryError, SourceError};

/// Bytes of event files that gather in memory before they are folded.
pub(super) const FOLD_BYTES: u64 = 128 << 20;

/// Maximum number of dead letters of one reason that a report shows.
pub const EXAMPLES_PER_REASON_MAX: usize = 5;

/// Maximum number of attempts to fetch a schema for one message.
const FETCHES_MAX: usize = 3;

/// A message on its way back to its topic, in its original form except for its timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The message's topic.
    pub topic: Text,
    /// The message's key, which determines its partition.
    pub key: Vec<u8>,
    /// The message's value.
    pub value: Vec<u8>,
    /// The message's headers, in order.
    pub headers: Vec<Header>,
}

/// A sender of messages back to their topics.
#[async_trait]
pub trait MessageSender: Send + Sync {
    /// Sends messages; returns once the brokers have all of them.
    async fn send(&self, messages: Vec<Outgoing>) -> Result<(), SourceError>;
}

/// The options of a replay.
pub struct ReplayOptions {
    /// The reason whose dead letters are replayed; `None` for all reasons.
    pub reason: Option<Reason>,
    /// Topics that workers read.
    pub topics: Vec<Text>,
    /// The organizations whose events topics may bring.
    pub organizations: TopicOrganizations,
    /// Maximum time by which an event may lie in the future.
    pub max_clock_skew: Duration,
    /// Whether the rules of `backfill` were configured and are not just the default.
    pub rules_given: bool,
    /// The options for folding events.
    pub backfill: BackfillOptions,
}

/// The error that stopped a replay. Dead letters that were replayed before the error are recorded.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// An error of the root.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// An error of the schema registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// An error of Kafka.
    #[error("messages cannot be sent: {0}")]
    Topics(#[from] SourceError),
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of messages sent back, by topic.
    pub sent: BTreeMap<String, u64>,
    /// Events folded; `None` if there were none.
    pub folded: Option<FoldedEvents>,
    /// Dead letters that still fail, by the reason of the letter.
    pub failing: BTreeMap<Reason, Failing>,
    /// Shards that were left out, each with the reason. While there are any, no folded dead letter is
    /// recorded as replayed.
    pub left_out: BTreeMap<Shard, String>,
}

/// Events that went through a backfill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldedEvents {
    /// Number of events.
    pub events: u64,
    /// Number of events that the archive did not already hold.
    pub new: u64,
    /// Number of published hours whose rows have changed, counted once per shard.
    pub hours_restated: u64,
}

/// Dead letters that still fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failing {
    /// Number of dead letters.
    pub count: u64,
    /// Some of the dead letters: the origin and the cause of each.
    pub examples: Vec<(String, String)>,
}

impl Replayed {
    fn fail(&mut self, reason: Reason, origin: impl ToString, why: String) {
        let failing = self.failing.entry(reason).or_default();
        failing.count += 1;
        if failing.examples.len() < EXAMPLES_PER_REASON_MAX {
            failing.examples.push((origin.to_string(), why));
        }
    }

    /// Returns the number of dead letters that still fail.
    pub fn failing_all(&self) -> u64 {
        self.failing.values().map(|failing| failing.count).sum()
    }
}

/// One replay over a root.
pub struct Replay<'a> {
    /// The ports; their input is not used.
    pub ports: BackfillPorts,
    /// The decoder of messages.
    pub decoder: &'a dyn MessageDecoder,
    /// The sender to the topics.
    pub topics: &'a dyn MessageSender,
    /// The options.
    pub options: ReplayOptions,
}

/// Events that wait to be folded.
#[derive(Default)]
struct Waiting {
    files: BTreeMap<String, Bytes>,
    bytes: u64,
    places: Vec<(String, Vec<u64>)>,
}

impl Replay<'_> {
    /// Replays the dead letters that can count now. `done` is always up to date, even after an error.
    ///
    /// # Errors
    /// See [`ReplayError`]; run it again once the cause is fixed.
    pub async fn run(&self, dead_letters: &DeadLetters, done: &mut Replayed) -> Result<(), ReplayError> {
        let store = &*self.ports.shared.store;
        if dead_letters.files.is_empty() {
            return Ok(());
        }
        let (rules, given) = (&self.options.backfill.rules, self.options.rules_given);
        let root = Root::open(store, self.options.backfill.shards).await?;
        let currencies = Currencies::load(store, &dead_letters.checkpoints, rules, given).await?;
        let judge = Judge {
            root: &root,
            currencies: &currencies,
            topics: &self.options.topics,
            organizations: &self.options.organizations,
            now: self.ports.shared.clock.now(),
            max_clock_skew: self.options.max_clock_skew,
            max_hours: self.options.backfill.max_hours,
        };
        let mut waiting = Waiting::default();
        for file in &dead_letters.files {
            let read = match dead_letters.read(store, &*self.ports.shared.archive, file).await {
                Err(error) if error.is_of_one_shard() => {
                    tracing::warn!(%error, "file of dead letters left out");
                    continue;
                }
                read => read?,
            };
            self.take(&judge, file, read, &mut waiting, done).await?;
            if waiting.bytes >= FOLD_BYTES {
                self.fold(std::mem::take(&mut waiting), done).await?;
            }
        }
        self.fold(waiting, done).await
    }

    /// Judges the dead letters of a file, sends messages back to topics, and collects the events to fold.
    async fn take(
        &self,
        judge: &Judge<'_>,
        file: &DeadLetterObject,
        dead_letters: Vec<StoredDeadLetter>,
        waiting: &mut Waiting,
        done: &mut Replayed,
    ) -> Result<(), ReplayError> {
        let (mut sends, mut sent) = (Vec::new(), Vec::new());
        let (mut folds, mut folded): (Vec<EventRecord>, Vec<u64>) = (Vec::new(), Vec::new());
        for StoredDeadLetter { index, letter, replayed } in dead_letters {
            let reason = letter.rejected.reject.reason;
            if replayed || self.options.reason.is_some_and(|wanted| wanted != reason) {
                continue;
            }
            let decoded = match self.decode(&letter).await {
                Ok(record) => Ok(record),
                Err(Undecoded::Rejected(reject)) => Err(reject),
                Err(Undecoded::Registry(error)) => return Err(error.into()),
            };
            match judge.judge(&letter, decoded) {
                Verdict::Send => {
                    sends.extend(outgoing(letter));
                    sent.push(index);
                }
                Verdict::Fold(record) => {
                    folds.push(*record);
                    folded.push(index);
                }
                Verdict::Fails(refusal) => done.fail(reason, letter.origin, refusal.to_string()),
            }
        }
        if !folds.is_empty() {
            let bodies: Vec<(EventKind, &[u8])> =
                folds.iter().map(|record| (record.event.payload.kind(), &*record.body)).collect();
            let bytes = Bytes::from(self.ports.shared.archive.write(&bodies).map_err(WorkerError::Format)?);
            waiting.bytes += bytes.len() as u64;
            waiting.files.insert(file.path.clone(), bytes);
            waiting.places.push((file.path.clone(), folded));
        }
        if !sends.is_empty() {
            let topics: Vec<Text> = sends.iter().map(|message: &Outgoing| message.topic.clone()).collect();
            self.topics.send(sends).await?;
            for topic in topics {
                *done.sent.entry(topic.to_string()).or_default() += 1;
            }
            note_replayed(&*self.ports.shared.store, &file.path, &sent).await?;
        }
        Ok(())
    }

    async fn decode(&self, letter: &DeadLetter) -> Result<EventRecord, Undecoded> {
        if let Origin::File { .. } = letter.origin {
            return decode_file_letter(letter).map_err(Undecoded::Rejected);
        }
        decode(self.decoder, &letter.rejected.bytes).await
    }

    async fn fold(&self, waiting: Waiting, done: &mut Replayed) -> Result<(), ReplayError> {
        if waiting.files.is_empty() {
            return Ok(());
        }
        let events: u64 = waiting.places.iter().map(|(_, places)| places.len() as u64).sum();
        let ports = BackfillPorts { input: Arc::new(InMemoryFiles::of(waiting.files)), ..self.ports.clone() };
        let outcome = backfill::run(ports, self.options.backfill.clone()).await?;
        let folded = done.folded.get_or_insert_default();
        folded.events += events;
        folded.new += outcome.events_new;
        folded.hours_restated += outcome.hours_restated;
        // The same rules judged them a moment ago; a letter that is rejected anyway is a new dead letter of
        // the root.
        for (reason, count) in &outcome.dead_letters {
            done.failing.entry(*reason).or_default().count += count;
        }
        // It is not known here which of these dead letters belong to a shard that was left out. Replaying the
        // others again changes nothing.
        done.left_out.extend(outcome.left_out);
        if !done.left_out.is_empty() {
            return Ok(());
        }
        for (file, places) in waiting.places {
            note_replayed(&*self.ports.shared.store, &file, &places).await?;
        }
        Ok(())
    }
}

/// The reason that a message's value is not decoded.
pub(super) enum Undecoded {
    /// The value is not an event.
    Rejected(Reject),
    /// The registry does not return its schema.
    Registry(RegistryError),
}

/// Decodes a message's value. Fetches the schema first if it is not known yet.
pub(super) async fn decode(decoder: &dyn MessageDecoder, value: &[u8]) -> Result<EventRecord, Undecoded> {
    for _ in 0..FETCHES_MAX {
        match decoder.decode(value) {
            Ok(record) => return Ok(record.into_owned()),
            Err(DecodeFailure::Reject(reject)) => return Err(Undecoded::Rejected(reject)),
            Err(DecodeFailure::NeedsSchema(id)) => decoder.fetch(id).await.map_err(Undecoded::Registry)?,
        }
    }
    let evicted = RegistryError::transient("schemas are evicted as soon as they are fetched");
    Err(Undecoded::Registry(evicted))
}

/// Returns the message of a letter, or `None` for a record from a file or a message without a key.
fn outgoing(letter: DeadLetter) -> Option<Outgoing> {
    match letter.origin {
        Origin::Message { topic, key: Some(key), headers, .. } => {
            Some(Outgoing { topic: topic.as_str().into(), key, value: letter.rejected.bytes, headers })
        }
        _ => None,
    }
}
