//! Backfills into a lake in memory. The result equals a plain fold, whatever happens during the run.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod archive_names;
mod contract;
mod crash;
mod dead_letters;
mod input;
mod late;
mod laws;
mod merged_input;
mod owners;

use prorata_testkit::harness;
