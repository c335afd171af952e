//! The worker's ports in terms of what this crate has.

use std::io::{self, Read};
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::event::EventKind;
use prorata_schemas::reject::Reject;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Timestamp;
use prorata_worker::ports::{
    Archive, Clock, DeadLetter, EachRecord, EncodedFile, FormatError, HourClock, Rejected, TableEncoder,
};

use crate::archive::{self, FileError};
use crate::tables;

/// Avro object container files.
#[derive(Clone, Copy, Debug, Default)]
pub struct AvroArchive;

impl Archive for AvroArchive {
    fn read(&self, file: &mut dyn Read, each: EachRecord<'_>) -> io::Result<()> {
        let read = archive::read_events(file, &mut |position, record| each(Some(position), record));
        match read {
            Ok(()) => Ok(()),
            Err(FileError::Io(error)) => Err(error),
            Err(error @ (FileError::NotAvro(_) | FileError::Codec(_))) => {
                let reject = Reject::malformed(error.to_string());
                each(None, Err(Rejected { reject, bytes: Vec::new() }));
                Ok(())
            }
        }
    }

    fn write(&self, events: &[(EventKind, &[u8])]) -> Result<Vec<u8>, FormatError> {
        archive::write_events(events).map_err(|error| FormatError::new("encode events", error))
    }

    fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<Vec<u8>, FormatError> {
        archive::write_dead_letters(letters).map_err(|error| FormatError::new("encode dead letters", error))
    }

    fn read_dead_letters(&self, bytes: &[u8]) -> Result<Vec<DeadLetter>, FormatError> {
        archive::read_dead_letters(bytes).map_err(|error| FormatError::new("decode dead letters", error))
    }
}

/// Parquet files.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParquetEncoder;

impl TableEncoder for ParquetEncoder {
    fn encode(
        &self,
        table: Table,
        hours: &[HourTables],
        clocks: &[HourClock],
    ) -> Result<Option<EncodedFile>, FormatError> {
        let encoded = tables::encode(table, hours, clocks);
        let encoded = encoded.map_err(|error| FormatError::new("encode rows", error))?;
        Ok(encoded.map(|file| EncodedFile {
            bytes: file.bytes,
            rows: file.rows,
            stats: file.stats_json,
            // Half of a SHA-256 is enough to tell contents apart, and names stay short.
            digest: file.content_digest.chars().take(32).collect(),
        }))
    }
}

/// The system's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    async fn pause(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
