//! Decimals of table columns (`decimal(38,12)`): each a whole number of atoms (10^-12).
//!
//! Sums of money over an organization can exceed the 28 digits that a price may have, so columns are wider
//! than the types of [`crate::money`]. No operation rounds: the engine computes exactly and rounds once.

use std::fmt;
use std::num::NonZero;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One, in atoms of 10^-12.
pub const ONE: i128 = 1_000_000_000_000;

/// Number of decimal places of a [`Decimal12`].
pub const PLACES: usize = 12;

/// The sign bit: flipping it adds or subtracts 2^127.
const SIGN: u128 = 1 << 127;

/// A decimal number with exactly twelve places, held as a whole number of atoms (10^-12) above -2^127.
/// Columns hold up to 38 digits, which is a smaller range.
///
/// A row has a dozen optional decimals, so `Option<Decimal12>` takes no more space than the number. The
/// number is stored as its distance from -2^127, which is never zero and sorts like the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal12(NonZero<u128>);

/// The text is not a decimal of at most 26 whole and 12 fractional digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a decimal with at most 26 whole digits and 12 places")]
pub struct ParseDecimalError(String);

impl Decimal12 {
    /// Zero.
    pub const ZERO: Self = Self::from_atoms(0);
    /// One.
    pub const ONE: Self = Self::from_atoms(ONE);
    /// The smallest number: one atom above -2^127.
    pub const MIN: Self = Self(NonZero::<u128>::MIN);

    /// Creates a number from its `atoms`, which are 10^-12 each. The one `i128` below [`Self::MIN`] becomes
    /// `MIN`.
    pub const fn from_atoms(atoms: i128) -> Self {
        match Self::checked(atoms) {
            Some(decimal) => decimal,
            None => Self::MIN,
        }
    }

    /// Creates a number from its `atoms`; `None` if it is below [`Self::MIN`].
    const fn checked(atoms: i128) -> Option<Self> {
        match NonZero::new(atoms.cast_unsigned() ^ SIGN) {
            Some(distance) => Some(Self(distance)),
            None => None,
        }
    }

    /// Creates a whole number.
    pub const fn from_int(whole: i64) -> Self {
        Self::from_atoms(whole as i128 * ONE)
    }

    /// Returns the number of atoms (10^-12).
    pub const fn atoms(self) -> i128 {
        (self.0.get() ^ SIGN).cast_signed()
    }

    /// Returns whether this is below zero.
    pub const fn is_negative(self) -> bool {
        self.atoms() < 0
    }

    /// Returns the exact sum; `None` if it is out of range.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.atoms().checked_add(other.atoms()) {
            Some(atoms) => Self::checked(atoms),
            None => None,
        }
    }

    /// Returns the exact difference; `None` if it is out of range.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.atoms().checked_sub(other.atoms()) {
            Some(atoms) => Self::checked(atoms),
            None => None,
        }
    }
}

impl Default for Decimal12 {
    fn default() -> Self {
        Self::ZERO
    }
}

impl fmt::Debug for Decimal12 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Decimal12").field(&self.atoms()).finish()
    }
}

impl FromStr for Decimal12 {
    type Err = ParseDecimalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseDecimalError(text.to_owned());
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let unfinished = whole.is_empty() || (fraction.is_empty() && digits.contains('.'));
        if unfinished || whole.len() > 26 || fraction.len() > PLACES || !plain(whole) || !plain(fraction) {
            return Err(error());
        }
        let atoms: i128 = format!("{whole}{fraction:0<PLACES$}").parse().map_err(|_| error())?;
        Ok(Self::from_atoms(if negative { -atoms } else { atoms }))
    }
}

impl fmt::Display for Decimal12 {
    /// Writes the shortest form: no trailing zeros, and no point in a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The point, the 39 digits of 128 bits, and a zero before the point.
        let mut text = [0_u8; 41];
        let mut start = text.len();
        let mut put = |digit: u8| {
            start -= 1;
            text[start] = digit;
        };
        let (mut whole, mut fraction) = split(self.atoms().unsigned_abs());
        if fraction > 0 {
            let mut places = PLACES;
            while fraction.is_multiple_of(10) {
                fraction /= 10;
                places -= 1;
            }
            for _ in 0..places {
                put(b'0' + (fraction % 10) as u8);
                fraction /= 10;
            }
            put(b'.');
        }
        while whole > u128::from(u64::MAX) {
            put(b'0' + (whole % 10) as u8);
            whole /= 10;
        }
        let mut whole = whole as u64;
        loop {
            put(b'0' + (whole % 10) as u8);
            whole /= 10;
            if whole == 0 {
                break;
            }
        }
        let text = std::str::from_utf8(text.get(start..).unwrap_or_default()).unwrap_or_default();
        f.pad_integral(!self.is_negative(), "", text)
    }
}

/// Splits a number of atoms into the whole number before the point and the atoms after it.
const fn split(magnitude: u128) -> (u128, u64) {
    const ONE_64: u64 = ONE as u64;
    if magnitude <= u64::MAX as u128 {
        // True for most amounts of money: one 64-bit division is many times cheaper than a 128-bit division.
        let magnitude = magnitude as u64;
        return ((magnitude / ONE_64) as u128, magnitude % ONE_64);
    }
    (magnitude / ONE.unsigned_abs(), (magnitude % ONE.unsigned_abs()) as u64)
}

impl Serialize for Decimal12 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.atoms().serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Decimal12 {
    /// Reads text or a whole number, and never converts it to a float. In binary forms, reads the number of
    /// atoms.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Decimal12;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a decimal in quotes, such as \"0.1\", or a whole number")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Decimal12, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, whole: u64) -> Result<Decimal12, E> {
                Ok(Decimal12::from_atoms(i128::from(whole) * ONE))
            }

            fn visit_i64<E: serde::de::Error>(self, whole: i64) -> Result<Decimal12, E> {
                Ok(Decimal12::from_int(whole))
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(Visitor)
        } else {
            i128::deserialize(deserializer).map(Decimal12::from_atoms)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_the_round_trip() {
        for text in
            ["0", "1", "-1", "0.5", "-0.000000000001", "98.32", "12345678901234567890123456.123456789012"]
        {
            let value: Decimal12 = text.parse().unwrap();
            assert_eq!(value.to_string(), text);
        }
    }

    #[test]
    fn extremes_print_and_pad_as_numbers_do() {
        let most = Decimal12::from_atoms(i128::MAX).to_string();
        assert_eq!(most, "170141183460469231731687303.715884105727");
        assert_eq!(Decimal12::MIN.to_string(), "-170141183460469231731687303.715884105727");
        let half = Decimal12::from_atoms(-5 * ONE / 10);
        assert_eq!(format!("{half:>6}|{:<5}|", Decimal12::ONE), "  -0.5|1    |");
        assert_eq!(format!("{half:06}"), "-000.5");
    }

    #[test]
    fn numbers_sort_and_add_up_as_their_atoms_and_none_takes_no_room() {
        assert_eq!(size_of::<Option<Decimal12>>(), size_of::<i128>());
        let all = [i128::MIN + 1, -ONE, -1, 0, 1, ONE, i128::MAX].map(Decimal12::from_atoms);
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        assert_eq!([all[0], all[3]], [Decimal12::MIN, Decimal12::default()]);
        assert_eq!(all.map(Decimal12::is_negative), [true, true, true, false, false, false, false]);
        assert_eq!(Decimal12::from_atoms(i128::MIN), Decimal12::MIN);
        let atom = all[4];
        assert_eq!(Decimal12::MIN.checked_add(atom).map(Decimal12::atoms), Some(i128::MIN + 2));
        assert_eq!([Decimal12::MIN.checked_sub(atom), Decimal12::MIN.checked_add(all[2])], [None, None]);
        assert_eq!([all[6].checked_add(atom), all[6].checked_sub(all[2])], [None, None]);
    }

    #[test]
    fn an_invalid_decimal_is_refused() {
        for text in [
            "",
            "-",
            ".5",
            "1.",
            "1e3",
            "+1",
            "1.0000000000001",
            " 1",
            "1_0",
            "--1",
            "123456789012345678901234567",
        ] {
            assert!(text.parse::<Decimal12>().is_err(), "{text:?}");
        }
    }
}
