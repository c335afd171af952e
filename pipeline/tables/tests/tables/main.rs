//! Table files of handwritten rows, read back with the Parquet reader.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod bills;
mod closed;
mod cost;
mod day;
mod digest;
mod files;
mod gpus;
mod read;
mod splice;
