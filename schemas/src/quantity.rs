//! Kubernetes quantities: the text as delivered, and its amount. The amount is a whole number of the
//! resource's [`AmountUnit`], rounded up as in Kubernetes (`k8s.io/apimachinery`, `resource.Quantity`).

use serde::Serialize;

use crate::Text;
use crate::reject::excerpt;

/// Resource name of CPU time.
pub const CPU: &str = "cpu";
/// Resource name of memory.
pub const MEMORY: &str = "memory";
/// Resource name of local disk.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Resource name of NVIDIA GPUs.
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
/// Resource name of FP16 TFLOPs, per GPU.
pub const TFLOPS: &str = "tensor-fusion.ai/tflops";
/// Resource name of VRAM, per GPU.
pub const VRAM: &str = "tensor-fusion.ai/vram";
/// Resource name of GPU memory in GB, computed by the engine and never read from requests.
pub const GPU_MEMORY: &str = "nos.nebuly.com/gpu-memory";

/// Largest quantity, as in Kubernetes: 2^63 - 1 of the resource's own unit, such as bytes, vCPUs or GPUs.
pub const QUANTITY_MAX: u128 = i64::MAX as u128;

/// The unit in which amounts of a resource are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmountUnit {
    /// Bytes: memory, ephemeral storage, VRAM.
    Bytes,
    /// Thousandths of the resource's own unit: of a vCPU, a GPU, a TFLOP.
    Thousandths,
}

impl AmountUnit {
    /// Returns the unit of a resource's amounts.
    pub fn of(resource: &str) -> Self {
        match resource {
            MEMORY | EPHEMERAL_STORAGE | VRAM => Self::Bytes,
            _ => Self::Thousandths,
        }
    }

    /// Returns the number of these units in a quantity of 1.
    pub const fn per_one(self) -> u32 {
        10_u32.pow(self.decimals())
    }

    /// Returns how many decimals of a quantity its amount keeps.
    const fn decimals(self) -> u32 {
        match self {
            Self::Bytes => 0,
            Self::Thousandths => 3,
        }
    }
}

/// A quantity as delivered, with its amount; never negative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Quantity {
    /// The text as the producer wrote it; part of the canonical body.
    pub text: Text,
    /// A whole number of the resource's [`AmountUnit`], rounded up.
    pub amount: u128,
}

/// The reason that a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not have the form that Kubernetes defines.
    #[error("'{0}' is not a Kubernetes quantity such as 500m, 16, 100Gi or 1e3")]
    Syntax(String),
    /// The number is below zero.
    #[error("'{0}' is negative; quantities are zero or more")]
    Negative(String),
    /// The number is above [`QUANTITY_MAX`].
    #[error("'{0}' is above 2^63 - 1 units, the largest Kubernetes quantity")]
    TooLarge(String),
}

impl Quantity {
    /// Parses `text` as a quantity of `resource`: see [`Quantity::amount_of`].
    ///
    /// # Errors
    /// `Syntax`, `Negative` (but "-0" is zero) or `TooLarge`.
    pub fn parse(resource: &str, text: &str) -> Result<Self, QuantityError> {
        Ok(Self { amount: Self::amount_of(resource, text)?, text: text.into() })
    }

    /// Parses `text` as an amount of `resource`. The form is `[+-]digits[.digits][suffix]`. The suffix is one
    /// of `n u m k M G T P E`, `Ki Mi Gi Ti Pi Ei`, or an exponent as in `1e3` and `1E-3`. Digits may be
    /// missing on one side of the point but not on both. `1E` is exa. The cost is linear in the length of the
    /// text, whatever the exponent.
    ///
    /// # Errors
    /// `Syntax`, `Negative` (but "-0" is zero) or `TooLarge`.
    pub fn amount_of(resource: &str, text: &str) -> Result<u128, QuantityError> {
        let number = Number::parse(text).ok_or_else(|| QuantityError::Syntax(excerpt(text)))?;
        let unit = AmountUnit::of(resource);
        let largest = QUANTITY_MAX * u128::from(unit.per_one());
        let amount = number.rounded_up(unit.decimals()).filter(|amount| *amount <= largest);
        match amount {
            Some(0) => Ok(0),
            _ if number.negative => Err(QuantityError::Negative(excerpt(text))),
            Some(amount) => Ok(amount),
            None => Err(QuantityError::TooLarge(excerpt(text))),
        }
    }
}

/// A parsed text: `whole.fraction x 10^exponent x 2^shift`. It has a shift or an exponent, never both.
struct Number<'t> {
    negative: bool,
    whole: &'t [u8],
    fraction: &'t [u8],
    exponent: i64,
    shift: u32,
}

impl<'t> Number<'t> {
    fn parse(text: &'t str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (negative, rest) = match bytes {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, bytes),
        };
        let (whole, rest) = digits(rest);
        let (fraction, suffix) = match rest {
            [b'.', rest @ ..] => digits(rest),
            _ => (&[][..], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (exponent, shift) = scale_of(suffix)?;
        Some(Self { negative, whole: without_leading_zeros(whole), fraction, exponent, shift })
    }

    /// Returns the magnitude in units of 10^-places, rounded up; `None` if it exceeds 128 bits.
    fn rounded_up(&self, places: u32) -> Option<u128> {
        let point = i128::from(self.exponent) + i128::from(places);
        let digits = || self.whole.iter().chain(self.fraction).copied();
        // Counts from the first digit that is not zero, so that "0.000...1e5" is as cheap as "1".
        let Some(leading) = digits().position(|digit| digit != b'0') else { return Some(0) };
        let whole_digits = self.whole.len() as i128 + point - leading as i128;
        if whole_digits > 38 {
            return None;
        }
        let mut whole = 0u128;
        for index in 0..whole_digits.max(0) as usize {
            let digit = digits().nth(leading + index).unwrap_or(b'0');
            whole = whole.checked_mul(10)?.checked_add(u128::from(digit - b'0'))?;
        }
        let mut rest = digits().skip(leading + whole_digits.max(0) as usize);
        let whole = whole.checked_mul(1 << self.shift)?;
        if self.shift == 0 {
            return whole.checked_add(rest.any(|digit| digit != b'0').into());
        }
        // With a shift there is no exponent. So the only zeros after the point are the zeros that `leading`
        // skipped.
        let zeros = usize::try_from(-whole_digits.min(0)).ok()?;
        let tail: Vec<u8> = std::iter::repeat_n(b'0', zeros).chain(rest).collect();
        whole.checked_add(shifted_up(&tail, self.shift))
    }
}

/// Returns `0.<digits> x 2^shift`, rounded up, by long multiplication from the last digit.
fn shifted_up(digits: &[u8], shift: u32) -> u128 {
    let mut carry = 0u128;
    let mut exact = true;
    for digit in digits.iter().rev() {
        carry += u128::from(digit - b'0') << shift;
        exact &= carry.is_multiple_of(10);
        carry /= 10;
    }
    carry + u128::from(!exact)
}

/// Returns the decimal exponent and the binary shift of a suffix; `None` if it is not a valid suffix.
fn scale_of(suffix: &[u8]) -> Option<(i64, u32)> {
    Some(match suffix {
        b"" => (0, 0),
        b"n" => (-9, 0),
        b"u" => (-6, 0),
        b"m" => (-3, 0),
        b"k" => (3, 0),
        b"M" => (6, 0),
        b"G" => (9, 0),
        b"T" => (12, 0),
        b"P" => (15, 0),
        b"E" => (18, 0),
        b"Ki" => (0, 10),
        b"Mi" => (0, 20),
        b"Gi" => (0, 30),
        b"Ti" => (0, 40),
        b"Pi" => (0, 50),
        b"Ei" => (0, 60),
        [b'e' | b'E', exponent @ ..] => (std::str::from_utf8(exponent).ok()?.parse().ok()?, 0),
        _ => return None,
    })
}

fn digits(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len());
    bytes.split_at(end)
}

fn without_leading_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    digits.get(zeros..).unwrap_or_default()
}
