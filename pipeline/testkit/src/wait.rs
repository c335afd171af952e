//! Waits of tests for conditions, with one bound for all waits.
//!
//! A test never sleeps until something "has surely happened". It names the condition and waits for it. The
//! bound is generous, because a busy machine may be many times slower than an idle one. Only a hang reaches
//! it.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time that a test waits for a condition.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Pause between two checks of a condition.
const TICK: Duration = Duration::from_millis(50);

/// The end of a wait, for a loop whose body waits, such as a loop of polls.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the end of a wait of [`PATIENCE`] from now.
    #[must_use]
    pub fn start() -> Self {
        Self::after(PATIENCE)
    }

    /// Returns the end of a wait of this time from now.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Returns whether the deadline has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        Instant::now() >= self.0
    }
}

/// The result of checking a condition, which is the awaited value or a description of the missing value.
pub trait Look {
    /// The awaited value.
    type Value;

    /// Returns the value.
    ///
    /// # Errors
    /// Returns a description of the missing value, for the message of a failed test.
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

/// Checks a condition until it holds, and returns the value that it found.
///
/// # Panics
/// If the condition does not hold within [`PATIENCE`].
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

/// Checks an asynchronous condition until it holds, and returns the value that it found.
///
/// # Panics
/// If the condition does not hold within [`PATIENCE`].
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
