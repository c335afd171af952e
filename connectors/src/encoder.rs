//! An implementation of the worker's port [`TableEncoder`] that writes Parquet.

use std::error::Error;

use bytes::Bytes;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rows::budget::BudgetUse;
use prorata_schemas::tables::{
    ClosedFile, CorrectedRows, CutFile, EncodedFile, HourBasis, HourClock, HourFile, RowSource, SplicedFiles,
    Table, TableSplice,
};
use prorata_tables::closed;
use prorata_worker::ports::{FormatError, TableEncoder};

/// An encoder that calls the functions of `prorata-tables`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParquetEncoder;

fn failed<E: Error + Send + Sync + 'static>(operation: &'static str) -> impl FnOnce(E) -> FormatError {
    move |error| FormatError::new(operation, error)
}

impl TableEncoder for ParquetEncoder {
    fn encode(
        &self,
        table: Table,
        hours: &[HourTables],
        clocks: &[HourClock],
        file_rows: u64,
    ) -> Result<Vec<CutFile>, FormatError> {
        prorata_tables::encode_files(table, hours, clocks, file_rows).map_err(failed("encode rows"))
    }

    fn splice(&self, table: Table, splice: &TableSplice<'_>) -> Result<SplicedFiles, FormatError> {
        prorata_tables::splice(table, splice).map_err(failed("replace rows in a file"))
    }

    fn join(&self, table: Table, sources: &[RowSource<Bytes>]) -> Result<EncodedFile, FormatError> {
        prorata_tables::join(table, sources).map_err(failed("join files"))
    }

    fn split(&self, table: Table, joined: &Bytes) -> Result<Vec<HourFile>, FormatError> {
        prorata_tables::split(table, joined).map_err(failed("split a file"))
    }

    fn allocated_costs(&self, hours: &Bytes) -> Result<Vec<(OrganizationId, Decimal12)>, FormatError> {
        prorata_tables::allocated_costs(hours).map_err(failed("read costs of a file"))
    }

    fn budgets(&self, pool_usage: &Bytes) -> Result<Vec<BudgetUse>, FormatError> {
        prorata_tables::budgets(pool_usage).map_err(failed("read budgets of a file"))
    }

    fn bases(&self, hours: &Bytes) -> Result<Vec<HourBasis>, FormatError> {
        closed::bases(hours).map_err(failed("read the basis of hours"))
    }

    fn copy_closed(
        &self,
        ledger: &[Bytes],
        organization_id: &OrganizationId,
        file_rows: u64,
    ) -> Result<Vec<ClosedFile>, FormatError> {
        closed::copy(ledger, organization_id, file_rows).map_err(failed("copy closed rows"))
    }

    fn correct_closed(
        &self,
        rows: &CorrectedRows<'_, Bytes>,
        file_rows: u64,
    ) -> Result<Vec<ClosedFile>, FormatError> {
        closed::correct(rows, file_rows).map_err(failed("correct closed rows"))
    }

    fn describe_closed(&self, file: &Bytes) -> Result<ClosedFile, FormatError> {
        closed::describe(file).map_err(failed("read closed rows"))
    }
}
