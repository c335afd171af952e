//! Time and progress.

use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::time::WallTime;

/// The wall clock. Of the tables, only the clock columns of `hours` depend on it.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> WallTime;

    /// Returns after `duration`, or sooner where time does not matter.
    async fn pause(&self, duration: Duration);
}

/// Receives the progress of a long run.
pub trait Progress: Send + Sync {
    /// Foreign files are being read.
    fn reading(&self, files: u64, files_all: u64, events: u64);

    /// Hours are being folded, over all shards.
    fn folding(&self, hours: u64, hours_all: u64);
}

/// Reports to nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn reading(&self, _files: u64, _files_all: u64, _events: u64) {}

    fn folding(&self, _hours: u64, _hours_all: u64) {}
}
