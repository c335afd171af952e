//! Sharing of values that many events and a stored state repeat: most pods of an organization have the same
//! cluster, labels and quantities.
//!
//! `texts` and `maps` are small caches. The reader of bodies and the reader of states (`shared`) look a value
//! up before they create another one.

mod by_name;
mod maps;
pub(crate) mod shared;
mod texts;

use std::cell::RefCell;

pub use by_name::ByName;
pub(crate) use maps::Maps;
pub use shared::restart_sharing;
pub(crate) use texts::Names;

thread_local! {
    /// The caches of this thread. While the thread reads, no other thread counts references to the cached
    /// values.
    pub(crate) static NAMES: RefCell<Names> = const { RefCell::new(Names::new()) };
}

/// Returns a hash that spreads texts over slots. The quality of the hash affects only speed.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut words = bytes.chunks_exact(8);
    let mut hash = seed ^ bytes.len() as u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    for word in &mut words {
        mix(word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
    }
    mix(words.remainder().iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    hash
}
