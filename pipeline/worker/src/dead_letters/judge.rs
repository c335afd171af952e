//! Judges what to do with a dead letter now, as a pure function of the letter and its decoded bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::body;
use prorata_schemas::body::wire::put_long;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, WallTime, micros};

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::names::Shard;
use crate::ports::{DeadLetter, ObjectStore, Origin};
use crate::root::Root;
use crate::root::organizations::TopicOrganizations;
use crate::shard::rules::{RuleBook, RulesByHour};

/// The action for a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The message goes back to its topic in its original form, and the worker will accept it.
    Send,
    /// The event goes through a backfill.
    Fold(Box<EventRecord>),
    /// The letter would be rejected again.
    Fails(Refusal),
}

/// The reason that a dead letter would be rejected again. The messages say what to do first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes still do not decode to an event.
    #[error(transparent)]
    Reject(#[from] Reject),
    /// The producer sent the event with a key other than its organization. The field holds the message of the
    /// letter.
    #[error("{0}; fix the producer, and send the event again")]
    KeyMismatch(String),
    /// The event lies further in the future than the clock skew allows.
    #[error(
        "event_time is still {seconds} s in the future; fix the producer's clock, and send the event again"
    )]
    InTheFuture {
        /// Number of seconds from now to the event time.
        seconds: i64,
    },
    /// The event is older than the hours that a backfill folds.
    #[error(
        "event_time is {hours} hours ago, more than backfill.max_hours: {max_hours}; fix the producer's \
         clock, and send the event again, or raise backfill.max_hours"
    )]
    TooOld {
        /// Number of hours from the event time to now.
        hours: i64,
        /// Maximum number of hours that a backfill folds of one shard.
        max_hours: i64,
    },
    /// No worker reads the letter's topic.
    #[error(
        "topic '{0}' is not in kafka.topics, so nobody would read it; add it to the configuration, and name \
         the configuration with --config"
    )]
    TopicNotRead(String),
    /// The message's key is not the organization of its event, so the message may be on another
    /// organization's partition.
    #[error("its key is not its organization_id '{0}'; fix the producer, and send the event again")]
    WrongKey(OrganizationId),
}

/// The currency in which the prices of each organization must be.
#[derive(Clone, Debug)]
pub struct Currencies {
    configured: Arc<Rules>,
    /// The rules on each shard's list.
    listed: BTreeMap<Shard, RulesByHour>,
    /// The hour from which a shard's worker would judge by the configured rules.
    renewed: BTreeMap<Shard, Hour>,
}

impl Currencies {
    /// Reads the listed rules of every shard. `given` says whether `configured` comes from the configuration
    /// and is not just the default.
    ///
    /// # Errors
    /// If storage is unavailable, or rules cannot be read.
    pub async fn load(
        store: &dyn ObjectStore,
        checkpoints: &BTreeMap<Shard, Checkpoint>,
        configured: &Rules,
        given: bool,
    ) -> Result<Self> {
        let mut book = RuleBook::default();
        let mut currencies = Self {
            configured: Arc::new(configured.clone()),
            listed: BTreeMap::new(),
            renewed: BTreeMap::new(),
        };
        for (shard, checkpoint) in checkpoints {
            if checkpoint.rules.is_empty() {
                continue;
            }
            book.load(store, &checkpoint.rules).await?;
            currencies.listed.insert(*shard, book.for_judging(checkpoint)?);
            // A worker keeps the last listed version, unless its own version is new.
            if given && checkpoint.rules.iter().all(|rules| rules.version != configured.version) {
                let open = checkpoint.closed_through.map_or(Hour(i64::MIN), Hour::next);
                currencies.renewed.insert(*shard, open);
            }
        }
        Ok(currencies)
    }

    /// Creates the currencies of one set of rules, for roots that list no rules.
    pub fn of(rules: Rules) -> Self {
        Self { configured: Arc::new(rules), listed: BTreeMap::new(), renewed: BTreeMap::new() }
    }

    /// Returns the rules by which a backfill judges an event of this hour.
    fn of_backfill(&self, shard: Shard, hour: Hour) -> &Rules {
        self.listed.get(&shard).and_then(|listed| listed.of(hour)).unwrap_or(&self.configured)
    }

    /// Returns the rules by which a worker with this configuration judges an event of this hour.
    fn of_worker(&self, shard: Shard, hour: Hour) -> &Rules {
        let is_renewed = self.renewed.get(&shard).is_some_and(|from| hour >= *from);
        if is_renewed { &self.configured } else { self.of_backfill(shard, hour) }
    }
}

/// Judges dead letters.
#[derive(Clone, Debug)]
pub struct Judge<'a> {
    /// The root's choices.
    pub root: &'a Root,
    /// The currencies of the root.
    pub currencies: &'a Currencies,
    /// Topics that workers read.
    pub topics: &'a [Text],
    /// The organizations whose events topics may bring.
    pub organizations: &'a TopicOrganizations,
    /// The time of the wall clock.
    pub now: WallTime,
    /// Maximum time by which an event may lie in the future.
    pub max_clock_skew: Duration,
    /// Maximum number of hours that a backfill folds of one shard.
    pub max_hours: i64,
}

impl Judge<'_> {
    /// Returns what to do with a letter, given the result of decoding its bytes.
    pub fn judge(&self, letter: &DeadLetter, decoded: Result<EventRecord, Reject>) -> Verdict {
        let verdict = match &letter.origin {
            Origin::File { .. } => decoded.map_err(Refusal::from).and_then(|record| self.fold(record)),
            Origin::Message { topic, key, .. } => self.message(letter, topic, key.as_deref(), decoded),
        };
        verdict.unwrap_or_else(Verdict::Fails)
    }

    fn message(
        &self,
        letter: &DeadLetter,
        topic: &str,
        key: Option<&[u8]>,
        decoded: Result<EventRecord, Reject>,
    ) -> Result<Verdict, Refusal> {
        let reason = letter.rejected.reject.reason;
        let record = decoded?;
        // If the key is the event's organization, only the partition was wrong, for example in a topic that
        // has grown.
        let has_own_key = key == Some(record.event.organization_id.as_bytes());
        if reason == Reason::KeyMismatch && !has_own_key {
            return Err(Refusal::KeyMismatch(letter.rejected.reject.message.clone()));
        }
        self.organizations.check(topic, &record.event.organization_id)?;
        if matches!(reason, Reason::TooLate | Reason::InTheFuture | Reason::KeyMismatch) {
            let ahead = record.event.event_time.0.saturating_sub(self.now.event_time().0);
            let skew = micros(self.max_clock_skew);
            if ahead > skew {
                return Err(Refusal::InTheFuture { seconds: ahead / 1_000_000 });
            }
            let back = self.now.hour().0.saturating_sub(record.event.event_time.hour().0);
            if back > self.max_hours {
                return Err(Refusal::TooOld { hours: back, max_hours: self.max_hours });
            }
            return self.fold(record);
        }
        if !self.topics.iter().any(|read| &**read == topic) {
            return Err(Refusal::TopicNotRead(topic.to_owned()));
        }
        let organization = &record.event.organization_id;
        if !has_own_key {
            return Err(Refusal::WrongKey(organization.clone()));
        }
        let rules =
            self.currencies.of_worker(self.root.shard_of(organization), record.event.event_time.hour());
        rules.check(&record.event)?;
        Ok(Verdict::Send)
    }

    fn fold(&self, record: EventRecord) -> Result<Verdict, Refusal> {
        let rules = self
            .currencies
            .of_backfill(self.root.shard_of(&record.event.organization_id), record.event.event_time.hour());
        rules.check(&record.event)?;
        Ok(Verdict::Fold(Box::new(record)))
    }
}

/// Decodes the record of a letter from a file. The letter does not hold the writer's schema. So its bytes
/// count only if they are the canonical body of an event of the type that the letter's message names. The
/// index of a branch of the archive's union may precede the body.
///
/// # Errors
/// If the bytes do not count; the error says how to fix the file instead.
pub fn decode_file_letter(letter: &DeadLetter) -> Result<EventRecord, Reject> {
    let reject = &letter.rejected.reject;
    let again = || {
        let Origin::File { path, .. } = &letter.origin else { return reject.clone() };
        let message = format!(
            "{}; fix '{path}' at its source, and fold it again with 'prorata backfill --events'",
            reject.message
        );
        Reject::new(reject.reason, message)
    };
    let named = reject.message.split('.').next().unwrap_or_default();
    let kind = EventKind::ALL.into_iter().find(|kind| kind.name() == named).ok_or_else(again)?;
    let bytes = &*letter.rejected.bytes;
    let mut branch = Vec::new();
    put_long(&mut branch, kind as i64);
    let bodies = [Some(bytes), bytes.strip_prefix(&*branch)];
    bodies.into_iter().flatten().find_map(|body| canonical(kind, body)).ok_or_else(again)
}

fn canonical(kind: EventKind, bytes: &[u8]) -> Option<EventRecord> {
    let record = EventRecord::new(body::decode(kind, bytes).ok()?);
    (*record.body == *bytes).then_some(record)
}
