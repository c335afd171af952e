//! The archive: events in Avro object container files, ours and any others with our records, and dead letters.
//!
//! Reading never stops at a bad record and never hides one: what is told for a file is every record in it, as an
//! event or as rejected with its place and bytes.

mod codec;
mod container;
mod dead_letter;
mod read;
mod source;
mod write;

use std::fmt;

use prorata_schemas::reject::Reject;

pub use codec::{BLOCK_BYTES_MAX, UNPACKED_BYTES_MAX};
pub use container::FileError;
pub use dead_letter::{DEAD_LETTER_SCHEMA, DeadLetter, Origin, read_dead_letters, write_dead_letters};
pub use read::{OnRecord, read_events};
pub use write::{archive_schema, write_events};

/// Where in a file a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the block, from 0.
    pub block: u64,
    /// Offset of the block's first byte in the file.
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
pub struct RejectedRecord {
    /// Why.
    pub reject: Reject,
    /// Its bytes, unchanged: the record's body in the writer's schema, or the bytes of a damaged block.
    pub bytes: Vec<u8>,
}
