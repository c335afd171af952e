//! Exact numbers of zero or more. Every operation is checked: labels and annotations may hold any number.

/// A number of zero or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratio {
    over: u128,
    under: u128,
}

impl Ratio {
    pub const ZERO: Self = Self { over: 0, under: 1 };
    pub const ONE: Self = Self { over: 1, under: 1 };

    pub const fn whole(number: u128) -> Self {
        Self { over: number, under: 1 }
    }

    /// Returns a quotient in lowest terms; `None` if `under` is 0.
    pub fn new(over: u128, under: u128) -> Option<Self> {
        let (mut a, mut b) = (over, under);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Some(Self { over: over.checked_div(a)?, under: under.checked_div(a)? })
            .filter(|ratio| ratio.under > 0)
    }

    /// Parses a plain decimal of at most twelve digits on each side of the point.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.starts_with('-') {
            return Err("is negative");
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) {
            return Err("is not a number such as 4 or 0.5");
        }
        let under = 10_u128.pow(fraction.len() as u32);
        let over = format!("{whole}{fraction}").parse().ok();
        over.and_then(|over| Self::new(over, under)).ok_or("is not a number such as 4 or 0.5")
    }

    pub fn times(self, other: Self) -> Option<Self> {
        Self::new(self.over.checked_mul(other.over)?, self.under.checked_mul(other.under)?)
    }

    pub fn divided(self, other: Self) -> Option<Self> {
        Self::new(self.over.checked_mul(other.under)?, self.under.checked_mul(other.over)?)
    }

    pub fn plus(self, other: Self) -> Option<Self> {
        let left = self.over.checked_mul(other.under)?;
        let over = left.checked_add(other.over.checked_mul(self.under)?)?;
        Self::new(over, self.under.checked_mul(other.under)?)
    }

    /// Returns the larger of two numbers. `None` if they cannot be compared within 128 bits.
    pub fn larger(self, other: Self) -> Option<Self> {
        Some(if self.exceeds(other)? { self } else { other })
    }

    pub fn exceeds(self, other: Self) -> Option<bool> {
        Some(self.over.checked_mul(other.under)? > other.over.checked_mul(self.under)?)
    }

    pub fn ceiling(self) -> u128 {
        self.over.div_ceil(self.under)
    }

    /// Returns thousandths, rounded down so that parts never exceed their card; at least 1 if the number is
    /// positive. Returns `None` if the number is too large.
    pub fn thousandths(self) -> Option<u128> {
        let millis = self.over.checked_mul(1000)? / self.under;
        Some(if self.over > 0 { millis.max(1) } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_rounded_down_and_never_to_nothing() {
        let millis = |over, under| Ratio::new(over, under).unwrap().thousandths();
        assert_eq!([millis(1, 3), millis(2, 3), millis(1, 1_000_000)], [Some(333), Some(666), Some(1)]);
        assert_eq!(millis(0, 7), Some(0));
    }

    #[test]
    fn only_plain_decimals_are_numbers() {
        assert_eq!(Ratio::parse("0.25"), Ok(Ratio { over: 1, under: 4 }));
        assert_eq!(Ratio::parse(" 40960 "), Ok(Ratio::whole(40_960)));
        assert_eq!(Ratio::parse("-0.5"), Err("is negative"));
        for text in ["", ".5", "1e3", "4Gi", "0.5.5", "1234567890123", "٣"] {
            assert!(Ratio::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_result_that_does_not_fit_is_none() {
        let large = Ratio::whole(u128::MAX);
        assert_eq!((large.times(large), large.plus(large), large.thousandths()), (None, None, None));
        assert_eq!((Ratio::new(1, 0), Ratio::ONE.divided(Ratio::ZERO)), (None, None));
    }
}
