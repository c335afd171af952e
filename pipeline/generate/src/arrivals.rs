//! Events of all organizations in the order in which they reach Kafka. Producers of many organizations send
//! at the same time: one organization's events of noon do not wait for another organization's day to end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use prorata_schemas::event::Event;
use prorata_schemas::time::Timestamp;

use super::OrganizationEvents;

/// Events of every organization, merged by the minute in which they are sent, then by the organization's
/// number.
pub struct Arrivals {
    waiting: BinaryHeap<Reverse<NextEvent>>,
}

/// An organization and its next event, ordered by when that event is sent, then by the organization's number.
struct NextEvent {
    sent_at: Timestamp,
    number: u64,
    event: Event,
    events: Box<OrganizationEvents>,
}

impl PartialEq for NextEvent {
    fn eq(&self, other: &Self) -> bool {
        (self.sent_at, self.number) == (other.sent_at, other.number)
    }
}

impl Eq for NextEvent {}

impl PartialOrd for NextEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NextEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.sent_at, self.number).cmp(&(other.sent_at, other.number))
    }
}

impl Arrivals {
    /// Merges the events of these organizations, each with its number.
    pub(crate) fn new(organizations: impl Iterator<Item = (u64, OrganizationEvents)>) -> Self {
        let mut arrivals = Self { waiting: BinaryHeap::new() };
        for (number, events) in organizations {
            arrivals.wait(number, Box::new(events));
        }
        arrivals
    }

    /// Returns the start of the minute in which the next event is sent; `None` at the end.
    pub fn clock(&self) -> Option<Timestamp> {
        self.waiting.peek().map(|Reverse(first)| first.sent_at)
    }

    fn wait(&mut self, number: u64, mut events: Box<OrganizationEvents>) {
        if let Some(event) = events.next() {
            let sent_at = events.clock();
            self.waiting.push(Reverse(NextEvent { sent_at, number, event, events }));
        }
    }
}

impl Iterator for Arrivals {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let Reverse(NextEvent { number, event, events, .. }) = self.waiting.pop()?;
        self.wait(number, events);
        Some(event)
    }
}
