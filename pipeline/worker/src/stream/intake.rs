//! One message after another: is it the next, what does it decode to, and may it count?
//!
//! `in_the_future` and `too_late` are judged here, once; the checkpoint that takes the offset makes it final,
//! and readers of the archive never judge again. What is too late follows from the hours that are closed,
//! never from the clock, with one exception: the first hour of a shard must not lie so far back that closing
//! all hours since would never end.

use std::time::Duration;

use prorata_schemas::event::EventRecord;
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, WallTime};

use super::shard::LiveShard;
use crate::checkpoint::LastRecord;
use crate::error::Result;
use crate::ports::DeadLetter;
use crate::root::Root;
use crate::root::rules::RuleBook;
use crate::shard::clock::ClockReading;
use crate::shard::clock_limit::ClockLimit;
use crate::source::{DecodeFailure, Message, MessageDecoder};
use crate::status::Counts;

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is in the shard now, or was before.
    Done,
    /// It waits for a schema, and is handed back.
    NeedsSchema(Box<Message>, u32),
    /// Wall clock and witness disagree about it, and it is handed back.
    NeedsClock(Box<Message>),
    /// It is not the record that was there before.
    Differs(String),
}

/// What judging a message takes.
pub(super) struct Intake<'a> {
    pub root: &'a Root,
    pub decoder: &'a dyn MessageDecoder,
    /// The rules by which events are judged, each by those of its hour.
    pub rules: &'a RuleBook,
    /// The rules of a shard that lists none yet.
    pub configured: &'a Rules,
    pub clock: ClockReading,
    /// How far an event may lie in the future.
    pub max_clock_skew: Duration,
    /// How many hours before the wall clock a shard that has closed none may begin.
    pub hours_max: i64,
}

impl Intake<'_> {
    /// Takes a message of this shard.
    ///
    /// # Errors
    /// When the shard lists rules that were not loaded.
    pub fn take(&self, shard: &mut LiveShard, message: Message, counts: &mut Counts) -> Result<Taken> {
        let is_new = shard.next().closed_through.is_none();
        let Some(topic) = shard.topics_mut().get_mut(&message.topic) else { return Ok(Taken::Done) };
        if let Some(before) = topic.verify.take() {
            let found = LastRecord::of(&message);
            if found.offset == before.offset && found != before {
                return Ok(Taken::Differs(format!(
                    "the record at offset {} is not the one that was read before: the topic was recreated, \
                     or its log has diverged",
                    found.offset
                )));
            }
        }
        if topic.offsets.next.is_some_and(|next| message.offset < next) {
            return Ok(Taken::Done);
        }
        let verdict = match self.judge(shard, &message)? {
            Ok(record) if self.in_doubt(is_new, &record) => return Ok(Taken::NeedsClock(Box::new(message))),
            Err(DecodeFailure::NeedsSchema(schema)) => {
                return Ok(Taken::NeedsSchema(Box::new(message), schema));
            }
            Err(DecodeFailure::Reject(reject)) => Err(reject),
            Ok(record) => Ok(record),
        };
        if let Some(topic) = shard.topics_mut().get_mut(&message.topic) {
            topic.offsets.next = Some(message.offset + 1);
        }
        shard.topics_mut().note_moved();
        match verdict {
            Ok(record) => self.accept(shard, &message, record, counts),
            Err(reject) => self.reject(shard, &message, reject, counts),
        }
        if let Some(topic) = shard.topics_mut().get_mut(&message.topic) {
            topic.last = Some(message);
        }
        Ok(Taken::Done)
    }

    fn judge(&self, shard: &LiveShard, message: &Message) -> Result<Result<EventRecord, DecodeFailure>> {
        let value = match message.event_bytes() {
            Ok(value) => value,
            Err(reject) => return Ok(Err(DecodeFailure::Reject(reject))),
        };
        let record = match self.decoder.decode(value) {
            Ok(record) => record,
            Err(failure) => return Ok(Err(failure)),
        };
        let listed = self.rules.judging(shard.next(), record.event.event_time.hour())?;
        let checked = self.check(listed.unwrap_or(self.configured), message, &record);
        Ok(checked.map(|()| record).map_err(DecodeFailure::Reject))
    }

    fn check(&self, rules: &Rules, message: &Message, record: &EventRecord) -> Result<(), Reject> {
        let organization = &*record.event.organization_id;
        message.check_key(organization)?;
        let belongs = self.root.shard_of(organization);
        if belongs != message.partition {
            let sentence = format!(
                "organization '{organization}' belongs on partition {belongs} of {}, not {}; set \
                 partitioner=murmur2_random on librdkafka producers",
                self.root.shards, message.partition
            );
            return Err(Reject::new(Reason::KeyMismatch, sentence));
        }
        rules.check(&record.event)?;
        self.latest_taken(self.clock.between.1).check(record.event.event_time)
    }

    fn latest_taken(&self, now: WallTime) -> ClockLimit {
        ClockLimit { now, max_clock_skew: self.max_clock_skew }
    }

    /// Whether only one of wall clock and witness would take an event.
    fn in_doubt(&self, is_new: bool, record: &EventRecord) -> bool {
        let (earlier, later) = self.clock.between;
        let hour = record.event.event_time.hour();
        let too_old = |now| is_new && self.is_too_old(hour, now);
        self.clock.ahead_seconds.is_some()
            && (self.latest_taken(earlier).check(record.event.event_time).is_err()
                || too_old(earlier) != too_old(later))
    }

    /// Whether the first hour of a shard would lie further back than all hours since can be closed.
    fn is_too_old(&self, hour: Hour, now: WallTime) -> bool {
        now.hour().0.saturating_sub(hour.0) > self.hours_max
    }

    fn accept(&self, shard: &mut LiveShard, message: &Message, record: EventRecord, counts: &mut Counts) {
        let (time, kind) = (record.event.event_time, record.event.payload.kind());
        let hour = time.hour();
        if let Some(sentence) = self.too_late(shard, hour) {
            return self.reject(shard, message, Reject::new(Reason::TooLate, sentence), counts);
        }
        *counts.events.entry(kind).or_default() += 1;
        if let Some(topic) = shard.topics_mut().get_mut(&message.topic) {
            topic.saw(time, self.clock.steady);
        }
        shard.push(hour, (kind, record.body));
    }

    /// Why an event of this hour comes too late, if it does.
    fn too_late(&self, shard: &LiveShard, hour: Hour) -> Option<String> {
        let back = self.clock.between.0.hour().0.saturating_sub(hour.0);
        let is_too_old = self.is_too_old(hour, self.clock.between.0);
        if is_too_old && shard.next().closed_through.is_none() {
            return Some(format!(
                "hour {hour} lies {back} hours back, and all of them would be closed one by one, more than \
                 work.hours_max: {}; mend the producer's clock, or raise work.hours_max",
                self.hours_max
            ));
        }
        // A replay folds no further back either.
        let way_out = if is_too_old {
            format!("it lies {back} hours back, so mend the producer's clock")
        } else {
            "replay it with 'prorata dead-letters --replay'".to_owned()
        };
        let is_too_late = shard.is_too_late(hour);
        is_too_late.then(|| format!("hour {hour} is closed, and no state from before it is kept; {way_out}"))
    }

    fn reject(&self, shard: &mut LiveShard, message: &Message, reject: Reject, counts: &mut Counts) {
        *counts.dead_letters.entry(reject.reason).or_default() += 1;
        shard.push_letter(DeadLetter::of(message, reject));
    }
}
