//! Exact numbers of a trace, as they are printed and as they are stored.

use std::fmt;
use std::ops::{Add, Mul};

use dashu_int::{IBig, UBig};
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::exact::{ATOMS_IN_ONE, Fraction, HOUR_MICROS, atoms, ratio, round_estimate};
use crate::model::per_resource::{PARTS_PER_UNIT, PerResource};
use crate::model::slices::COVERAGE_SCALE;
use crate::model::spec::Amounts;

/// An exact number. It prints with at most twelve decimals, rounded half to even, and with a leading `≈` if
/// rounding changes it. It serializes as this text, or as `{rounded, exact}` with the fraction.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExactNumber(RBig);

impl ExactNumber {
    /// Converts a plain number.
    pub(crate) const fn new(value: RBig) -> Self {
        Self(value)
    }

    /// Converts a number of atoms.
    pub(crate) fn of_atoms(value: RBig) -> Self {
        Self(value / RBig::from(ATOMS_IN_ONE))
    }

    /// Converts a number of atoms that is not reduced yet.
    pub(crate) fn of_fraction(value: &Fraction) -> Self {
        Self::of_atoms(ratio(value.numerator.clone(), value.denominator.clone()))
    }

    /// Converts a price, ratio or amount of money.
    pub(crate) fn of_decimal<D: Into<Decimal12>>(value: D) -> Self {
        Self::of_atoms(RBig::from(atoms(value)))
    }

    /// Divides a whole number by another.
    pub(crate) fn over(numerator: u128, denominator: u128) -> Self {
        Self(ratio(UBig::from(numerator), UBig::from(denominator)))
    }

    /// Returns the product with a plain number.
    pub(crate) fn times(&self, factor: &RBig) -> Self {
        Self(&self.0 * factor)
    }

    /// Returns this number with twelve decimals, rounded half to even.
    pub fn rounded(&self) -> Decimal12 {
        round_estimate(&self.0)
    }

    /// Returns whether twelve decimals represent the number exactly.
    pub fn is_decimal(&self) -> bool {
        (&self.0 * RBig::from(ATOMS_IN_ONE)).denominator() == &UBig::ONE
    }

    /// Returns whether the number is zero.
    pub fn is_zero(&self) -> bool {
        self.0 == RBig::ZERO
    }

    /// Returns whether the number is exactly this decimal.
    pub fn is(&self, decimal: Decimal12) -> bool {
        &self.0 * RBig::from(ATOMS_IN_ONE) == RBig::from(IBig::from(decimal.atoms()))
    }
}

impl Add<&Self> for ExactNumber {
    type Output = Self;

    fn add(self, other: &Self) -> Self {
        Self(self.0 + &other.0)
    }
}

impl Mul<&Self> for ExactNumber {
    type Output = Self;

    fn mul(self, other: &Self) -> Self {
        Self(self.0 * &other.0)
    }
}

impl fmt::Display for ExactNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_decimal() { "" } else { "≈" };
        f.pad(&format!("{sign}{}", self.rounded()))
    }
}

impl Serialize for ExactNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_decimal() {
            return serializer.collect_str(&self.rounded());
        }
        let mut both = serializer.serialize_struct("ExactNumber", 2)?;
        both.serialize_field("rounded", &self.rounded().to_string())?;
        both.serialize_field("exact", &self.0.to_string())?;
        both.end()
    }
}

/// Converts amounts at an instant to vCPUs, GiB and GPUs.
pub(crate) fn in_units(amounts: &Amounts) -> PerResource<ExactNumber> {
    amounts.zip(PARTS_PER_UNIT).map(|(amount, parts)| ExactNumber::over(amount, u128::from(parts)))
}

/// Converts amounts in the scale of coverage to vCPUs, GiB and GPUs.
pub(crate) fn covered_units(amounts: PerResource<RBig>) -> PerResource<ExactNumber> {
    amounts.zip(PARTS_PER_UNIT).map(|(amount, parts)| {
        let units = RBig::from(COVERAGE_SCALE * UBig::from(parts));
        ExactNumber(amount / units)
    })
}

/// Converts amounts times microseconds to vCPU-hours, GiB-hours and GPU-hours.
pub(crate) fn in_hours(amounts: &PerResource<UBig>) -> PerResource<ExactNumber> {
    let pairs = amounts.as_ref().zip(PARTS_PER_UNIT);
    pairs.map(|(amount, parts)| {
        ExactNumber(ratio(amount.clone(), UBig::from(parts) * UBig::from(HOUR_MICROS)))
    })
}

/// Converts plain numbers by resource.
pub(crate) fn exact(values: &PerResource<RBig>) -> PerResource<ExactNumber> {
    values.as_ref().map(|value| ExactNumber(value.clone()))
}

/// Converts numbers of atoms by resource.
pub(crate) fn money(values: &PerResource<RBig>) -> PerResource<ExactNumber> {
    values.as_ref().map(|value| ExactNumber::of_atoms(value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_says_whether_its_decimals_are_all_of_it() {
        let quarter = ExactNumber::over(1, 4);
        assert_eq!((quarter.to_string().as_str(), quarter.is_decimal()), ("0.25", true));
        let third = ExactNumber::over(1, 3);
        assert_eq!(third.to_string(), "≈0.333333333333");
        assert!(quarter.is("0.25".parse().unwrap()) && !third.is(third.rounded()));
        assert_eq!(third.clone() + &third, ExactNumber::over(2, 3));
    }
}
