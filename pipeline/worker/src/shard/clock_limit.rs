//! How far ahead of the wall clock an event may lie. A worker judges it for messages, a backfill for foreign
//! files, each once.

use std::time::Duration;

use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::time::{Timestamp, WallTime, micros};

/// The latest event time that is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockLimit {
    /// The wall clock.
    pub now: WallTime,
    /// How far an event may lie behind that.
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
