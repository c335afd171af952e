//! Disorder: some events arrive late, some twice. The number of delayed events is bounded, whatever the
//! rates.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use prorata_schemas::event::Event;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::random::{chance, span};
use crate::{HOUR, MINUTE};

/// Maximum number of events that are delayed at once. If one more is delayed, the event that is due first is
/// sent early.
const DELAYED_MAX: usize = 4096;

/// The rates of events that arrive late or twice, in events per million.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Number of events that arrive a minute to six hours late.
    pub late: u32,
    /// Number of events that arrive a second time, up to two hours later.
    pub duplicates: u32,
}

/// Emits events in the order of arrival.
pub struct Disorder<I> {
    events: I,
    rates: Rates,
    rng: ChaCha8Rng,
    delayed: BinaryHeap<Reverse<Delayed>>,
    next_number: u64,
    /// Latest event time seen.
    clock: i64,
}

/// A delayed event, ordered by when it is due, then by the order in which it was delayed.
struct Delayed {
    due: i64,
    number: u64,
    event: Event,
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}

impl Eq for Delayed {}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Delayed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl<I: Iterator<Item = Event>> Disorder<I> {
    /// Disorders these events at these rates. The same seed and stream give the same order.
    pub fn new(events: I, rates: Rates, seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // An organization draws from an even stream of the seed, its disorder from the next odd stream.
        rng.set_stream(2 * stream + 1);
        Self { events, rates, rng, delayed: BinaryHeap::new(), next_number: 0, clock: i64::MIN }
    }

    /// Returns the source of the events.
    pub const fn source(&self) -> &I {
        &self.events
    }

    fn delay(&mut self, event: Event, delay: i64) {
        let delayed = Delayed { due: self.clock + delay, number: self.next_number, event };
        self.next_number += 1;
        self.delayed.push(Reverse(delayed));
    }

    fn overdue(&self) -> bool {
        let due = self.delayed.peek().is_some_and(|Reverse(delayed)| delayed.due <= self.clock);
        due || self.delayed.len() > DELAYED_MAX
    }
}

impl<I: Iterator<Item = Event>> Iterator for Disorder<I> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if self.overdue() {
                return self.delayed.pop().map(|Reverse(delayed)| delayed.event);
            }
            let Some(event) = self.events.next() else {
                return self.delayed.pop().map(|Reverse(delayed)| delayed.event);
            };
            self.clock = self.clock.max(event.event_time.0);
            if chance(&mut self.rng, self.rates.duplicates) {
                let delay = span(&mut self.rng, 0, 2 * HOUR);
                self.delay(event.clone(), delay);
            }
            if chance(&mut self.rng, self.rates.late) {
                let delay = span(&mut self.rng, MINUTE, 6 * HOUR);
                self.delay(event, delay);
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
        (0..count).map(|index| {
            Event::new(
                "org".into(),
                Timestamp(index * MINUTE),
                Payload::NodeStopped(NodeStopped { cluster_id: "c".into(), node_id: "n".into() }),
            )
        })
    }

    fn times(count: i64, rates: Rates) -> Vec<i64> {
        Disorder::new(events(count), rates, 7, 0).map(|event| event.event_time.0).collect()
    }

    #[test]
    fn at_rates_of_zero_nothing_changes() {
        let plain = times(1000, Rates { late: 0, duplicates: 0 });
        assert_eq!(plain, (0..1000).map(|index| index * MINUTE).collect::<Vec<_>>());
    }

    #[test]
    fn late_events_come_out_of_order_and_none_is_lost() {
        let mut late = times(10_000, Rates { late: 50_000, duplicates: 0 });
        let behind = late.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((350..=650).contains(&behind), "{behind}");
        late.sort_unstable();
        assert_eq!(late, (0..10_000).map(|index| index * MINUTE).collect::<Vec<_>>());
    }

    #[test]
    fn duplicates_come_at_their_rate() {
        let doubled = times(10_000, Rates { late: 0, duplicates: 50_000 }).len() - 10_000;
        assert!((350..=650).contains(&doubled), "{doubled}");
    }

    #[test]
    fn the_number_of_delayed_events_is_bounded() {
        let events = events(50_000).map(|event| Event { event_time: Timestamp(0), ..event });
        let mut disorder = Disorder::new(events, Rates { late: 1_000_000, duplicates: 0 }, 7, 0);
        let mut count = 0;
        while disorder.next().is_some() {
            count += 1;
            assert!(disorder.delayed.len() <= DELAYED_MAX + 1);
        }
        assert_eq!(count, 50_000);
    }
}
