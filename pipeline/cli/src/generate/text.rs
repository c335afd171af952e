//! Small words of the generator: quantities as people write them, ids as clouds give them, chances in millionths.

use prorata_schemas::event::Quantities;
use prorata_schemas::ids::PodUid;
use prorata_schemas::quantity::{Quantity, counts_bytes};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Microseconds in one second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds in one minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Microseconds in one hour.
pub const HOUR: i64 = 60 * MINUTE;
/// Bytes in one MiB.
const MIB: u64 = 1 << 20;

/// Whether something happens that happens `millionths` times in a million.
pub fn chance(rng: &mut ChaCha8Rng, millionths: u32) -> bool {
    rng.random_range(0..1_000_000_u32) < millionths
}

/// One of the choices; `None` only when there is none.
pub fn pick<'a, T>(rng: &mut ChaCha8Rng, choices: &'a [T]) -> Option<&'a T> {
    let count = u64::try_from(choices.len()).unwrap_or(u64::MAX);
    if count == 0 {
        return None;
    }
    choices.get(usize::try_from(rng.random_range(0..count)).unwrap_or(0))
}

/// A span drawn evenly from `low..=high`, in microseconds.
pub fn span(rng: &mut ChaCha8Rng, low: i64, high: i64) -> i64 {
    rng.random_range(low..=high.max(low))
}

/// A random id of the form of a Kubernetes uid.
pub fn uid(rng: &mut ChaCha8Rng) -> PodUid {
    let (high, low): (u64, u64) = (rng.random(), rng.random());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
    .into()
}

/// Five characters as Kubernetes hangs them on a generated name.
pub fn suffix(rng: &mut ChaCha8Rng) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).filter_map(|_| pick(rng, LETTERS)).map(|&letter| char::from(letter)).collect()
}

/// Adds thousandths of a unit, such as vCPU or whole GPUs.
pub fn put_millis(quantities: &mut Quantities, resource: &str, millis: u64) {
    let text = if millis.is_multiple_of(1000) { (millis / 1000).to_string() } else { format!("{millis}m") };
    put(quantities, resource, &text, millis);
}

/// Adds an amount of bytes given in MiB.
pub fn put_mib(quantities: &mut Quantities, resource: &str, mib: u64) {
    let text = if mib.is_multiple_of(1024) { format!("{}Gi", mib / 1024) } else { format!("{mib}Mi") };
    put(quantities, resource, &text, mib * MIB);
}

/// Adds a quantity as it is written, with the amount that the text stands for: bytes or thousandths.
pub fn put(quantities: &mut Quantities, resource: &str, text: &str, amount: u64) {
    quantities.insert(resource.into(), Quantity { text: text.into(), amount: u128::from(amount) });
}

/// Adds vCPU in one of the forms that people write them in.
pub fn put_cpu_as_written(rng: &mut ChaCha8Rng, quantities: &mut Quantities, resource: &str, millis: u64) {
    debug_assert!(!counts_bytes(resource));
    match rng.random_range(0..8_u32) {
        0 => put(quantities, resource, &format!("{}.{:03}", millis / 1000, millis % 1000), millis),
        1 if millis.is_multiple_of(100) => {
            put(quantities, resource, &format!("{}e-1", millis / 100), millis);
        }
        2 => put(quantities, resource, &format!("{millis}m"), millis),
        _ => put_millis(quantities, resource, millis),
    }
}

/// Adds memory in one of the forms that people write it in.
pub fn put_memory_as_written(rng: &mut ChaCha8Rng, quantities: &mut Quantities, resource: &str, mib: u64) {
    debug_assert!(counts_bytes(resource));
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
