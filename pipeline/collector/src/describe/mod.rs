//! The description of one object, before it is compared with the announced description.

mod billed;
pub(crate) mod devices;
pub(crate) mod node;
pub(crate) mod pod;
pub mod requests;
pub(crate) mod sets;
pub(crate) mod volumes;
mod workload;

use prorata_schemas::money::UnitPrice;

pub(crate) use crate::object::quantities::add;

/// Parses a price as TensorFusion and people write it: a decimal, optionally after `$`. Returns `None` if it
/// is negative, or not a decimal of at most 28 digits, 12 of them after the point.
pub(crate) fn price(text: &str) -> Option<UnitPrice> {
    let price: UnitPrice = text.trim().trim_start_matches('$').parse().ok()?;
    (price >= UnitPrice::ZERO).then_some(price)
}
