//! A rate limit without bursts.

use std::time::{Duration, Instant};

/// Maximum delay that a run catches up. The rest of a longer delay is lost, because only a burst could catch
/// it up.
const CATCH_UP: Duration = Duration::from_millis(100);
/// Minimum wait. Shorter waits are accumulated, because timers are not precise enough.
const WAIT_MIN: Duration = Duration::from_millis(2);

/// Spreads events evenly over time.
pub struct Pace {
    /// Time between two events; `None` if there is no limit.
    every: Option<Duration>,
    /// The time at which the next event is due.
    due: Instant,
}

impl Pace {
    /// Limits the rate to `per_second` events a second, from `now` on.
    pub fn new(per_second: Option<u32>, now: Instant) -> Self {
        Self { every: per_second.map(|rate| Duration::from_secs(1) / rate.max(1)), due: now }
    }

    /// Returns the time to wait from `now` before the next event is sent.
    pub fn wait(&mut self, now: Instant) -> Duration {
        let Some(every) = self.every else { return Duration::ZERO };
        self.due = self.due.max(now.checked_sub(CATCH_UP).unwrap_or(now)) + every;
        let wait = self.due.saturating_duration_since(now + every);
        if wait < WAIT_MIN { Duration::ZERO } else { wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_is_sent_in_a_second() {
        for rate in [7, 100, 3_000, 250_000] {
            let start = Instant::now();
            let (mut now, mut pace) = (start, Pace::new(Some(rate), start));
            let events = rate * 3;
            for _ in 0..events {
                now += pace.wait(now) + Duration::from_nanos(100);
            }
            let (took, tolerance) = (now - start, Duration::from_millis(200));
            assert!(took.abs_diff(Duration::from_secs(3)) < tolerance, "{events} at {rate}/s in {took:?}");
        }
    }

    #[test]
    fn time_lost_to_a_slow_broker_is_not_made_up_in_a_burst() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(1_000), start);
        pace.wait(start);
        let late = start + Duration::from_secs(60);
        let at_once = (0..1_000).take_while(|_| pace.wait(late).is_zero()).count();
        assert!((100..110).contains(&at_once), "{at_once} events at once");
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::new(None, Instant::now());
        assert!((0..1_000).all(|_| pace.wait(Instant::now()).is_zero()));
    }
}
