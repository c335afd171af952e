//! The API server's clock, derived from the `Date` of its responses.
//!
//! `Date` is in whole seconds: at the response, the server's time lies in this second. Each response tightens
//! the bounds of the difference between the two clocks. We take the upper bound, so that times of objects,
//! which are the server's, are never in the future.
//!
//! A change that only a watch shows, such as the removal of a node, gets the time at which it arrived. So a
//! few requests are timed to halve the distance between the bounds, until they are [`KNOWN`] apart. Every few
//! minutes the bounds widen by the possible drift of the clocks, and requests close them again.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prorata_schemas::time::{Timestamp, micros};

const SECOND_MICROS: i64 = 1_000_000;
/// The distance between the bounds at which the difference is known well enough.
const KNOWN: Duration = Duration::from_millis(50);
/// The drift of two clocks in ten minutes, at 100 ppm.
const DRIFT: Duration = Duration::from_millis(60);

/// The bounds of the server's time minus ours, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    least: i64,
    most: i64,
}

/// The API server's clock. It never goes back.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<(Option<Bounds>, Timestamp)>);

impl ServerClock {
    /// Returns the server's time now, or our time before the server's first response.
    pub(super) fn now(&self) -> Timestamp {
        self.at(system_micros())
    }

    /// Returns the earliest time that the server's clock may show now, or our time before the server's first
    /// response.
    pub(super) fn earliest(&self) -> Timestamp {
        let held = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Timestamp(system_micros().saturating_add(held.0.map_or(0, |bounds| bounds.least)))
    }

    fn at(&self, ours: i64) -> Timestamp {
        let mut held = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let difference = held.0.map_or(0, |bounds| bounds.most);
        held.1 = held.1.max(Timestamp(ours.saturating_add(difference)));
        held.1
    }

    /// Tightens the bounds with the `Date` of a response. The request was sent at `sent` and the response
    /// arrived at `received`, both on our clock.
    pub(super) fn responded(&self, date: SystemTime, sent: SystemTime, received: SystemTime) {
        self.learn(epoch_micros(date), epoch_micros(sent), epoch_micros(received));
    }

    /// Widens the bounds, because the clocks may have drifted apart since the last call.
    pub(super) fn doubt(&self) {
        let mut held = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(bounds) = &mut held.0 {
            bounds.least = bounds.least.saturating_sub(micros(DRIFT));
            bounds.most = bounds.most.saturating_add(micros(DRIFT));
        }
    }

    /// Returns how long to wait, at most a second, so that the next response halves the distance between the
    /// bounds. Returns `None` if the bounds are at most [`KNOWN`] apart, or before the first response.
    pub(super) fn until_halved(&self) -> Option<Duration> {
        self.until_halved_at(system_micros())
    }

    fn until_halved_at(&self, ours: i64) -> Option<Duration> {
        let held = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let bounds = held.0.filter(|bounds| bounds.most - bounds.least > micros(KNOWN))?;
        // If the difference is at the middle of the bounds, a second of the server begins then. The response
        // shows whether it has.
        let middle = ours.saturating_add(bounds.least + (bounds.most - bounds.least) / 2);
        let wait = middle.saturating_neg().rem_euclid(SECOND_MICROS);
        Some(Duration::from_micros(wait.unsigned_abs()))
    }

    fn learn(&self, date: i64, sent: i64, received: i64) {
        let seen = Bounds { least: date - received, most: date + SECOND_MICROS - sent };
        let mut held = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let closer = held
            .0
            .map(|known| Bounds { least: known.least.max(seen.least), most: known.most.min(seen.most) });
        // If the bounds contradict each other, a clock was set, and the earlier bounds are worthless.
        held.0 = Some(closer.filter(|closer| closer.least <= closer.most).unwrap_or(seen));
    }
}

fn system_micros() -> i64 {
    epoch_micros(SystemTime::now())
}

fn epoch_micros(time: SystemTime) -> i64 {
    micros(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that is ahead of us by 7.3 s.
    const AHEAD: i64 = 7_300_000;

    fn date_at(ours: i64) -> i64 {
        (ours + AHEAD) / SECOND_MICROS * SECOND_MICROS
    }

    #[test]
    fn the_bounds_close_in_and_the_later_one_is_taken() {
        let clock = ServerClock::default();
        for step in 0..200 {
            let ours = 1_000_000_000 + step * 137_000;
            clock.learn(date_at(ours), ours - 5_000, ours + 5_000);
            let now = clock.at(ours).0;
            assert!(now >= ours + AHEAD, "never behind the server");
            assert!(step < 20 || now <= ours + AHEAD + 60_000, "{}", now - ours - AHEAD);
        }
    }

    #[test]
    fn timed_requests_find_the_difference_soon() {
        for phase in (0..1_000_000).step_by(61_000) {
            let clock = ServerClock::default();
            let mut ours = 1_000_000_000 + phase;
            assert_eq!(clock.until_halved_at(ours), None, "no response yet");
            let mut responses = 0;
            clock.learn(date_at(ours), ours - 5_000, ours + 5_000);
            while let Some(wait) = clock.until_halved_at(ours) {
                assert!(wait < Duration::from_secs(1), "{wait:?}");
                ours += micros(wait) + 5_000;
                clock.learn(date_at(ours), ours - 5_000, ours + 5_000);
                responses += 1;
            }
            let late = clock.at(ours).0 - ours - AHEAD;
            assert!(responses <= 6 && (0..=micros(KNOWN)).contains(&late), "{responses}, {late} µs late");
        }
    }

    #[test]
    fn a_clock_that_drifts_is_followed() {
        let clock = ServerClock::default();
        let (mut ours, mut ahead) = (1_000_000_000, AHEAD);
        let date_at = |ours: i64, ahead: i64| (ours + ahead) / SECOND_MICROS * SECOND_MICROS;
        clock.learn(date_at(ours, ahead), ours - 5_000, ours + 5_000);
        for round in 0..20 {
            ahead += if round < 10 { micros(DRIFT) } else { -micros(DRIFT) };
            ours += 600 * SECOND_MICROS;
            clock.doubt();
            while let Some(wait) = clock.until_halved_at(ours) {
                ours += micros(wait) + 5_000;
                clock.learn(date_at(ours, ahead), ours - 5_000, ours + 5_000);
            }
            let late = clock.at(ours).0 - ours - ahead;
            assert!((0..=micros(KNOWN)).contains(&late), "{late} µs late in round {round}");
        }
    }

    #[test]
    fn a_changed_clock_is_learned_again_and_time_does_not_go_back() {
        let clock = ServerClock::default();
        clock.learn(100 * SECOND_MICROS, 40 * SECOND_MICROS, 40 * SECOND_MICROS);
        assert_eq!(clock.at(40 * SECOND_MICROS).0, 101 * SECOND_MICROS);
        clock.learn(50 * SECOND_MICROS, 41 * SECOND_MICROS, 41 * SECOND_MICROS);
        assert_eq!(clock.at(41 * SECOND_MICROS).0, 101 * SECOND_MICROS);
        assert_eq!(clock.at(100 * SECOND_MICROS).0, 110 * SECOND_MICROS);
    }
}
