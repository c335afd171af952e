//! The wall clock of a simulation.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::time::Timestamp;
use prorata_worker::ports::Clock;

/// A clock that the simulation moves. Clones share it.
#[derive(Clone, Debug)]
pub struct SteppedClock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
    now: Timestamp,
    pauses: Vec<Duration>,
    moved_by_pauses: bool,
}

impl SteppedClock {
    /// A clock that shows `now` until it is moved.
    pub fn new(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Hands { now, pauses: Vec::new(), moved_by_pauses: false })))
    }

    /// A clock that every pause moves on by the pause's length.
    pub fn moved_by_pauses(now: Timestamp) -> Self {
        let clock = Self::new(now);
        clock.lock().moved_by_pauses = true;
        clock
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.lock();
        hands.now = later(hands.now, by);
    }

    /// Sets it, also back.
    pub fn set(&self, now: Timestamp) {
        self.lock().now = now;
    }

    /// Pauses wished for since the last time somebody asked, in their order.
    pub fn take_pauses(&self) -> Vec<Duration> {
        std::mem::take(&mut self.lock().pauses)
    }

    fn lock(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}

#[async_trait]
impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    async fn pause(&self, duration: Duration) {
        {
            let mut hands = self.lock();
            hands.pauses.push(duration);
            if hands.moved_by_pauses {
                hands.now = later(hands.now, duration);
            }
        }
        // A loop that tries again for ever lets the simulation act in between.
        let mut paused = false;
        poll_fn(|context| {
            if std::mem::replace(&mut paused, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}
