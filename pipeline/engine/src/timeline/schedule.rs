//! Steps that descriptions schedule for later in the hour: starts and ends of reservations and of
//! commitments.

use std::collections::BTreeSet;

use prorata_schemas::ids::ReservationId;
use prorata_schemas::time::Timestamp;

use crate::timeline::order::Precedence;

/// A scheduled step of a reservation. Like an event, it has a place in the order of its instant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReservationStep {
    /// The start at `starts_at`, which applies like a `ReservationSet` with this id.
    Start(ReservationId),
    /// The end at `ends_at`, which applies like a `ReservationReleased` with this id, but the reservation
    /// stays known.
    End(ReservationId),
}

impl ReservationStep {
    /// Returns the precedence and the natural key, which order the step among events.
    pub(super) fn place(&self) -> (Precedence, [Option<&str>; 3]) {
        match self {
            Self::Start(id) => (Precedence::Reservation, [Some(id), None, None]),
            Self::End(id) => (Precedence::ReservationEnd, [Some(id), None, None]),
        }
    }
}

/// Everything scheduled before the hour's end.
#[derive(Debug)]
pub(super) struct Schedule {
    hour_end: Timestamp,
    steps: BTreeSet<(Timestamp, ReservationStep)>,
    /// Starts and ends of commitments. They only cut the hour. Coverage is decided at the end of every
    /// instant that changes it, so the cuts need no place in the order of an instant.
    coverage_cuts: BTreeSet<Timestamp>,
}

impl Schedule {
    /// Creates an empty schedule.
    pub(super) const fn new(hour_end: Timestamp) -> Self {
        Self { hour_end, steps: BTreeSet::new(), coverage_cuts: BTreeSet::new() }
    }

    /// Returns the next instant at which something is scheduled; `None` if nothing is.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let step = self.steps.first().map(|(at, _)| *at);
        step.into_iter().chain(self.coverage_cuts.first().copied()).min()
    }

    /// Adds a step, unless it is in the next hour or later. The later hour schedules the step again from the
    /// state.
    pub(super) fn add_step(&mut self, at: Timestamp, step: ReservationStep) {
        if at < self.hour_end {
            self.steps.insert((at, step));
        }
    }

    /// Adds a cut, unless it is in the next hour or later.
    pub(super) fn add_cut(&mut self, at: Timestamp) {
        if at < self.hour_end {
            self.coverage_cuts.insert(at);
        }
    }

    /// Takes the steps of this instant, in the order of their places.
    pub(super) fn take_steps(&mut self, now: Timestamp) -> Vec<ReservationStep> {
        let mut steps = Vec::new();
        while self.steps.first().is_some_and(|(at, _)| *at <= now) {
            steps.extend(self.steps.pop_first().map(|(_, step)| step));
        }
        steps
    }

    /// Takes the cut of this instant. Returns whether there was one.
    pub(super) fn take_cut(&mut self, now: Timestamp) -> bool {
        self.coverage_cuts.remove(&now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_in_the_order_of_their_places_and_only_inside_the_hour() {
        let mut schedule = Schedule::new(Timestamp(10));
        schedule.add_step(Timestamp(5), ReservationStep::End("a".into()));
        schedule.add_step(Timestamp(5), ReservationStep::Start("b".into()));
        schedule.add_step(Timestamp(10), ReservationStep::Start("c".into()));
        schedule.add_cut(Timestamp(3));
        schedule.add_cut(Timestamp(10));
        assert_eq!(schedule.next(), Some(Timestamp(3)));
        assert!(schedule.take_cut(Timestamp(3)));
        assert_eq!(schedule.next(), Some(Timestamp(5)));
        let steps = schedule.take_steps(Timestamp(5));
        assert_eq!(steps, [ReservationStep::Start("b".into()), ReservationStep::End("a".into())]);
        assert!(steps.is_sorted_by_key(ReservationStep::place));
        assert_eq!(schedule.next(), None);
    }
}
