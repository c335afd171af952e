//! A bound on the size of one row of a text. A quote that is never closed must not fill the memory.

use std::cell::Cell;
use std::io::{self, Read};

/// Largest size of one row, in bytes.
pub const ROW_BYTES_MAX: usize = 8 << 20;

/// What the reader of a text and its user share.
#[derive(Debug, Default)]
pub struct TextState {
    /// Number of bytes that may still be read for this row.
    left: Cell<usize>,
    /// The last byte that was read.
    last: Cell<u8>,
}

impl TextState {
    /// Allows the next row its full size.
    pub fn begin_row(&self) {
        self.left.set(ROW_BYTES_MAX);
    }

    /// Returns whether the text read so far ends with a line.
    pub fn ends_line(&self) -> bool {
        matches!(self.last.get(), b'\n' | b'\r')
    }
}

/// A text whose rows have a limited size.
pub struct BoundedText<'s, R> {
    /// The text.
    pub from: R,
    /// The state to keep.
    pub state: &'s TextState,
}

impl<R: Read> Read for BoundedText<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(to)?;
        let left = self.state.left.get().checked_sub(count);
        let too_long = || io::Error::other("a row is larger than 8 MiB, so a quote may not be closed");
        self.state.left.set(left.ok_or_else(too_long)?);
        if let Some(last) = count.checked_sub(1).and_then(|index| to.get(index)) {
            self.state.last.set(*last);
        }
        Ok(count)
    }
}
