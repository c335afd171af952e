//! The time of a worker or a backfill. A monotonic clock measures delays and ages. A wall clock with a
//! witness gives the time for everything that is compared with events.
//!
//! The witness is the time at which, by its own clock, the store stored our last object. The monotonic clock
//! carries this time forward. If wall clock and witness agree, the wall clock counts. If they differ by more
//! than `max_clock_skew`, nobody knows which is wrong: then the clock neither closes an hour nor rejects an
//! event. An event that only one of the two would reject waits until both agree again.
//!
//! A store in a local folder stamps objects with the machine's own clock. There, a clock that leaps is
//! noticed only until the next checkpoint, a minute later.
//!
//! Two limits say how far ahead of the wall clock an event may lie, and how old it may be. A worker checks
//! messages, and a backfill checks foreign files. Each event is checked once.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::time::{Hour, Timestamp, WallTime, micros};

use crate::error::{Result, WorkerError};
use crate::ports::{Clock, ErrorKind, ObjectStore, StoreError};

/// The difference up to which clocks always agree, even if `max_clock_skew` is smaller. Stores round to
/// seconds, and an answer may take time.
const SKEW_LEAST: Duration = Duration::from_secs(60);

/// Maximum duration of a write request whose object may serve as a further witness.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// The interval at which the store is asked for a new witness while the clocks agree. Each question costs one
/// request.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The clock of one owner of shards. As a [`Clock`] it never goes back: delays and ages are differences of
/// [`Clock::now`].
pub(crate) struct WitnessedClock {
    port: Arc<dyn Clock>,
    max_skew: Duration,
    hands: Mutex<Hands>,
}

struct Hands {
    /// A time that was shown, and the monotonic time at which it was shown.
    shown: (WallTime, Duration),
    /// The time at which the store stored our last object, and the monotonic time of that instant.
    witness: Option<(WallTime, Duration)>,
    /// Whether the clocks have agreed at least once since the start.
    agreed_once: bool,
}

/// The times that the clocks show at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    /// The time for ages; it never goes back.
    pub steady: WallTime,
    /// The time of the machine's wall clock, right or wrong, for people to read.
    pub machine: WallTime,
    /// The times of the wall clock and of its witness, the earlier time first. While they agree, both are the
    /// wall clock's time.
    pub between: (WallTime, WallTime),
    /// Number of seconds by which the wall clock is ahead of its witness; `None` while they agree.
    pub ahead_seconds: Option<i64>,
}

impl ClockReading {
    /// Returns the wall clock's time; `None` if its witness disagrees.
    pub fn wall(&self) -> Option<WallTime> {
        self.ahead_seconds.is_none().then_some(self.between.0)
    }

    /// Returns a message about the problem with the clocks; `None` while they agree.
    pub fn message(&self) -> Option<String> {
        let ahead = self.ahead_seconds?;
        let side = if ahead > 0 { "ahead of" } else { "behind" };
        Some(format!(
            "the clock of this machine is {} s {side} the time at which the store stored the last object, \
             more than work.max_clock_skew: no hour closes by the clock until they agree; correct the clock",
            ahead.abs()
        ))
    }
}

impl WitnessedClock {
    /// Returns the clock of an owner that has stored nothing yet.
    pub fn new(port: Arc<dyn Clock>, max_clock_skew: Duration) -> Self {
        let hands = Hands { shown: (port.now(), port.monotonic()), witness: None, agreed_once: false };
        Self { port, max_skew: max_clock_skew.max(SKEW_LEAST), hands: Mutex::new(hands) }
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the clocks now.
    pub fn read(&self) -> ClockReading {
        let (steady, wall, elapsed) = (self.now(), self.port.now(), self.port.monotonic());
        let witness = self.hands().witness;
        let witness = witness.map_or(wall, |(stored, at)| stored.after(elapsed.saturating_sub(at)));
        let ahead = wall.micros_since(witness);
        if ahead.unsigned_abs() <= micros(self.max_skew).unsigned_abs() {
            return ClockReading { steady, machine: wall, between: (wall, wall), ahead_seconds: None };
        }
        let between = (wall.min(witness), wall.max(witness));
        ClockReading { steady, machine: wall, between, ahead_seconds: Some(ahead / 1_000_000) }
    }

    /// Asks the store when it stored our object at `path`, unless the witness is fresh. `wrote` is the
    /// monotonic time from the start of the write request to its answer. The first witness may come from a
    /// long request. Then it counts for the instant of that request at which the wall clock agrees best.
    ///
    /// # Errors
    /// If the first question has no answer, or the clocks have never agreed since the start. Then the clocks
    /// must decide nothing.
    pub async fn look(&self, store: &dyn ObjectStore, path: &str, wrote: Range<Duration>) -> Result<()> {
        let before = self.hands().witness;
        let fresh = before.is_some_and(|(_, at)| self.port.monotonic().saturating_sub(at) < LOOK_EVERY);
        if fresh && self.read().ahead_seconds.is_none() {
            return Ok(());
        }
        let stored = match store.stat(path).await {
            Ok(Some(meta)) => meta.modified,
            Err(error) if before.is_none() => return Err(error.into()),
            Ok(None) if before.is_none() => {
                let gone = "it was stored a moment ago and is gone";
                return Err(StoreError::new(ErrorKind::Missing, "read", path, gone).into());
            }
            Err(error) => {
                tracing::debug!(%error, "cannot get the time from the store");
                return Ok(());
            }
            Ok(None) => return Ok(()),
        };
        if before.is_some() && wrote.end.saturating_sub(wrote.start) > LOOK_MAX {
            return Ok(());
        }
        let (now, wall) = (self.port.monotonic(), self.port.now());
        let age = wall.since(stored);
        let at = now.saturating_sub(age).clamp(wrote.start, wrote.end);
        self.hands().witness = Some((stored, at));
        let reading = self.read();
        match reading.message() {
            None => {
                let mut hands = self.hands();
                hands.agreed_once = true;
                // The whole machine may have been suspended; no monotonic time passes then.
                let shown = hands.shown.0.after(now.saturating_sub(hands.shown.1));
                hands.shown = (shown.max(reading.between.0), now);
                Ok(())
            }
            Some(message) if !self.hands().agreed_once => Err(WorkerError::Configuration(message)),
            Some(message) => {
                tracing::warn!(message);
                Ok(())
            }
        }
    }
}

#[async_trait]
impl Clock for WitnessedClock {
    fn now(&self) -> WallTime {
        let elapsed = self.port.monotonic();
        let (shown, at) = self.hands().shown;
        shown.after(elapsed.saturating_sub(at))
    }

    fn monotonic(&self) -> Duration {
        self.port.monotonic()
    }

    async fn pause(&self, duration: Duration) {
        self.port.pause(duration).await;
    }
}

/// The latest event time that is accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockLimit {
    /// The wall clock.
    pub now: WallTime,
    /// Maximum time by which an event may lie ahead of the wall clock.
    pub max_clock_skew: Duration,
}

impl ClockLimit {
    /// Rejects an event that lies too far in the future: it would pull the watermark ahead, or close hours
    /// early.
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

/// The earliest hour whose events a backfill accepts: the backfill folds every hour since then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryLimit {
    first: Hour,
    /// Maximum number of hours, and the configuration key that sets it.
    hours: i64,
    key: &'static str,
}

impl HistoryLimit {
    /// Returns the limit of a shard that will be folded up to `end`.
    pub const fn before(end: Hour, hours: i64, key: &'static str) -> Self {
        Self { first: Hour(end.0.saturating_sub(hours)), hours, key }
    }

    /// Rejects an event that is too old. The message does not depend on the time of the check.
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
