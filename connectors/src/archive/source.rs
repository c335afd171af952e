//! A look-ahead over any reader. It buffers as many bytes as a block needs, but never more than the file has.

use std::io::{self, Read};

/// Number of bytes requested from the reader at once.
const CHUNK: usize = 256 << 10;

/// A reader with the bytes that were read and not yet consumed.
pub(super) struct Source<R> {
    inner: R,
    buffer: Vec<u8>,
    start: usize,
    offset: u64,
    ended: bool,
}

impl<R: Read> Source<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, buffer: Vec::new(), start: 0, offset: 0, ended: false }
    }

    /// Returns the buffered bytes.
    pub(super) fn at_hand(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Returns the offset in the file of the first buffered byte.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads until `wanted` bytes are buffered or the file ends. Returns whether that many bytes are
    /// buffered. A hostile length costs no memory, because the buffer grows only with the real content of the
    /// file.
    pub(super) fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.at_hand().len() < wanted && !self.ended {
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            let more = (wanted - self.buffer.len()).max(CHUNK);
            let read = self.inner.by_ref().take(more as u64).read_to_end(&mut self.buffer)?;
            self.ended = read < more;
        }
        Ok(self.at_hand().len() >= wanted)
    }

    /// Moves past `count` of the buffered bytes.
    pub(super) fn consume(&mut self, count: usize) {
        let count = count.min(self.at_hand().len());
        self.start += count;
        self.offset += count as u64;
    }
}
