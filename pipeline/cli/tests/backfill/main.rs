//! The `prorata` program on folders: exit codes, sentences, and tables that do not depend on how they came
//! about.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod bad_input;
mod check;
mod diff;
mod explain;
mod harness;
mod memory;
mod report;
mod runs;
mod unsettled;
mod usage;
