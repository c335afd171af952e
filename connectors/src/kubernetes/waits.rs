//! Waits between requests to the API server.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Minimum time between two discoveries and minimum life of a watch, in minutes. The maximum is twice as
/// long, so that collectors that started together do not keep asking at the same time.
const MINUTES_MIN: u64 = 5;

/// Returns a random time from five to ten minutes.
pub(super) fn minutes() -> Duration {
    let range = MINUTES_MIN * 60;
    Duration::from_secs(range + RandomState::new().hash_one(range) % (range + 1))
}

/// The first wait between attempts. Waits are short, because the server forgets changes after little more
/// than a minute.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(500);
pub(super) const RETRY_MAX: Duration = Duration::from_secs(5);

/// Returns the wait before this attempt, and doubles the wait before the next one, up to [`RETRY_MAX`].
pub(super) fn longer(wait: &mut Duration) -> Duration {
    let now = *wait;
    *wait = (2 * now).min(RETRY_MAX);
    now
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_time_is_from_five_to_ten_minutes() {
        let drawn: BTreeSet<u64> = (0..1_000).map(|_| minutes().as_secs()).collect();
        assert!(drawn.iter().all(|seconds| (300..=600).contains(seconds)), "{drawn:?}");
        assert!(drawn.len() > 100, "{} times", drawn.len());
    }
}
