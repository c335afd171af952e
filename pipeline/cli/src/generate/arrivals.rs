//! All organizations' events in the order in which they reach Kafka: producers of many organizations send at once, so
//! what one sends at noon does not wait for the day of another to end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use prorata_schemas::event::Event;

use super::GenerateArgs;
use super::disorder::Disorder;
use super::organization::Organization;

/// Events of every organization, merged by the minute in which they are sent, then by the organization's number.
pub struct Arrivals {
    waiting: BinaryHeap<Reverse<Waiting>>,
}

/// An organization, and its next event; compared by when that is sent, then by the organization's number.
struct Waiting {
    at: i64,
    number: u64,
    event: Event,
    events: Box<Disorder<Organization>>,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Arrivals {
    /// What these arguments ask for.
    pub fn new(args: &GenerateArgs) -> Self {
        let mut arrivals = Self { waiting: BinaryHeap::new() };
        for number in 0..args.organizations {
            arrivals.wait(number, Box::new(super::events_of(args, number)));
        }
        arrivals
    }

    /// The minute in which the next event is sent, in microseconds since the epoch; none at the end.
    pub fn clock(&self) -> Option<i64> {
        self.waiting.peek().map(|Reverse(first)| first.at)
    }

    fn wait(&mut self, number: u64, mut events: Box<Disorder<Organization>>) {
        if let Some(event) = events.next() {
            let at = events.source().clock();
            self.waiting.push(Reverse(Waiting { at, number, event, events }));
        }
    }
}

impl Iterator for Arrivals {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let Reverse(Waiting { number, event, events, .. }) = self.waiting.pop()?;
        self.wait(number, events);
        Some(event)
    }
}
