//! A bound on the size of one element of a document. An element is held in memory, but a document is not.

use std::cell::Cell;
use std::io::{self, Read};

/// Maximum size of one element of a document, in bytes.
pub const ELEMENT_BYTES_MAX: usize = 1 << 20;

/// A document with a limit on the bytes that may be read. The code that reads the document can raise the
/// limit.
pub struct Bounded<'b, R> {
    /// The document.
    pub from: R,
    /// Number of bytes that may still be read.
    pub left: &'b Cell<usize>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(to)?;
        let left = self.left.get().checked_sub(count);
        self.left.set(left.ok_or_else(|| io::Error::other("an element is larger than 1 MiB"))?);
        Ok(count)
    }
}
