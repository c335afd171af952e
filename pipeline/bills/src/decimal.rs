//! Exact decimals of bills. Nothing here uses binary fractions.
//!
//! Bills have more digits than the ledger: AWS prints 15 decimals, and doubles may have 25. So an amount is
//! read, added and multiplied with 24 decimals, and then rounded once to the 12 decimals of the ledger.

use std::fmt;

/// Number of decimals.
const PLACES: i32 = 24;

/// Number of units in the last decimal of the ledger (10^-12).
const UNITS_PER_ATOM: i128 = 1_000_000_000_000;

/// Mantissas stay below this number, so that a further digit always fits.
const MANTISSA_END: u128 = 10_u128.pow(37);

/// A decimal with 24 places.
///
/// Digits after the 24th decimal are cut off. If any of them is not 0, the last digit never stays 0 or 5. So
/// the amount still rounds to twelve decimals as if all digits were there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exact(i128);

/// An amount that was rounded to 12 decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounded {
    /// Number of 10^-12.
    pub atoms: i128,
    /// How much rounding added.
    pub added: Exact,
}

impl Exact {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Parses digits with an optional sign, point and exponent, such as `-5.64902E-05`. Returns `None` if the
    /// text is anything else, or if the magnitude is above 1.7 x 10^14.
    pub fn parse(text: &str) -> Option<Self> {
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (is_negative, digits) = match digits.as_bytes() {
            [b'-', digits @ ..] => (true, digits),
            [b'+', digits @ ..] => (false, digits),
            digits => (false, digits),
        };
        let (mut mantissa, mut decimals, mut is_cut) = (0_u128, 0_i32, false);
        let (mut has_digit, mut has_point) = (false, false);
        for byte in digits {
            match byte {
                b'0'..=b'9' if mantissa < MANTISSA_END => {
                    mantissa = mantissa * 10 + u128::from(byte - b'0');
                    decimals += i32::from(has_point);
                    has_digit = true;
                }
                b'0'..=b'9' if has_point => is_cut |= *byte != b'0',
                b'.' if !has_point => has_point = true,
                _ => return None,
            }
        }
        if !has_digit || !(-1_000..=1_000).contains(&exponent) {
            return None;
        }
        Self::at(is_negative, mantissa, PLACES - decimals + exponent, is_cut)
    }

    /// Returns a decimal from a magnitude of 10^-(24 - `shift`). `is_cut` says that further digits were cut
    /// off.
    fn at(is_negative: bool, magnitude: u128, shift: i32, mut is_cut: bool) -> Option<Self> {
        let power = |exponent: i32| 10_u128.checked_pow(exponent.unsigned_abs());
        let units = match power(shift) {
            _ if magnitude == 0 => 0,
            Some(factor) if shift >= 0 => magnitude.checked_mul(factor)?,
            Some(divisor) => {
                is_cut |= !magnitude.is_multiple_of(divisor);
                magnitude / divisor
            }
            None if shift >= 0 => return None,
            None => {
                is_cut = true;
                0
            }
        };
        let units = i128::try_from(jammed(units, is_cut)).ok()?;
        Some(Self(if is_negative { -units } else { units }))
    }

    /// Returns the sum; `None` if it is too large.
    pub fn plus(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Returns the difference; `None` if it is too large.
    pub fn minus(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// Returns the product; `None` if it has too many digits.
    pub fn times(self, other: Self) -> Option<Self> {
        let (left, left_decimals) = self.without_zeros();
        let (right, right_decimals) = other.without_zeros();
        let is_negative = (self.0 < 0) != (other.0 < 0);
        Self::at(is_negative, left.checked_mul(right)?, PLACES - left_decimals - right_decimals, false)
    }

    /// Returns this number x `numerator` / `denominator`; `None` if it is too large or the denominator is 0.
    pub fn scaled(self, numerator: u32, denominator: u32) -> Option<Self> {
        let magnitude = self.0.unsigned_abs().checked_mul(u128::from(numerator))?;
        let denominator = u128::from(denominator);
        let quotient = magnitude.checked_div(denominator)?;
        let units = i128::try_from(jammed(quotient, !magnitude.is_multiple_of(denominator))).ok()?;
        Some(Self(if self.0 < 0 { -units } else { units }))
    }

    /// Returns the magnitude without zeros at its end, and the number of its decimals.
    fn without_zeros(self) -> (u128, i32) {
        let (mut magnitude, mut decimals) = (self.0.unsigned_abs(), PLACES);
        while decimals > 0 && magnitude.is_multiple_of(10) {
            magnitude /= 10;
            decimals -= 1;
        }
        (magnitude, decimals)
    }

    /// Rounds to 12 decimals, half to even.
    pub const fn round(self) -> Rounded {
        let (floor, rest) = (self.0.div_euclid(UNITS_PER_ATOM), self.0.rem_euclid(UNITS_PER_ATOM));
        let half = UNITS_PER_ATOM / 2;
        let is_up = rest > half || (rest == half && floor % 2 != 0);
        // A number is rounded by less than a unit of the ledger, so the sum fits.
        let (atoms, added) = if is_up { (floor + 1, UNITS_PER_ATOM - rest) } else { (floor, -rest) };
        Rounded { atoms, added: Self(added) }
    }

    /// Returns whether the number is 0.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the number is below 0.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }
}

/// Returns the units after digits were cut off: the last digit then never stays 0 or 5.
const fn jammed(units: u128, is_cut: bool) -> u128 {
    if is_cut && units.is_multiple_of(5) { units + 1 } else { units }
}

impl fmt::Display for Exact {
    /// Writes the shortest form: no zeros at the end, and no point in a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (magnitude, decimals) = self.without_zeros();
        let sign = if self.0 < 0 { "-" } else { "" };
        let digits = magnitude.to_string();
        let decimals = usize::try_from(decimals).unwrap_or_default();
        if decimals == 0 {
            return write!(f, "{sign}{digits}");
        }
        let digits = format!("{digits:0>width$}", width = decimals + 1);
        let (whole, fraction) = digits.split_at(digits.len() - decimals);
        write!(f, "{sign}{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> Exact {
        Exact::parse(text).unwrap()
    }

    #[test]
    fn decimals_of_bills_are_exact() {
        for (text, expected) in [
            ("0.00000080000", "0.0000008"),
            ("5.64902E-05", "0.0000564902"),
            ("-1.5e+2", "-150"),
            ("+12e-1", "1.2"),
            (".5", "0.5"),
            ("5.", "5"),
            ("007", "7"),
            ("-0", "0"),
            ("0E-100", "0"),
            ("1e-24", "0.000000000000000000000001"),
            ("99999999999999.999999999999999999999999", "99999999999999.999999999999999999999999"),
            ("0.00000000000000000000000000000000000000000000000000000", "0"),
        ] {
            assert_eq!(exact(text).to_string(), expected, "{text}");
        }
        for text in
            ["", "-", ".", "1,5", "1 5", "NaN", "1e", "e5", "1e9999", "1.2.3", "--1", "1000000000000000"]
        {
            assert_eq!(Exact::parse(text), None, "{text}");
        }
        assert_eq!(Exact::parse("12345678901234567890123456789012345678901234567890"), None);
    }

    #[test]
    fn a_half_rounds_to_the_even_digit() {
        for (text, atoms) in [
            ("0.0000000000005", 0),
            ("0.0000000000015", 2),
            ("0.0000000000025", 2),
            ("-0.0000000000005", 0),
            ("-0.0000000000015", -2),
            ("0.00000000000050000000000000000000000001", 1),
            ("-0.00000000000050000000000000000000000001", -1),
            ("0.00000000000049999999999999999999999999", 0),
            ("0.00000000000000000000000000000000000001", 0),
            ("12.34", 12_340_000_000_000),
        ] {
            let rounded = exact(text).round();
            assert_eq!(rounded.atoms, atoms, "{text}");
            let sum = exact(text).plus(rounded.added).unwrap();
            assert_eq!(sum, Exact(rounded.atoms * UNITS_PER_ATOM), "{text}");
        }
    }

    #[test]
    fn products_and_ratios_are_exact_or_absent() {
        assert_eq!(exact("0.0129").times(exact("0.004379084")), Some(exact("0.0000564901836")));
        assert_eq!(exact("-3").times(exact("0.1")), Some(exact("-0.3")));
        assert_eq!(exact("0").times(exact("5")), Some(Exact::ZERO));
        assert_eq!(exact("1234567.123456789012345678").times(exact("7654321.123456789012345678")), None);
        assert_eq!(exact("5400").scaled(1, 3600), Some(exact("1.5")));
        assert_eq!(exact("0.24").scaled(100, 1), Some(exact("24")));
        assert_eq!(exact("1").scaled(1, 3600).unwrap().round().atoms, 277_777_778);
        assert_eq!(exact("1").scaled(1, 0), None);
        assert_eq!(exact("1").minus(exact("1.5")), Some(exact("-0.5")));
        assert_eq!(Exact(i128::MAX).plus(exact("1")), None);
    }
}
