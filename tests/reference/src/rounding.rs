//! Exact numbers, and the two ways in which they become decimals: half to even, and by largest remainder.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};
use prorata_schemas::decimal::{Decimal12, ONE};

/// An exact rational number: every amount, price and duration before it is written.
pub type Exact = BigRational;

/// Returns a whole number.
pub fn whole(number: impl Into<BigInt>) -> Exact {
    Exact::from_integer(number.into())
}

/// Returns `numerator / denominator`. The denominator must not be zero.
pub fn ratio(numerator: impl Into<BigInt>, denominator: impl Into<BigInt>) -> Exact {
    Exact::new(numerator.into(), denominator.into())
}

/// Returns zero.
pub fn zero() -> Exact {
    Exact::zero()
}

/// Returns the exact value of a decimal.
pub fn exact(value: impl Into<Decimal12>) -> Exact {
    ratio(value.into().atoms(), ONE)
}

/// Returns `part / of`, or zero if `of` is zero.
pub fn fraction(part: &Exact, of: &Exact) -> Exact {
    if of.is_zero() { zero() } else { part / of }
}

/// Converts whole microseconds to hours.
pub fn hours(micros: i64) -> Exact {
    ratio(micros, prorata_schemas::time::HOUR_MICROS)
}

/// Returns the larger of the two.
pub fn larger(left: Exact, right: Exact) -> Exact {
    if left >= right { left } else { right }
}

/// Returns the smaller of the two.
pub fn smaller(left: Exact, right: Exact) -> Exact {
    if left <= right { left } else { right }
}

/// Returns the nearest whole number. A half goes to the even neighbour.
pub fn nearest(value: &Exact) -> BigInt {
    let below = value.floor().to_integer();
    let rest = value - Exact::from_integer(below.clone());
    let half = ratio(1, 2);
    let odd = (&below % 2_i32).abs() == BigInt::from(1);
    if rest > half || (rest == half && odd) { below + 1 } else { below }
}

/// Rounds to 12 decimals, half to even.
pub fn half_even(value: &Exact) -> Decimal12 {
    decimal(&nearest(&(value * whole(ONE))))
}

/// Rounds an estimate like everything else. An estimate of more than 38 digits becomes the largest number of
/// a column, with the same sign.
pub fn estimate(value: &Exact) -> Decimal12 {
    let last = ratio(BigInt::from(10_i32).pow(38) - 1, ONE);
    half_even(&smaller(larger(value.clone(), -last.clone()), last))
}

/// Splits a rounded charge over its exact parts. Each part is rounded down, and the remaining units of the
/// last place go to the largest remainders. In a tie, the earlier part comes first. A charge below zero is
/// split as its magnitude is.
pub fn largest_remainder(charge: Decimal12, parts: &[Exact]) -> Vec<Decimal12> {
    let sign = if parts.iter().any(Signed::is_negative) { -1 } else { 1 };
    let scaled: Vec<Exact> = parts.iter().map(|part| part.abs() * whole(ONE)).collect();
    let mut units: Vec<BigInt> = scaled.iter().map(|part| part.floor().to_integer()).collect();
    let left = BigInt::from(charge.atoms() * sign) - units.iter().sum::<BigInt>();
    assert!(!left.is_negative() && left <= BigInt::from(parts.len()), "a charge is not the sum of its parts");
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|&left, &right| scaled[right].fract().cmp(&scaled[left].fract()).then(left.cmp(&right)));
    for &index in order.iter().take(left.to_usize().unwrap_or(0)) {
        units[index] += 1;
    }
    units.into_iter().map(|units| decimal(&(units * sign))).collect()
}

/// Converts a number of units of the last place to a decimal.
fn decimal(units: &BigInt) -> Decimal12 {
    let units = units.to_i128();
    assert!(units.is_some(), "an amount passes 128 bits");
    Decimal12::from_atoms(units.unwrap_or_default())
}
