//! Prices, money, ratios, amounts and weights: exact decimals of events and rules.
//!
//! Each kind of number is its own type around a [`Decimal`] of `rust_decimal`, whose 28 digits are exactly
//! the digits of `decimal(28,12)` in events. Input is never rounded: a number that does not fit is an error.
//! The engine rounds its results once, to a [`Decimal12`] of a table column.

pub mod decimal;

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decimal::{Decimal12, PLACES};

/// 10^28 atoms of 10^-12: the smallest number that has more than 28 digits.
const END_ATOMS: u128 = 10u128.pow(28);

/// The text is not an exact decimal of at most 28 digits, at most 12 of them after the point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// The text is not digits with an optional sign and an optional point.
    #[error("'{0}' is not a decimal such as 0.1")]
    Syntax(String),
    /// The text has more digits after the point than a price may have.
    #[error("'{0}' has more than 12 decimals")]
    Decimals(String),
    /// The text has more digits before the point than a price may have.
    #[error("'{0}' has more than 28 digits, counting 12 after the point")]
    Digits(String),
}

/// Returns a decimal from its number of atoms (10^-12); `None` if it has more than 28 digits.
const fn decimal_of(atoms: i128) -> Option<Decimal> {
    let magnitude = atoms.unsigned_abs();
    if magnitude >= END_ATOMS {
        return None;
    }
    let (low, middle, high) = (magnitude as u32, (magnitude >> 32) as u32, (magnitude >> 64) as u32);
    Some(Decimal::from_parts(low, middle, high, atoms < 0, PLACES as u32))
}

/// Parses a number in the form that [`Decimal12`] prints: no blanks, no exponent, no sign but `-`. The number
/// must fit 28 digits, 12 of them after the point.
fn parse(text: &str) -> Result<Decimal, DecimalError> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let unfinished = whole.is_empty() || (fraction.is_empty() && digits.contains('.'));
    if unfinished || !plain(whole) || !plain(fraction) {
        return Err(DecimalError::Syntax(text.into()));
    }
    if fraction.len() > PLACES {
        return Err(DecimalError::Decimals(text.into()));
    }
    let exact = Decimal::from_str_exact(text).ok();
    let scale = |decimal: Decimal| {
        let missing = 10_i128.pow(u32::try_from(PLACES).ok()?.checked_sub(decimal.scale())?);
        decimal_of(decimal.mantissa().checked_mul(missing)?)
    };
    exact.and_then(scale).ok_or_else(|| DecimalError::Digits(text.into()))
}

macro_rules! decimals {
    ($($(#[$doc:meta])* $name:ident,)+) => {$(
        $(#[$doc])*
        // The scale is always 12, so the number is read and written without arithmetic.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Decimal);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self::from_nanos(0);

            /// The largest value: 28 nines, 12 of them after the point.
            pub const MAX: Self = match Self::from_atoms(END_ATOMS as i128 - 1) {
                Some(largest) => largest,
                None => Self::ZERO,
            };

            /// Creates a value from a number of 10^-9, for constants. Every `i64` fits.
            pub const fn from_nanos(nanos: i64) -> Self {
                match decimal_of(nanos as i128 * 1000) {
                    Some(decimal) => Self(decimal),
                    None => Self(Decimal::ZERO),
                }
            }

            /// Creates a value from its number of atoms (10^-12); `None` if it has more than 28 digits.
            pub const fn from_atoms(atoms: i128) -> Option<Self> {
                match decimal_of(atoms) {
                    Some(decimal) => Some(Self(decimal)),
                    None => None,
                }
            }

            /// Returns the number of atoms (10^-12).
            pub const fn atoms(self) -> i128 {
                self.0.mantissa()
            }

            /// Returns the value as a decimal of twelve places.
            pub const fn decimal(self) -> Decimal {
                self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ZERO
            }
        }

        impl From<i32> for $name {
            fn from(whole: i32) -> Self {
                Self::from_nanos(i64::from(whole) * 1_000_000_000)
            }
        }

        impl From<$name> for Decimal12 {
            fn from(value: $name) -> Self {
                Self::from_atoms(value.atoms())
            }
        }

        impl FromStr for $name {
            type Err = DecimalError;

            fn from_str(text: &str) -> Result<Self, DecimalError> {
                parse(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            /// Writes the shortest form: no trailing zeros, and no point in a whole number.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Decimal12::from(*self).fmt(f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Decimal12::from(*self).serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            /// Reads text or a whole number, and never converts it to a float. In binary forms, reads the
            /// number of atoms (10^-12).
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserialize(deserializer).map(Self)
            }
        }
    )+};
}

decimals! {
    /// Hourly price of a node, reserved unit, commitment, vCPU, GiB, GPU or TFLOP, in the currency given with
    /// it.
    UnitPrice,
    /// An amount of money in the currency given with it, such as a budget.
    Money,
    /// A ratio; 1 is the whole.
    Ratio,
    /// An amount of a resource: vCPUs, GiB.
    Amount,
    /// A weight of a resource: only the ratios between weights matter.
    Weight,
}

fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
    use serde::de::Error;

    struct Visitor;
    impl serde::de::Visitor<'_> for Visitor {
        type Value = Decimal;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a decimal in quotes, such as \"0.1\", or a whole number")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Decimal, E> {
            parse(text).map_err(E::custom)
        }

        fn visit_u64<E: Error>(self, whole: u64) -> Result<Decimal, E> {
            parse(&whole.to_string()).map_err(E::custom)
        }

        fn visit_i64<E: Error>(self, whole: i64) -> Result<Decimal, E> {
            parse(&whole.to_string()).map_err(E::custom)
        }
    }
    if deserializer.is_human_readable() {
        return deserializer.deserialize_any(Visitor);
    }
    let atoms = i128::deserialize(deserializer)?;
    decimal_of(atoms)
        .ok_or_else(|| D::Error::custom(DecimalError::Digits(Decimal12::from_atoms(atoms).to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_28_digits_survives_the_round_trip() {
        for text in ["0", "1", "-1", "0.5", "-0.000000000001", "98.32", "9999999999999999.999999999999"] {
            let value: UnitPrice = text.parse().unwrap();
            assert_eq!(value.to_string(), text);
            assert_eq!(UnitPrice::from_atoms(value.atoms()), Some(value));
        }
        assert_eq!("007.50".parse::<Money>().map(|money| money.atoms()), Ok(7_500_000_000_000));
        assert_eq!("-0".parse::<Money>(), Ok(Money::ZERO));
    }

    #[test]
    fn an_invalid_or_too_long_decimal_is_refused_with_the_reason() {
        for text in ["", "-", ".5", "1.", "1e3", "+1", " 1", "1_0", "--1", "1.-1", "NaN"] {
            assert_eq!(text.parse::<Ratio>(), Err(DecimalError::Syntax(text.into())));
        }
        for text in ["1.0000000000001", "0.0000000000000"] {
            assert_eq!(text.parse::<Ratio>(), Err(DecimalError::Decimals(text.into())));
        }
        let digits = "99999999999999999999999999999999999999999999999999";
        for text in ["10000000000000000", "-10000000000000000.5", "7922816251426433759354395033.6", digits] {
            assert_eq!(text.parse::<Ratio>(), Err(DecimalError::Digits(text.into())));
        }
        assert_eq!(UnitPrice::from_atoms(10_i128.pow(28)), None);
        assert_eq!(UnitPrice::from_atoms(i128::MIN), None);
    }

    #[test]
    fn constants_are_what_they_say() {
        assert_eq!(Money::MAX.to_string(), "9999999999999999.999999999999");
        assert_eq!(Weight::from_nanos(900_000_000).to_string(), "0.9");
        assert_eq!(Weight::from(-3).to_string(), "-3");
        for nanos in [i64::MIN, i64::MAX] {
            assert_eq!(Weight::from_nanos(nanos).atoms(), i128::from(nanos) * 1000);
        }
    }
}
