//! The `prorata` program: arguments, exit codes, output, and the tables that it writes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod backfill;
mod bills;
mod close;
mod dead_letters;
mod feeds;
mod generate;
mod schemas;
