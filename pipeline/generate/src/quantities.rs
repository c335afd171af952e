//! Kubernetes quantities, in the many forms in which people write them.

use prorata_schemas::event::Quantities;
use prorata_schemas::quantity::{AmountUnit, Quantity};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Bytes in one MiB.
const MIB: u64 = 1 << 20;

/// Adds thousandths of a unit, such as vCPU or whole GPUs.
pub fn put_millis(quantities: &mut Quantities, resource: &str, millis: u64) {
    let text = if millis.is_multiple_of(1000) { (millis / 1000).to_string() } else { format!("{millis}m") };
    put(quantities, resource, &text, millis);
}

/// Adds an amount of bytes, given in MiB.
pub fn put_mib(quantities: &mut Quantities, resource: &str, mib: u64) {
    let text = if mib.is_multiple_of(1024) { format!("{}Gi", mib / 1024) } else { format!("{mib}Mi") };
    put(quantities, resource, &text, mib * MIB);
}

/// Adds a quantity with this text. `amount` is the value of the text: bytes or thousandths.
fn put(quantities: &mut Quantities, resource: &str, text: &str, amount: u64) {
    quantities.insert(resource.into(), Quantity { text: text.into(), amount: u128::from(amount) });
}

/// Adds vCPU in one of the forms that people use.
pub fn put_cpu_as_written(rng: &mut ChaCha8Rng, quantities: &mut Quantities, resource: &str, millis: u64) {
    debug_assert_eq!(AmountUnit::of(resource), AmountUnit::Thousandths);
    match rng.random_range(0..8_u32) {
        0 => put(quantities, resource, &format!("{}.{:03}", millis / 1000, millis % 1000), millis),
        1 if millis.is_multiple_of(100) => {
            put(quantities, resource, &format!("{}e-1", millis / 100), millis);
        }
        2 => put(quantities, resource, &format!("{millis}m"), millis),
        _ => put_millis(quantities, resource, millis),
    }
}

/// Adds memory in one of the forms that people use.
pub fn put_memory_as_written(rng: &mut ChaCha8Rng, quantities: &mut Quantities, resource: &str, mib: u64) {
    debug_assert_eq!(AmountUnit::of(resource), AmountUnit::Bytes);
    match rng.random_range(0..8_u32) {
        0 => put(quantities, resource, &(mib * MIB).to_string(), mib * MIB),
        1 if mib.is_multiple_of(512) => {
            let tenths = if mib.is_multiple_of(1024) { 0 } else { 5 };
            put(quantities, resource, &format!("{}.{tenths}Gi", mib / 1024), mib * MIB);
        }
        2 => put(quantities, resource, &format!("{}Ki", mib * 1024), mib * MIB),
        3 => put(quantities, resource, &format!("{mib}M"), mib * 1_000_000),
        _ => put_mib(quantities, resource, mib),
    }
}
