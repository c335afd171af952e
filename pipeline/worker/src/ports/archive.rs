//! The archive: Avro files of events and of dead letters.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;

use prorata_schemas::body::{EventRecordRef, EventRef};
use prorata_schemas::event::EventKind;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::reject::Reject;

use super::error::FormatError;
use super::source::Message;

/// Where in a file a record stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the record's block, from 0.
    pub block: u64,
    /// The block's first byte in the file.
    pub byte: u64,
    /// Number of the record in the block, from 0; none: the block itself.
    pub record: Option<u64>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} at byte {}", self.block, self.byte)?;
        self.record.map_or(Ok(()), |record| write!(f, ", record {record}"))
    }
}

/// A record that cannot become an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Why.
    pub reject: Reject,
    /// Its bytes as they came, where they can be told apart.
    pub bytes: Vec<u8>,
}

impl Rejected {
    /// Why, with the place.
    pub fn at(&self, position: Option<Position>) -> String {
        let place = position.map_or(String::new(), |position| format!("{position}: "));
        format!("{place}{}", self.reject)
    }
}

/// Where rejected input came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, or a place in it.
    File {
        /// The file's path.
        path: String,
        /// Where in it; none: the file itself.
        position: Option<Position>,
    },
    /// A message on Kafka.
    Message {
        /// Its topic.
        topic: String,
        /// Its partition.
        partition: i32,
        /// Its offset.
        offset: i64,
        /// Its timestamp in milliseconds since the epoch; -1 without one.
        timestamp_millis: i64,
        /// Its key.
        key: Option<Vec<u8>>,
        /// Its headers, in their order.
        headers: Vec<(String, Option<Vec<u8>>)>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, position: None } => f.write_str(path),
            Self::File { path, position: Some(position) } => write!(f, "{path}, {position}"),
            Self::Message { topic, partition, offset, .. } => {
                write!(f, "topic {topic}, partition {partition}, offset {offset}")
            }
        }
    }
}

/// A rejected record or message with the place it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it came from.
    pub origin: Origin,
    /// Its bytes and the reason.
    pub rejected: Rejected,
}

impl DeadLetter {
    /// Of a message, whose bytes are its value.
    pub fn of(message: &Message, reject: Reject) -> Self {
        let origin = Origin::Message {
            topic: message.topic.to_string(),
            partition: message.partition.into(),
            offset: message.offset,
            timestamp_millis: message.timestamp_millis,
            key: message.key.as_deref().map(<[u8]>::to_vec),
            headers: message.headers.clone(),
        };
        let bytes = message.value.as_deref().unwrap_or_default().to_vec();
        Self { origin, rejected: Rejected { reject, bytes } }
    }
}

/// Takes one record after another, and what cannot be one; without a position, the file itself.
pub type EachRecord<'a> = &'a mut dyn FnMut(Option<Position>, Result<EventRecordRef<'_>, Rejected>);

/// Whether an event of this kind and body is wanted. More may follow the body.
pub type IsWanted<'a> = &'a dyn Fn(EventKind, &[u8]) -> bool;

/// Which events of a file of our own are read.
#[derive(Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// Their organizations; none: all.
    pub organizations: Option<&'a BTreeSet<OrganizationId>>,
    /// Those of which this is true; none: all. It need not be asked: it is there to save reading what nobody
    /// needs.
    pub bodies: Option<IsWanted<'a>>,
}

impl Wanted<'_> {
    /// Whether an organization is among those that are wanted.
    pub fn has_organization(&self, organization_id: &str) -> bool {
        self.organizations.is_none_or(|wanted| wanted.contains(organization_id))
    }

    /// Whether a body is, of which more may follow.
    pub fn has_body(&self, kind: EventKind, body: &[u8]) -> bool {
        self.bodies.is_none_or(|is_wanted| is_wanted(kind, body))
    }
}

/// Reads a file of our own with the bodies of its events: every record must be an event.
///
/// # Errors
/// What is damaged, and where.
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
    /// Reads every record of a file, no matter who wrote it. What is damaged is itself handed over as
    /// rejected, and so is a file that is none.
    ///
    /// # Errors
    /// If the bytes could not be had: the file may be fine.
    fn read(&self, file: &mut dyn Read, each: EachRecord<'_>) -> std::io::Result<()>;

    /// Reads the events of a file of our own, those that are wanted, without their bodies. Every record of
    /// the file must be an event; those that are passed over need not be looked at.
    ///
    /// # Errors
    /// What is damaged, and where.
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

    /// A file of these canonical bodies, in this order. Equal events make equal bytes. Where organizations
    /// ascend, [`Archive::read_own`] may pass over those that are not wanted.
    fn write(&self, events: &[(EventKind, &[u8])]) -> Result<Vec<u8>, FormatError>;

    /// Whether a file of our own, of which these events were read in this order, has all that it was written
    /// with, by whichever release. One that was cut off between two blocks reads well.
    fn is_whole(&self, file: &[u8], events: &[(EventKind, &[u8])]) -> bool;

    /// A file of dead letters. Equal letters make equal bytes.
    fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<Vec<u8>, FormatError>;

    /// Reads a file of dead letters whole.
    fn read_dead_letters(&self, bytes: &[u8]) -> Result<Vec<DeadLetter>, FormatError>;
}
