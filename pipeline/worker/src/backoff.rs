//! Back-off: how often a failed operation is retried, and how long to wait before each attempt.
//!
//! This file holds the policies of the worker, of claims and commits, and of the Kafka client: one [`Policy`]
//! per user, with its reason. The clock and the seed of the jitter come from the caller, so that a simulation
//! repeats itself exactly. For this reason, no crate is used: `backon` draws its jitter and sleeps inside a
//! future. Most users here only note when to retry.
//!
//! Some loops define their delays as constants of their own, in `src` of their crate:
//!
//! | crate | what | where | delays |
//! |---|---|---|---|
//! | this | a poll while Kafka is down | `stream/worker/poll.rs` | 0.5 s |
//! | this | a shard after a conflict | `stream/worker/assignments.rs` | 0.8 s |
//! | this | a look at objects that vanish | `root/look.rs` | none, 5 attempts |
//! | connectors | a collector's watches and lists | `kubernetes/waits.rs` | 0.5 to 5 s; 10 min if refused |
//! | connectors | new columns of a table | `delta/mod.rs` | none, 8 attempts |
//! | connectors | Kafka's metadata before a start | `kafka/admin/metadata.rs` | 0.2 s |
//! | connectors | offsets, before they count as lost | `kafka/member/source.rs` | 1 s, once |
//! | connectors | a batch that cannot be read | `kafka/member/tracks.rs` | 3 attempts |
//! | connectors | a message for a producer whose queue is full | `kafka/produce/producer.rs` | 5 ms |
//! | connectors | reconnects of the Kafka library | `kafka/client/config.rs` | 0.1 to 5 s |
//! | cli | a collector's first requests | `collect/start.rs` | 1 s, for 30 s |
//! | cli | a collector's writes | `collect/follow.rs` | 0.5 to 15 s |
//! | cli | `prorata ready` | `commands/ready.rs` | 1 s |
//! | cli | a connection that the system refuses | `operations/server.rs` | 1 s |
//! | cli | a look at a lake that a worker writes | `wiring/lake.rs` | 0.25 to 4 s |

use std::time::Duration;

use prorata_schemas::time::WallTime;
use sha2::{Digest, Sha256};

/// The creation of one object. It is retried until it is known whether the object exists, and with which
/// content. There is no delay, because the client of the object store already waits and retries inside each
/// call.
pub const OBJECT: Policy = Policy::immediate(3);

/// A claim whose sequence number was taken. There is no delay: each attempt begins by reading the newest
/// checkpoint, so it fails again only if the shard changes hands repeatedly.
pub const CLAIM: Policy = Policy::immediate(8);

/// A commit to a table. Conflicts are normal while many owners commit to one log, so the first delay is
/// short. Half of each delay is random to let the owners pass one another. After about 10 s in total, storage
/// counts as down.
pub const COMMIT: Policy = Policy {
    first: Duration::from_millis(20),
    factor: 2,
    cap: Duration::from_millis(2_560),
    jitter_percent: 50,
    attempts: Some(12),
};

/// A task of the stream worker that waits for storage, Kafka, the registry or the dead-letter topic. Attempts
/// are unlimited, because the worker continues on its own. The cap is 30 s, so that the worker soon notices
/// the end of an outage.
pub const STREAM: Policy = Policy {
    first: Duration::from_millis(100),
    factor: 2,
    cap: Duration::from_secs(30),
    jitter_percent: 0,
    attempts: None,
};

/// A producer's first request to the registry. A registry that restarts, or is busy for a moment, must not
/// end the producer; a registry that is down must be reported soon. The delays sum to 3 s.
pub const REGISTER: Policy = Policy {
    first: Duration::from_secs(1),
    factor: 2,
    cap: Duration::from_secs(2),
    jitter_percent: 0,
    attempts: Some(3),
};

/// A stopped shard of the stream worker. Each attempt writes two checkpoints, a claim and a release, and the
/// cause rarely goes away on its own. So the first delay is a minute, and the longest is an hour. A shard
/// that somebody has fixed is claimed at once, regardless of the delay.
pub const STOPPED_SHARD: Policy = Policy {
    first: Duration::from_secs(60),
    factor: 2,
    cap: Duration::from_secs(3_600),
    jitter_percent: 0,
    attempts: None,
};

/// A Kafka partition that cannot be read and is assigned again. All partitions are assigned together, which
/// interrupts their fetches, so the first delay is 1 s.
pub const KAFKA_PARTITION: Policy = Policy {
    first: Duration::from_secs(1),
    factor: 2,
    cap: Duration::from_secs(32),
    jitter_percent: 0,
    attempts: None,
};

/// The policy for retries of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The delay after the first failure.
    pub first: Duration,
    /// The factor by which each further failure multiplies the delay.
    pub factor: u32,
    /// The longest delay.
    pub cap: Duration,
    /// The random part of a delay, in percent of the delay, 0 to 100.
    pub jitter_percent: u32,
    /// Number of attempts before the operation fails; `None` for no limit.
    pub attempts: Option<u32>,
}

impl Policy {
    /// Creates a policy of this many attempts without a delay.
    pub const fn immediate(attempts: u32) -> Self {
        Self {
            first: Duration::ZERO,
            factor: 1,
            cap: Duration::ZERO,
            jitter_percent: 0,
            attempts: Some(attempts),
        }
    }

    /// Returns the delay after this many failures in a row, without jitter; zero if there was no failure.
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = self.factor.saturating_pow(doublings);
        self.first.saturating_mul(factor).min(self.cap)
    }

    /// Returns the delay after this many failures in a row, with jitter. The same seed gives the same delay.
    pub fn delay_jittered(&self, failures: u32, seed: &str) -> Duration {
        let delay = self.delay(failures);
        let digest = Sha256::digest(format!("{seed}/{failures}"));
        let drawn = u32::from(digest.first().copied().unwrap_or_default());
        let random = delay * self.jitter_percent.min(100) / 100;
        delay - random + random * drawn / 256
    }

    /// Returns the numbers of the attempts, from 0.
    pub fn attempts(&self) -> std::ops::Range<u32> {
        0..self.attempts.unwrap_or(u32::MAX)
    }
}

/// The number of failures in a row of one operation, and the time from which it may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    policy: Policy,
    failures: u32,
    retry_at: WallTime,
}

impl Backoff {
    /// Creates the back-off of an operation that has not failed and may be tried at any time.
    pub const fn new(policy: Policy) -> Self {
        Self { policy, failures: 0, retry_at: WallTime::MIN }
    }

    /// Creates the back-off of an operation that has not failed and may be tried from `retry_at` on.
    pub const fn not_before(policy: Policy, retry_at: WallTime) -> Self {
        Self { policy, failures: 0, retry_at }
    }

    /// Returns whether the operation may be tried now.
    pub fn is_due(&self, now: WallTime) -> bool {
        self.retry_at <= now
    }

    /// Returns the number of failures in a row.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Notes that the operation failed, so that it is retried after the policy's delay.
    pub fn fail(&mut self, now: WallTime) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now.after(self.policy.delay(self.failures));
    }

    /// Notes that the operation succeeded.
    pub fn succeed(&mut self) {
        *self = Self::new(self.policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_by_the_factor_up_to_the_cap() {
        let seconds: Vec<f64> = (0..=12).map(|failures| STREAM.delay(failures).as_secs_f64()).collect();
        assert_eq!(seconds, [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]);
        assert_eq!(STREAM.delay(u32::MAX), STREAM.cap);
        assert_eq!(CLAIM.delay(7), Duration::ZERO);
        assert_eq!(CLAIM.attempts(), 0..8);
    }

    #[test]
    fn jitter_takes_off_at_most_its_part_and_differs_by_seed() {
        for failures in 1..12 {
            let (full, one) = (COMMIT.delay(failures), COMMIT.delay_jittered(failures, "one"));
            assert!(full / 2 <= one && one < full, "{failures}: {one:?} of {full:?}");
            assert_eq!(one, COMMIT.delay_jittered(failures, "one"), "a seed repeats itself");
        }
        let delays =
            |seed: &str| (1..12).map(|failures| COMMIT.delay_jittered(failures, seed)).collect::<Vec<_>>();
        assert_ne!(delays("one"), delays("other"));
        assert_eq!(STREAM.delay_jittered(3, "one"), STREAM.delay(3), "no jitter, no difference");
    }

    #[test]
    fn an_operation_waits_after_failures_and_not_after_success() {
        let mut backoff = Backoff::new(STREAM);
        let now = WallTime(5_000_000);
        assert!(backoff.is_due(WallTime::MIN));
        backoff.fail(now);
        assert!(!backoff.is_due(WallTime(5_099_999)) && backoff.is_due(WallTime(5_100_000)));
        backoff.fail(now);
        assert!(!backoff.is_due(WallTime(5_199_999)) && backoff.is_due(WallTime(5_200_000)));
        assert_eq!(backoff.failures(), 2);
        backoff.succeed();
        assert!(backoff.is_due(now) && backoff.failures() == 0);
        backoff.fail(WallTime(i64::MAX));
        assert!(backoff.is_due(WallTime(i64::MAX)), "no overflow");
    }
}
