//! What every reader of table files needs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;
use prorata_schemas::tables::Table;

/// Runs a reader of table files. The Parquet library panics on some damaged files; such a panic becomes an
/// error.
///
/// # Errors
/// The reader's own error, or the error that `failed` makes of a panic.
pub fn guarded<T, E>(
    failed: impl FnOnce(ParquetError) -> E,
    read: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let panicked = |_| Err(failed(ParquetError::General("it is damaged: its reader panicked".to_owned())));
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(panicked)
}

/// Returns the column that names a row's organization.
pub(crate) const fn organization_column(table: Table) -> &'static str {
    match table {
        Table::CostAllocation => "BillingAccountId",
        _ => "organization_id",
    }
}
