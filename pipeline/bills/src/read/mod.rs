//! Reads documents line by line: CSV, plain or compressed with gzip, Parquet, and JSON with one object a
//! line. The first bytes of a document say what it is. A document is never held in memory.

mod bounded;
mod columnar;
mod delimited;
mod nested;

use std::fmt::Display;
use std::io::{BufReader, Cursor, Read};

use flate2::read::MultiGzDecoder;
use parquet::file::reader::ChunkReader;

use crate::cells::{Column, Row};
use crate::fault::{BillError, LineFault, Place};

/// Number of bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 16;

/// A function that takes the lines of a document one by one.
pub type EachLine<'e> = &'e mut dyn FnMut(Place, Result<&Row, LineFault>) -> Result<(), BillError>;

/// A document and what to read from it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'s> {
    /// The name, for messages.
    pub name: &'s str,
    /// The columns of the format.
    pub columns: &'static [Column],
    /// Whether the document may be JSON.
    pub has_json: bool,
}

impl Source<'_> {
    /// Creates the error for a document that is not what it should be.
    fn error(&self, message: impl Into<String>) -> BillError {
        BillError::Document { file: self.name.to_owned(), message: message.into() }
    }

    /// Creates the error for a document that cannot be read after `place`.
    fn broken(&self, place: Option<Place>, error: &dyn Display) -> BillError {
        let after = place.map(|place| format!(" after {place}")).unwrap_or_default();
        let fix = "the file may be cut off or damaged, so fetch it again";
        self.error(format!("it cannot be read{after}: {error}; {fix}"))
    }

    /// Creates the error for missing columns.
    fn lacks(&self, columns: Vec<&'static str>) -> BillError {
        BillError::Columns { file: self.name.to_owned(), columns }
    }
}

/// Reads a document from start to end.
///
/// # Errors
/// If the document cannot be read, or an error of `each`.
pub fn read_document<D: ChunkReader + 'static>(
    source: &Source<'_>,
    document: D,
    each: EachLine<'_>,
) -> Result<(), BillError> {
    let start = || document.get_read(0).map_err(|error| source.broken(None, &error));
    let mut magic = Vec::new();
    start()?.take(4).read_to_end(&mut magic).map_err(|error| source.broken(None, &error))?;
    match *magic {
        [] => Err(source.error("it is empty; fetch it again")),
        [b'P', b'A', b'R', b'1'] => columnar::read(source, document, each),
        [0x1f, 0x8b, ..] => read_text(source, MultiGzDecoder::new(start()?), each),
        [b'P', b'K', 3, 4] => Err(source.error("it is a ZIP archive; unpack it first")),
        [0x28, 0xb5, 0x2f, 0xfd] => Err(source.error("it is compressed with Zstandard; unpack it first")),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Err(source.error("it is UTF-16; save it as UTF-8")),
        _ => read_text(source, start()?, each),
    }
}

/// Bytes that are read to find what a document is.
const START_BYTES: u64 = 4096;

fn read_text(source: &Source<'_>, mut from: impl Read, each: EachLine<'_>) -> Result<(), BillError> {
    // A compressed document may begin with a part that holds nothing but the mark.
    let mut start = Vec::new();
    from.by_ref().take(START_BYTES).read_to_end(&mut start).map_err(|error| source.broken(None, &error))?;
    // Windows marks UTF-8 with these bytes.
    let mark = if start.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
    let first = start.iter().skip(mark).copied().find(|byte| !byte.is_ascii_whitespace());
    let start = Cursor::new(start.split_off(mark));
    let from = BufReader::with_capacity(BUFFER_BYTES, start.chain(from));
    match first {
        None => Err(source.error("it is empty; fetch it again")),
        Some(b'[') => Err(source.error("it is one JSON list; export one JSON object a line")),
        Some(b'{') if source.has_json => nested::read(source, from, each),
        Some(b'{') => Err(source.error("it is JSON; export CSV or Parquet")),
        Some(_) => delimited::read(source, from, each),
    }
}
