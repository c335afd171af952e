//! The `prorata` program: arguments, exit codes, output, and the tables that it writes.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod backfill;
mod dead_letters;
mod feeds;
mod generate;
mod schemas;
