//! Waiting in tests: by condition, with one bound for all of them.
//!
//! A test never sleeps for a time after which something "has surely happened": it names the condition and
//! waits for it. The bound is generous, because a busy machine may be many times slower than a quiet one;
//! only a hang reaches it.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// The longest that a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// The pause between two looks at a condition.
const TICK: Duration = Duration::from_millis(50);

/// The end of a wait, for a loop that waits inside, such as one of polls.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// [`PATIENCE`] from now.
    #[must_use]
    pub fn start() -> Self {
        Self::after(PATIENCE)
    }

    /// This long from now.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Whether it has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        Instant::now() >= self.0
    }
}

/// What a look at a condition found: the awaited value, or what is missing.
pub trait Look {
    /// The awaited value.
    type Value;

    /// The value.
    ///
    /// # Errors
    /// What is missing, for the message of a test that fails.
    fn found(self) -> Result<Self::Value, String>;
}

impl Look for bool {
    type Value = ();

    fn found(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("it is not so".into()) }
    }
}

impl<T> Look for Option<T> {
    type Value = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "there is none".into())
    }
}

impl<T, E: Display> Look for Result<T, E> {
    type Value = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|missing| missing.to_string())
    }
}

/// Looks at a condition until it holds, and returns what was found.
///
/// # Panics
/// When it does not hold within [`PATIENCE`].
#[track_caller]
pub fn eventually<L: Look>(what: &str, mut look: impl FnMut() -> L) -> L::Value {
    let deadline = Deadline::start();
    loop {
        match look().found() {
            Ok(value) => return value,
            Err(missing) => assert!(!deadline.passed(), "{what}: not within {PATIENCE:?}: {missing}"),
        }
        thread::sleep(TICK);
    }
}

/// The same for a condition that is looked at asynchronously.
///
/// # Panics
/// When it does not hold within [`PATIENCE`].
pub async fn eventually_async<L: Look>(what: &str, mut look: impl AsyncFnMut() -> L) -> L::Value {
    let deadline = Deadline::start();
    loop {
        match look().await.found() {
            Ok(value) => return value,
            Err(missing) => assert!(!deadline.passed(), "{what}: not within {PATIENCE:?}: {missing}"),
        }
        tokio::time::sleep(TICK).await;
    }
}
