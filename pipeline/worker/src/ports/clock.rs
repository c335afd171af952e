//! Time and progress.

use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::time::WallTime;

/// The clocks of this machine. In the tables, only the clock columns of `hours` depend on them.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Returns the wall clock's time, which may be set back or leap.
    fn now(&self) -> WallTime;

    /// Returns the time since a fixed instant, for delays and ages. It never goes back.
    fn monotonic(&self) -> Duration;

    /// Waits for `duration`. An implementation for which time does not matter may return sooner.
    async fn pause(&self, duration: Duration);
}

/// Receives the progress of a long run.
pub trait Progress: Send + Sync {
    /// Reports that `files` of `files_all` foreign files are read, with `events` events so far.
    fn reading(&self, files: u64, files_all: u64, events: u64);

    /// Reports that `hours` of `hours_all` hours are folded, over all shards.
    fn folding(&self, hours: u64, hours_all: u64);
}

/// A receiver that reports to nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn reading(&self, _files: u64, _files_all: u64, _events: u64) {}

    fn folding(&self, _hours: u64, _hours_all: u64) {}
}
