//! Clocks of a simulation. One clock shows the true time; the clocks of processes may be wrong.

use std::future::poll_fn;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::time::WallTime;
use prorata_worker::ports::Clock;

/// A clock that the simulation moves. Clones share the clock.
#[derive(Clone, Debug)]
pub struct SteppedClock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
    now: WallTime,
    /// Elapsed time.
    elapsed: Duration,
    pauses: Vec<Duration>,
    moved_by_pauses: bool,
}

impl SteppedClock {
    /// Creates a clock that shows `now` until the simulation moves it.
    pub fn new(now: WallTime) -> Self {
        Self(Arc::new(Mutex::new(Hands {
            now,
            elapsed: Duration::ZERO,
            pauses: Vec::new(),
            moved_by_pauses: false,
        })))
    }

    /// Creates a clock that each pause advances by the length of the pause.
    pub fn moved_by_pauses(now: WallTime) -> Self {
        let clock = Self::new(now);
        clock.lock().moved_by_pauses = true;
        clock
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        self.lock().pass(by);
    }

    /// Sets the clock. Time passes until `now`, but no time passes if the clock is set back.
    pub fn set(&self, now: WallTime) {
        let mut hands = self.lock();
        let passed = now.since(hands.now);
        hands.pass(passed);
        hands.now = now;
    }

    /// Returns the clock of a process, which is right until it is set wrong.
    pub fn of_process(&self) -> ProcessClock {
        ProcessClock { of: self.clone(), ahead: Arc::default() }
    }

    /// Returns the pauses that were requested since the last call, in order.
    pub fn take_pauses(&self) -> Vec<Duration> {
        std::mem::take(&mut self.lock().pauses)
    }

    fn lock(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hands {
    fn pass(&mut self, by: Duration) {
        self.now = self.now.after(by);
        self.elapsed += by;
    }
}

/// The clock of one process. The wall clock may run ahead of the true time, or lag. Clones share the clock.
#[derive(Clone, Debug)]
pub struct ProcessClock {
    of: SteppedClock,
    ahead: Arc<AtomicI64>,
}

impl ProcessClock {
    /// Sets the clock ahead of the true time by this many seconds; a negative number sets it back.
    pub fn set_ahead(&self, seconds: i64) {
        self.ahead.store(seconds, Ordering::Relaxed);
    }
}

#[async_trait]
impl Clock for ProcessClock {
    fn now(&self) -> WallTime {
        WallTime(self.of.now().0 + self.ahead.load(Ordering::Relaxed) * 1_000_000)
    }

    fn monotonic(&self) -> Duration {
        self.of.monotonic()
    }

    async fn pause(&self, duration: Duration) {
        self.of.pause(duration).await;
    }
}

#[async_trait]
impl Clock for SteppedClock {
    fn now(&self) -> WallTime {
        self.lock().now
    }

    fn monotonic(&self) -> Duration {
        self.lock().elapsed
    }

    async fn pause(&self, duration: Duration) {
        {
            let mut hands = self.lock();
            hands.pauses.push(duration);
            if hands.moved_by_pauses {
                hands.pass(duration);
            }
        }
        // The pause yields once, so that the simulation can act while a loop retries forever.
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
