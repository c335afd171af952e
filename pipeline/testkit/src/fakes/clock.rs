//! The wall clock of a simulation.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::time::WallTime;
use prorata_worker::ports::Clock;

/// A clock that the simulation moves. Clones share it.
#[derive(Clone, Debug)]
pub struct SteppedClock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
    now: WallTime,
    pauses: Vec<Duration>,
    moved_by_pauses: bool,
}

impl SteppedClock {
    /// A clock that shows `now` until it is moved.
    pub fn new(now: WallTime) -> Self {
        Self(Arc::new(Mutex::new(Hands { now, pauses: Vec::new(), moved_by_pauses: false })))
    }

    /// A clock that every pause moves on by the pause's length.
    pub fn moved_by_pauses(now: WallTime) -> Self {
        let clock = Self::new(now);
        clock.lock().moved_by_pauses = true;
        clock
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.lock();
        hands.now = hands.now.after(by);
    }

    /// Sets it, also back.
    pub fn set(&self, now: WallTime) {
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

#[async_trait]
impl Clock for SteppedClock {
    fn now(&self) -> WallTime {
        self.lock().now
    }

    async fn pause(&self, duration: Duration) {
        {
            let mut hands = self.lock();
            hands.pauses.push(duration);
            if hands.moved_by_pauses {
                hands.now = hands.now.after(duration);
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
