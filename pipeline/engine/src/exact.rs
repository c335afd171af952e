//! Exact numbers and the two roundings of the rules: one rounding to twelve decimals, half to even, and largest
//! remainder where rows split one charge.
//!
//! Integers are of arbitrary size, so nothing wraps; what does not fit a column of 38 digits is an error.

use std::cmp::Ordering;

use dashu_int::{IBig, UBig};
use dashu_ratio::RBig;
use prorata_schemas::decimal::{Decimal12, ONE};

use crate::error::EngineError;

/// Microseconds in an hour.
pub const HOUR_MICROS: u64 = 3_600_000_000;

/// An exact number that is zero or more, as an unreduced fraction. The denominator is above zero.
#[derive(Clone, Debug)]
pub struct Fraction {
    /// Numerator.
    pub over: UBig,
    /// Denominator.
    pub under: UBig,
}

impl Fraction {
    /// `over / under`.
    pub const fn new(over: UBig, under: UBig) -> Self {
        Self { over, under }
    }

    /// Zero.
    pub const fn zero() -> Self {
        Self { over: UBig::ZERO, under: UBig::ONE }
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.over == UBig::ZERO
    }

    /// From a reduced ratio, which must not be negative.
    pub fn of(ratio: &RBig) -> Self {
        Self { over: ratio.numerator().unsigned_abs_ref(), under: ratio.denominator().clone() }
    }

    /// The product with a whole number.
    pub fn times(&self, factor: &UBig) -> Self {
        Self { over: &self.over * factor, under: self.under.clone() }
    }

    /// Rounds a number of units of 10^-12 to a decimal.
    ///
    /// # Errors
    /// Past 38 digits.
    pub fn round_units(&self) -> Result<Decimal12, EngineError> {
        decimal(round_half_even(&self.over, &self.under))
    }

    /// Rounds a plain number to a decimal.
    ///
    /// # Errors
    /// Past 38 digits.
    pub fn round(&self) -> Result<Decimal12, EngineError> {
        decimal(round_half_even(&(&self.over * one()), &self.under))
    }
}

/// The magnitude of a signed integer, by reference.
trait Magnitude {
    fn unsigned_abs_ref(&self) -> UBig;
}

impl Magnitude for IBig {
    fn unsigned_abs_ref(&self) -> UBig {
        self.clone().into_parts().1
    }
}

/// 10^12 as a wide integer.
pub fn one() -> UBig {
    UBig::from(ONE.unsigned_abs())
}

/// A non-negative decimal in units of 10^-12. Valid events hold no negative price; a negative one counts as zero.
pub fn units(value: Decimal12) -> UBig {
    UBig::from(u128::try_from(value.units()).unwrap_or(0))
}

/// A ratio of two non-negative integers; zero when the denominator is zero.
pub fn ratio(over: UBig, under: UBig) -> RBig {
    if under == UBig::ZERO { RBig::ZERO } else { RBig::from_parts(IBig::from(over), under) }
}

/// Rounds any ratio to twelve decimals, half to even.
///
/// # Errors
/// Past 38 digits.
pub fn round(value: &RBig) -> Result<Decimal12, EngineError> {
    let (sign, magnitude) = value.numerator().clone().into_parts();
    let rounded = decimal(round_half_even(&(magnitude * one()), value.denominator()))?;
    Ok(if sign == dashu_int::Sign::Negative { Decimal12::from_units(-rounded.units()) } else { rounded })
}

/// The quotient rounded to the nearest integer, half to even.
pub fn round_half_even(over: &UBig, under: &UBig) -> UBig {
    let (floor, rest) = div_rem(over, under);
    match (&rest * UBig::from(2u8)).cmp(under) {
        Ordering::Less => floor,
        Ordering::Greater => floor + UBig::ONE,
        Ordering::Equal => {
            let odd = dashu_int::ops::BitTest::bit(&floor, 0);
            if odd { floor + UBig::ONE } else { floor }
        }
    }
}

/// Quotient rounded down, and remainder.
pub fn div_rem(over: &UBig, under: &UBig) -> (UBig, UBig) {
    use dashu_int::ops::DivRem;
    over.div_rem(under)
}

/// Units of 10^-12 as a decimal of at most 38 digits.
///
/// # Errors
/// Past 38 digits.
pub fn decimal(units: UBig) -> Result<Decimal12, EngineError> {
    const LIMIT: i128 = 10_i128.pow(38);
    match i128::try_from(&units) {
        Ok(value) if value < LIMIT => Ok(Decimal12::from_units(value)),
        _ => Err(EngineError::Range(units.to_string())),
    }
}

/// Splits `total` over `parts` by largest remainder: every part gets its floor, and what is left goes, one unit each,
/// to the largest fractional parts, ties to the earlier part. The parts sum to within one of `total`; all are in
/// units of 10^-12.
///
/// # Errors
/// When a part passes 38 digits, or the parts do not sum to `total` within one unit each.
pub fn largest_remainder(total: Decimal12, parts: &[&Fraction]) -> Result<Vec<Decimal12>, EngineError> {
    let mut shares = Vec::with_capacity(parts.len());
    let mut rests = Vec::with_capacity(parts.len());
    let mut floors = 0_i128;
    for part in parts {
        let (floor, rest) = div_rem(&part.over, &part.under);
        let floor = decimal(floor)?.units();
        floors += floor;
        shares.push(floor);
        rests.push(rest);
    }
    let left = total.units() - floors;
    let left = usize::try_from(left).ok().filter(|left| *left <= parts.len());
    let left = left.ok_or_else(|| EngineError::Conservation(format!("{floors} does not split {total}")))?;
    if left > 0 {
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by(|&a, &b| compare_rests((&rests[b], parts[b]), (&rests[a], parts[a])).then(a.cmp(&b)));
        for index in order.into_iter().take(left) {
            shares[index] += 1;
        }
    }
    Ok(shares.into_iter().map(Decimal12::from_units).collect())
}

/// Compares two fractional parts exactly.
fn compare_rests(a: (&UBig, &Fraction), b: (&UBig, &Fraction)) -> Ordering {
    if a.1.under == b.1.under { a.0.cmp(b.0) } else { (a.0 * &b.1.under).cmp(&(b.0 * &a.1.under)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fraction(over: u64, under: u64) -> Fraction {
        Fraction::new(UBig::from(over), UBig::from(under))
    }

    #[test]
    fn halves_round_to_even() {
        for (over, expected) in [(1_u8, 0_u8), (3, 2), (5, 2), (7, 4)] {
            assert_eq!(round_half_even(&UBig::from(over), &UBig::from(2u8)), UBig::from(expected));
        }
    }

    #[test]
    fn largest_remainder_gives_ties_to_the_earlier_part() {
        let thirds = [fraction(1, 3), fraction(2, 6), fraction(1, 3)];
        let shares = largest_remainder(Decimal12::from_units(1), &thirds.each_ref()).unwrap();
        assert_eq!(shares.iter().map(|share| share.units()).collect::<Vec<_>>(), [1, 0, 0]);
    }

    #[test]
    fn largest_remainder_compares_across_denominators() {
        let parts = [fraction(1, 2), fraction(5, 9), fraction(17, 18)];
        let shares = largest_remainder(Decimal12::from_units(2), &parts.each_ref()).unwrap();
        assert_eq!(shares.iter().map(|share| share.units()).collect::<Vec<_>>(), [0, 1, 1]);
    }

    #[test]
    fn what_does_not_split_the_total_is_an_error() {
        assert!(largest_remainder(Decimal12::from_units(5), &[&fraction(1, 1)]).is_err());
        assert!(largest_remainder(Decimal12::from_units(0), &[&fraction(1, 1)]).is_err());
    }

    #[test]
    fn thirty_nine_digits_are_an_error() {
        assert!(decimal(UBig::from(10_u128.pow(38))).is_err());
        assert!(decimal(UBig::from(10_u128.pow(38) - 1)).is_ok());
    }
}
