//! The order in which events apply (RULES.md, section 6). Events are sorted by event time. At one instant,
//! the order is bills, closings, rates, pools, quotas, commitments, reservations, ends, starts, usage. Ties
//! are sorted by natural key, field by field as UTF-8 bytes, null first.
//!
//! Duplicates are removed here. The same event twice is one event. Of two different events with one natural
//! key and one event time, the event recorded last stands. If their recordings are equal, the event whose
//! canonical body sorts last stands. A retraction that stands leaves nothing. So the order of arrival decides
//! nothing.

use std::cmp::Ordering;

use prorata_schemas::event::{Event, Payload};
use prorata_schemas::ids::PodUid;
use prorata_schemas::time::{Hour, Timestamp};

use crate::hour_events::HourEvents;
use crate::model::usage::PackedSamples;

/// Precedence of an event type at one instant, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
    Bill,
    Closing,
    Rate,
    Pool,
    Quota,
    Commitment,
    Reservation,
    NodeEnd,
    PodEnd,
    ReservationEnd,
    CommitmentEnd,
    QuotaEnd,
    PoolEnd,
    NodeStart,
    PodStart,
    Usage,
}

/// Returns the precedence of an event.
pub(crate) const fn precedence(payload: &Payload) -> Precedence {
    match payload {
        Payload::BillSet(_) => Precedence::Bill,
        Payload::BillingPeriodClosed(_) => Precedence::Closing,
        Payload::RateSet(_) => Precedence::Rate,
        Payload::PoolSet(_) => Precedence::Pool,
        Payload::QuotaSet(_) => Precedence::Quota,
        Payload::CommitmentSet(_) => Precedence::Commitment,
        Payload::ReservationSet(_) => Precedence::Reservation,
        Payload::NodeStopped(_) => Precedence::NodeEnd,
        Payload::PodStopped(_) => Precedence::PodEnd,
        Payload::ReservationReleased(_) => Precedence::ReservationEnd,
        Payload::CommitmentDeleted(_) => Precedence::CommitmentEnd,
        Payload::QuotaDeleted(_) => Precedence::QuotaEnd,
        Payload::PoolDeleted(_) => Precedence::PoolEnd,
        Payload::NodeStarted(_) => Precedence::NodeStart,
        Payload::PodStarted(_) => Precedence::PodStart,
        Payload::PodUsage(_) => Precedence::Usage,
    }
}

/// Counts of the hour's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventCounts {
    /// The number of events that stand.
    pub(crate) standing: i64,
    /// The latest event time.
    pub(crate) latest: Option<Timestamp>,
}

/// The events of one organization in one hour, in order and without duplicates: one for each natural key and
/// event time.
#[derive(Debug)]
pub struct OrderedEvents {
    pub(crate) hour: Hour,
    /// All events except usage, in order.
    pub(crate) events: Vec<Event>,
    /// The samples of each pod, in order of time.
    pub(crate) samples: Vec<(PodUid, PackedSamples)>,
    pub(crate) counts: EventCounts,
}

impl From<HourEvents> for OrderedEvents {
    fn from(events: HourEvents) -> Self {
        let HourEvents { hour, mut others, usage, latest, .. } = events;
        let (samples, standing) = usage.settle();
        order_others(&mut others);
        let standing = standing + others.len();
        let counts = EventCounts { standing: i64::try_from(standing).unwrap_or(i64::MAX), latest };
        Self { hour, events: others, samples, counts }
    }
}

impl OrderedEvents {
    /// Returns the number of events that stand: one for each natural key and event time, and none for a
    /// retraction.
    pub fn standing(&self) -> i64 {
        self.counts.standing
    }
}

/// Sorts all events except usage, and removes those that do not stand. Bodies are built only where two events
/// have one place and one recording, which is rare.
fn order_others(events: &mut Vec<Event>) {
    events.sort_unstable_by(in_order);
    keep_last(events, |later, earlier| place(later, earlier).is_eq());
    events.retain(|event| !event.recording.is_retraction());
}

/// Orders events by place, and orders rivals so that the last one stands. Two events are equal only if they
/// are the same event.
fn in_order(a: &Event, b: &Event) -> Ordering {
    place(a, b).then_with(|| a.cmp_to_rival(b))
}

/// Keeps the last of equal neighbours. `dedup_by` keeps the earlier of two, so the later is swapped into its
/// place.
fn keep_last<T>(records: &mut Vec<T>, same: impl Fn(&T, &T) -> bool) {
    records.dedup_by(|later, earlier| {
        let same = same(later, earlier);
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
}

fn place(a: &Event, b: &Event) -> Ordering {
    let key = |event: &Event| (event.event_time, precedence(&event.payload));
    key(a).cmp(&key(b)).then_with(|| a.payload.natural_key().cmp(&b.payload.natural_key()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prorata_schemas::event::{PodStopped, PodUsage, Recording};

    fn event(at: i64, payload: Payload) -> Event {
        Event::new("o".into(), Timestamp(at), payload)
    }

    fn stop(uid: &str, at: i64, reason: u8) -> Event {
        let pod = PodStopped {
            cluster_id: "c".into(),
            namespace: "n".into(),
            pod_uid: uid.into(),
            reason: Some(reason.to_string().as_str().into()),
        };
        event(at, Payload::PodStopped(pod))
    }

    fn usage(uid: &str, at: i64, length: u8) -> Event {
        let measured = PodUsage {
            pod_uid: uid.into(),
            interval_end: Timestamp(at + i64::from(length)),
            cpu_millis: length.into(),
            memory_bytes: 0,
            gpu_millis: 0,
            gpu_memory_bytes: None,
        };
        event(at, Payload::PodUsage(measured))
    }

    fn turned(events: &[Event], turn: usize) -> OrderedEvents {
        let mut turned = events.to_vec();
        turned.rotate_left(turn);
        HourEvents::of(Hour(0), turned).into()
    }

    #[test]
    fn the_last_body_of_one_key_stands_in_any_order() {
        let events = [stop("a", 1, 1), stop("a", 1, 3), stop("a", 1, 2), stop("a", 1, 3), stop("b", 0, 9)];
        for turn in 0..events.len() {
            let OrderedEvents { events, samples, counts, .. } = turned(&events, turn);
            let reasons: Vec<_> = events
                .iter()
                .map(|event| {
                    let Payload::PodStopped(stop) = &event.payload else { return None };
                    stop.reason.as_deref()
                })
                .collect();
            assert_eq!((reasons, samples), (vec![Some("9"), Some("3")], Vec::new()));
            assert_eq!(counts, EventCounts { standing: 2, latest: Some(Timestamp(1)) });
        }
    }

    #[test]
    fn the_one_recorded_last_stands_whatever_its_body_and_a_retraction_leaves_nothing() {
        let at = |recorded: i64, is_retraction| Recording::new(Some(Timestamp(recorded)), is_retraction);
        let events = [
            stop("a", 1, 9),
            stop("a", 1, 8).recorded(at(2, false)),
            stop("a", 1, 7).recorded(at(3, false)),
            stop("b", 1, 1).recorded(at(3, true)),
            stop("b", 1, 2).recorded(at(3, false)),
            stop("c", 1, 3).recorded(at(0, true)),
            usage("d", 5, 4),
            usage("d", 5, 3).recorded(at(6, false)),
            usage("d", 5, 3).recorded(at(6, false)),
            usage("e", 5, 2),
            usage("e", 5, 1).recorded(at(6, true)),
            usage("f", 5, 1).recorded(at(0, true)),
            usage("g", 5, 1).recorded(at(0, false)),
        ];
        for turn in 0..events.len() {
            let OrderedEvents { events, mut samples, counts, .. } = turned(&events, turn);
            let [event] = &events[..] else { panic!("{events:?}") };
            assert_eq!(*event, stop("a", 1, 7).recorded(at(3, false)));
            samples.sort_by(|a, b| a.0.cmp(&b.0));
            let found = samples
                .iter()
                .flat_map(|(uid, packed)| packed.samples().map(|sample| (&**uid, sample.use_amounts.cpu)));
            assert_eq!(found.collect::<Vec<_>>(), [("d", 3), ("g", 1)]);
            assert_eq!(counts.standing, 3);
        }
    }

    #[test]
    fn usage_is_one_sample_for_each_pod_and_start_without_empty_samples() {
        let events = [
            usage("b", 5, 1),
            usage("a", 7, 2),
            usage("a", 5, 1),
            usage("a", 5, 4),
            usage("a", 5, 4),
            usage("a", 9, 0),
        ];
        for turn in 0..events.len() {
            let OrderedEvents { events, mut samples, counts, .. } = turned(&events, turn);
            samples.sort_by(|a, b| a.0.cmp(&b.0));
            let found = samples.iter().flat_map(|(uid, packed)| {
                packed.samples().map(|sample| (&**uid, sample.from.0, sample.use_amounts.cpu))
            });
            assert_eq!(found.collect::<Vec<_>>(), [("a", 5, 4), ("a", 7, 2), ("b", 5, 1)]);
            assert_eq!((events, counts.standing), (Vec::new(), 4));
        }
    }
}
