//! How events arrive: some late, some twice. What is held back is bounded, whatever the rates are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use prorata_schemas::event::Event;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::text::{HOUR, MINUTE, chance, span};

/// Events held back at once; when there are more, the one that is due first goes out early.
const HELD_MAX: usize = 4096;

/// How much of the load arrives out of order, in millionths of all events.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Events that arrive a minute to six hours late.
    pub late: u32,
    /// Events that arrive a second time, up to two hours later.
    pub duplicate: u32,
}

/// Passes events on as they would arrive.
pub struct Disorder<I> {
    events: I,
    rates: Rates,
    rng: ChaCha8Rng,
    held: BinaryHeap<Reverse<Held>>,
    next_number: u64,
    /// Latest event time seen.
    clock: i64,
}

/// An event on its way; compared by when it arrives, then by the order in which it was held.
struct Held {
    due: i64,
    number: u64,
    event: Event,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl<I: Iterator<Item = Event>> Disorder<I> {
    /// The events of `events` at these rates, by this seed.
    pub fn new(events: I, rates: Rates, seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Odd streams are ours; organizations draw from the even ones.
        rng.set_stream(2 * stream + 1);
        Self { events, rates, rng, held: BinaryHeap::new(), next_number: 0, clock: i64::MIN }
    }

    /// What the events come from.
    pub const fn source(&self) -> &I {
        &self.events
    }

    fn hold(&mut self, event: Event, delay: i64) {
        let held = Held { due: self.clock + delay, number: self.next_number, event };
        self.next_number += 1;
        self.held.push(Reverse(held));
    }

    fn overdue(&self) -> bool {
        let due = self.held.peek().is_some_and(|Reverse(held)| held.due <= self.clock);
        due || self.held.len() > HELD_MAX
    }
}

impl<I: Iterator<Item = Event>> Iterator for Disorder<I> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if self.overdue() {
                return self.held.pop().map(|Reverse(held)| held.event);
            }
            let Some(event) = self.events.next() else {
                return self.held.pop().map(|Reverse(held)| held.event);
            };
            self.clock = self.clock.max(event.event_time.0);
            if chance(&mut self.rng, self.rates.duplicate) {
                let delay = span(&mut self.rng, 0, 2 * HOUR);
                self.hold(event.clone(), delay);
            }
            if chance(&mut self.rng, self.rates.late) {
                let delay = span(&mut self.rng, MINUTE, 6 * HOUR);
                self.hold(event, delay);
            } else {
                return Some(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prorata_schemas::event::{NodeStopped, Payload};
    use prorata_schemas::time::Timestamp;

    use super::*;

    fn events(count: i64) -> impl Iterator<Item = Event> {
        (0..count).map(|index| Event {
            organization_id: "org".into(),
            event_time: Timestamp(index * MINUTE),
            payload: Payload::NodeStopped(NodeStopped { cluster_id: "c".into(), node_id: "n".into() }),
        })
    }

    fn times(count: i64, rates: Rates) -> Vec<i64> {
        Disorder::new(events(count), rates, 7, 0).map(|event| event.event_time.0).collect()
    }

    #[test]
    fn at_rates_of_zero_nothing_changes() {
        let plain = times(1000, Rates { late: 0, duplicate: 0 });
        assert_eq!(plain, (0..1000).map(|index| index * MINUTE).collect::<Vec<_>>());
    }

    #[test]
    fn late_events_come_out_of_order_and_none_is_lost() {
        let mut late = times(10_000, Rates { late: 50_000, duplicate: 0 });
        let behind = late.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((350..=650).contains(&behind), "{behind}");
        late.sort_unstable();
        assert_eq!(late, (0..10_000).map(|index| index * MINUTE).collect::<Vec<_>>());
    }

    #[test]
    fn duplicates_come_at_their_rate() {
        let doubled = times(10_000, Rates { late: 0, duplicate: 50_000 }).len() - 10_000;
        assert!((350..=650).contains(&doubled), "{doubled}");
    }

    #[test]
    fn what_is_held_back_is_bounded() {
        let events = events(50_000).map(|event| Event { event_time: Timestamp(0), ..event });
        let mut disorder = Disorder::new(events, Rates { late: 1_000_000, duplicate: 0 }, 7, 0);
        let mut count = 0;
        while disorder.next().is_some() {
            count += 1;
            assert!(disorder.held.len() <= HELD_MAX + 1);
        }
        assert_eq!(count, 50_000);
    }
}
