//! The Avro binary form of our newest schemas: typed events in and out, canonical.
//!
//! [`encode`] writes the canonical body; [`decode`] reads any body of our newest schema and judges every field.

use crate::event::{Event, EventKind};
use crate::reject::Reject;

/// The canonical body of an event: fields in schema order, map entries sorted by key in one block, decimals in the
/// fewest bytes.
pub fn encode(_event: &Event) -> Vec<u8> {
    Vec::new()
}

/// Reads one body of our newest schema of `kind`. Validity is judged here: see [`crate::reject`].
///
/// # Errors
/// `malformed` for bytes that are no such record or that go on behind it, `invalid_field` for a value out of range.
pub fn decode(_kind: EventKind, _body: &[u8]) -> Result<Event, Reject> {
    Err(Reject::malformed("not yet"))
}
