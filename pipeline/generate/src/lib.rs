//! Synthetic load: the events of realistic Kubernetes clusters. Equal seeds give equal events.
//!
//! Read in this order:
//! 1. here: [`Load`] is the amount of events to generate, and [`OrganizationEvents`] and [`Arrivals`] are the
//!    streams of events;
//! 2. `clusters`: the infrastructure of every organization, with the catalogue of instance types and prices;
//! 3. `organization`: one organization over time, with its pods, nodes, agreements and oddities;
//! 4. `disorder`, `arrivals`: the order in which events reach prorata: some late, some twice, and from many
//!    organizations at once.
//!
//! Nothing here does I/O or reads a clock. Every organization draws from its own stream of the seed, so
//! events depend on the arguments alone, in whatever order organizations are generated. Memory grows with the
//! pods that run at once, not with the number of events.

mod arrivals;
mod clusters;
mod disorder;
mod organization;
mod quantities;
mod random;
#[cfg(test)]
mod tests;

use std::time::Duration;

use prorata_schemas::event::Event;
use prorata_schemas::time::{Hour, Timestamp};

pub use arrivals::Arrivals;
use disorder::{Disorder, Rates};
use organization::{Organization, Run};

/// Microseconds in one second.
const SECOND: i64 = 1_000_000;
/// Microseconds in one minute.
const MINUTE: i64 = 60 * SECOND;
/// Microseconds in one hour.
const HOUR: i64 = 60 * MINUTE;

/// The amount of events to generate. Equal values give equal events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of organizations.
    pub organizations: u64,
    /// Number of pods that run at once in each organization, on average over a day.
    pub pods: u64,
    /// Length of the run in hours.
    pub hours: u64,
    /// First hour.
    pub start: Hour,
    /// Seed of everything random.
    pub seed: u64,
    /// Number of events in a million that arrive a minute to six hours late.
    pub late_per_million: u32,
    /// Number of events in a million that arrive a second time, up to two hours later.
    pub duplicates_per_million: u32,
    /// Length of the intervals of measured use, at most an hour. Pods are measured at whole multiples of this
    /// interval, as by the collector. If `None`, most pods are measured every 5, 10 or 15 minutes, and some
    /// never.
    pub usage_interval: Option<Duration>,
}

impl Load {
    /// Returns the events of the organization with this number, counted from 0.
    pub fn organization(&self, number: u64) -> OrganizationEvents {
        let start = self.start.start().0;
        let end = start + i64::try_from(self.hours).unwrap_or(i64::MAX) * HOUR;
        let usage_interval =
            self.usage_interval.map(|every| i64::try_from(every.as_micros()).unwrap_or(HOUR).max(1));
        let run = Run { start, end, pods: self.pods, usage_interval };
        let organization = Organization::new(number, self.seed, run);
        let rates = Rates { late: self.late_per_million, duplicates: self.duplicates_per_million };
        OrganizationEvents(Disorder::new(organization, rates, self.seed, number))
    }

    /// Returns the events of all organizations, in the order in which they are sent.
    pub fn arrivals(&self) -> Arrivals {
        Arrivals::new((0..self.organizations).map(|number| (number, self.organization(number))))
    }
}

/// Events of one organization, in the order in which they are sent.
pub struct OrganizationEvents(Disorder<Organization>);

impl OrganizationEvents {
    /// Returns the organization's id.
    pub fn id(&self) -> &str {
        self.0.source().id()
    }

    /// Returns the progress of the run: the instant from which nothing is generated yet.
    pub fn clock(&self) -> Timestamp {
        Timestamp(self.0.source().clock())
    }
}

impl Iterator for OrganizationEvents {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.0.next()
    }
}
