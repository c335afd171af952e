//! Backfills on a lake in memory: equal to a plain fold, whatever happens during the run.

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
