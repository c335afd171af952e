//! The reasons why a file of the archive, or one of its blocks, cannot be read.

use std::io;
use std::sync::Arc;

use prorata_schemas::reject::Reject;

use super::codec::{BLOCK_BYTES_MAX, UnpackError};
use crate::avro::SchemaError;

/// An error of a whole file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file is not an Avro object container file: dead-letter it.
    #[error("not an Avro object container file: {0}")]
    NotAvro(#[from] FileFault),
    /// The file's codec is not supported: dead-letter it.
    #[error("its codec is {0}; null, deflate, snappy and zstandard are supported")]
    Codec(String),
    /// Reading failed; the file may be fine.
    #[error("reading failed")]
    Io(#[from] io::Error),
}

/// The fault that makes a whole file unreadable.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant says what it means")]
pub enum FileFault {
    #[error("it is empty")]
    Empty,
    #[error("it does not begin with Obj 01")]
    NoMagic,
    #[error("its header is damaged: {}", .0.message)]
    Header(Reject),
    #[error("its header has no sync marker")]
    NoSyncMarker,
    #[error("its header has no schema")]
    NoSchema,
    #[error("its schema does not match the checksum in its header")]
    SchemaChecksum,
    #[error("its schema is not UTF-8")]
    SchemaNotUtf8,
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error("the schema of dead letters is invalid")]
    DeadLetterSchema,
    #[error("a block is damaged: {0}")]
    Block(#[source] Arc<BlockFault>),
    #[error("{}", .0.message)]
    Record(Reject),
    #[error("{0} bytes follow a block's last record")]
    TrailingBytes(usize),
    #[error("{0}")]
    Own(String),
}

/// The fault of a block.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant says what it means")]
pub enum BlockFault {
    #[error("its header is cut off or is not a number")]
    Head,
    #[error("it says it holds {0} records")]
    Records(i64),
    #[error("it says it has {0} bytes; at most {BLOCK_BYTES_MAX} are read")]
    Size(i64),
    #[error("the file ends inside it")]
    CutOff,
    #[error("it does not end in the file's sync marker")]
    NoSyncMarker,
    #[error(transparent)]
    Unpack(#[from] UnpackError),
}
