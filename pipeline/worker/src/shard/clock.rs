//! The time of a worker or a backfill: a monotonic clock for delays and ages, and a wall clock with a
//! witness for everything that events are compared with.
//!
//! The witness is the time at which the store says that it stored our own last object, carried on by the
//! monotonic clock. While wall clock and witness agree, the wall clock counts. While they differ by more than
//! `max_clock_skew`, nobody knows which is wrong: no hour closes by the clock, and no event is rejected by
//! it. An event that one of the two calls too late or too early waits until they agree again.
//!
//! A store in a local folder stamps with the machine's own clock: there a clock that leaps is noticed until
//! the next checkpoint, a minute later.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::time::{WallTime, micros};

use crate::error::{Result, WorkerError};
use crate::ports::{Clock, ErrorKind, ObjectStore, StoreError};

/// Least difference that counts, whatever `max_clock_skew` says: stores round to seconds, and an answer may
/// take its time.
const SKEW_LEAST: Duration = Duration::from_secs(60);

/// A further witness counts only if its request took no longer.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// How often the witness is asked while the clocks agree: it costs one request.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The clock of one owner of shards. As a [`Clock`] it never goes back: delays and ages are differences of
/// [`Clock::now`].
pub(crate) struct WitnessedClock {
    port: Arc<dyn Clock>,
    max_skew: Duration,
    hands: Mutex<Hands>,
}

struct Hands {
    /// A time shown, and the monotonic time at which it was.
    shown: (WallTime, Duration),
    /// When the store stored our last object, and the monotonic time of that.
    witness: Option<(WallTime, Duration)>,
    /// Whether the clocks have agreed since the start.
    agreed_once: bool,
}

/// What the clocks say at an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    /// Never goes back: for ages.
    pub steady: WallTime,
    /// What the machine's wall clock says, right or wrong: for what people read next to it.
    pub machine: WallTime,
    /// The wall clock and its witness, the earlier one first; both are the wall clock's time while they
    /// agree.
    pub between: (WallTime, WallTime),
    /// Seconds that the wall clock is ahead of its witness, where they do not agree.
    pub ahead_seconds: Option<i64>,
}

impl ClockReading {
    /// The wall clock's time, if its witness agrees.
    pub fn wall(&self) -> Option<WallTime> {
        self.ahead_seconds.is_none().then_some(self.between.0)
    }

    /// What is the matter with the clocks, if anything.
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
    /// The clock of an owner that has stored nothing yet.
    pub fn new(port: Arc<dyn Clock>, max_clock_skew: Duration) -> Self {
        let hands = Hands { shown: (port.now(), port.monotonic()), witness: None, agreed_once: false };
        Self { port, max_skew: max_clock_skew.max(SKEW_LEAST), hands: Mutex::new(hands) }
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the clocks say now.
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

    /// Asks the store when it stored this object of ours, unless the witness is fresh. `wrote` is the
    /// monotonic time from the begin of that request to its answer. Of a first witness whose request took
    /// long, the instant in it counts that the wall clock agrees with best.
    ///
    /// # Errors
    /// When the first question has no answer, or the clocks have never agreed since the start: then nothing
    /// must be decided by them.
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
        let age = Duration::from_micros(u64::try_from(wall.micros_since(stored)).unwrap_or_default());
        let at = now.saturating_sub(age).clamp(wrote.start, wrote.end);
        self.hands().witness = Some((stored, at));
        let reading = self.read();
        match reading.message() {
            None => {
                let mut hands = self.hands();
                hands.agreed_once = true;
                // After a pause of the whole machine, in which no monotonic time passes.
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
