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

pub use codec::{BLOCK_BYTES_MAX, UNPACKED_BYTES_MAX};
pub use container::FileError;
pub use dead_letter::{DEAD_LETTER_SCHEMA, read_dead_letters, write_dead_letters};
pub use prorata_worker::ports::{Position, Rejected};
pub use read::{OnRecord, read_events};
pub use write::{archive_schema, write_events};
