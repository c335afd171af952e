//! Input that was taken from Kafka and is not folded yet: events of open hours, late events, rejected
//! messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::time::Hour;

use crate::ports::DeadLetter;
use crate::shard::Body;
use crate::shard::window::{EVENT_OVERHEAD, EventPlaces};

/// Bytes that a dead letter takes in memory besides the rejected bytes: its origin and the error message.
const DEAD_LETTER_OVERHEAD: u64 = 256;

/// Bytes of new events below which a shard is quiet: about 16,000 events, which a new owner reads again
/// within 50 ms.
const QUIET_BYTES: u64 = 4 << 20;

/// Events of an hour that is not closed.
#[derive(Clone, Debug, Default)]
struct OpenHour {
    /// Events in memory. The first `flushed` of them are objects of the draft, or in the archive.
    events: Arc<Vec<Body>>,
    flushed: usize,
    /// The number of flushed events that a decided checkpoint names.
    decided: usize,
    /// Whether the archive holds events of the hour that are not in memory.
    spilled: bool,
    /// Bytes of the events in memory.
    bytes: u64,
}

/// Events and rejected messages in memory.
#[derive(Debug, Default)]
pub(in crate::stream) struct EventBuffer {
    open: BTreeMap<Hour, OpenHour>,
    late: BTreeMap<Hour, Vec<Body>>,
    dead_letters: Vec<DeadLetter>,
    /// Bytes of events and dead letters that no checkpoint has taken.
    new_bytes: u64,
    late_bytes: u64,
    dead_letter_bytes: u64,
}

impl EventBuffer {
    /// Takes an event of an hour that is not closed.
    pub fn push_open(&mut self, hour: Hour, body: Body) {
        let bytes = body.1.len() as u64 + EVENT_OVERHEAD;
        let open = self.open.entry(hour).or_default();
        open.bytes += bytes;
        Arc::make_mut(&mut open.events).push(body);
        self.new_bytes += bytes;
    }

    /// Takes an event of a closed hour.
    pub fn push_late(&mut self, hour: Hour, body: Body) {
        let bytes = body.1.len() as u64 + EVENT_OVERHEAD;
        self.late.entry(hour).or_default().push(body);
        self.new_bytes += bytes;
        self.late_bytes += bytes;
    }

    /// Takes a rejected message.
    pub fn push_dead_letter(&mut self, letter: DeadLetter) {
        let bytes = letter.rejected.bytes.len() as u64 + DEAD_LETTER_OVERHEAD;
        self.dead_letters.push(letter);
        self.new_bytes += bytes;
        self.dead_letter_bytes += bytes;
    }

    /// Returns the bytes of events and dead letters in memory.
    pub fn bytes(&self) -> u64 {
        self.open.values().map(|open| open.bytes).sum::<u64>() + self.late_bytes + self.dead_letter_bytes
    }

    /// Returns the bytes of events and dead letters that no checkpoint has taken.
    pub fn new_bytes(&self) -> u64 {
        self.new_bytes
    }

    /// Returns whether the new input consists only of a few events of open hours.
    pub fn is_quiet(&self) -> bool {
        self.new_bytes < QUIET_BYTES && self.late.is_empty() && self.dead_letters.is_empty()
    }

    /// Returns the first open hour with events.
    pub fn first_open(&self) -> Option<Hour> {
        self.open.keys().next().copied()
    }

    /// Returns the last open hour with events.
    pub fn last_open(&self) -> Option<Hour> {
        self.open.keys().next_back().copied()
    }

    /// Returns the open hours with events that are not objects yet. Each hour comes with all of its events in
    /// memory, and the number of events that are objects already.
    pub fn unflushed(&self) -> Vec<(Hour, Arc<Vec<Body>>, usize)> {
        let unflushed = self.open.iter().filter(|(_, open)| open.flushed < open.events.len());
        unflushed.map(|(hour, open)| (*hour, Arc::clone(&open.events), open.flushed)).collect()
    }

    /// Notes that the first `flushed` events of an open hour are objects of the draft.
    pub fn note_flushed(&mut self, hour: Hour, flushed: usize) {
        if let Some(open) = self.open.get_mut(&hour) {
            open.flushed = flushed;
        }
    }

    /// Returns closed hours with late events.
    pub fn late_hours(&self) -> Vec<Hour> {
        self.late.keys().copied().collect()
    }

    /// Returns the late events of an hour.
    pub fn late(&self, hour: Hour) -> &[Body] {
        self.late.get(&hour).map(Vec::as_slice).unwrap_or_default()
    }

    /// Drops the late events of an hour, because the draft or the archive holds them.
    pub fn drop_late(&mut self, hour: Hour) {
        let bodies = self.late.remove(&hour).unwrap_or_default();
        self.late_bytes -= bodies.iter().map(|(_, body)| body.len() as u64 + EVENT_OVERHEAD).sum::<u64>();
    }

    /// Returns the rejected messages.
    pub fn dead_letters(&self) -> &[DeadLetter] {
        &self.dead_letters
    }

    /// Drops the rejected messages, because the draft holds them.
    pub fn drop_dead_letters(&mut self) {
        self.dead_letters.clear();
        self.dead_letter_bytes = 0;
    }

    /// Notes that the whole buffer is part of a sealed checkpoint.
    pub fn note_sealed(&mut self) {
        self.new_bytes = 0;
    }

    /// Notes that a decided checkpoint names the flushed events, which thus need not stay in memory.
    pub fn note_decided(&mut self) {
        self.open.values_mut().for_each(|open| open.decided = open.flushed);
    }

    /// Notes that the archive holds events of an open hour that are not in memory.
    pub fn note_archived(&mut self, hour: Hour) {
        self.open.entry(hour).or_default().spilled = true;
    }

    /// Returns the places of the events of an open hour.
    pub fn events(&self, hour: Hour) -> EventPlaces {
        self.open.get(&hour).map_or_else(EventPlaces::default, |open| EventPlaces {
            bodies: Some(Arc::clone(&open.events)),
            bytes: open.bytes,
            archived: open.spilled,
        })
    }

    /// Drops the events of all hours up to and including this hour, which are closed.
    pub fn close_through(&mut self, hour: Hour) {
        self.open = self.open.split_off(&hour.next());
    }

    /// Returns whether the archive holds events of open hours that are also in memory.
    pub fn can_spill(&self) -> bool {
        self.open.values().any(|open| open.decided > 0)
    }

    /// Drops from memory the archived events of the latest open hour that still has any in memory.
    pub fn spill(&mut self) {
        let Some(open) = self.open.values_mut().rev().find(|open| open.decided > 0) else { return };
        let events = Arc::make_mut(&mut open.events);
        events.drain(..open.decided);
        // Few events remain: free the unused capacity.
        events.shrink_to_fit();
        open.bytes = events.iter().map(|(_, body)| body.len() as u64 + EVENT_OVERHEAD).sum();
        open.flushed -= open.decided;
        open.decided = 0;
        open.spilled = true;
    }
}

#[cfg(test)]
mod tests {
    use prorata_schemas::event::EventKind;

    use super::*;

    fn body(byte: u8) -> Body {
        (EventKind::PodStopped, Box::new([byte; 36]))
    }

    #[test]
    fn only_decided_events_leave_memory() {
        let mut buffer = EventBuffer::default();
        for byte in 0..3 {
            buffer.push_open(Hour(7), body(byte));
        }
        buffer.note_flushed(Hour(7), 2);
        assert!(!buffer.can_spill(), "it is flushed, not decided");
        buffer.note_decided();
        assert_eq!(buffer.bytes(), 300);
        buffer.spill();
        assert_eq!(buffer.bytes(), 100);
        assert!(!buffer.can_spill() && buffer.events(Hour(7)).archived);
        let [(hour, events, flushed)] = &buffer.unflushed()[..] else { panic!("the third event") };
        assert_eq!((*hour, events.len(), *flushed), (Hour(7), 1, 0));
    }

    #[test]
    fn late_events_and_dead_letters_count_until_they_are_dropped() {
        let mut buffer = EventBuffer::default();
        buffer.push_late(Hour(1), body(1));
        buffer.push_late(Hour(2), body(2));
        buffer.drop_late(Hour(1));
        assert_eq!((buffer.bytes(), buffer.late_hours()), (100, vec![Hour(2)]));
        buffer.drop_late(Hour(3));
        buffer.drop_late(Hour(2));
        assert_eq!((buffer.bytes(), buffer.new_bytes()), (0, 200));
    }
}
