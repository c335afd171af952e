//! Reads and writes typed events in the Avro binary form of our newest schemas.
//!
//! [`encode`] writes the canonical body. [`decode`] reads any body of our newest schema and validates every
//! field. [`wire`] is the encoding itself; the resolution of other writers' schemas uses it too.

mod borrowed;
mod fields;
mod read;
pub mod wire;
mod write;

use std::cell::RefCell;
use std::cmp::Ordering;
use std::hint;

use crate::event::{Event, EventKind, EventRecord};
use crate::reject::{RecordError, Reject};
use crate::sharing::NAMES;

pub use borrowed::{EventRecordRef, EventRef, PodUsageRef};

use fields::Fields;
use wire::Wire;

/// Longest body of one event, in bytes. Kubernetes objects stay below 1.5 MiB. The limit bounds the memory
/// that a hostile body of many empty texts can take.
pub const BODY_BYTES_MAX: usize = 4 << 20;

thread_local! {
    /// The buffer in which a body is built, so that the kept copy is allocated once, at its final size. The
    /// buffer grows to about [`BODY_BYTES_MAX`] at most.
    static SCRATCH: RefCell<write::Out> = const { RefCell::new(write::Out(Vec::new())) };
}

/// Returns the canonical body of an event: fields in schema order, map entries sorted by key in one block,
/// decimals in the fewest bytes.
pub fn encode(event: &Event) -> Vec<u8> {
    let mut out = write::Out(Vec::with_capacity(256));
    out.event(event);
    out.0
}

/// Returns the organization of a body as bytes: the first field of every record. Returns no bytes if the
/// field cannot be read.
pub fn organization_of(body: &[u8]) -> &[u8] {
    split_organization(body).0
}

/// Returns the organization of a body as bytes, and the bytes after it. The organization is empty if it
/// cannot be read.
pub fn split_organization(body: &[u8]) -> (&[u8], &[u8]) {
    let mut wire = Wire::new(body);
    let organization = wire.bytes().unwrap_or_default();
    (organization, wire.rest())
}

/// Returns the event time of a body in microseconds: the second field of every record. Returns 0 if the field
/// cannot be read.
pub fn event_time_of(body: &[u8]) -> i64 {
    Wire::new(split_organization(body).1).long().unwrap_or_default()
}

/// Returns the pod of a sample's body as bytes, and the event time in microseconds. Returns no bytes and 0 if
/// one of these fields cannot be read.
pub fn pod_and_time(body: &[u8]) -> (&[u8], i64) {
    let mut wire = Wire::new(split_organization(body).1);
    let time = wire.long();
    time.and_then(|time| Ok((wire.bytes()?, time))).unwrap_or_default()
}

/// Number of bodies that [`prefetch`] fetches at a time.
const PREFETCHED: usize = 32;

/// Fetches the next `PREFETCHED` bodies into the processor's caches if `at` is a multiple of `PREFETCHED`.
/// Call it before each of many bodies that are read in a row. `at` is the number of the body, from 0, and
/// `bodies` are this body and all bodies after it. Bodies are scattered in memory. If each body is fetched
/// alone, the processor waits for each; if bodies are fetched together, the waits overlap.
pub fn prefetch<'a>(at: usize, bodies: impl Iterator<Item = &'a [u8]>) {
    if at.is_multiple_of(PREFETCHED) {
        let ends = |body: &[u8]| body.first().copied().unwrap_or(0) ^ body.last().copied().unwrap_or(0);
        hint::black_box(bodies.take(PREFETCHED).fold(0, |touched, body| touched ^ ends(body)));
    }
}

/// Reads one body of our newest schema of `kind`, and validates it: see [`crate::reject`].
///
/// # Errors
/// `malformed` if the bytes are not a record of `kind` or continue past its end; `invalid_field` if a value
/// is out of range.
pub fn decode(kind: EventKind, body: &[u8]) -> Result<Event, Reject> {
    let event = decode_ref(kind, body)?;
    Ok(NAMES.with_borrow_mut(|names| event.shared(names)))
}

/// Reads one body like [`decode`], but borrows the texts of a sample from `body`.
///
/// # Errors
/// Returns the errors of [`decode`].
pub fn decode_ref(kind: EventKind, body: &[u8]) -> Result<EventRef<'_>, Reject> {
    let mut wire = Wire::new(body);
    let event = match decode_next_ref(kind, &mut wire) {
        Err(RecordError::Malformed(reject)) => return Err(reject),
        judged => judged.map_err(RecordError::into_reject),
    };
    match wire.rest().len() {
        0 => event,
        left => Err(Reject::malformed(format!("{left} bytes follow the end of a {}", kind.name()))),
    }
}

/// Reads the next body of our newest schema of `kind` from `wire`, and leaves `wire` at the body's end, even
/// if the record is rejected. The texts of a sample are borrowed from the bytes of `wire`.
///
/// # Errors
/// Returns a [`RecordError`]. After a malformed record, the position of `wire` is not defined.
pub fn decode_next_ref<'a>(kind: EventKind, wire: &mut Wire<'a>) -> Result<EventRef<'a>, RecordError> {
    match EventRef::valid_sample(kind, wire) {
        Some(sample) => Ok(sample),
        None => next(kind, wire, |fields| read::event(fields, kind).map(EventRef::Event)),
    }
}

fn next<'a, T>(
    kind: EventKind,
    wire: &mut Wire<'a>,
    read: impl FnOnce(&mut Fields<'_, 'a>) -> Result<T, Reject>,
) -> Result<T, RecordError> {
    let bytes = wire.rest();
    let mut within = Wire::new(bytes.get(..BODY_BYTES_MAX).unwrap_or(bytes));
    let read = NAMES.with_borrow_mut(|names| {
        let mut fields = Fields::new(&mut within, names, kind.name());
        let event = read(&mut fields)?;
        Ok((event, fields.into_fault()))
    });
    let (event, fault) =
        read.map_err(|reject: Reject| Reject::malformed(format!("{}: {}", kind.name(), reject.message)))?;
    let left = within.rest().len();
    wire.take(bytes.len().min(BODY_BYTES_MAX) - left)?;
    fault.map_or(Ok(event), |fault| Err(RecordError::Rejected(fault)))
}

impl Event {
    /// Compares rivals by recording, then by canonical body; the last in this order stands. Two rivals are
    /// equal only if they are the same event.
    pub fn cmp_to_rival(&self, rival: &Self) -> Ordering {
        self.recording.cmp(&rival.recording).then_with(|| encode(self).cmp(&encode(rival)))
    }
}

impl EventRecord {
    /// Creates a record: the event with its canonical body.
    pub fn new(event: Event) -> Self {
        EventRecordRef::new(EventRef::Event(event)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Payload, PodUsage, Recording};
    use crate::time::Timestamp;

    /// Returns bodies of samples: whole, with one byte changed, and with the end cut off.
    fn bodies() -> Vec<Vec<u8>> {
        let usage = |minutes: i64| PodUsage {
            pod_uid: "28d1b987-c319-5800-81ab".into(),
            interval_end: Timestamp(minutes * 60_000_000),
            cpu_millis: 250,
            memory_bytes: 1 << 30,
            gpu_millis: 0,
            gpu_memory_bytes: None,
        };
        let event =
            |minutes| Event::new("acme".into(), Timestamp(60_000_000), Payload::PodUsage(usage(minutes)));
        let mut bodies = Vec::new();
        let recorded = [(None, true), (Some(Timestamp(5)), false)]
            .map(|(at, is_retraction)| encode(&event(2).recorded(Recording::new(at, is_retraction))));
        for whole in [0, 1, 2, 61, 62].map(|minutes| encode(&event(minutes))).into_iter().chain(recorded) {
            for at in 0..whole.len() {
                bodies.push(whole[..at].to_vec());
                for byte in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut other = whole.clone();
                    other[at] = byte;
                    bodies.push(other);
                }
            }
            bodies.push(whole);
        }
        bodies
    }

    #[test]
    fn reading_a_sample_at_once_equals_reading_its_fields() {
        let (mut valid, mut invalid) = (0, 0);
        for body in bodies() {
            let (mut at_once, mut by_field) = (Wire::new(&body), Wire::new(&body));
            let kind = EventKind::PodUsage;
            let sample = EventRef::valid_sample(kind, &mut at_once).map(EventRef::into_owned);
            let judged = next(kind, &mut by_field, |fields| read::event(fields, kind));
            match sample {
                Some(sample) => {
                    assert_eq!((Ok(sample), at_once.rest()), (judged, by_field.rest()), "{body:?}");
                    valid += 1;
                }
                None => {
                    assert!(judged.is_err(), "{body:?}");
                    assert_eq!(at_once.rest(), body, "it is to be read again");
                    invalid += 1;
                }
            }
        }
        assert!(valid > 100 && invalid > 100, "{valid} valid, {invalid} not");
    }
}
