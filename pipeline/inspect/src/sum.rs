//! Exact sums of amounts.

use std::fmt;

use prorata_schemas::decimal::Decimal12;

/// A sum of amounts in units of 10^-12. A sum that has exceeded 38 digits stays without an amount, so no
/// amount is ever wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum(Option<Decimal12>);

impl Default for Sum {
    fn default() -> Self {
        Self(Some(Decimal12::from_int(0)))
    }
}

impl From<Decimal12> for Sum {
    fn from(amount: Decimal12) -> Self {
        Self(Some(amount))
    }
}

impl Sum {
    /// Returns the amount, or `None` beyond 38 digits.
    pub const fn amount(self) -> Option<Decimal12> {
        self.0
    }

    /// Returns whether the sum is exactly zero.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Creates a sum from an amount, or from `None` if the amount had too many digits.
    pub const fn checked(amount: Option<Decimal12>) -> Self {
        Self(amount)
    }

    /// Returns a thousandth of the sum, rounded towards zero.
    #[must_use]
    pub fn divided_by_thousand(self) -> Self {
        Self(self.0.map(|amount| Decimal12::from_atoms(amount.atoms() / 1_000)))
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: impl Into<Self>) -> Self {
        Self(self.0.zip(other.into().0).and_then(|(left, right)| left.checked_add(right)))
    }

    /// Returns this sum minus the other.
    #[must_use]
    pub fn minus(self, other: impl Into<Self>) -> Self {
        Self(self.0.zip(other.into().0).and_then(|(left, right)| left.checked_sub(right)))
    }

    /// Adds an amount.
    pub fn add(&mut self, amount: impl Into<Self>) {
        *self = self.plus(amount);
    }

    /// Returns the absolute value, for ordering. A sum with too many digits is the greatest.
    pub fn magnitude(self) -> u128 {
        self.0.map_or(u128::MAX, |amount| amount.atoms().unsigned_abs())
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(amount) => amount.fmt(f),
            None => f.write_str("more than 38 digits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_and_never_wrap_around() {
        let cent: Decimal12 = "0.000000000001".parse().unwrap();
        let mut sum = Sum::default();
        (0..3).for_each(|_| sum.add(cent));
        assert_eq!(sum.to_string(), "0.000000000003");
        assert!(sum.minus(sum).is_zero());
        let most = Sum::from(Decimal12::from_atoms(i128::MAX));
        assert_eq!(most.plus(cent).amount(), None);
        assert_eq!(most.plus(cent).minus(most).amount(), None, "what was once too large stays unknown");
        assert_eq!(most.plus(cent).to_string(), "more than 38 digits");
    }
}
