//! The queue between the reading thread and the worker. It holds everything that is read and not yet polled,
//! in order.
//!
//! Each reading of a shard has a number. Messages enter with the number of their reading and are dropped when
//! the reading ends. So after a revocation, release or new start of a shard, a poll returns no message that
//! was read before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{Message, SourceError, SourceEvent};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::kafka::client::context::lock;

/// Approximate size of the messages that one poll takes, in bytes: about 15,000 events of 271 bytes. The
/// worker decodes these messages in a few milliseconds (see `avro`), so one poll never holds up the rest of
/// the worker's loop.
const POLL_BYTES: u64 = 4 << 20;

/// Maximum number of signals that one poll takes. One signal holds up to 2,048 messages of a partition.
const POLL_SIGNALS: usize = 4_096;

#[derive(Debug, Default)]
struct State {
    signals: VecDeque<(SourceEvent, u64)>,
    /// Bytes of the signals' messages.
    bytes: u64,
    /// The shards being read, with the number of their reading.
    reading: BTreeMap<Shard, u64>,
    /// Number of the last reading.
    readings: u64,
    /// Partitions whose end waits to be polled.
    ends: BTreeSet<(Shard, Text)>,
    /// The reason why Kafka does not answer at the moment.
    unavailable: Option<SourceError>,
    /// The reason why nothing more will come.
    failed: Option<SourceError>,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    news: Notify,
    /// Number of bytes of waiting messages at which reading pauses.
    limit: u64,
}

impl Queue {
    pub(super) fn new(limit: u64) -> Self {
        Self { state: Mutex::default(), news: Notify::new(), limit }
    }

    /// Begins a reading of a shard and ends the reading before it. Returns the number of the new reading.
    /// Returns `None` if the shard was revoked but the worker has not polled the revocation yet. In that
    /// case, the worker no longer has the shard.
    pub(super) fn begin(&self, shard: Shard) -> Option<u64> {
        let mut state = lock(&self.state);
        state.purge(&[shard]);
        let revoked = state.signals.iter().any(|(signal, _)| match signal {
            SourceEvent::Revoked(shards) | SourceEvent::Lost(shards) => shards.contains(&shard),
            _ => false,
        });
        if revoked {
            return None;
        }
        state.readings += 1;
        let reading = state.readings;
        state.reading.insert(shard, reading);
        Some(reading)
    }

    /// Ends the readings of shards. Afterwards no poll returns a signal of these readings.
    pub(super) fn end(&self, shards: &[Shard]) {
        lock(&self.state).purge(shards);
    }

    /// Ends the readings of shards, and adds a signal that gives the reason.
    pub(super) fn end_with(&self, shards: &[Shard], signal: SourceEvent) {
        let mut state = lock(&self.state);
        state.purge(shards);
        state.signals.push_back((signal, 0));
        drop(state);
        self.news.notify_one();
    }

    /// Adds a signal of a reading, unless the reading has ended. Returns whether it was added.
    pub(super) fn read(&self, shard: Shard, reading: u64, signal: SourceEvent) -> bool {
        let mut state = lock(&self.state);
        if state.reading.get(&shard) != Some(&reading) {
            return false;
        }
        state.push(signal);
        drop(state);
        self.news.notify_one();
        true
    }

    /// Adds a signal that belongs to no reading.
    pub(super) fn push(&self, signal: SourceEvent) {
        lock(&self.state).signals.push_back((signal, 0));
        self.news.notify_one();
    }

    /// Notes that Kafka does not answer at the moment. The next poll that finds no signals returns this
    /// error, and later polls do not repeat it.
    pub(super) fn set_unavailable(&self, error: SourceError) {
        lock(&self.state).unavailable = Some(error);
        self.news.notify_one();
    }

    /// Notes that no more signals will come. Once all other signals are polled, every poll returns this
    /// error. Only the first call counts.
    pub(super) fn fail(&self, error: SourceError) {
        lock(&self.state).failed.get_or_insert(error);
        self.news.notify_one();
    }

    /// Returns whether there is room to read more.
    pub(super) fn has_room(&self) -> bool {
        lock(&self.state).bytes < self.limit
    }

    /// Takes the waiting signals. If there are none, waits for signals for up to `wait`, and returns an empty
    /// list if none arrives in time.
    pub(super) async fn poll(&self, wait: Duration) -> Result<Vec<SourceEvent>, SourceError> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(taken) = self.take() {
                return taken;
            }
            if timeout_at(deadline, self.news.notified()).await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    fn take(&self) -> Option<Result<Vec<SourceEvent>, SourceError>> {
        let mut state = lock(&self.state);
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < POLL_BYTES && taken.len() < POLL_SIGNALS {
            let Some((signal, size)) = state.signals.pop_front() else { break };
            if let SourceEvent::End { topic, partition, .. } = &signal {
                state.ends.remove(&(*partition, topic.clone()));
            }
            bytes += size;
            taken.push(signal);
        }
        state.bytes = state.bytes.saturating_sub(bytes);
        if !taken.is_empty() {
            return Some(Ok(taken));
        }
        state.failed.clone().or_else(|| state.unavailable.take()).map(Err)
    }
}

impl State {
    fn push(&mut self, signal: SourceEvent) {
        let bytes = match &signal {
            SourceEvent::Messages(messages) => messages.iter().map(Message::bytes).sum(),
            SourceEvent::End { topic, partition, .. } => {
                self.replace_end(topic, *partition);
                0
            }
            _ => 0,
        };
        self.bytes += bytes;
        self.signals.push_back((signal, bytes));
    }

    /// Removes the waiting end of a partition, if there is one. Ends are reported repeatedly, and only the
    /// latest end of a partition waits.
    fn replace_end(&mut self, topic: &Text, partition: Shard) {
        if self.ends.insert((partition, topic.clone())) {
            return;
        }
        self.signals.retain(|(signal, _)| match signal {
            SourceEvent::End { topic: of, partition: at, .. } => (of, *at) != (topic, partition),
            _ => true,
        });
    }

    /// Ends readings and drops their signals.
    fn purge(&mut self, shards: &[Shard]) {
        for shard in shards {
            self.reading.remove(shard);
        }
        let mut dropped = 0;
        self.signals.retain(|(signal, bytes)| {
            let stays = shard_of(signal).is_none_or(|shard| !shards.contains(&shard));
            dropped += if stays { 0 } else { *bytes };
            stays
        });
        self.bytes = self.bytes.saturating_sub(dropped);
        self.ends.retain(|(shard, _)| !shards.contains(shard));
    }
}

/// Returns the shard to whose reading a signal belongs; `None` if it belongs to no reading.
fn shard_of(signal: &SourceEvent) -> Option<Shard> {
    match signal {
        SourceEvent::Assigned(_)
        | SourceEvent::Revoked(_)
        | SourceEvent::Lost(_)
        | SourceEvent::Partitions { .. } => None,
        SourceEvent::Messages(messages) => messages.first().map(|message| message.partition),
        SourceEvent::End { partition, .. }
        | SourceEvent::OffsetsLost { partition, .. }
        | SourceEvent::Unreadable { partition, .. } => Some(*partition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(shard: Shard, offset: i64) -> SourceEvent {
        SourceEvent::Messages(vec![Message {
            topic: "t".into(),
            partition: shard,
            offset,
            timestamp_millis: -1,
            key: None,
            value: Some(vec![0; 872].into()),
            headers: Vec::new(),
        }])
    }

    fn end(shard: Shard, offset: i64) -> SourceEvent {
        SourceEvent::End { topic: "t".into(), partition: shard, offset }
    }

    fn taken(queue: &Queue) -> Vec<SourceEvent> {
        queue.take().map_or_else(Vec::new, Result::unwrap)
    }

    #[test]
    fn no_signal_of_a_shard_follows_its_revocation() {
        let queue = Queue::new(u64::MAX);
        let (one, two) = (queue.begin(1).unwrap(), queue.begin(2).unwrap());
        assert!(queue.read(1, one, message(1, 0)) && queue.read(2, two, message(2, 0)));
        queue.end_with(&[1], SourceEvent::Revoked(vec![1]));
        assert!(!queue.read(1, one, message(1, 1)));
        assert_eq!(taken(&queue), [message(2, 0), SourceEvent::Revoked(vec![1])]);
    }

    #[test]
    fn a_revoked_shard_is_not_read_before_the_worker_has_polled_the_revocation() {
        let queue = Queue::new(u64::MAX);
        queue.end_with(&[1], SourceEvent::Revoked(vec![1]));
        queue.push(SourceEvent::Assigned(vec![1]));
        assert_eq!(queue.begin(1), None);
        assert!(queue.begin(2).is_some());
        taken(&queue);
        assert!(queue.begin(1).is_some());
    }

    #[test]
    fn a_reading_adds_nothing_once_its_shard_has_started_again() {
        let queue = Queue::new(u64::MAX);
        let first = queue.begin(1).unwrap();
        queue.read(1, first, message(1, 5));
        let second = queue.begin(1).unwrap();
        assert!(!queue.read(1, first, message(1, 6)) && queue.read(1, second, message(1, 0)));
        assert_eq!(taken(&queue), [message(1, 0)]);
    }

    #[test]
    fn it_is_full_by_bytes_and_has_room_again_once_polled_or_purged() {
        let queue = Queue::new(1_500);
        let reading = queue.begin(1).unwrap();
        for offset in 0..2 {
            assert!(queue.has_room());
            queue.read(1, reading, message(1, offset));
        }
        assert!(!queue.has_room());
        taken(&queue);
        assert!(queue.has_room());
        queue.read(1, reading, message(1, 2));
        queue.read(1, reading, message(1, 3));
        queue.end(&[1]);
        assert!(queue.has_room() && queue.take().is_none());
    }

    #[test]
    fn only_the_last_end_of_a_partition_waits() {
        let queue = Queue::new(u64::MAX);
        let reading = queue.begin(1).unwrap();
        for offset in 0..1_000 {
            queue.read(1, reading, end(1, offset));
        }
        assert_eq!(taken(&queue), [end(1, 999)]);
        queue.read(1, reading, end(1, 999));
        assert_eq!(taken(&queue), [end(1, 999)]);
    }

    #[test]
    fn one_poll_takes_a_few_mebibytes() {
        let queue = Queue::new(u64::MAX);
        let reading = queue.begin(1).unwrap();
        for offset in 0..10_000 {
            queue.read(1, reading, message(1, offset));
        }
        let first = taken(&queue).len() as u64;
        assert_eq!(first, POLL_BYTES.div_ceil(1_000).min(POLL_SIGNALS as u64));
    }

    #[test]
    fn errors_come_after_signals_and_a_failure_stays() {
        let queue = Queue::new(u64::MAX);
        queue.set_unavailable(SourceError::Unavailable("down".into()));
        queue.push(SourceEvent::Assigned(vec![1]));
        assert_eq!(taken(&queue), [SourceEvent::Assigned(vec![1])]);
        assert_eq!(queue.take().unwrap(), Err(SourceError::Unavailable("down".into())));
        assert!(queue.take().is_none());
        queue.fail(SourceError::Fenced("a".into()));
        queue.fail(SourceError::Unavailable("later".into()));
        for _ in 0..2 {
            assert_eq!(queue.take().unwrap(), Err(SourceError::Fenced("a".into())));
        }
    }
}
