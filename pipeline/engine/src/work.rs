//! The bound on the work of an organization's hour (RULES.md, section 7). A few thousand events must not take
//! everyone's time and memory. Work is counted before it is done.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::EngineError;

/// Maximum number of pairs of commitments and nodes, of pairs of savings plans and usage, and of prices of
/// pods, in one organization's hour. They take about a gigabyte of memory.
pub const WORK_MAX: u64 = 2_000_000;

/// Maximum number of rows of pods besides the first row of each pod, and of rows of divided charges, for an
/// organization with few pods. The rows of each kind take about a gigabyte of memory too.
pub const ROWS_MAX: u64 = 1_000_000;

/// Maximum number of rows for each pod besides the first, and of rows of divided charges for each pod, for an
/// organization with many pods.
const ROWS_OF_A_POD_MAX: u64 = 16;

/// One kind of work, with the amount done so far.
#[derive(Debug)]
pub(crate) struct Work {
    /// The name of the work in messages.
    of: &'static str,
    max: u64,
    done: AtomicU64,
}

impl Work {
    /// Creates the bound for commitments that look at nodes.
    pub(crate) const fn of_pairs() -> Self {
        Self::new("pairs of commitments and nodes", WORK_MAX)
    }

    /// Creates the bound for savings plans that look at usage.
    pub(crate) const fn of_plans() -> Self {
        Self::new("pairs of savings plans and usage", WORK_MAX)
    }

    /// Creates the bound for prices that are set for pods.
    pub(crate) const fn of_prices() -> Self {
        Self::new("prices of pods", WORK_MAX)
    }

    /// Creates the bound for rows of this many pods on nodes, besides the first row of each.
    pub(crate) fn of_rows(pods: usize) -> Self {
        Self::new("rows of pods by price and label", ROWS_MAX.max(pods as u64 * ROWS_OF_A_POD_MAX))
    }

    /// Creates the bound for rows of divided charges in an hour with this many pods.
    pub(crate) fn of_divided_rows(pods: usize) -> Self {
        Self::new("rows of divided charges", ROWS_MAX.max(pods as u64 * ROWS_OF_A_POD_MAX))
    }

    /// Creates a bound for any kind of work.
    pub(crate) const fn new(of: &'static str, max: u64) -> Self {
        Self { of, max, done: AtomicU64::new(0) }
    }

    /// Adds work that is about to be done.
    ///
    /// # Errors
    /// If the work so far exceeds its bound.
    pub(crate) fn add(&self, work: usize) -> Result<(), EngineError> {
        let work = work as u64;
        let before = self.done.fetch_add(work, Ordering::Relaxed);
        self.check(before.saturating_add(work))
    }

    /// Checks that the work of all threads is within its bound, whatever other errors occurred.
    ///
    /// # Errors
    /// If the work exceeds its bound.
    pub(crate) fn within(&self) -> Result<(), EngineError> {
        self.check(self.done.load(Ordering::Relaxed))
    }

    fn check(&self, done: u64) -> Result<(), EngineError> {
        if done > self.max { Err(EngineError::Work { of: self.of, max: self.max }) } else { Ok(()) }
    }
}
