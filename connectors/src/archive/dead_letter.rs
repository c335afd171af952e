//! Dead letters: what could not become an event, kept with its bytes, its reason and its place.

use std::io::{self, Read};
use std::sync::LazyLock;

use apache_avro::{Reader, Schema, from_value};
use prorata_schemas::body::wire::{put_bytes, put_long};
use prorata_schemas::reject::{Reason, Reject};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Position;
use super::container::{ContainerWriter, FileError};
use super::write::{compact, marker};

/// The schema of dead letters, as JSON.
pub const DEAD_LETTER_SCHEMA: &str = include_str!("dead_letter.avsc");

/// One dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Why.
    pub reject: Reject,
    /// The input, unchanged.
    pub bytes: Vec<u8>,
    /// Where it came from.
    pub origin: Origin,
    /// Version of the program that rejected it.
    pub worker_version: String,
}

/// Where rejected input came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A message on Kafka.
    Message {
        /// Its topic.
        topic: String,
        /// Its partition.
        partition: i32,
        /// Its offset.
        offset: i64,
    },
    /// A file, or a place in it.
    File {
        /// Path or URL.
        file: String,
        /// Where in the file; none: all of it.
        position: Option<Position>,
    },
}

/// A file of dead letters, in the order given. Equal input gives equal bytes.
///
/// # Errors
/// Compression failed, for want of memory.
pub fn write_dead_letters(letters: &[DeadLetter]) -> io::Result<Vec<u8>> {
    let records: Vec<Vec<u8>> = letters.iter().map(encode).collect();
    let mut digest = Sha256::new();
    for record in &records {
        digest.update((record.len() as u64).to_le_bytes());
        digest.update(record);
    }
    let mut file = ContainerWriter::new(&compact(DEAD_LETTER_SCHEMA), marker(digest));
    for record in &records {
        file.record(|out| out.extend_from_slice(record))?;
    }
    file.finish()
}

fn encode(letter: &DeadLetter) -> Vec<u8> {
    let mut out = Vec::with_capacity(letter.bytes.len() + 256);
    put_bytes(&mut out, letter.reject.reason.code().as_bytes());
    put_bytes(&mut out, letter.reject.sentence.as_bytes());
    put_bytes(&mut out, &letter.bytes);
    match &letter.origin {
        Origin::Message { topic, partition, offset } => {
            put_long(&mut out, 1);
            put_bytes(&mut out, topic.as_bytes());
            put_long(&mut out, 1);
            put_long(&mut out, (*partition).into());
            put_long(&mut out, 1);
            put_long(&mut out, *offset);
            out.extend([0, 0]);
        }
        Origin::File { file, position } => {
            out.extend([0, 0, 0]);
            put_long(&mut out, 1);
            put_bytes(&mut out, file.as_bytes());
            put_long(&mut out, position.is_some().into());
            if let Some(position) = position {
                put_long(&mut out, position.block.cast_signed());
                put_long(&mut out, position.byte.cast_signed());
                put_long(&mut out, position.record.is_some().into());
                position.record.into_iter().for_each(|record| put_long(&mut out, record.cast_signed()));
            }
        }
    }
    put_bytes(&mut out, letter.worker_version.as_bytes());
    out
}

/// A dead letter as its schema has it.
#[derive(Deserialize, Serialize)]
struct Row {
    reason: Reason,
    sentence: String,
    #[serde(with = "apache_avro::serde::bytes")]
    bytes: Vec<u8>,
    topic: Option<String>,
    partition: Option<i32>,
    offset: Option<i64>,
    file: Option<String>,
    position: Option<RowPosition>,
    worker_version: String,
}

#[derive(Deserialize, Serialize)]
struct RowPosition {
    block: i64,
    byte: i64,
    record: Option<i64>,
}

/// Reads a file of dead letters, of this version or another that resolves to it.
///
/// # Errors
/// The file is damaged or holds something else. Dead letters are our own files: nothing of them is skipped.
pub fn read_dead_letters(file: impl Read) -> Result<Vec<DeadLetter>, FileError> {
    static SCHEMA: LazyLock<Option<Schema>> = LazyLock::new(|| Schema::parse_str(DEAD_LETTER_SCHEMA).ok());
    let wrong = |error: apache_avro::Error| FileError::NotAvro(error.to_string());
    let reader = Reader::builder(file).maybe_reader_schema(SCHEMA.as_ref()).build().map_err(wrong)?;
    reader.map(|value| letter(from_value::<Row>(&value.map_err(wrong)?).map_err(wrong)?)).collect()
}

fn letter(row: Row) -> Result<DeadLetter, FileError> {
    let origin = match (row.topic, row.partition, row.offset, row.file) {
        (Some(topic), Some(partition), Some(offset), None) => Origin::Message { topic, partition, offset },
        (None, None, None, Some(file)) => {
            let position = row.position.map(|at| Position {
                block: at.block.cast_unsigned(),
                byte: at.byte.cast_unsigned(),
                record: at.record.map(i64::cast_unsigned),
            });
            Origin::File { file, position }
        }
        _ => {
            return Err(FileError::NotAvro(
                "a dead letter comes from neither a message nor a file".to_owned(),
            ));
        }
    };
    let reject = Reject::new(row.reason, row.sentence);
    Ok(DeadLetter { reject, bytes: row.bytes, origin, worker_version: row.worker_version })
}
