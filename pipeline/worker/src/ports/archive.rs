//! The archive: Avro files of events and of dead letters.

use std::fmt;
use std::io::Read;

use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::reject::Reject;

use super::error::FormatError;

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

/// Takes one record after another, and what cannot be one; without a position, the file itself.
pub type EachRecord<'a> = &'a mut dyn FnMut(Option<Position>, Result<EventRecord, Rejected>);

/// Avro object container files of events.
pub trait Archive: Send + Sync {
    /// Reads every record of a file, no matter who wrote it. What is damaged is itself handed over as
    /// rejected, and so is a file that is none.
    ///
    /// # Errors
    /// When the bytes could not be had: the file may be fine.
    fn read(&self, file: &mut dyn Read, each: EachRecord<'_>) -> std::io::Result<()>;

    /// A file of these canonical bodies, in this order. Equal events make equal bytes.
    fn write(&self, events: &[(EventKind, &[u8])]) -> Result<Vec<u8>, FormatError>;

    /// A file of dead letters. Equal letters make equal bytes.
    fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<Vec<u8>, FormatError>;

    /// Reads a file of dead letters whole.
    fn read_dead_letters(&self, bytes: &[u8]) -> Result<Vec<DeadLetter>, FormatError>;
}
