//! Avro's binary encoding, bounds-checked: every read either stays inside the bytes or returns a `malformed`
//! reject. Counts and lengths in the bytes never decide how much memory is reserved.

use crate::reject::Reject;

/// Largest number of bytes of a variable-length integer.
const LONG_BYTES_MAX: usize = 10;

/// The top bit of each of eight bytes, which is set if the integer continues.
const CONTINUES: u64 = 0x8080_8080_8080_8080;

/// Joins the lower seven bits of each of eight bytes; the first byte is lowest.
const fn sevens(bytes: u64) -> u64 {
    let sevens = bytes & !CONTINUES;
    let pairs = (sevens & 0x007f_007f_007f_007f) | ((sevens & 0x7f00_7f00_7f00_7f00) >> 1);
    let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
    (fours & 0x0fff_ffff) | ((fours & 0x0fff_ffff_0000_0000) >> 4)
}

/// Spreads 56 bits over eight bytes of seven bits. The inverse of [`sevens`].
const fn spread(bits: u64) -> u64 {
    let fours = (bits & 0x0fff_ffff) | ((bits & 0x00ff_ffff_f000_0000) << 4);
    let pairs = (fours & 0x0000_3fff_0000_3fff) | ((fours & 0x0fff_c000_0fff_c000) << 2);
    (pairs & 0x007f_007f_007f_007f) | ((pairs & 0x3f80_3f80_3f80_3f80) << 1)
}

/// The bytes that are still to be read.
#[derive(Clone, Debug)]
pub struct Wire<'a> {
    rest: &'a [u8],
}

impl<'a> Wire<'a> {
    /// Creates a reader at the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes not yet read.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the next `count` bytes.
    ///
    /// # Errors
    /// `malformed` if fewer bytes are left.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Reject> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(truncated()),
        }
    }

    /// Reads a zigzag variable-length integer of 64 bits.
    ///
    /// # Errors
    /// `malformed` if the bytes end inside the integer or it has more than 64 bits.
    #[inline]
    pub fn long(&mut self) -> Result<i64, Reject> {
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(i64::from(byte >> 1) ^ -i64::from(byte & 1));
        }
        self.long_of_many_bytes()
    }

    fn long_of_many_bytes(&mut self) -> Result<i64, Reject> {
        if let Some((word, _)) = self.rest.split_first_chunk::<8>()
            && let word = u64::from_le_bytes(*word)
            && let ends @ 1.. = !word & CONTINUES
        {
            // All bits up to and including the first byte that does not continue.
            let value = sevens(word & (ends ^ (ends - 1)));
            self.rest = self.rest.get(ends.trailing_zeros() as usize / 8 + 1..).unwrap_or_default();
            return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
        }
        let mut value = 0u64;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(index + 1..).unwrap_or_default();
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        if self.rest.len() < 10 {
            return Err(truncated());
        }
        Err(Reject::malformed("an integer has more than 64 bits"))
    }

    /// Reads a zigzag variable-length integer of 32 bits.
    ///
    /// # Errors
    /// `malformed` if the bytes end inside the integer or it has more than 32 bits.
    pub fn int(&mut self) -> Result<i32, Reject> {
        i32::try_from(self.long()?).map_err(|_| Reject::malformed("an int has more than 32 bits"))
    }

    /// Reads one byte that is 0 or 1.
    ///
    /// # Errors
    /// `malformed` if the byte is missing or has another value.
    pub fn boolean(&mut self) -> Result<bool, Reject> {
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Reject::malformed("a boolean is neither 0 nor 1")),
        }
    }

    /// Reads bytes, preceded by their length. Text has the same form.
    ///
    /// # Errors
    /// `malformed` if the length is negative or reaches past the end.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Reject> {
        let length = self.long()?;
        let length = usize::try_from(length).map_err(|_| Reject::malformed("a length is negative"))?;
        self.take(length)
    }

    /// Returns the bytes between this reader and `other`, which has read further in the same bytes.
    pub fn read_until(&self, other: &Self) -> &'a [u8] {
        self.rest.get(..self.rest.len().saturating_sub(other.rest.len())).unwrap_or_default()
    }

    /// Reads past a map of texts or byte strings.
    ///
    /// # Errors
    /// `malformed` if the bytes end inside the map.
    pub fn pass_map(&mut self) -> Result<(), Reject> {
        loop {
            let entries = self.block()?;
            if entries == 0 {
                return Ok(());
            }
            for _ in 0..entries {
                self.bytes()?;
                self.bytes()?;
            }
        }
    }

    /// Reads the number of entries in the next block of an array or map; 0 ends the array or map. The byte
    /// size after a negative count is read and ignored: entries are always read one by one.
    ///
    /// # Errors
    /// `malformed` if the bytes end inside a number or the byte size is negative.
    pub fn block(&mut self) -> Result<u64, Reject> {
        let count = self.long()?;
        if count < 0 && self.long()? < 0 {
            return Err(Reject::malformed("a block has a negative size"));
        }
        Ok(count.unsigned_abs())
    }
}

fn truncated() -> Reject {
    Reject::malformed("the bytes end before the record does")
}

/// Appends a zigzag variable-length integer.
pub fn put_long(out: &mut Vec<u8>, value: i64) {
    put_longs(out, [value]);
}

/// Appends several zigzag variable-length integers at once.
pub fn put_longs<const COUNT: usize>(out: &mut Vec<u8>, values: [i64; COUNT]) {
    let mut room = [[0; LONG_BYTES_MAX]; COUNT];
    let bytes = room.as_flattened_mut();
    let mut end = 0;
    for value in values {
        let mut bits = ((value << 1) ^ (value >> 63)).cast_unsigned();
        if bits < 1 << 56 {
            let last = (bits | 1).ilog2() / 7;
            let continues = CONTINUES & ((1 << (8 * last)) - 1);
            bytes[end..end + 8].copy_from_slice(&(spread(bits) | continues).to_le_bytes());
            end += last as usize + 1;
            continue;
        }
        while bits >= 0x80 {
            bytes[end] = bits as u8 | 0x80;
            bits >>= 7;
            end += 1;
        }
        bytes[end] = bits as u8;
        end += 1;
    }
    out.extend_from_slice(&bytes[..end]);
}

/// Appends the length of `bytes`, then `bytes`.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // A slice is never longer than isize::MAX.
    put_long(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}

/// Appends a decimal's length, then its unscaled value as big-endian two's complement in the fewest bytes.
pub fn put_decimal(out: &mut Vec<u8>, atoms: i128) {
    let wide = atoms.to_be_bytes();
    put_bytes(out, shortest(&wide));
}

/// Returns two's complement without the leading bytes that only repeat the sign.
pub fn shortest(mut bytes: &[u8]) -> &[u8] {
    while let [0x00, next @ 0x00..=0x7f, ..] | [0xff, next @ 0x80..=0xff, ..] = bytes {
        let _ = next;
        bytes = bytes.get(1..).unwrap_or_default();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_survive_the_round_trip_at_their_extremes() {
        for value in
            [0, -1, 1, 63, 64, -64, -65, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, i64::MIN]
        {
            let mut out = Vec::new();
            put_long(&mut out, value);
            let mut wire = Wire::new(&out);
            assert_eq!(wire.long(), Ok(value));
            assert_eq!(wire.rest(), b"");
        }
    }

    #[test]
    fn integers_of_every_length_survive_whatever_follows() {
        for shift in 0..64 {
            for value in [1_i64 << shift, (1_i64 << shift).wrapping_sub(1), -(1_i64 << (shift / 2))] {
                for trailing in 0..12 {
                    let mut out = Vec::new();
                    put_long(&mut out, value);
                    assert_eq!(out, byte_by_byte(value));
                    out.extend(vec![0xff; trailing]);
                    let mut wire = Wire::new(&out);
                    assert_eq!(wire.long(), Ok(value));
                    assert_eq!(wire.rest().len(), trailing);
                }
            }
        }
    }

    /// Encodes an integer as Avro specifies it: seven bits a byte, the lowest first.
    fn byte_by_byte(value: i64) -> Vec<u8> {
        let mut bits = i128::from(value) * 2;
        if value < 0 {
            bits = -bits - 1;
        }
        let mut bytes = Vec::new();
        loop {
            let continues = bits > 0x7f;
            bytes.push((bits % 0x80) as u8 + if continues { 0x80 } else { 0 });
            bits /= 0x80;
            if !continues {
                return bytes;
            }
        }
    }

    #[test]
    fn an_integer_past_its_width_is_malformed() {
        let mut eleven = [0xff; 11];
        eleven[10] = 0;
        let mut tenth = [0xff; 10];
        tenth[9] = 2;
        for bytes in [&eleven[..], &tenth, &[0x80], &[]] {
            assert!(Wire::new(bytes).long().is_err(), "{bytes:?}");
        }
        let mut out = Vec::new();
        put_long(&mut out, i64::from(i32::MAX) + 1);
        assert!(Wire::new(&out).int().is_err());
    }

    #[test]
    fn a_decimal_takes_the_fewest_bytes() {
        for (atoms, bytes) in [
            (0, &[0][..]),
            (-1, &[0xff]),
            (127, &[0x7f]),
            (128, &[0, 0x80]),
            (-128, &[0x80]),
            (-129, &[0xff, 0x7f]),
        ] {
            assert_eq!(shortest(&i128::to_be_bytes(atoms)), bytes, "{atoms}");
        }
    }

    #[test]
    fn a_hostile_length_reads_nothing() {
        let mut out = Vec::new();
        put_long(&mut out, i64::MAX);
        assert!(Wire::new(&out).bytes().is_err());
        out.clear();
        put_long(&mut out, -1);
        assert!(Wire::new(&out).bytes().is_err());
    }
}
