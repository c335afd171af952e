//! Damaged table files.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;

/// Runs a reader of table files. The Parquet library panics on some damaged files: that becomes an error, too.
///
/// # Errors
/// The reader's own, or the one that `failed` makes of a panic.
pub fn guarded<T, E>(
    failed: impl FnOnce(ParquetError) -> E,
    read: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let panicked = |_| Err(failed(ParquetError::General("it is damaged: its reader panicked".to_owned())));
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(panicked)
}
