//! Replay: messages back to their topics, events through a backfill, and a note of each in the root.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::reject::{Reason, Reject};

use super::judge::{Currencies, Judge, Verdict, decode_file_letter};
use super::letters::{DeadLetters, Letter, LetterFile, note_replayed};
use crate::backfill::input::InMemoryFiles;
use crate::backfill::{self, BackfillOptions, BackfillPorts};
use crate::error::WorkerError;
use crate::names::Shard;
use crate::ports::{DeadLetter, Origin};
use crate::root::Root;
use crate::root::organizations::TopicOrganizations;
use crate::source::{DecodeFailure, Header, MessageDecoder, RegistryError, SourceError};

/// Bytes of events, as files in memory, that are folded at once.
pub(super) const FOLD_BYTES: u64 = 128 << 20;

/// Most letters of one reason that a report shows.
pub const EXAMPLES_PER_REASON_MAX: usize = 5;

/// How often a schema is fetched for one message.
const FETCHES_MAX: usize = 3;

/// A message on its way back to its topic: as it came, except for its timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its topic.
    pub topic: Text,
    /// Its key, which names its partition.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Its headers, in their order.
    pub headers: Vec<Header>,
}

/// The topics that messages go back to.
#[async_trait]
pub trait MessageSender: Send + Sync {
    /// Sends messages; returns once the brokers have all of them.
    async fn send(&self, messages: Vec<Outgoing>) -> Result<(), SourceError>;
}

/// What a replay needs besides the ports of a backfill.
pub struct ReplayOptions {
    /// Only letters with this reason; none: all.
    pub reason: Option<Reason>,
    /// Topics that workers read.
    pub topics: Vec<Text>,
    /// The organizations that topics may bring.
    pub organizations: TopicOrganizations,
    /// How far an event may lie in the future.
    pub max_clock_skew: Duration,
    /// Whether the rules of `backfill` were configured, and are not just the default.
    pub rules_given: bool,
    /// How events are folded.
    pub backfill: BackfillOptions,
}

/// Why a replay stopped. What was replayed before is noted.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Of the root.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// Of the schema registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Of Kafka.
    #[error("messages cannot be sent: {0}")]
    Topics(#[from] SourceError),
}

/// What a replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Messages sent back, by topic.
    pub sent: BTreeMap<String, u64>,
    /// Events folded; none where there were none.
    pub folded: Option<FoldedEvents>,
    /// What still fails, by the reason that the letter has.
    pub failing: BTreeMap<Reason, Failing>,
    /// Shards that were left out, and why: the letters are not noted as replayed.
    pub left_out: BTreeMap<Shard, String>,
}

/// Events that went through a backfill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldedEvents {
    /// All of them.
    pub events: u64,
    /// Those that the archive did not hold.
    pub new: u64,
    /// Published hours whose rows have changed, once per shard.
    pub hours_restated: u64,
}

/// Letters that still fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failing {
    /// How many.
    pub letters: u64,
    /// Some of them: where from, and why.
    pub examples: Vec<(String, String)>,
}

impl Replayed {
    fn fail(&mut self, reason: Reason, origin: impl ToString, why: String) {
        let failing = self.failing.entry(reason).or_default();
        failing.letters += 1;
        if failing.examples.len() < EXAMPLES_PER_REASON_MAX {
            failing.examples.push((origin.to_string(), why));
        }
    }

    /// Letters that still fail.
    pub fn failing_all(&self) -> u64 {
        self.failing.values().map(|failing| failing.letters).sum()
    }
}

/// One replay over a root.
pub struct Replay<'a> {
    /// The root; its input is not used.
    pub ports: BackfillPorts,
    /// Decodes messages.
    pub decoder: &'a dyn MessageDecoder,
    /// Where messages go back to.
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
    /// Replays what can count now. `done` is kept up to date, so that it also holds after an error.
    ///
    /// # Errors
    /// See [`ReplayError`]; run it again once that is fixed.
    pub async fn run(&self, letters: &DeadLetters, done: &mut Replayed) -> Result<(), ReplayError> {
        let store = &*self.ports.shared.store;
        if letters.files.is_empty() {
            return Ok(());
        }
        let (rules, given) = (&self.options.backfill.rules, self.options.rules_given);
        let root = Root::open(store, self.options.backfill.shards).await?;
        let currencies = Currencies::load(store, &letters.checkpoints, rules, given).await?;
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
        for file in &letters.files {
            let read = match letters.read(store, &*self.ports.shared.archive, file).await {
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

    /// Judges the letters of a file, sends back what goes to topics, and collects what is to be folded.
    async fn take(
        &self,
        judge: &Judge<'_>,
        file: &LetterFile,
        letters: Vec<Letter>,
        waiting: &mut Waiting,
        done: &mut Replayed,
    ) -> Result<(), ReplayError> {
        let (mut sends, mut sent) = (Vec::new(), Vec::new());
        let (mut folds, mut folded): (Vec<EventRecord>, Vec<u64>) = (Vec::new(), Vec::new());
        for Letter { index, letter, replayed } in letters {
            let reason = letter.rejected.reject.reason;
            if replayed || self.options.reason.is_some_and(|wanted| wanted != reason) {
                continue;
            }
            let decoded = self.decode(&letter).await?;
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

    async fn decode(&self, letter: &DeadLetter) -> Result<Result<EventRecord, Reject>, RegistryError> {
        if let Origin::File { .. } = letter.origin {
            return Ok(decode_file_letter(letter));
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
        // Judged by the same rules a moment ago; what is rejected anyway is a new dead letter of the root.
        for (reason, count) in &outcome.dead_letters {
            done.failing.entry(*reason).or_default().letters += count;
        }
        // Which of these letters are of a shard that was left out is not known here. Replaying the others
        // again changes nothing.
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

/// What a message's value decodes to, once its schema is fetched.
pub(super) async fn decode(
    decoder: &dyn MessageDecoder,
    value: &[u8],
) -> Result<Result<EventRecord, Reject>, RegistryError> {
    for _ in 0..FETCHES_MAX {
        match decoder.decode(value) {
            Ok(record) => return Ok(Ok(record.into_owned())),
            Err(DecodeFailure::Reject(reject)) => return Ok(Err(reject)),
            Err(DecodeFailure::NeedsSchema(id)) => decoder.fetch(id).await?,
        }
    }
    Err(RegistryError::transient("schemas are evicted as soon as they are fetched"))
}

/// The message of a letter; none for a record of a file, or a message without a key.
fn outgoing(letter: DeadLetter) -> Option<Outgoing> {
    match letter.origin {
        Origin::Message { topic, key: Some(key), headers, .. } => {
            Some(Outgoing { topic: topic.as_str().into(), key, value: letter.rejected.bytes, headers })
        }
        _ => None,
    }
}
