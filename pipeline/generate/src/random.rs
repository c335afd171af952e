//! Random draws: chances, choices, durations and ids.

use prorata_schemas::ids::PodUid;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Returns `true` with a probability of `per_million` in a million.
pub fn chance(rng: &mut ChaCha8Rng, per_million: u32) -> bool {
    rng.random_range(0..1_000_000_u32) < per_million
}

/// Picks one of the choices; `None` if there are none.
pub fn pick<'a, T>(rng: &mut ChaCha8Rng, choices: &'a [T]) -> Option<&'a T> {
    let count = u64::try_from(choices.len()).unwrap_or(u64::MAX);
    if count == 0 {
        return None;
    }
    choices.get(usize::try_from(rng.random_range(0..count)).unwrap_or(0))
}

/// Draws a duration in microseconds evenly from `low..=high`.
pub fn span(rng: &mut ChaCha8Rng, low: i64, high: i64) -> i64 {
    rng.random_range(low..=high.max(low))
}

/// Returns a random id in the form of a Kubernetes uid (UUID version 4).
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

/// Returns five characters, as Kubernetes appends them to generated names.
pub fn suffix(rng: &mut ChaCha8Rng) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).filter_map(|_| pick(rng, LETTERS)).map(|&letter| char::from(letter)).collect()
}
