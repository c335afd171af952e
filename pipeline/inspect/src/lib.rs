//! Looks at a lake as its readers do, through the logs and files of its tables. Nothing here writes.
//!
//! Reading order:
//! 1. [`lake`]: what is looked at: the live files of the six tables, day by day.
//! 2. [`columns`] and `sum`: how a file becomes values, and how values add up, exactly.
//! 3. [`check`]: whether a lake is whole, and whether its money adds up.
//! 4. [`diff`]: what differs between two lakes, or between a lake now and then.
//! 5. [`page`]: a lake as one HTML page.
//! 6. [`explain`]: how the cost of a pod, a node, an agreement or a namespace in an hour came about.
//! 7. [`mod@export`]: the rows of one organization as plain Parquet.
//! 8. [`text`]: lines for people, without characters that a terminal obeys.

pub mod check;
pub mod columns;
pub mod diff;
pub mod explain;
pub mod export;
pub mod lake;
pub mod page;
mod sum;
pub mod text;

pub use lake::{HourRange, LakeTables, TableLog};
pub use sum::Sum;
