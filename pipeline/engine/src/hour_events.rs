//! The input of the engine: the events of one organization in one hour, added one by one.

use prorata_schemas::body::{EventRef, PodUsageRef};
use prorata_schemas::event::{Event, Payload, Recording};
use prorata_schemas::time::{Hour, Timestamp};

use crate::model::usage::Usage;

/// The events of one organization in one hour, in any order, duplicates included. A usage event is reduced to
/// its figures when it arrives: about 20 bytes.
#[derive(Clone, Debug)]
pub struct HourEvents {
    pub(crate) hour: Hour,
    /// All events except usage.
    pub(crate) others: Vec<Event>,
    pub(crate) usage: Usage,
    pub(crate) latest: Option<Timestamp>,
}

impl HourEvents {
    /// Creates an empty set of events.
    pub fn new(hour: Hour) -> Self {
        Self { hour, others: Vec::new(), usage: Usage::new(hour.start()), latest: None }
    }

    /// Collects these events.
    pub fn of(hour: Hour, events: impl IntoIterator<Item = impl Into<Event>>) -> Self {
        let mut taken = Self::new(hour);
        events.into_iter().for_each(|event| taken.push(event.into()));
        taken
    }

    /// Adds one event, whose event time must lie in the hour.
    pub fn push(&mut self, event: Event) {
        if let Payload::PodUsage(usage) = &event.payload {
            return self.push_usage(event.event_time, event.recording, usage.into());
        }
        self.latest = self.latest.max(Some(event.event_time));
        self.others.push(event);
    }

    /// Adds one event whose texts may be borrowed. The event time must lie in the hour.
    pub fn push_ref(&mut self, event: EventRef<'_>) {
        match event {
            EventRef::PodUsage { event_time, recording, usage, .. } => {
                self.push_usage(event_time, recording, usage);
            }
            EventRef::Event(event) => self.push(event),
        }
    }

    fn push_usage(&mut self, event_time: Timestamp, recording: Recording, usage: PodUsageRef<'_>) {
        self.latest = self.latest.max(Some(event_time));
        self.usage.push(event_time, recording, usage);
    }

    /// Adds all events of another part of the same hour.
    pub fn append(&mut self, other: Self) {
        self.latest = self.latest.max(other.latest);
        self.others.extend(other.others);
        self.usage.append(other.usage);
    }

    /// Returns the hour.
    pub fn hour(&self) -> Hour {
        self.hour
    }

    /// Returns whether no event was taken.
    pub fn is_empty(&self) -> bool {
        self.latest.is_none()
    }

    /// Returns the latest event time.
    pub fn latest(&self) -> Option<Timestamp> {
        self.latest
    }
}
