//! Judges the messages of a topic partition in order: whether each is the next message, decodes to an event,
//! and may count.
//!
//! `in_the_future` and `too_late` are judged here, once. The checkpoint that records the offset makes the
//! judgement final, and readers of the archive never judge again. `too_late` follows from the closed hours,
//! never from the clock, with one exception. The first hour of a shard must not be so old that it would take
//! too long to close all hours since then.

use std::collections::VecDeque;
use std::time::Duration;

use prorata_schemas::body::EventRecordRef;
use prorata_schemas::reject::{Reason, Reject, excerpt};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, WallTime};

use super::shard::LiveShard;
use super::watermark::TopicProgress;
use crate::checkpoint::LastRecord;
use crate::error::Result;
use crate::ports::DeadLetter;
use crate::root::Root;
use crate::root::organizations::TopicOrganizations;
use crate::shard::clock::ClockLimit;
use crate::shard::clock::ClockReading;
use crate::shard::rules::RuleBook;
use crate::source::{DecodeFailure, Message, MessageDecoder};
use crate::status::Counts;

/// The outcome of taking messages.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// All messages are in the shard now, or were before.
    All,
    /// The first remaining message waits for a schema.
    NeedsSchema(u32),
    /// Wall clock and witness disagree about the first remaining message.
    NeedsClock,
    /// The log no longer holds the last record that was taken, for the reason that is given.
    Differs(String),
}

/// The context for judging messages.
pub(super) struct Intake<'a> {
    pub root: &'a Root,
    pub decoder: &'a dyn MessageDecoder,
    /// The rules for judging events, each event by the rules of its hour.
    pub rules: &'a RuleBook,
    /// The configured rules, for a shard that lists no rules yet.
    pub configured: &'a Rules,
    /// The organizations whose events topics may bring.
    pub organizations: &'a TopicOrganizations,
    pub clock: ClockReading,
    /// Maximum time by which an event may lie in the future.
    pub max_clock_skew: Duration,
    /// Maximum age, in hours, of the first hour of a shard in which no hour is closed.
    pub max_history_hours: i64,
}

/// The judgement of a message.
enum Judged<'m> {
    /// An event that may count.
    Event(EventRecordRef<'m>),
    /// Bytes of an unknown schema with this id.
    NeedsSchema(u32),
    /// A message that never counts.
    Rejected(Reject),
}

impl Intake<'_> {
    /// Takes messages of one topic partition into its shard, in order. Messages that remain were not
    /// examined, except for the first.
    ///
    /// # Errors
    /// If the shard lists rules that were not loaded.
    pub fn take(
        &self,
        shard: &mut LiveShard,
        messages: &mut VecDeque<Message>,
        counts: &mut Counts,
    ) -> Result<Taken> {
        let Some(topic) = messages.front().map(|message| message.topic.clone()) else {
            return Ok(Taken::All);
        };
        let Some(place) = shard.topics_mut().get_mut(&topic) else {
            messages.clear();
            return Ok(Taken::All);
        };
        // Taken out, because each message also changes the shard.
        let mut progress = std::mem::take(place);
        let before = progress.offsets.next;
        let taken = self.take_each(shard, &mut progress, messages, counts);
        progress.last = progress.last.map(Message::detached);
        if progress.offsets.next != before {
            shard.topics_mut().note_moved();
        }
        if let Some(place) = shard.topics_mut().get_mut(&topic) {
            *place = progress;
        }
        taken
    }

    fn take_each(
        &self,
        shard: &mut LiveShard,
        progress: &mut TopicProgress,
        messages: &mut VecDeque<Message>,
        counts: &mut Counts,
    ) -> Result<Taken> {
        let is_new = shard.next().closed_through.is_none();
        let mut rules = None;
        while let Some(message) = messages.pop_front() {
            if let Some(differs) = progress.verify.take().and_then(|before| differs(&before, &message)) {
                return Ok(Taken::Differs(differs));
            }
            if progress.offsets.next.is_some_and(|next| message.offset < next) {
                continue;
            }
            let judged = self.judge(shard, &message, &mut rules)?;
            match &judged {
                Judged::Event(record) if self.in_doubt(is_new, record) => {
                    messages.push_front(message);
                    return Ok(Taken::NeedsClock);
                }
                Judged::NeedsSchema(schema) => {
                    let needs = Taken::NeedsSchema(*schema);
                    messages.push_front(message);
                    return Ok(needs);
                }
                Judged::Event(_) | Judged::Rejected(_) => {}
            }
            progress.offsets.next = Some(message.offset + 1);
            let rejected = match judged {
                Judged::Event(record) => self.accept(shard, progress, record, counts).err(),
                Judged::Rejected(reject) => Some(reject),
                Judged::NeedsSchema(_) => None,
            };
            if let Some(reject) = rejected {
                *counts.dead_letters.entry(reject.reason).or_default() += 1;
                shard.push_dead_letter(DeadLetter::of(&message, reject));
            }
            progress.last = Some(message);
        }
        Ok(Taken::All)
    }

    /// Judges a message. `rules` holds the rules for the hour of the previous event, because the next event
    /// is usually of the same hour.
    fn judge<'r, 'm>(
        &'r self,
        shard: &LiveShard,
        message: &'m Message,
        rules: &mut Option<(Hour, &'r Rules)>,
    ) -> Result<Judged<'m>> {
        let value = match message.event_bytes() {
            Ok(value) => value,
            Err(reject) => return Ok(Judged::Rejected(reject)),
        };
        let record = match self.decoder.decode(value) {
            Ok(record) => record,
            Err(DecodeFailure::NeedsSchema(schema)) => return Ok(Judged::NeedsSchema(schema)),
            Err(DecodeFailure::Reject(reject)) => return Ok(Judged::Rejected(reject)),
        };
        let hour = record.event.event_time().hour();
        let (_, rules) = match *rules {
            Some(known) if known.0 == hour => known,
            _ => {
                let listed = self.rules.judging(shard.next(), hour)?;
                *rules.insert((hour, listed.unwrap_or(self.configured)))
            }
        };
        Ok(match self.check(rules, message, &record) {
            Ok(()) => Judged::Event(record),
            Err(reject) => Judged::Rejected(reject),
        })
    }

    fn check(&self, rules: &Rules, message: &Message, record: &EventRecordRef<'_>) -> Result<(), Reject> {
        let organization = record.event.organization_id();
        message.check_key(organization)?;
        self.organizations.check(&message.topic, organization)?;
        let belongs = self.root.shard_of(organization);
        if belongs != message.partition {
            let organization = excerpt(organization);
            let message = format!(
                "organization '{organization}' belongs on partition {belongs} of {}, not {}; set \
                 partitioner=murmur2_random on librdkafka producers",
                self.root.shards, message.partition
            );
            return Err(Reject::new(Reason::KeyMismatch, message));
        }
        rules.check_ref(&record.event)?;
        self.latest_taken(self.clock.between.1).check(record.event.event_time())
    }

    fn latest_taken(&self, now: WallTime) -> ClockLimit {
        ClockLimit { now, max_clock_skew: self.max_clock_skew }
    }

    /// Returns whether only one of wall clock and witness would accept an event.
    fn in_doubt(&self, is_new: bool, record: &EventRecordRef<'_>) -> bool {
        let (earlier, later) = self.clock.between;
        let event_time = record.event.event_time();
        let hour = event_time.hour();
        let too_old = |now| is_new && self.is_too_old(hour, now);
        self.clock.ahead_seconds.is_some()
            && (self.latest_taken(earlier).check(event_time).is_err() || too_old(earlier) != too_old(later))
    }

    /// Returns whether an hour is too old to be a shard's first hour, because every hour since then would
    /// have to be closed.
    fn is_too_old(&self, hour: Hour, now: WallTime) -> bool {
        now.hour().0.saturating_sub(hour.0) > self.max_history_hours
    }

    fn accept(
        &self,
        shard: &mut LiveShard,
        progress: &mut TopicProgress,
        record: EventRecordRef<'_>,
        counts: &mut Counts,
    ) -> Result<(), Reject> {
        let (time, kind) = (record.event.event_time(), record.event.kind());
        let hour = time.hour();
        if let Some(message) = self.too_late(shard, hour) {
            return Err(Reject::new(Reason::TooLate, message));
        }
        *counts.events.entry(kind).or_default() += 1;
        progress.saw(time, self.clock.steady);
        shard.push(hour, (kind, record.body));
        Ok(())
    }

    /// Returns the reason that an event of this hour comes too late; `None` if the event is in time.
    fn too_late(&self, shard: &LiveShard, hour: Hour) -> Option<String> {
        let back = self.clock.between.0.hour().0.saturating_sub(hour.0);
        let is_too_old = self.is_too_old(hour, self.clock.between.0);
        if is_too_old && shard.next().closed_through.is_none() {
            return Some(format!(
                "hour {hour} is {back} hours ago, and every hour since would be closed one by one, more than \
                 work.max_history_hours: {}; fix the producer's clock, or raise work.max_history_hours",
                self.max_history_hours
            ));
        }
        // A replay does not fold older hours either.
        let way_out = if is_too_old {
            format!("it is {back} hours ago, so fix the producer's clock")
        } else {
            "replay it with 'prorata dead-letters --replay'".to_owned()
        };
        let is_too_late = shard.is_too_late(hour);
        is_too_late.then(|| format!("hour {hour} is closed, and no state from before it is kept; {way_out}"))
    }
}

/// Returns the reason for which a message proves that the last record taken no longer exists; `None` if it
/// does not prove this. Reading began at that record, and the log does not begin after it, so the record must
/// be the first message.
fn differs(before: &LastRecord, message: &Message) -> Option<String> {
    let found = LastRecord::of(message);
    let offset = before.offset;
    if found.offset > offset {
        return Some(before.cause_gone());
    }
    (found.offset == offset && found != *before).then(|| {
        format!(
            "the record at offset {offset} is not the one that was read before: the topic was recreated, or \
             its log has diverged"
        )
    })
}
