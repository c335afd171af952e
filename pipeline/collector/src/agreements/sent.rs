//! Corrections of sent events: the file describes the state, not the changes.
//!
//! The events that stand among the sent events are compared with the events that the file wants. A missing
//! event is sent, a different event is sent again with a later `recorded_at`, and an unwanted event is
//! retracted. So all events together have the same effect as the last file alone.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::event::{Event, EventKind, Payload, Recording};
use prorata_schemas::time::Timestamp;

use super::{AgreementEvents, AgreementsError, ChangedObject};

/// The event time, type and natural key of an event. Of all events with the same place, one stands.
type EventPlace = (Timestamp, EventKind, [Option<String>; 3]);

/// The events that stand, by place. Retractions stand like any event.
type StandingEvents<'a> = BTreeMap<EventPlace, &'a Event>;

fn place(event: &Event) -> EventPlace {
    let key = event.payload.natural_key().map(|field| field.map(str::to_owned));
    (event.event_time, event.payload.kind(), key)
}

fn standing(events: &[Event]) -> StandingEvents<'_> {
    let mut standing = StandingEvents::new();
    for event in events {
        let stands = standing.entry(place(event)).or_insert(event);
        if event.cmp_to_rival(stands).is_gt() {
            *stands = event;
        }
    }
    standing
}

/// Returns the events to send so that `wanted` stands, and the changes that they make. `sent` holds every
/// event that was sent from files of this organization.
///
/// # Errors
/// If a sent event that must be corrected was not recorded before `recorded_at`.
pub(super) fn to_send(
    wanted: &[Event],
    sent: &[Event],
    recorded_at: Timestamp,
    now: Timestamp,
) -> Result<AgreementEvents, AgreementsError> {
    let (before, after) = (standing(sent), standing(wanted));
    let mut send = AgreementEvents::default();
    let mut objects = BTreeSet::new();
    for place in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let (stands, is_wanted) = (before.get(place).copied(), after.get(place).copied());
        let is_retraction = is_wanted.is_none_or(|event| event.recording.is_retraction());
        let Some(event) = is_wanted.or(stands) else { continue };
        if let Some(stands) = stands {
            let as_wanted = stands.recording.is_retraction() == is_retraction
                && (is_retraction || stands.payload == event.payload);
            if as_wanted {
                continue;
            }
            if let Some(before) = stands.recording.recorded_at().filter(|before| *before >= recorded_at) {
                return Err(AgreementsError::NotLater { recorded_at, before });
            }
        }
        objects.insert(object(&event.payload));
        send.events.push(event.clone().recorded(Recording::new(Some(recorded_at), is_retraction)));
    }
    for object in objects.into_iter().filter(|_| !sent.is_empty()) {
        let of_object = |standing: &StandingEvents<'_>| -> Vec<Event> {
            let stand = standing.values().filter(|event| !event.recording.is_retraction());
            stand
                .filter(|event| self::object(&event.payload) == object)
                .map(|event| (*event).clone())
                .collect()
        };
        if let Some((from, to)) = span(&of_object(&before), &of_object(&after), now) {
            send.changes.push(ChangedObject { object, from, to });
        }
    }
    Ok(send)
}

/// Returns an object's name for messages.
fn object(payload: &Payload) -> String {
    let section = match payload.kind() {
        EventKind::ReservationSet | EventKind::ReservationReleased => "reservation",
        EventKind::CommitmentSet | EventKind::CommitmentDeleted => "commitment",
        EventKind::PoolSet | EventKind::PoolDeleted => "pool",
        _ => "rate",
    };
    let key: Vec<&str> = payload.natural_key().into_iter().flatten().collect();
    format!("{section} {}", key.join(", "))
}

/// Returns the first and the last instant between which the descriptions of an object differ. Returns `None`
/// if they do not differ. Descriptions that begin after `now` were never sent.
fn span(before: &[Event], after: &[Event], now: Timestamp) -> Option<(Timestamp, Timestamp)> {
    let edges = |event: &Event| [Some(event.event_time), ends_at(&event.payload), Some(now)];
    let edges: BTreeSet<Timestamp> = before.iter().chain(after).flat_map(edges).flatten().collect();
    let edges: Vec<Timestamp> = edges.into_iter().filter(|edge| *edge <= now).collect();
    let differ = |pair: &&[Timestamp]| {
        pair.first().is_some_and(|from| described(before, *from) != described(after, *from))
    };
    let spans: Vec<&[Timestamp]> = edges.windows(2).filter(differ).collect();
    Some((*spans.first()?.first()?, *spans.last()?.last()?))
}

/// Returns the description of an object at an instant, without its span. Returns `None` if the object does
/// not exist then.
fn described(events: &[Event], at: Timestamp) -> Option<Payload> {
    // Events are in time order. If a set and a deletion are at one instant, the deletion comes last.
    let last = events.iter().rev().find(|event| event.event_time <= at)?;
    let is_deleted = matches!(last.payload.kind(), EventKind::PoolDeleted);
    let has_ended = ends_at(&last.payload).is_some_and(|ends_at| ends_at <= at);
    let mut payload = (!is_deleted && !has_ended).then(|| last.payload.clone())?;
    let (starts_at, ends_at) = match &mut payload {
        Payload::ReservationSet(set) => (&mut set.starts_at, &mut set.ends_at),
        Payload::CommitmentSet(set) => (&mut set.starts_at, &mut set.ends_at),
        _ => return Some(payload),
    };
    (*starts_at, *ends_at) = (Timestamp(0), None);
    Some(payload)
}

const fn ends_at(payload: &Payload) -> Option<Timestamp> {
    match payload {
        Payload::ReservationSet(set) => set.ends_at,
        Payload::CommitmentSet(set) => set.ends_at,
        _ => None,
    }
}
