//! The `prorata` program on folders: exit codes, messages, and tables that do not depend on the order of
//! runs.

mod bad_input;
mod check;
mod diff;
mod explain;
mod export;
pub mod harness;
mod memory;
mod report;
mod runs;
mod show;
mod unsettled;
mod usage;
