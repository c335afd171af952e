//! Files of dead letters: input that could not become an event, with its bytes, its reason and its place.

use std::io::{self, Read};
use std::sync::LazyLock;

use prorata_schemas::body::wire::{Wire, put_bytes, put_long};
use prorata_schemas::reject::{Reason, Reject};
use prorata_worker::ports::{DeadLetter, Origin, Position, Rejected};
use prorata_worker::source::Header;
use sha2::{Digest, Sha256};

use super::container::{Container, ContainerWriter, Next};
use super::error::{FileError, FileFault};
use super::write::{compact, marker};
use crate::avro::{Converter, Schema};

/// Version of this program, written with every dead letter.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The timestamp of a message that has none.
const NO_TIMESTAMP: i64 = -1;

/// The schema of dead letters, as JSON.
pub const DEAD_LETTER_SCHEMA: &str = include_str!("dead_letter.avsc");

/// Returns a file of dead letters, in the order given. Equal input gives equal bytes.
///
/// # Errors
/// If compression fails because memory runs out.
pub fn write_dead_letters(letters: &[DeadLetter]) -> io::Result<Vec<u8>> {
    let records: Vec<Vec<u8>> = letters.iter().map(encode).collect();
    let mut digest = Sha256::new();
    for record in &records {
        digest.update((record.len() as u64).to_le_bytes());
        digest.update(record);
    }
    let mut file = ContainerWriter::new(&compact(DEAD_LETTER_SCHEMA))?;
    for record in &records {
        file.record(|out| out.extend_from_slice(record))?;
    }
    file.finish(marker(digest))
}

fn encode(letter: &DeadLetter) -> Vec<u8> {
    let DeadLetter { origin, rejected: Rejected { reject, bytes } } = letter;
    let mut out = Vec::with_capacity(bytes.len() + 256);
    put_bytes(&mut out, reject.reason.code().as_bytes());
    put_bytes(&mut out, reject.message.as_bytes());
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

/// Writes a union of null and a type; `None` becomes null.
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

/// Reads a file of dead letters in our schema, or in another version of the schema that resolves to ours.
///
/// # Errors
/// If the file is damaged or holds something else. Files of dead letters are our own, so nothing in them is
/// skipped.
pub fn read_dead_letters(file: impl Read) -> Result<Vec<DeadLetter>, FileError> {
    static SCHEMA: LazyLock<Option<Schema>> = LazyLock::new(|| Schema::parse(DEAD_LETTER_SCHEMA).ok());
    let mut container = Container::open(file)?;
    // A test parses the schema, so it always exists.
    let schema = SCHEMA.as_ref().ok_or(FileFault::DeadLetterSchema)?;
    let converter = Converter::compile(schema, container.schema()).map_err(FileFault::Schema)?;
    let (mut letters, mut unpacked) = (Vec::new(), Vec::new());
    while let Some(next) = container.next(&mut unpacked)? {
        let block = match next {
            Next::Block(block) => block,
            Next::Lost(lost) => return Err(FileFault::Block(lost.why).into()),
        };
        let mut wire = Wire::new(&unpacked);
        for _ in 0..block.records {
            let record = converter.next(&mut wire).map_err(FileFault::Record)?;
            letters.push(decode(&mut Wire::new(&record)).map_err(FileFault::Record)?);
        }
        if !wire.rest().is_empty() {
            return Err(FileFault::TrailingBytes(wire.rest().len()).into());
        }
    }
    Ok(letters)
}

/// Reads what [`encode`] writes.
fn decode(wire: &mut Wire<'_>) -> Result<DeadLetter, Reject> {
    let code = text(wire)?;
    let reason = Reason::ALL.into_iter().find(|reason| reason.code() == code);
    let reason = reason.ok_or_else(|| Reject::malformed(format!("'{code}' is not a dead-letter reason")))?;
    let reject = Reject::new(reason, text(wire)?);
    let bytes = wire.bytes()?.to_vec();
    let (topic, partition, offset) =
        (option(wire, text)?, option(wire, Wire::int)?, option(wire, Wire::long)?);
    let timestamp_millis = option(wire, Wire::long)?.unwrap_or(NO_TIMESTAMP);
    let (key, headers) = (option(wire, bytes_of)?, headers(wire)?);
    let (file, position) = (option(wire, text)?, option(wire, position)?);
    let origin = match (topic, partition, offset, file) {
        (Some(topic), Some(partition), Some(offset), None) => {
            Origin::Message { topic, partition, offset, timestamp_millis, key, headers }
        }
        (None, None, None, Some(path)) => Origin::File { path, position },
        _ => return Err(Reject::malformed("a dead letter comes from neither a message nor a file")),
    };
    // The program's version is only for human readers.
    text(wire)?;
    Ok(DeadLetter { origin, rejected: Rejected { reject, bytes } })
}

fn text(wire: &mut Wire<'_>) -> Result<String, Reject> {
    let text = std::str::from_utf8(wire.bytes()?);
    text.map(str::to_owned).map_err(|_| Reject::malformed("a string is not UTF-8"))
}

fn bytes_of(wire: &mut Wire<'_>) -> Result<Vec<u8>, Reject> {
    wire.bytes().map(<[u8]>::to_vec)
}

/// Reads a union of null and a type; null becomes `None`.
fn option<'a, T>(
    wire: &mut Wire<'a>,
    value: impl FnOnce(&mut Wire<'a>) -> Result<T, Reject>,
) -> Result<Option<T>, Reject> {
    if wire.long()? == 0 { Ok(None) } else { value(wire).map(Some) }
}

fn headers(wire: &mut Wire<'_>) -> Result<Vec<Header>, Reject> {
    let mut headers = Vec::new();
    loop {
        let entries = wire.block()?;
        if entries == 0 {
            return Ok(headers);
        }
        for _ in 0..entries {
            headers.push((text(wire)?, option(wire, bytes_of)?));
        }
    }
}

fn position(wire: &mut Wire<'_>) -> Result<Position, Reject> {
    let (block, byte) = (wire.long()?.cast_unsigned(), wire.long()?.cast_unsigned());
    Ok(Position { block, byte, record: option(wire, Wire::long)?.map(i64::cast_unsigned) })
}
