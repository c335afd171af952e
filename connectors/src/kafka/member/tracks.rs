//! The progress of each topic partition: the offset from which it continues after the next assignment, and
//! whether its end was reached.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prorata_schemas::Text;
use prorata_worker::backoff;
use prorata_worker::names::Shard;
use prorata_worker::source::Start;

/// The number of failed fetches after which an unreadable batch is given up. Another broker may have an
/// intact copy.
const UNREADABLE_AFTER: u32 = 3;

/// A topic partition within a reading of its shard.
#[derive(Debug)]
pub(super) struct Track {
    /// The partition's shard.
    pub(super) shard: Shard,
    /// Number of the reading.
    pub(super) reading: u64,
    /// The offset from which reading continues: the offset after the last message that was passed on.
    pub(super) next: Start,
    /// The end offset, once all messages before it are passed on; `None` while more messages arrive.
    pub(super) end: Option<i64>,
    /// The time at which the brokers were last asked whether this is still the end; `None` if never.
    pub(super) asked: Option<Instant>,
    /// Whether the offset is lost. If so, the partition is no longer read.
    pub(super) lost: bool,
    /// The time at which to assign the partition again after a failure. No message is taken before this time.
    pub(super) again_at: Option<Instant>,
    /// Number of failures in a row.
    pub(super) failures: u32,
    /// The first offset of the last batch that could not be read, and the number of failures in a row.
    pub(super) unreadable: Option<(i64, u32)>,
}

impl Track {
    fn new(shard: Shard, reading: u64, next: Start) -> Self {
        Self {
            shard,
            reading,
            next,
            end: None,
            asked: None,
            lost: false,
            again_at: None,
            failures: 0,
            unreadable: None,
        }
    }

    /// Returns whether a message at this offset is the next message or a later one.
    pub(super) const fn takes(&self, offset: i64) -> bool {
        match self.next {
            Start::Earliest => true,
            Start::At(next) => offset >= next,
        }
    }

    /// Notes that the batch at this offset cannot be read. Returns whether the batch was fetched often enough
    /// to be given up.
    pub(super) fn cannot_read(&mut self, offset: i64) -> bool {
        let times = self.unreadable.filter(|(before, _)| *before == offset).map_or(0, |(_, times)| times) + 1;
        self.unreadable = Some((offset, times));
        times >= UNREADABLE_AFTER
    }

    /// Notes that reading has failed. It is tried again after a back-off that grows with the number of
    /// failures in a row.
    pub(super) fn fail(&mut self, now: Instant) {
        self.failures += 1;
        let wait = backoff::KAFKA_PARTITION.delay(self.failures);
        self.again_at = Some(now + wait);
        self.end = None;
    }
}

/// A question to the brokers: is this still the end of the partition?
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) topic: Text,
    pub(super) shard: Shard,
    pub(super) reading: u64,
    pub(super) end: i64,
}

/// All topic partitions being read, by partition number and topic.
#[derive(Debug, Default)]
pub(super) struct Tracks(BTreeMap<Shard, BTreeMap<Text, Track>>);

impl Tracks {
    /// Begins a reading of a shard and ends the previous reading.
    pub(super) fn begin(&mut self, shard: Shard, reading: u64, from: BTreeMap<Text, Start>) {
        let tracks = from.into_iter().map(|(topic, next)| (topic, Track::new(shard, reading, next)));
        self.0.insert(shard, tracks.collect());
    }

    /// Ends the reading of a shard. Returns whether the shard was being read.
    pub(super) fn end(&mut self, shard: Shard) -> bool {
        self.0.remove(&shard).is_some()
    }

    /// Ends all readings.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether no partition is read.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the track of a topic partition, with its topic as a shared text; `None` if the partition is
    /// not being read.
    pub(super) fn get_mut(&mut self, topic: &str, partition: i32) -> Option<(Text, &mut Track)> {
        let tracks = self.0.get_mut(&Shard::try_from(partition).ok()?)?;
        let topic = tracks.get_key_value(topic)?.0.clone();
        let track = tracks.get_mut(&topic)?;
        Some((topic, track))
    }

    /// Returns the topic partitions to read, each with the offset from which reading continues. Leaves out
    /// partitions whose offset is lost.
    pub(super) fn assignment(&self) -> impl Iterator<Item = (&Text, Shard, Start)> {
        self.0.iter().flat_map(|(shard, tracks)| {
            tracks.iter().filter(|(_, track)| !track.lost).map(|(topic, track)| (topic, *shard, track.next))
        })
    }

    /// Notes that everything has been assigned again.
    pub(super) fn assigned(&mut self) {
        for track in self.0.values_mut().flat_map(BTreeMap::values_mut) {
            track.again_at = None;
        }
    }

    /// Returns whether it is time to assign a failed partition again.
    pub(super) fn retry_due(&self, now: Instant) -> bool {
        let mut tracks = self.0.values().flat_map(BTreeMap::values);
        tracks.any(|track| track.again_at.is_some_and(|at| at <= now))
    }

    /// Returns questions about the ends that the brokers were last asked about at least `every` ago, and
    /// notes `now` as the time of asking.
    pub(super) fn questions(&mut self, now: Instant, every: Duration) -> Vec<Question> {
        let mut questions = Vec::new();
        for (topic, track) in self.0.values_mut().flatten() {
            let due = track.asked.is_none_or(|asked| now.duration_since(asked) >= every);
            let Some(end) = track.end.filter(|_| due && !track.lost) else { continue };
            track.asked = Some(now);
            questions.push(Question {
                topic: topic.clone(),
                shard: track.shard,
                reading: track.reading,
                end,
            });
        }
        questions
    }

    /// Returns whether the partition's end is still the end that the brokers were asked about.
    pub(super) fn still_ends(&self, question: &Question) -> bool {
        let track = self.0.get(&question.shard).and_then(|tracks| tracks.get(&question.topic));
        track.is_some_and(|track| track.reading == question.reading && track.end == Some(question.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracks() -> Tracks {
        let mut tracks = Tracks::default();
        tracks.begin(3, 1, BTreeMap::from([("a".into(), Start::Earliest), ("b".into(), Start::At(7))]));
        tracks
    }

    fn track<'t>(tracks: &'t mut Tracks, topic: &str) -> &'t mut Track {
        tracks.get_mut(topic, 3).unwrap().1
    }

    #[test]
    fn a_new_assignment_continues_after_the_last_message_read() {
        let mut tracks = tracks();
        track(&mut tracks, "a").next = Start::At(5);
        track(&mut tracks, "b").lost = true;
        let assigned: Vec<_> =
            tracks.assignment().map(|(topic, shard, next)| (topic.to_string(), shard, next)).collect();
        assert_eq!(assigned, [("a".to_owned(), 3, Start::At(5))]);
        assert!(
            tracks.get_mut("a", 4).is_none()
                && tracks.get_mut("c", 3).is_none()
                && tracks.get_mut("a", -1).is_none()
        );
        assert!(!track(&mut tracks, "a").takes(4) && track(&mut tracks, "a").takes(5));
    }

    #[test]
    fn after_failures_in_a_row_the_wait_doubles() {
        let (mut tracks, now) = (tracks(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..7 {
            track(&mut tracks, "a").fail(now);
            waits.push(track(&mut tracks, "a").again_at.unwrap().duration_since(now).as_secs());
            assert!(!tracks.retry_due(now) && tracks.retry_due(now + Duration::from_secs(32)));
            tracks.assigned();
            assert!(!tracks.retry_due(now + Duration::from_secs(32)));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 32]);
    }

    #[test]
    fn a_batch_is_given_up_after_three_failures_in_a_row() {
        let mut tracks = tracks();
        let track = track(&mut tracks, "a");
        assert!(!track.cannot_read(5) && !track.cannot_read(5) && !track.cannot_read(6));
        assert!(!track.cannot_read(6) && track.cannot_read(6));
    }

    #[test]
    fn the_brokers_are_asked_about_an_end_periodically_while_it_is_one() {
        let (mut tracks, now, every) = (tracks(), Instant::now(), Duration::from_secs(3));
        assert_eq!(tracks.questions(now, every), []);
        track(&mut tracks, "b").end = Some(9);
        let asked = tracks.questions(now, every);
        assert_eq!(asked, [Question { topic: "b".into(), shard: 3, reading: 1, end: 9 }]);
        assert_eq!(tracks.questions(now + every / 2, every), []);
        assert_eq!(tracks.questions(now + every, every), asked);
        assert!(tracks.still_ends(&asked[0]));
        track(&mut tracks, "b").end = None;
        assert!(!tracks.still_ends(&asked[0]));
        track(&mut tracks, "b").end = Some(9);
        tracks.begin(3, 2, BTreeMap::from([("b".into(), Start::At(9))]));
        track(&mut tracks, "b").end = Some(9);
        assert!(!tracks.still_ends(&asked[0]));
    }
}
