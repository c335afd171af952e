//! The progress of a shard's topic partitions, and the watermark that follows from it.
//!
//! The watermark is the minimum of (largest event time - `out_of_orderness`) over the topic partitions. An
//! event ahead of the clock counts as an event of now, so no producer closes an hour of other producers
//! early. A partition is idle, and left out, if a broker has confirmed that its end is reached and nothing
//! newer has come for `idle_timeout`. A partition that is read to its end never holds the watermark more than
//! `max_watermark_hold` before the wall clock. The watermark decides when hours close and nothing else:
//! restatement corrects an hour that closes too early.

use std::collections::BTreeMap;
use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::time::{Timestamp, WallTime, micros};

use crate::checkpoint::{LastRecord, TopicOffsets};
use crate::shard::clock::ClockReading;
use crate::source::{Message, Start};

/// The time for which a broker's confirmation of a partition's end counts. The source asks every few seconds,
/// and a broker that does not answer does not confirm an end.
const CONFIRMED: Duration = Duration::from_secs(30);

/// The parameters of the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkRule {
    /// The time by which events of one topic partition may be out of order.
    pub out_of_orderness: Duration,
    /// The time without newer events after which a partition at its end is idle.
    pub idle_timeout: Duration,
    /// Maximum lag of the watermark, relative to the wall clock, that a partition read to its end can cause.
    pub max_watermark_hold: Duration,
}

/// A topic partition as it is read.
#[derive(Clone, Debug, Default)]
pub struct TopicProgress {
    /// The offsets as the next checkpoint will record them, except for `last`.
    pub offsets: TopicOffsets,
    /// The last message taken since the previous checkpoint was sealed.
    pub last: Option<Message>,
    /// The record at which reading must begin, while nothing has been read.
    pub verify: Option<LastRecord>,
    /// The time at which the largest event time last grew, or reading began.
    grown_at: WallTime,
    /// The time at which anything was last read from the partition, or reading began.
    heard_at: WallTime,
    /// The end of the partition, and the time at which a broker last confirmed it.
    end: Option<(i64, WallTime)>,
}

impl TopicProgress {
    /// Creates the progress of a topic partition that is read from now on, starting at the offsets of a
    /// checkpoint.
    pub fn new(offsets: TopicOffsets, now: WallTime) -> Self {
        let verify = offsets.last.clone();
        Self { offsets, last: None, verify, grown_at: now, heard_at: now, end: None }
    }

    /// Returns whether a record was taken and none is still to be compared.
    pub fn has_read(&self) -> bool {
        self.verify.is_none() && (self.last.is_some() || self.offsets.last.is_some())
    }

    /// Notes that something was read from the partition. Returns `true` if this ends a silence longer than
    /// `silence` and a record was taken before. Then the last record taken must be compared with the record
    /// in Kafka.
    pub fn hear(&mut self, now: WallTime, silence: Duration) -> bool {
        let silent = now.since(self.heard_at) > silence;
        self.heard_at = now;
        silent && self.has_read()
    }

    /// Requires that the last record taken be compared with the record in Kafka when reading starts again.
    pub fn compare_again(&mut self) {
        self.note_last();
        self.verify = self.offsets.last.clone();
    }

    /// Continues at offset `next` and skips the records before it. The last record taken is no longer
    /// compared, because a read from there would meet the skipped records.
    pub fn pass_over(&mut self, next: i64) {
        (self.offsets.next, self.offsets.last) = (Some(next), None);
        (self.last, self.verify) = (None, None);
    }

    /// Converts the last message taken to its entry in the next checkpoint.
    pub fn note_last(&mut self) {
        if let Some(message) = self.last.take() {
            self.offsets.last = Some(LastRecord::of(&message));
        }
    }

    /// Returns where reading starts: at the last record taken, if it must be compared, or else at the next
    /// offset. Without either, reading starts at the earliest message.
    pub fn start(&self) -> Start {
        match (&self.verify, self.offsets.next) {
            (Some(last), _) => Start::At(last.offset),
            (None, Some(next)) => Start::At(next),
            (None, None) => Start::Earliest,
        }
    }

    /// Notes that an event of this time was taken.
    pub fn saw(&mut self, event_time: Timestamp, now: WallTime) {
        if self.offsets.max_event_time.is_none_or(|max| event_time > max) {
            self.offsets.max_event_time = Some(event_time);
            self.grown_at = now;
        }
    }

    /// Returns the reason that the record to compare will never come, because all records before `end` were
    /// read. `None` if no record is to be compared.
    pub fn lacks_last(&self, end: i64) -> Option<String> {
        let last = self.verify.as_ref()?;
        let is_shorter = end <= last.offset;
        Some(match is_shorter {
            true => format!("Kafka's log ends at {end}, but more had been read"),
            false => last.cause_gone(),
        })
    }

    /// Notes that a broker has confirmed the end. Returns `true` if that moves the next offset, which the
    /// next checkpoint then records.
    pub fn confirm_end(&mut self, offset: i64, now: WallTime) -> bool {
        self.end = Some((offset, now));
        // All records before the end were handed over: the gap holds offsets without a record.
        let moves = self.offsets.next.is_none_or(|next| offset > next);
        if moves {
            self.offsets.next = Some(offset);
        }
        moves
    }

    /// Returns whether the partition is read up to an end that a broker has confirmed recently.
    pub fn at_end(&self, now: WallTime) -> bool {
        let read = |end: i64| end == 0 || self.offsets.next.is_some_and(|next| next >= end);
        self.end.is_some_and(|(end, confirmed)| read(end) && now.since(confirmed) <= CONFIRMED)
    }

    /// Returns whether the partition does not count for the watermark.
    pub fn idle(&self, now: WallTime, rule: &WatermarkRule) -> bool {
        self.at_end(now) && now.micros_since(self.grown_at) >= micros(rule.idle_timeout)
    }

    /// Returns the watermark of this partition alone.
    fn progress(&self, clock: &ClockReading, rule: &WatermarkRule) -> Option<Timestamp> {
        let latest = clock.between.0.event_time();
        let seen = self.offsets.max_event_time.map(|max| max.min(latest).before(rule.out_of_orderness));
        let wall = clock.wall().filter(|_| self.at_end(clock.steady));
        let held = wall.map(|wall| wall.event_time().before(rule.max_watermark_hold));
        seen.max(held)
    }
}

/// All topic partitions of a shard.
#[derive(Debug)]
pub struct ShardTopics {
    progress: BTreeMap<Text, TopicProgress>,
    watermark: Option<Timestamp>,
    /// Whether any topic partition has moved since the last checkpoint was sealed.
    moved: bool,
}

impl ShardTopics {
    /// Creates the progress of topic partitions that are read from now on, starting at the offsets of a
    /// checkpoint.
    pub fn new(offsets: BTreeMap<Text, TopicOffsets>, now: WallTime) -> Self {
        let progress = offsets.into_iter().map(|(topic, offsets)| (topic, TopicProgress::new(offsets, now)));
        Self { progress: progress.collect(), watermark: None, moved: false }
    }

    /// Returns the progress of one topic partition.
    pub fn get_mut(&mut self, topic: &Text) -> Option<&mut TopicProgress> {
        self.progress.get_mut(topic)
    }

    /// Returns each topic partition with its topic.
    pub fn iter(&self) -> impl Iterator<Item = (&Text, &TopicProgress)> {
        self.progress.iter()
    }

    /// Notes that the next checkpoint has something new to record about the partitions.
    pub fn note_moved(&mut self) {
        self.moved = true;
    }

    /// Returns whether the next checkpoint has something new to record about the partitions.
    pub fn have_moved(&self) -> bool {
        self.moved
    }

    /// Returns the watermark, which never goes back.
    pub fn watermark(&self) -> Option<Timestamp> {
        self.watermark
    }

    /// Moves the watermark as far as the topic partitions allow.
    pub fn move_watermark(&mut self, clock: &ClockReading, rule: &WatermarkRule) {
        self.watermark = self.watermark.max(watermark(self.progress.values(), clock, rule));
    }

    /// Notes that reading of all partitions starts again.
    pub fn hear_all(&mut self, now: WallTime) {
        self.progress.values_mut().for_each(|progress| progress.heard_at = now);
    }

    /// Requires that the last record of each topic partition be compared with the record in Kafka when
    /// reading starts again.
    pub fn compare_again(&mut self) {
        self.progress.values_mut().for_each(TopicProgress::compare_again);
    }

    /// Returns where reading of each topic starts.
    pub fn starts(&self) -> BTreeMap<Text, Start> {
        self.progress.iter().map(|(topic, progress)| (topic.clone(), progress.start())).collect()
    }

    /// Returns the next offsets by topic.
    pub fn next_offsets(&self) -> BTreeMap<Text, i64> {
        let next = self.progress.iter().filter_map(|(topic, progress)| Some((topic, progress.offsets.next?)));
        next.map(|(topic, next)| (topic.clone(), next)).collect()
    }

    /// Returns the offsets for the next checkpoint, which is sealed now.
    pub fn take_offsets(&mut self) -> BTreeMap<Text, TopicOffsets> {
        self.moved = false;
        let offsets = self.progress.iter_mut().map(|(topic, progress)| {
            progress.note_last();
            (topic.clone(), progress.offsets.clone())
        });
        offsets.collect()
    }
}

/// Returns the watermark over a shard's topic partitions, or `None` while one of them has not begun.
fn watermark<'a>(
    topics: impl Iterator<Item = &'a TopicProgress> + Clone,
    clock: &ClockReading,
    rule: &WatermarkRule,
) -> Option<Timestamp> {
    let busy = topics.clone().filter(|topic| !topic.idle(clock.steady, rule));
    // `None`, a partition that has not begun, is the least.
    let least = busy.map(|topic| topic.progress(clock, rule)).min();
    // All are idle: no event is known to come, but hours stay open for a while for events that may come.
    least.unwrap_or_else(|| topics.map(|topic| topic.progress(clock, rule)).max().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: WatermarkRule = WatermarkRule {
        out_of_orderness: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(10),
        max_watermark_hold: Duration::from_secs(60),
    };

    fn at(seconds: i64) -> WallTime {
        WallTime(seconds * 1_000_000)
    }

    fn event_at(seconds: i64) -> Timestamp {
        at(seconds).event_time()
    }

    fn topic(next: i64, seen: Option<i64>) -> TopicProgress {
        let offsets = TopicOffsets { next: Some(next), last: None, max_event_time: seen.map(event_at) };
        TopicProgress::new(offsets, at(1_000))
    }

    fn of(topics: &[TopicProgress], now: i64) -> Option<i64> {
        between(topics, now, now, now)
    }

    /// Returns the watermark at a time, with these readings of the wall clock and its witness.
    fn between(topics: &[TopicProgress], now: i64, earlier: i64, later: i64) -> Option<i64> {
        let ahead_seconds = (earlier != later).then_some(later - earlier);
        let between = (at(earlier), at(later));
        let clock = ClockReading { steady: at(now), machine: at(later), between, ahead_seconds };
        watermark(topics.iter(), &clock, &RULE).map(|time| time.0 / 1_000_000)
    }

    #[test]
    fn the_slowest_topic_holds_it() {
        assert_eq!(of(&[topic(3, Some(990)), topic(3, Some(500))], 1_000), Some(495));
        assert_eq!(of(&[topic(3, Some(990)), topic(3, None)], 1_000), None);
    }

    #[test]
    fn an_event_ahead_of_the_clock_moves_it_no_further_than_one_of_now() {
        let ahead = topic(3, Some(1_585));
        assert_eq!(of(std::slice::from_ref(&ahead), 1_000), Some(995));
        assert_eq!(of(std::slice::from_ref(&ahead), 1_200), Some(1_195), "it moves on with the clock");
        assert_eq!(of(std::slice::from_ref(&ahead), 2_000), Some(1_580));
        let mut idle = ahead.clone();
        idle.confirm_end(3, at(1_020));
        assert_eq!(of(&[idle], 1_020), Some(1_015), "nor once all are idle");
        assert_eq!(between(&[ahead], 1_000, 1_000, 5_000), Some(995), "the earlier of two clocks counts");
    }

    #[test]
    fn a_quiet_topic_is_left_out_only_when_a_broker_says_that_its_end_is_reached() {
        let mut quiet = topic(3, Some(500));
        let busy = topic(3, Some(990));
        assert_eq!(of(&[busy.clone(), quiet.clone()], 1_050), Some(495), "no broker has said so");
        quiet.confirm_end(3, at(1_049));
        assert_eq!(of(&[busy.clone(), quiet.clone()], 1_050), Some(985), "it is idle");
        assert_eq!(of(&[busy.clone(), quiet.clone()], 1_005), Some(945), "not quiet for long enough");
        quiet.confirm_end(4, at(1_050));
        assert_eq!(quiet.offsets.next, Some(4), "an end after offsets without records");
        quiet.confirm_end(5, at(1_050));
        quiet.offsets.next = Some(4);
        assert_eq!(of(&[busy.clone(), quiet.clone()], 1_051), Some(495), "there is more to read");
    }

    #[test]
    fn an_unreachable_broker_is_not_an_end() {
        let mut quiet = topic(3, Some(500));
        quiet.confirm_end(3, at(1_000));
        assert!(quiet.at_end(at(1_030)) && !quiet.at_end(at(1_031)));
        assert_eq!(of(&[topic(1, Some(2_000)), quiet], 2_000), Some(495));
    }

    #[test]
    fn an_event_that_brings_nothing_newer_does_not_keep_a_topic_awake() {
        let mut quiet = topic(3, Some(500));
        quiet.confirm_end(3, at(1_010));
        quiet.saw(event_at(499), at(1_010));
        assert!(quiet.idle(at(1_010), &RULE));
        quiet.saw(event_at(501), at(1_010));
        assert!(!quiet.idle(at(1_011), &RULE));
    }

    #[test]
    fn when_all_are_idle_hours_stay_open_for_the_hold() {
        let mut one = topic(3, Some(990));
        let mut other = topic(0, None);
        one.confirm_end(3, at(1_020));
        other.confirm_end(0, at(1_020));
        assert_eq!(of(&[one.clone(), other.clone()], 1_020), Some(985));
        one.confirm_end(3, at(1_100));
        other.confirm_end(0, at(1_100));
        assert_eq!(of(&[one, other], 1_100), Some(1_040));
    }

    #[test]
    fn reading_starts_at_the_record_before_to_compare_it() {
        let mut known = topic(7, None);
        assert_eq!(known.start(), Start::At(7));
        known.verify = Some(LastRecord { offset: 5, timestamp_millis: 0, checksum: String::new() });
        assert_eq!(known.start(), Start::At(5));
        assert_eq!(TopicProgress::default().start(), Start::Earliest);
    }
}
