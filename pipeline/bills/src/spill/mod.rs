//! Partitions: the charges between reading and grouping, in temporary files.
//!
//! A bill is not sorted by resource, and may be larger than memory. So each charge goes to one of 64
//! partitions, by a hash of its resource and its first hour. All charges of a set are then in one partition,
//! and one partition is in memory at a time.

mod dictionary;
mod record;

use std::io::{self, BufWriter, Read, Seek, Write};

pub use dictionary::{Dictionary, EMPTY, TextId};
pub use record::{Costs, Entry, LineTexts, Record, StoredText};

/// Number of partitions.
pub const PARTITIONS: usize = 64;

/// Number of bytes that are buffered for each partition.
const BUFFER_BYTES: usize = 1 << 16;

/// Largest size of one record: its texts have at most 1,024 bytes each.
const RECORD_BYTES_MAX: usize = 16 << 10;

/// The charges of a bill in temporary files.
pub struct Spill<F: Write> {
    partitions: Vec<BufWriter<F>>,
    buffer: Vec<u8>,
}

impl<F: Read + Write + Seek> Spill<F> {
    /// Creates partitions in these files, which are empty.
    pub fn new(files: Vec<F>) -> Self {
        let partition = |file| BufWriter::with_capacity(BUFFER_BYTES, file);
        Self { partitions: files.into_iter().map(partition).collect(), buffer: vec![0; RECORD_BYTES_MAX] }
    }

    /// Adds a charge.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn push(&mut self, record: &Record<'_>) -> io::Result<()> {
        let count = u64::try_from(self.partitions.len()).unwrap_or(u64::MAX).max(1);
        let number = usize::try_from(record.partition_hash() % count).unwrap_or_default();
        let no_partition = || io::Error::other("there is no temporary file");
        let partition = self.partitions.get_mut(number).ok_or_else(no_partition)?;
        let bytes = postcard::to_slice(record, &mut self.buffer).map_err(io::Error::other)?;
        partition.write_all(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes())?;
        partition.write_all(bytes)
    }

    /// Ends writing. Returns the partitions, each at its start.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn finish(self) -> io::Result<Vec<F>> {
        let rewound = |partition: BufWriter<F>| -> io::Result<F> {
            let mut file = partition.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.rewind()?;
            Ok(file)
        };
        self.partitions.into_iter().map(rewound).collect()
    }
}

/// Passes each record of a partition to `each`.
///
/// # Errors
/// If the partition cannot be read, or an error of `each`.
pub fn read_records(from: impl Read, mut each: impl FnMut(Record<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut from = io::BufReader::with_capacity(BUFFER_BYTES, from);
    let mut buffer = Vec::new();
    loop {
        let mut length = [0; 4];
        match from.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        buffer.resize(usize::try_from(u32::from_le_bytes(length)).unwrap_or_default(), 0);
        from.read_exact(&mut buffer)?;
        each(postcard::from_bytes(&buffer).map_err(io::Error::other)?)?;
    }
}
