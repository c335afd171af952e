//! Dead letters: what could not become an event, kept with its bytes, its reason and its place.

use std::io::{self, Read};
use std::sync::LazyLock;

use apache_avro::{Reader, Schema, from_value};
use prorata_schemas::body::wire::{put_bytes, put_long};
use prorata_schemas::reject::{Reason, Reject};
use prorata_worker::ports::{DeadLetter, Origin, Position, Rejected};
use prorata_worker::source::Header;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::container::{ContainerWriter, FileError};
use super::write::{compact, marker};

/// Version of this program, which stands beside every letter that it writes.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The timestamp of a message that has none.
const NO_TIMESTAMP: i64 = -1;

/// The schema of dead letters, as JSON.
pub const DEAD_LETTER_SCHEMA: &str = include_str!("dead_letter.avsc");

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
    let DeadLetter { origin, rejected: Rejected { reject, bytes } } = letter;
    let mut out = Vec::with_capacity(bytes.len() + 256);
    put_bytes(&mut out, reject.reason.code().as_bytes());
    put_bytes(&mut out, reject.sentence.as_bytes());
    put_bytes(&mut out, bytes);
    match origin {
        Origin::Message { topic, partition, offset, timestamp_millis, key, headers } => {
            put_option(&mut out, Some(topic), |out, topic| put_bytes(out, topic.as_bytes()));
            put_option(&mut out, Some(partition), |out, partition| put_long(out, (*partition).into()));
            put_option(&mut out, Some(offset), |out, offset| put_long(out, *offset));
            let timestamp = (*timestamp_millis != NO_TIMESTAMP).then_some(*timestamp_millis);
            put_option(&mut out, timestamp, put_long);
            put_option(&mut out, key.as_deref(), put_bytes);
            put_headers(&mut out, headers);
            out.extend([0, 0]);
        }
        Origin::File { path, position } => {
            // Topic, partition, offset, timestamp and key are null, and there are no headers.
            out.extend([0, 0, 0, 0, 0, 0]);
            put_option(&mut out, Some(path), |out, path| put_bytes(out, path.as_bytes()));
            put_option(&mut out, position.as_ref(), |out, position| {
                put_long(out, position.block.cast_signed());
                put_long(out, position.byte.cast_signed());
                put_option(out, position.record.map(u64::cast_signed), put_long);
            });
        }
    }
    put_bytes(&mut out, VERSION.as_bytes());
    out
}

/// A union of null and a type.
fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    put_long(out, value.is_some().into());
    if let Some(value) = value {
        put(out, value);
    }
}

fn put_headers(out: &mut Vec<u8>, headers: &[Header]) {
    if !headers.is_empty() {
        put_long(out, headers.len() as i64);
        for (name, value) in headers {
            put_bytes(out, name.as_bytes());
            put_option(out, value.as_deref(), put_bytes);
        }
    }
    put_long(out, 0);
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
    timestamp_millis: Option<i64>,
    #[serde(with = "apache_avro::serde::bytes_opt")]
    key: Option<Vec<u8>>,
    headers: Vec<RowHeader>,
    file: Option<String>,
    position: Option<RowPosition>,
}

#[derive(Deserialize, Serialize)]
struct RowHeader {
    name: String,
    #[serde(with = "apache_avro::serde::bytes_opt")]
    value: Option<Vec<u8>>,
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
        (Some(topic), Some(partition), Some(offset), None) => Origin::Message {
            topic,
            partition,
            offset,
            timestamp_millis: row.timestamp_millis.unwrap_or(NO_TIMESTAMP),
            key: row.key,
            headers: row.headers.into_iter().map(|header| (header.name, header.value)).collect(),
        },
        (None, None, None, Some(path)) => {
            let position = row.position.map(|at| Position {
                block: at.block.cast_unsigned(),
                byte: at.byte.cast_unsigned(),
                record: at.record.map(i64::cast_unsigned),
            });
            Origin::File { path, position }
        }
        _ => {
            return Err(FileError::NotAvro(
                "a dead letter comes from neither a message nor a file".to_owned(),
            ));
        }
    };
    let reject = Reject::new(row.reason, row.sentence);
    Ok(DeadLetter { origin, rejected: Rejected { reject, bytes: row.bytes } })
}
