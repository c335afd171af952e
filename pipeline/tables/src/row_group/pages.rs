//! Pages of column chunks, compressed by one compressor.
//!
//! The Parquet library creates a compressor and a decompressor for each column that it writes. Each of them
//! queries the processor's features (`cpuid`), which takes microseconds on a virtual machine: 30 % of a
//! backfill of many small files. So the library writes pages of small files plain. This module compresses
//! them to the bytes that the library would have written.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::arrow::arrow_writer::{PageKey, PageStore, PageStoreArgs, PageStoreFactory};
use parquet::basic::CompressionCodec;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use prorata_schemas::body::wire::{Wire, put_long};
use zstd::bulk::Compressor;

/// Thrift's compact protocol: a field of type i32, whose number is one more than the number of the field
/// before. Its value is a zigzag variable-length integer, as in Avro.
const NEXT_I32: u8 = 0x15;
/// The page type of a dictionary in a page header.
const DICTIONARY_PAGE: i32 = 2;

/// Pages of a row group's columns, by index of the column. Headers and contents alternate. A dictionary comes
/// before or after other pages.
#[derive(Clone, Debug, Default)]
pub struct Pages(Arc<Mutex<BTreeMap<usize, Vec<Bytes>>>>);

/// Collects the pages of one column.
struct PagesOfColumn {
    pages: Pages,
    column: usize,
}

impl Pages {
    /// Removes and returns all pages of a column.
    pub fn take(&self, column: usize) -> Vec<Bytes> {
        self.locked().remove(&column).unwrap_or_default()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<Bytes>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageStoreFactory for Pages {
    fn create(&self, of: &PageStoreArgs<'_>) -> Result<Box<dyn PageStore>> {
        Ok(Box::new(PagesOfColumn { pages: self.clone(), column: of.column_index() }))
    }
}

impl PageStore for PagesOfColumn {
    fn put(&mut self, page: Bytes) -> Result<PageKey> {
        let mut pages = self.pages.locked();
        let pages = pages.entry(self.column).or_default();
        pages.push(page);
        Ok(PageKey::new(pages.len() as u64 - 1))
    }

    fn take(&mut self, _: PageKey) -> Result<Bytes> {
        Err(unexpected("a reader of pages"))
    }

    fn memory_size(&self) -> usize {
        self.pages.locked().get(&self.column).map_or(0, |pages| pages.iter().map(Bytes::len).sum())
    }
}

/// A column chunk in file order: the dictionary, if it has one, then the other pages.
pub struct Chunk {
    /// Headers and contents.
    pub bytes: Bytes,
    /// Result of closing the column, with offsets from the chunk's start.
    pub close: ColumnCloseResult,
}

impl Chunk {
    /// Builds a chunk from pages and the result of closing their column. With a compressor, the pages are
    /// plain and are compressed with zstd; without one, they stay unchanged.
    pub fn new(
        pages: &[Bytes],
        mut close: ColumnCloseResult,
        mut compressor: Option<&mut Compressor<'static>>,
    ) -> Result<Self> {
        let (mut dictionary, mut bytes, mut sizes, mut growth) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for page in pages.chunks(2) {
            let [plain, content] = page else { return Err(unexpected("a page without content")) };
            let header = PageHeader::parse(plain)?;
            let target = if header.page_type == DICTIONARY_PAGE { &mut dictionary } else { &mut bytes };
            let before = target.len();
            if let Some(compressor) = &mut compressor {
                let content = compressor.compress(content).map_err(failed)?;
                header.write(content.len(), target);
                growth += (target.len() - before) as i64 - plain.len() as i64;
                target.extend_from_slice(&content);
            } else {
                target.extend_from_slice(plain);
                target.extend_from_slice(content);
            }
            if header.page_type != DICTIONARY_PAGE {
                sizes.push(target.len() - before);
            }
        }
        let first = dictionary.len();
        dictionary.append(&mut bytes);
        let chunk = close.metadata;
        // Headers are part of the size.
        let plain_bytes = chunk.uncompressed_size() + growth;
        let codec = compressor.map_or(chunk.compression_codec(), |_| CompressionCodec::ZSTD);
        let chunk = chunk
            .into_builder()
            .set_compression_codec(codec)
            .set_total_uncompressed_size(plain_bytes)
            .set_total_compressed_size(dictionary.len() as i64)
            .set_dictionary_page_offset((first > 0).then_some(0))
            .set_data_page_offset(first as i64);
        close.metadata = chunk.build()?;
        close.bytes_written = dictionary.len() as u64;
        if let Some(index) = &mut close.offset_index {
            let mut offset = first;
            for (location, size) in index.page_locations.iter_mut().zip(sizes) {
                location.offset = offset as i64;
                location.compressed_page_size = i32::try_from(size).map_err(failed)?;
                offset += size;
            }
        }
        Ok(Self { bytes: dictionary.into(), close })
    }
}

/// The first fields of a page's header: its type and two sizes. The rest stays unchanged.
struct PageHeader<'b> {
    page_type: i32,
    plain_bytes: i32,
    rest: &'b [u8],
}

impl<'b> PageHeader<'b> {
    /// Reads the header of a plain page.
    fn parse(header: &'b [u8]) -> Result<Self> {
        let mut wire = Wire::new(header);
        let (page_type, plain_bytes, _) = (next_i32(&mut wire)?, next_i32(&mut wire)?, next_i32(&mut wire)?);
        Ok(Self { page_type, plain_bytes, rest: wire.rest() })
    }

    /// Writes the header of the same page with a content of `compressed_bytes`.
    fn write(&self, compressed_bytes: usize, target: &mut Vec<u8>) {
        for value in [self.page_type.into(), self.plain_bytes.into(), compressed_bytes as i64] {
            target.push(NEXT_I32);
            put_long(target, value);
        }
        target.extend_from_slice(self.rest);
    }
}

/// Reads the value of a field of type i32.
fn next_i32(wire: &mut Wire<'_>) -> Result<i32> {
    match wire.take(1).map_err(failed)? {
        [NEXT_I32] => wire.int().map_err(failed),
        _ => Err(unexpected("a page's header")),
    }
}

/// Returns an error that reports unexpected behavior of the Parquet library.
pub fn unexpected(what: &str) -> ParquetError {
    ParquetError::General(format!("the Parquet library wrote something unexpected: {what}"))
}

fn failed(error: impl Error + Send + Sync + 'static) -> ParquetError {
    ParquetError::External(Box::new(error))
}
