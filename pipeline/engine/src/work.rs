//! The bound of the work of an organization's hour (RULES.md, section 7): a few thousand events must not take
//! the time and memory of all. Work is counted before it is done.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::EngineError;

/// Most pairs of commitments and nodes, and most prices of pods, in an hour of an organization. They take
/// about a gigabyte of memory.
pub const WORK_MAX: u64 = 2_000_000;

/// Most rows of pods besides the first of each, for an organization with few pods. They take as much.
pub const ROWS_MAX: u64 = 1_000_000;

/// Most rows of pods besides the first of each, for each pod, for an organization with many.
const ROWS_OF_A_POD_MAX: u64 = 16;

/// One kind of work, with how much of it there was.
#[derive(Debug)]
pub(crate) struct Work {
    /// Names the work in messages.
    of: &'static str,
    max: u64,
    done: AtomicU64,
}

impl Work {
    /// Looks of a commitment at a node.
    pub(crate) const fn of_pairs() -> Self {
        Self::new("pairs of commitments and nodes", WORK_MAX)
    }

    /// Prices that are set for a pod.
    pub(crate) const fn of_prices() -> Self {
        Self::new("prices of pods", WORK_MAX)
    }

    /// Rows of this many pods on nodes, besides the first of each.
    pub(crate) fn of_rows(pods: usize) -> Self {
        Self::new("rows of pods by price and label", ROWS_MAX.max(pods as u64 * ROWS_OF_A_POD_MAX))
    }

    /// Work of any kind with its bound.
    pub(crate) const fn new(of: &'static str, max: u64) -> Self {
        Self { of, max, done: AtomicU64::new(0) }
    }

    /// Adds work that is about to be done.
    ///
    /// # Errors
    /// When the work so far passes its bound.
    pub(crate) fn add(&self, work: usize) -> Result<(), EngineError> {
        let work = work as u64;
        let before = self.done.fetch_add(work, Ordering::Relaxed);
        self.check(before.saturating_add(work))
    }

    /// Whether the work of all threads is within its bound, whatever else they met.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn within(&self) -> Result<(), EngineError> {
        self.check(self.done.load(Ordering::Relaxed))
    }

    fn check(&self, done: u64) -> Result<(), EngineError> {
        if done > self.max { Err(EngineError::Work { of: self.of, max: self.max }) } else { Ok(()) }
    }
}
