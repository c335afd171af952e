//! What one object says, before it is compared with what was announced.

pub(crate) mod devices;
pub(crate) mod node;
pub(crate) mod pod;
mod quantities;
pub mod requests;
pub(crate) mod sets;
mod workload;

use prorata_schemas::money::UnitPrice;

pub(crate) use quantities::add;

/// A price as TensorFusion and people write it: a decimal, perhaps with `$` before it. None where it is no
/// decimal of 28 digits, 12 behind the point, or is negative.
pub(crate) fn price(text: &str) -> Option<UnitPrice> {
    let price: UnitPrice = text.trim().trim_start_matches('$').parse().ok()?;
    (price >= UnitPrice::ZERO).then_some(price)
}
