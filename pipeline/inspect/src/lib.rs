//! Reads a lake as its readers do, through the logs and files of its tables. Nothing here writes.
//!
//! Reading order:
//! 1. [`lake`]: the data to read (the live files of the hourly tables, day by day).
//! 2. [`columns`] and `sum`: values of a file, and exact sums of values.
//! 3. [`check`]: checks that a lake is complete, and that its money adds up.
//! 4. [`diff`]: differences between two lakes, or between two states of a lake.
//! 5. [`page`]: a lake as one HTML page.
//! 6. [`explain`]: explains the cost of a pod, a node, an agreement, a namespace or a resource of a bill in
//!    an hour.
//! 7. [`mod@export`]: the rows of one organization as plain Parquet.
//! 8. [`show`]: the stored objects of a shard, as JSON.
//! 9. [`text`]: lines of text without characters that control a terminal.

pub mod check;
pub mod columns;
pub mod diff;
pub mod explain;
pub mod export;
pub mod lake;
pub mod page;
pub mod show;
mod sum;
pub mod text;

pub use lake::{LakeTables, TableLog};
pub use sum::Sum;
