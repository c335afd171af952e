//! Limits on how far ahead of the wall clock an event may lie, and how far back. A worker checks messages, a
//! backfill checks foreign files, each event once.

use std::time::Duration;

use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::time::{Hour, Timestamp, WallTime, micros};

/// The latest event time that is accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockLimit {
    /// The wall clock.
    pub now: WallTime,
    /// The longest time by which an event may lie ahead of the wall clock.
    pub max_clock_skew: Duration,
}

impl ClockLimit {
    /// Rejects an event that lies too far in the future: it would drag the watermark, or close hours early.
    pub fn check(&self, event_time: Timestamp) -> Result<(), Reject> {
        let ahead = event_time.0.saturating_sub(self.now.event_time().0);
        if ahead <= micros(self.max_clock_skew) {
            return Ok(());
        }
        let message =
            format!("event_time is {} s in the future; fix the producer's clock", ahead / 1_000_000);
        Err(Reject::new(Reason::InTheFuture, message))
    }
}

/// The earliest hour whose events a backfill accepts: it would fold every hour since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryLimit {
    first: Hour,
    /// The most hours, and the configuration key that sets them.
    hours: i64,
    key: &'static str,
}

impl HistoryLimit {
    /// Returns the limit of a shard that will be folded up to `end`.
    pub const fn before(end: Hour, hours: i64, key: &'static str) -> Self {
        Self { first: Hour(end.0.saturating_sub(hours)), hours, key }
    }

    /// Rejects an event that lies too far back. The same event is rejected with the same message at any time.
    pub fn check(&self, event_time: Timestamp) -> Result<(), Reject> {
        let hour = event_time.hour();
        if hour >= self.first {
            return Ok(());
        }
        let (key, hours) = (self.key, self.hours);
        let message = format!(
            "hour {hour} lies further back than {key}: {hours}, and every hour since would be folded; fix \
             the producer's clock, name an earlier --to, or raise {key}"
        );
        Err(Reject::new(Reason::TooLate, message))
    }
}
