//! The archive in Avro object container files: events, in our files or foreign ones with our records, and
//! dead letters.
//!
//! Reading never stops at a bad record and never hides one. Every record of a file is reported, as an event
//! or as rejected with its place and bytes.

mod codec;
mod container;
mod dead_letter;
mod error;
mod read;
mod source;
mod write;

pub use codec::{BLOCK_BYTES_MAX, UNPACKED_BYTES_MAX, UnpackError};
pub use dead_letter::{DEAD_LETTER_SCHEMA, read_dead_letters, write_dead_letters};
pub use error::{BlockFault, FileError, FileFault};
pub use prorata_worker::ports::{Position, Rejected};
pub use read::{OnRecord, read_events, read_own};
pub use write::{EventFileWriter, archive_schema, write_events, write_own};

use std::io::{self, Read};

use prorata_schemas::body::EventRef;
use prorata_schemas::event::EventKind;
use prorata_schemas::reject::Reject;
use prorata_worker::ports::{Archive, DeadLetter, EachRecord, FormatError, Wanted};

/// The worker's archive as Avro object container files.
#[derive(Clone, Copy, Debug, Default)]
pub struct AvroArchive;

impl Archive for AvroArchive {
    fn read(&self, file: &mut dyn Read, each: EachRecord<'_>) -> io::Result<()> {
        match read_events(file, &mut |position, record| each(Some(position), record)) {
            Ok(()) => Ok(()),
            Err(FileError::Io(error)) => Err(error),
            Err(error @ (FileError::NotAvro(_) | FileError::Codec(_))) => {
                let reject = Reject::malformed(error.to_string());
                each(None, Err(Rejected { reject, bytes: Vec::new() }));
                Ok(())
            }
        }
    }

    fn read_own(
        &self,
        file: &[u8],
        wanted: Wanted<'_>,
        each: &mut dyn FnMut(EventRef<'_>),
    ) -> Result<(), FormatError> {
        read_own(file, wanted, each).map_err(|error| match error {
            FileError::NotAvro(FileFault::Own(damage)) => FormatError::new("decode events", damage),
            error => FormatError::new("decode events", Reject::malformed(error.to_string()).to_string()),
        })
    }

    fn write(&self, events: &[(EventKind, &[u8])]) -> Result<Vec<u8>, FormatError> {
        write_own(events).map_err(|error| FormatError::new("encode events", error))
    }

    fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<Vec<u8>, FormatError> {
        write_dead_letters(letters).map_err(|error| FormatError::new("encode dead letters", error))
    }

    fn read_dead_letters(&self, bytes: &[u8]) -> Result<Vec<DeadLetter>, FormatError> {
        read_dead_letters(bytes).map_err(|error| FormatError::new("decode dead letters", error))
    }
}
