//! The archive: Avro files of events and of dead letters.

use std::collections::BTreeSet;
use std::io::Read;

use prorata_schemas::body::{EventRecordRef, EventRef};
use prorata_schemas::event::EventKind;
use prorata_schemas::ids::OrganizationId;

use super::dead_letter::{DeadLetter, Position, Rejected};
use super::error::FormatError;

/// A function that takes records and rejected records one by one. A rejection without a position concerns the
/// file itself.
pub type EachRecord<'a> = &'a mut dyn FnMut(Option<Position>, Result<EventRecordRef<'_>, Rejected>);

/// A function that returns whether an event of this kind and body is wanted. More bytes may follow the body.
pub type IsWanted<'a> = &'a dyn Fn(EventKind, &[u8]) -> bool;

/// A selection of events in a file of our own.
#[derive(Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// Organizations of the events; `None` for all.
    pub organizations: Option<&'a BTreeSet<OrganizationId>>,
    /// A filter for bodies; `None` for all. A reader need not apply the filter: its only purpose is to skip
    /// events that nobody needs.
    pub bodies: Option<IsWanted<'a>>,
}

impl Wanted<'_> {
    /// Returns whether an organization is wanted.
    pub fn has_organization(&self, organization_id: &str) -> bool {
        self.organizations.is_none_or(|wanted| wanted.contains(organization_id))
    }

    /// Returns whether a body is wanted. More bytes may follow the body.
    pub fn has_body(&self, kind: EventKind, body: &[u8]) -> bool {
        self.bodies.is_none_or(|is_wanted| is_wanted(kind, body))
    }
}

/// Reads a file of our own, including the bodies of its events. Every record must be an event.
///
/// # Errors
/// If a record is damaged; the error reports what is damaged and where.
pub fn read_whole<A: Archive + ?Sized>(
    archive: &A,
    mut file: &[u8],
    mut each: impl FnMut(EventRecordRef<'_>),
) -> Result<(), FormatError> {
    let mut damage = None;
    let read = archive.read(&mut file, &mut |position, record| match record {
        Ok(record) => each(record),
        Err(rejected) => {
            damage.get_or_insert_with(|| rejected.at(position));
        }
    });
    let damaged = |cause| FormatError::new("decode events", cause);
    read.map_err(|error| damaged(error.to_string()))?;
    damage.map_or(Ok(()), |cause| Err(damaged(cause)))
}

/// Avro object container files of events.
pub trait Archive: Send + Sync {
    /// Reads every record of a file of any writer. Damaged records are passed on as rejected, and so is a
    /// whole file that is not an Avro file.
    ///
    /// # Errors
    /// If the bytes cannot be read; the file itself may be intact.
    fn read(&self, file: &mut dyn Read, each: EachRecord<'_>) -> std::io::Result<()>;

    /// Reads the wanted events of a file of our own, without their bodies. Every record of the file must be
    /// an event; skipped records need not be checked.
    ///
    /// # Errors
    /// If a record is damaged; the error reports what is damaged and where.
    fn read_own(
        &self,
        file: &[u8],
        wanted: Wanted<'_>,
        each: &mut dyn FnMut(EventRef<'_>),
    ) -> Result<(), FormatError> {
        read_whole(self, file, |record| {
            let EventRecordRef { event, body } = record;
            if wanted.has_organization(event.organization_id()) && wanted.has_body(event.kind(), &body) {
                each(event);
            }
        })
    }

    /// Encodes these canonical bodies as a file, in this order. Equal events give equal bytes. If the
    /// organizations ascend, [`Archive::read_own`] may skip organizations that are not wanted.
    fn write(&self, events: &[(EventKind, &[u8])]) -> Result<Vec<u8>, FormatError>;

    /// Encodes dead letters as a file. Equal dead letters give equal bytes.
    fn write_dead_letters(&self, dead_letters: &[DeadLetter]) -> Result<Vec<u8>, FormatError>;

    /// Reads a whole file of dead letters.
    fn read_dead_letters(&self, bytes: &[u8]) -> Result<Vec<DeadLetter>, FormatError>;
}
