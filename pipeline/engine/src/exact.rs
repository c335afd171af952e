//! Exact numbers and the two roundings of RULES.md, section 8. A single amount is rounded once to twelve
//! decimals, half to even. If several rows split one charge, the rows are rounded by largest remainder.
//!
//! An *atom* is 10^-12, the last decimal place of every price and column. Costs are rationals in atoms until
//! their row is written. Amounts at one instant (thousandths, bytes) are `u128`. A quantity is below 2^73 and
//! a MIG product below 2^94, so the sum of all amounts that fit in memory cannot overflow. An amount times a
//! duration could overflow, so it is a [`UBig`], which has any size. A number that does not fit a column of
//! 38 digits is an [`EngineError::Range`].

use std::cmp::Ordering;

use dashu_int::ops::{BitTest, DivRem, Gcd};
use dashu_int::{IBig, Sign, UBig};
use dashu_ratio::RBig;
use prorata_schemas::decimal::{Decimal12, ONE};

use crate::error::EngineError;

/// Microseconds in an hour.
pub(crate) const HOUR_MICROS: u64 = prorata_schemas::time::HOUR_MICROS.unsigned_abs();

/// Atoms in 1: 10^12.
pub(crate) const ATOMS_IN_ONE: UBig = UBig::from_u64(1_000_000_000_000);

const _: () = assert!(ONE == 1_000_000_000_000, "an atom is the last place of a Decimal12");

/// Columns are decimal(38,12): amounts stay below this number of atoms.
const ATOMS_LIMIT: i128 = 10_i128.pow(38);

/// An exact number that is zero or more, as an unreduced fraction.
///
/// A reduction in every operation would cost a greatest common divisor each time. The engine scales rows by a
/// few common denominators and divides once, so it reduces only numbers that it keeps ([`RBig`]).
#[derive(Clone, Debug)]
pub(crate) struct Fraction {
    pub(crate) numerator: UBig,
    /// The denominator; above zero.
    pub(crate) denominator: UBig,
}

impl Fraction {
    /// Creates `numerator / denominator`. The denominator must be above zero.
    pub(crate) const fn new(numerator: UBig, denominator: UBig) -> Self {
        Self { numerator, denominator }
    }

    /// Creates zero.
    pub(crate) const fn zero() -> Self {
        Self { numerator: UBig::ZERO, denominator: UBig::ONE }
    }

    /// Creates one.
    pub(crate) const fn one() -> Self {
        Self { numerator: UBig::ONE, denominator: UBig::ONE }
    }

    /// Returns whether the fraction is zero.
    pub(crate) const fn is_zero(&self) -> bool {
        self.numerator.is_zero()
    }

    /// Converts a reduced ratio, which must not be negative.
    pub(crate) fn of(ratio: &RBig) -> Self {
        let (_, numerator) = ratio.numerator().clone().into_parts();
        Self { numerator, denominator: ratio.denominator().clone() }
    }

    /// Returns the product with a whole number.
    pub(crate) fn times(&self, factor: &UBig) -> Self {
        Self { numerator: &self.numerator * factor, denominator: self.denominator.clone() }
    }

    /// Returns the product with another fraction.
    pub(crate) fn product(&self, factor: &Self) -> Self {
        Self {
            numerator: &self.numerator * &factor.numerator,
            denominator: &self.denominator * &factor.denominator,
        }
    }

    /// Returns the fraction as a reduced ratio.
    pub(crate) fn reduced(&self) -> RBig {
        ratio(self.numerator.clone(), self.denominator.clone())
    }

    /// Rounds a number of atoms to a decimal.
    ///
    /// # Errors
    /// If the number has more than 38 digits.
    pub(crate) fn round_atoms(&self) -> Result<Decimal12, EngineError> {
        decimal(round_half_even(&self.numerator, &self.denominator))
    }

    /// Rounds a plain number to a decimal.
    ///
    /// # Errors
    /// If the number has more than 38 digits.
    pub(crate) fn round(&self) -> Result<Decimal12, EngineError> {
        decimal(round_half_even(&(&self.numerator * ATOMS_IN_ONE), &self.denominator))
    }
}

/// Returns a decimal in atoms. Valid events and rules hold nothing negative here; a negative decimal counts
/// as zero.
pub(crate) fn atoms<D: Into<Decimal12>>(value: D) -> UBig {
    UBig::from(u128::try_from(value.into().atoms()).unwrap_or(0))
}

/// Returns a decimal in atoms, which may be negative.
pub(crate) fn signed<D: Into<Decimal12>>(value: D) -> RBig {
    let atoms = value.into().atoms();
    let magnitude = RBig::from(UBig::from(atoms.unsigned_abs()));
    if atoms < 0 { -magnitude } else { magnitude }
}

/// Returns `numerator / denominator`, or zero if the denominator is zero.
pub(crate) fn ratio(numerator: UBig, denominator: UBig) -> RBig {
    if denominator.is_zero() { RBig::ZERO } else { RBig::from_parts(IBig::from(numerator), denominator) }
}

/// Returns the greatest common divisor. If one number is zero, the result is the other number.
pub(crate) fn gcd(a: &UBig, b: &UBig) -> UBig {
    // The library's function has no answer for two zeros.
    if a.is_zero() && b.is_zero() { UBig::ZERO } else { a.gcd(b) }
}

/// Returns the sum of ratios.
pub(crate) fn total<'a>(ratios: impl IntoIterator<Item = &'a RBig>) -> RBig {
    ratios.into_iter().fold(RBig::ZERO, |sum, ratio| sum + ratio)
}

/// Number of bits after the binary point of the sums that [`round_sum`] computes before it needs the exact
/// sum.
const SUM_BITS: usize = 64;

/// Rounds the sum of fractions of atoms to a decimal, half to even.
///
/// The exact sum of many fractions has a denominator nearly as long as all their denominators together. So
/// the time to add them one by one grows with the square of their number. The bounds of the sum nearly always
/// round alike. The exact sum is computed only if they do not.
///
/// # Errors
/// If the sum has more than 38 digits.
pub(crate) fn round_sum(fractions: &[Fraction]) -> Result<Decimal12, EngineError> {
    let (mut least, mut cut) = (UBig::ZERO, 0_u64);
    for Fraction { numerator, denominator } in fractions {
        let (quotient, rest) = (numerator << SUM_BITS).div_rem(denominator);
        least += quotient;
        cut += u64::from(!rest.is_zero());
    }
    let most = &least + UBig::from(cut);
    round_between([least, most], &(UBig::ONE << SUM_BITS), || sum_of(fractions))
}

/// Rounds a number of atoms to a decimal, half to even. The number lies between two bounds, which are divided
/// by `denominator`. Calls `exact` for the number only if the bounds round differently.
///
/// # Errors
/// If the number has more than 38 digits.
pub(crate) fn round_between(
    [least, most]: [UBig; 2],
    denominator: &UBig,
    exact: impl FnOnce() -> Fraction,
) -> Result<Decimal12, EngineError> {
    let rounded = round_half_even(&least, denominator);
    if rounded == round_half_even(&most, denominator) { decimal(rounded) } else { exact().round_atoms() }
}

/// Returns the sum of fractions.
pub(crate) fn sum_of(fractions: &[Fraction]) -> Fraction {
    Fraction::of(&exact_sum(fractions))
}

/// Adds fractions in two halves, recursively, so that the numbers of each addition have similar lengths.
fn exact_sum(fractions: &[Fraction]) -> RBig {
    match fractions {
        [] => RBig::ZERO,
        [one] => one.reduced(),
        many => {
            let (first, second) = many.split_at(many.len() / 2);
            exact_sum(first) + exact_sum(second)
        }
    }
}

/// Converts microseconds to hours.
pub(crate) fn hours(micros: u128) -> RBig {
    ratio(UBig::from(micros), UBig::from(HOUR_MICROS))
}

/// Converts microseconds to seconds, which are exact in twelve decimals.
///
/// # Errors
/// If the number has more than 38 digits.
pub(crate) fn seconds(micros: u128) -> Result<Decimal12, EngineError> {
    decimal(UBig::from(micros) * UBig::from(1_000_000_u32))
}

/// Rounds any ratio to twelve decimals, half to even. A negative ratio rounds as its magnitude does.
///
/// # Errors
/// If the number has more than 38 digits.
pub(crate) fn round(value: &RBig) -> Result<Decimal12, EngineError> {
    let (sign, magnitude) = value.numerator().clone().into_parts();
    let rounded = decimal(round_half_even(&(magnitude * ATOMS_IN_ONE), value.denominator()))?;
    Ok(if sign == Sign::Negative { Decimal12::from_atoms(-rounded.atoms()) } else { rounded })
}

/// Rounds an estimate like [`round`]. An estimate of more than 38 digits becomes the largest number that fits
/// its column, with the same sign. An estimate that is derived from a few valid amounts may have any size,
/// and no money depends on it.
pub(crate) fn round_estimate(value: &RBig) -> Decimal12 {
    let last = ATOMS_LIMIT - 1;
    let bound = if value.numerator() < &IBig::ZERO { -last } else { last };
    round(value).unwrap_or(Decimal12::from_atoms(bound))
}

/// Rounds `numerator / denominator` to a decimal. The denominator must be above zero.
///
/// # Errors
/// If the number has more than 38 digits.
pub(crate) fn round_quotient(numerator: &UBig, denominator: u128) -> Result<Decimal12, EngineError> {
    // Amounts of most hours fit 128 bits, so they need no allocation.
    let atoms =
        u128::try_from(numerator).ok().and_then(|numerator| numerator.checked_mul(ONE.unsigned_abs()));
    let Some(atoms) = atoms else {
        return Fraction::new(numerator.clone(), UBig::from(denominator)).round();
    };
    let (floor, rest) = (atoms / denominator, atoms % denominator);
    let up = match rest.cmp(&(denominator - rest)) {
        Ordering::Less => 0,
        Ordering::Greater => 1,
        Ordering::Equal => floor % 2,
    };
    decimal(UBig::from(floor + up))
}

/// Returns the quotient rounded to the nearest integer, half to even.
fn round_half_even(numerator: &UBig, denominator: &UBig) -> UBig {
    let (floor, rest) = numerator.div_rem(denominator);
    match (rest << 1).cmp(denominator) {
        Ordering::Less => floor,
        Ordering::Greater => floor + UBig::ONE,
        Ordering::Equal => {
            let odd = floor.bit(0);
            if odd { floor + UBig::ONE } else { floor }
        }
    }
}

/// Converts atoms to a decimal of at most 38 digits.
fn decimal(atoms: UBig) -> Result<Decimal12, EngineError> {
    match i128::try_from(&atoms) {
        Ok(value) if value < ATOMS_LIMIT => Ok(Decimal12::from_atoms(value)),
        _ => Err(EngineError::Range(atoms.to_string())),
    }
}

/// Returns the sum of decimals.
///
/// # Errors
/// If the sum has more than 38 digits.
pub(crate) fn sum(values: impl IntoIterator<Item = Decimal12>) -> Result<Decimal12, EngineError> {
    let mut total = Decimal12::ZERO;
    for value in values {
        let next = total.checked_add(value).filter(|next| next.atoms().abs() < ATOMS_LIMIT);
        total = next.ok_or_else(|| EngineError::Range(format!("({} + {})", total.atoms(), value.atoms())))?;
    }
    Ok(total)
}

/// Splits `total` over `parts`, which are in atoms, by largest remainder. Every part gets its floor. The
/// remaining atoms go to the parts with the largest fractions, one atom to each part. In a tie, the earlier
/// part comes first. The shares sum to `total`.
///
/// The sum of the floors must equal `total` or be at most `parts.len()` atoms below it. This holds if the
/// parts sum to the number from which `total` was rounded. The floors are below that sum by less than one
/// atom for each part, and rounding moves it by at most half an atom.
///
/// # Errors
/// If a part has more than 38 digits, or if the number of remaining atoms is negative or above the number of
/// parts.
pub(crate) fn largest_remainder(
    total: Decimal12,
    parts: &[&Fraction],
) -> Result<Vec<Decimal12>, EngineError> {
    let mut shares = Vec::with_capacity(parts.len());
    let mut rests = Vec::with_capacity(parts.len());
    for part in parts {
        let (floor, rest) = (&part.numerator).div_rem(&part.denominator);
        shares.push(decimal(floor)?);
        rests.push(rest);
    }
    let floors = sum(shares.iter().copied())?;
    let left = total.checked_sub(floors).and_then(|left| usize::try_from(left.atoms()).ok());
    let Some(left) = left.filter(|left| *left <= parts.len()) else {
        let count = parts.len();
        let text = format!(
            "{total} minus {floors}, the floors of its {count} parts, is not between 0 and {count} atoms"
        );
        return Err(EngineError::Conservation(text));
    };
    if left > 0 {
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by(|&a, &b| compare_rests((&rests[b], parts[b]), (&rests[a], parts[a])).then(a.cmp(&b)));
        for index in order.into_iter().take(left) {
            // The share is at most `total`, so it still has 38 digits.
            shares[index] = Decimal12::from_atoms(shares[index].atoms() + 1);
        }
    }
    Ok(shares)
}

/// Divides an amount over parts by their weights, by largest remainder. An amount below zero divides as its
/// magnitude does. If all weights are zero, the first part takes everything.
///
/// # Errors
/// If a part has more than 38 digits, or there is an amount and no part.
pub(crate) fn divide(amount: Decimal12, weights: &[&Fraction]) -> Result<Vec<Decimal12>, EngineError> {
    if amount == Decimal12::ZERO {
        return Ok(vec![Decimal12::ZERO; weights.len()]);
    }
    let magnitude = Decimal12::from_atoms(amount.atoms().saturating_abs());
    let whole = sum_of_weights(weights);
    let parts: Vec<Fraction> = if whole.is_zero() {
        let part =
            |index| if index == 0 { Fraction::new(atoms(magnitude), UBig::ONE) } else { Fraction::zero() };
        (0..weights.len()).map(part).collect()
    } else {
        let numerator = atoms(magnitude) * &whole.denominator;
        let part = |weight: &&Fraction| {
            Fraction::new(&weight.numerator * &numerator, &weight.denominator * &whole.numerator)
        };
        weights.iter().map(part).collect()
    };
    let mut shares = largest_remainder(magnitude, &parts.iter().collect::<Vec<_>>())?;
    if amount.is_negative() {
        shares.iter_mut().for_each(|share| *share = Decimal12::from_atoms(-share.atoms()));
    }
    Ok(shares)
}

/// Returns the sum of weights. Weights that share a denominator are added without a common multiple.
fn sum_of_weights(weights: &[&Fraction]) -> Fraction {
    let Some(first) = weights.first() else { return Fraction::zero() };
    if weights.iter().all(|weight| weight.denominator == first.denominator) {
        let numerator = weights.iter().map(|weight| &weight.numerator).sum();
        return Fraction::new(numerator, first.denominator.clone());
    }
    let weights: Vec<Fraction> = weights.iter().map(|weight| (*weight).clone()).collect();
    sum_of(&weights)
}

/// Returns the difference of two decimals.
///
/// # Errors
/// If it has more than 38 digits.
pub(crate) fn difference(from: Decimal12, value: Decimal12) -> Result<Decimal12, EngineError> {
    let difference = from.checked_sub(value).filter(|difference| difference.atoms().abs() < ATOMS_LIMIT);
    difference.ok_or_else(|| EngineError::Range(format!("({} - {})", from.atoms(), value.atoms())))
}

/// Compares two fractional parts exactly.
fn compare_rests(a: (&UBig, &Fraction), b: (&UBig, &Fraction)) -> Ordering {
    if a.1.denominator == b.1.denominator {
        a.0.cmp(b.0)
    } else {
        (a.0 * &b.1.denominator).cmp(&(b.0 * &a.1.denominator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fraction(numerator: u64, denominator: u64) -> Fraction {
        Fraction::new(UBig::from(numerator), UBig::from(denominator))
    }

    fn split(total: i128, parts: &[Fraction]) -> Vec<i128> {
        let shares =
            largest_remainder(Decimal12::from_atoms(total), &parts.iter().collect::<Vec<_>>()).unwrap();
        shares.into_iter().map(Decimal12::atoms).collect()
    }

    #[test]
    fn halves_round_to_even() {
        for (halves, expected) in [(1_u8, 0_i128), (3, 2), (5, 2), (7, 4)] {
            let value = ratio(UBig::from(halves), UBig::from(2_u8) * ATOMS_IN_ONE);
            assert_eq!(round(&value).unwrap().atoms(), expected);
            assert_eq!(round(&-value).unwrap().atoms(), -expected);
        }
    }

    #[test]
    fn a_quotient_rounds_the_same_within_128_bits_and_past_them() {
        for numerator in [0_u128, 1, 2, 3, 5, 7, 1 << 40, u128::MAX / ONE.unsigned_abs(), u128::MAX >> 4] {
            for denominator in [1_u128, 2, 6, 8 * ONE.unsigned_abs(), 3_600_000_000_000] {
                let numerator = UBig::from(numerator);
                let wide = Fraction::new(numerator.clone(), UBig::from(denominator)).round();
                let narrow = round_quotient(&numerator, denominator);
                assert_eq!(
                    narrow.map_err(|error| error.to_string()),
                    wide.map_err(|error| error.to_string())
                );
            }
        }
    }

    #[test]
    fn a_sum_rounds_as_the_exact_sum_does_even_next_to_a_half() {
        // Sums that equal one half, and sums that differ from it by less than the bounds can show.
        let tiny = |numerator: u8| Fraction::new(UBig::from(numerator), UBig::ONE << 200);
        let half = [fraction(1, 3), fraction(1, 7), fraction(1, 42)];
        let less =
            [fraction(1, 3), fraction(1, 6), Fraction::new((UBig::ONE << 200) - UBig::ONE, UBig::ONE << 200)];
        let more = [fraction(1, 3), fraction(1, 6), tiny(1)];
        let sums = [(half.to_vec(), 0), (less.to_vec(), 1), (more.to_vec(), 1), (Vec::new(), 0)];
        for (fractions, expected) in sums {
            assert_eq!(round_sum(&fractions).unwrap().atoms(), expected, "{fractions:?}");
        }
        let two_halves = [half.to_vec(), vec![fraction(1, 1)]].concat();
        assert_eq!(round_sum(&two_halves).unwrap().atoms(), 2, "half to even");
        let many: Vec<Fraction> =
            (1..500).map(|number| fraction(number * 7919, number * number + 3)).collect();
        assert_eq!(round_sum(&many).unwrap(), Fraction::of(&exact_sum(&many)).round_atoms().unwrap());
        assert_eq!(exact_sum(&many), many.iter().fold(RBig::ZERO, |sum, part| sum + part.reduced()));
    }

    #[test]
    fn a_ratio_over_zero_is_zero() {
        assert_eq!(ratio(UBig::from(7_u8), UBig::ZERO), RBig::ZERO);
    }

    #[test]
    fn largest_remainder_gives_ties_to_the_earlier_part() {
        assert_eq!(split(1, &[fraction(1, 3), fraction(2, 6), fraction(1, 3)]), [1, 0, 0]);
    }

    #[test]
    fn largest_remainder_compares_across_denominators() {
        assert_eq!(split(2, &[fraction(1, 2), fraction(5, 9), fraction(17, 18)]), [0, 1, 1]);
    }

    #[test]
    fn largest_remainder_gives_each_part_at_most_one_atom() {
        let parts = [fraction(1, 1), fraction(3, 2)];
        assert_eq!(split(2, &parts), [1, 1]);
        assert_eq!(split(4, &parts), [2, 2]);
        for total in [-1, 1, 5] {
            let error = largest_remainder(Decimal12::from_atoms(total), &parts.each_ref()).unwrap_err();
            assert!(error.to_string().ends_with("is not between 0 and 2 atoms"), "{error}");
        }
        assert_eq!(split(0, &[]), [0_i128; 0]);
    }

    #[test]
    fn thirty_nine_digits_are_an_error_and_never_a_panic() {
        let most = 10_u128.pow(38) - 1;
        assert!(decimal(UBig::from(most)).is_ok());
        assert!(matches!(decimal(UBig::from(most + 1)), Err(EngineError::Range(_))));
        assert!(seconds(u128::MAX).is_err());
        assert!(round(&RBig::from(UBig::from(most))).is_err());
        let past = RBig::from(UBig::from(most));
        assert_eq!(round_estimate(&past).atoms(), most as i128);
        assert_eq!(round_estimate(&-past).atoms(), -(most as i128));
        let dear = decimal(UBig::from(most)).unwrap();
        assert_eq!(sum([dear]).unwrap(), dear);
        assert!(sum([dear, Decimal12::from_atoms(1)]).is_err());
        assert!(sum([dear, dear]).is_err());
        let part = Fraction::new(UBig::from(most), UBig::ONE);
        for parts in [vec![&part; 2], vec![&part; 9]] {
            assert!(matches!(largest_remainder(dear, &parts), Err(EngineError::Range(_))));
        }
    }
}
