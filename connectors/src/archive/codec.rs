//! Compression of container blocks. A block that would unpack to more than its limit is refused, because a
//! few bytes can stand for gigabytes.

use std::cell::RefCell;
use std::io::{self, Read};

use zstd::bulk::Decompressor;
use zstd::zstd_safe::get_frame_content_size;

/// Maximum size of a stored block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;

/// Maximum size of an unpacked block, in bytes.
pub const UNPACKED_BYTES_MAX: usize = 256 << 20;

/// Maximum unpacked size, in bytes, of a block that is unpacked in one call. Nearly all of our blocks state a
/// size within this limit.
const AT_ONCE_BYTES_MAX: u64 = 1 << 20;

thread_local! {
    /// A thread's decompressor for blocks that are unpacked in one call; `None` if memory ran out.
    static AT_ONCE: RefCell<Option<Decompressor<'static>>> = RefCell::new(Decompressor::new().ok());
}

/// The reason why a block cannot be unpacked.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant says what it means")]
pub enum UnpackError {
    #[error("it cannot be decompressed: {0}")]
    Deflate(miniz_oxide::inflate::DecompressError),
    #[error("it cannot be decompressed: {0}")]
    Snappy(#[from] snap::Error),
    #[error("it cannot be decompressed: {0}")]
    Zstandard(#[from] io::Error),
    #[error("it is too short for its checksum")]
    TooShort,
    #[error("it claims to decompress to {0} bytes")]
    Claim(usize),
    #[error("it decompresses to more than {UNPACKED_BYTES_MAX} bytes")]
    TooLong,
    #[error("its checksum is wrong")]
    Checksum,
}

/// The compression of a file's blocks, which the file's header names as `avro.codec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// No compression.
    Null,
    /// RFC 1951, without a checksum.
    Deflate,
    /// Snappy, followed by the CRC-32 of the unpacked bytes.
    Snappy,
    /// Zstandard.
    Zstandard,
}

impl Codec {
    /// Returns the codec with this name in a header; `None` if the codec is not supported.
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"null" => Some(Self::Null),
            b"deflate" => Some(Self::Deflate),
            b"snappy" => Some(Self::Snappy),
            b"zstandard" => Some(Self::Zstandard),
            _ => None,
        }
    }

    /// Unpacks a block into `out`, which is cleared first.
    ///
    /// # Errors
    /// See [`UnpackError`].
    pub fn unpack(self, block: &[u8], out: &mut Vec<u8>) -> Result<(), UnpackError> {
        out.clear();
        match self {
            Self::Null => {
                out.extend_from_slice(block);
                Ok(())
            }
            Self::Deflate => {
                let unpacked = miniz_oxide::inflate::decompress_to_vec_with_limit(block, UNPACKED_BYTES_MAX);
                *out = unpacked.map_err(UnpackError::Deflate)?;
                Ok(())
            }
            Self::Snappy => unpack_snappy(block, out),
            Self::Zstandard => unpack_zstandard(block, out),
        }
    }
}

fn unpack_snappy(block: &[u8], out: &mut Vec<u8>) -> Result<(), UnpackError> {
    let (packed, sum) = block.split_last_chunk::<4>().ok_or(UnpackError::TooShort)?;
    let length = snap::raw::decompress_len(packed)?;
    // Three bytes of Snappy unpack to at most 64 bytes. A larger claim is false and not worth its memory.
    if length > UNPACKED_BYTES_MAX || length / 64 > packed.len() {
        return Err(UnpackError::Claim(length));
    }
    out.resize(length, 0);
    let written = snap::raw::Decoder::new().decompress(packed, out)?;
    out.truncate(written);
    if crc32fast::hash(out) != u32::from_be_bytes(*sum) {
        return Err(UnpackError::Checksum);
    }
    Ok(())
}

fn unpack_zstandard(block: &[u8], out: &mut Vec<u8>) -> Result<(), UnpackError> {
    if unpack_at_once(block, out) {
        return Ok(());
    }
    out.clear();
    let decoder = zstd::stream::read::Decoder::with_buffer(block)?;
    decoder.take(UNPACKED_BYTES_MAX as u64 + 1).read_to_end(out)?;
    if out.len() > UNPACKED_BYTES_MAX {
        return Err(UnpackError::TooLong);
    }
    Ok(())
}

/// Unpacks a block in one call, and returns whether this succeeded. Otherwise the caller unpacks the block
/// piece by piece, which reports the fault.
fn unpack_at_once(block: &[u8], out: &mut Vec<u8>) -> bool {
    let Ok(Some(bytes @ ..=AT_ONCE_BYTES_MAX)) = get_frame_content_size(block) else { return false };
    out.reserve(bytes as usize);
    AT_ONCE.with_borrow_mut(|decompressor| {
        let written = decompressor.as_mut().map(|decompressor| decompressor.decompress_to_buffer(block, out));
        written.is_some_and(|written| written.is_ok_and(|written| written as u64 == bytes))
    })
}
