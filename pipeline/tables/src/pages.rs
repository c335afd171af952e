//! Pages of column chunks, compressed by one compressor.
//!
//! The Parquet library makes a compressor and a decompressor for each column that it writes. Each asks the
//! processor what it can do (`cpuid`), which a virtual machine answers in microseconds: in small files that
//! took more time than all the rest of their encoding. So the library writes pages plain, and they are
//! compressed here, to the bytes that it would have made.

use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::arrow::arrow_writer::{PageKey, PageStore, PageStoreArgs, PageStoreFactory};
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use zstd::bulk::Compressor;

/// Thrift's compact protocol: a field of type i32, whose number is one more than that of the field before.
const NEXT_I32: u8 = 0x15;
/// The page type of a dictionary, as a header has it.
const DICTIONARY_PAGE: u32 = 2;
/// Bytes of a 32-bit number in that form, at most.
const MOST_VARINT_BYTES: usize = 5;

/// Headers and contents of pages in turn, as they were written: a dictionary comes before or after others.
type Written = Arc<Mutex<Vec<Bytes>>>;

/// The pages of each column of a row group that is being written.
#[derive(Debug)]
pub struct PagesOfColumns(Vec<Written>);

/// Keeps the pages of one column.
struct Keeper(Written);

impl PagesOfColumns {
    /// Of so many columns.
    pub fn new(columns: usize) -> Self {
        Self((0..columns).map(|_| Written::default()).collect())
    }

    /// All pages of a column. It has none from then on.
    pub fn take(&self, index: usize) -> Vec<Bytes> {
        self.0.get(index).map_or_else(Vec::new, |pages| take(&mut *locked(pages)))
    }
}

fn locked(pages: &Written) -> MutexGuard<'_, Vec<Bytes>> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PageStoreFactory for PagesOfColumns {
    fn create(&self, args: &PageStoreArgs<'_>) -> Result<Box<dyn PageStore>> {
        let pages = self.0.get(args.column_index());
        let pages = pages.ok_or_else(|| unexpected("a column"))?;
        Ok(Box::new(Keeper(Arc::clone(pages))))
    }
}

impl PageStore for Keeper {
    fn put(&mut self, page: Bytes) -> Result<PageKey> {
        let mut pages = locked(&self.0);
        pages.push(page);
        Ok(PageKey::new(pages.len() as u64 - 1))
    }

    fn take(&mut self, _: PageKey) -> Result<Bytes> {
        Err(unexpected("a reader of pages"))
    }

    fn memory_size(&self) -> usize {
        locked(&self.0).iter().map(Bytes::len).sum()
    }
}

/// Compresses pages with zstd at one level, as the Parquet library does.
pub struct PageCompressor {
    codec: Compression,
    zstd: Compressor<'static>,
}

impl PageCompressor {
    /// One of this level, 1 to 22.
    ///
    /// # Errors
    /// When there is no such level.
    pub fn new(level: i32) -> Result<Self> {
        Ok(Self {
            codec: Compression::ZSTD(ZstdLevel::try_new(level)?),
            zstd: Compressor::new(level).map_err(failed)?,
        })
    }
}

/// A column chunk in the order of a file: the dictionary, if it has one, then the other pages.
pub struct Chunk {
    /// Headers and contents.
    pub bytes: Bytes,
    /// What closing it gives, with places from the chunk's beginning.
    pub close: ColumnCloseResult,
}

impl Chunk {
    /// Of plain pages, and what closing their column gave: compressed, or left plain.
    pub fn new(
        pages: &[Bytes],
        mut close: ColumnCloseResult,
        mut compressor: Option<&mut PageCompressor>,
    ) -> Result<Self> {
        let (mut dictionary, mut bytes, mut sizes, mut growth) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for page in pages.chunks(2) {
            let [plain, content] = page else { return Err(unexpected("a page without content")) };
            let header = PageHeader::parse(plain)?;
            let target = if header.page_type == DICTIONARY_PAGE { &mut dictionary } else { &mut bytes };
            let before = target.len();
            if let Some(compressor) = &mut compressor {
                let content = compressor.zstd.compress(content).map_err(failed)?;
                header.write(content.len(), target)?;
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
        // Headers count as well.
        let plain_bytes = chunk.uncompressed_size() + growth;
        let codec = compressor.map_or(chunk.compression_codec(), |compressor| compressor.codec.into());
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

/// What a page's header says first: its type and two sizes; the rest stays as it is.
struct PageHeader<'b> {
    page_type: u32,
    plain_bytes: u32,
    rest: &'b [u8],
}

impl<'b> PageHeader<'b> {
    /// Reads the header of a plain page.
    fn parse(header: &'b [u8]) -> Result<Self> {
        let (page_type, rest) = next_i32(header)?;
        let (plain_bytes, rest) = next_i32(rest)?;
        let (_, rest) = next_i32(rest)?;
        Ok(Self { page_type, plain_bytes, rest })
    }

    /// Writes the header of the same page when its content has so many bytes.
    fn write(&self, compressed_bytes: usize, target: &mut Vec<u8>) -> Result<()> {
        let compressed_bytes = u32::try_from(compressed_bytes).map_err(failed)?;
        for value in [self.page_type, self.plain_bytes, compressed_bytes] {
            target.push(NEXT_I32);
            write_zigzag(value, target);
        }
        target.extend_from_slice(self.rest);
        Ok(())
    }
}

/// A field of type i32, none of which is negative, and what comes after it.
fn next_i32(bytes: &[u8]) -> Result<(u32, &[u8])> {
    let Some((&NEXT_I32, bytes)) = bytes.split_first() else { return Err(unexpected("a page's header")) };
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(MOST_VARINT_BYTES) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            // Zigzag: the lowest bit is the sign.
            let value = u32::try_from(value / 2).map_err(failed)?;
            return Ok((value, bytes.get(index + 1..).unwrap_or_default()));
        }
    }
    Err(unexpected("a number in a page's header"))
}

/// Writes a number as [`next_i32`] reads it.
fn write_zigzag(value: u32, target: &mut Vec<u8>) {
    let mut left = u64::from(value) * 2;
    while left > 0x7f {
        target.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    target.push(left as u8);
}

/// What the Parquet library was not known to do.
fn unexpected(what: &str) -> ParquetError {
    ParquetError::General(format!("the Parquet library made {what} that is not known"))
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> ParquetError {
    ParquetError::External(Box::new(error))
}
