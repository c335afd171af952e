//! Files of `closed_allocation`: rows of `cost_allocation` as they were issued, and corrections of them.
//!
//! The functions copy columns, so a release that computes other rows can still read and correct old files.
//! They hold the given files, and the rows of one organization and date as columns. The bytes of a file
//! depend on the rows alone: not on the arrangement of the ledger's files, a clock or a run.

mod corrections;

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, TimestampMicrosecondType};
use arrow_array::{Array, BooleanArray, PrimitiveArray, RecordBatch, StringArray, UInt64Array};
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowPredicateFn, ParquetRecordBatchReaderBuilder, RowFilter};
use parquet::errors::ParquetError;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::CostBasis;
use prorata_schemas::tables::{ClosedFile, ClosedTotals, CorrectedRows, HourBasis, Table};
use prorata_schemas::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::day::{guarded, in_our_columns};
use crate::stats::Statistics;
use crate::{EncodeError, file, schema};

pub use crate::columns::cost::additive;

const TABLE: Table = Table::ClosedAllocation;

/// Column with a row's organization.
const OWNER: &str = "BillingAccountId";

/// Column with the start of a row's hour.
const HOUR: &str = "ChargePeriodStart";

/// Number of rows that are read at a time.
const BATCH_ROWS: usize = 8_192;

/// `ChargeClass` of a correction.
const CORRECTION: &str = "Correction";

/// Value of column `basis` in `hours` if the provider's bills are closed.
const FINAL: &str = CostBasis::Final.name();

/// Returns files with an organization's rows of one date, in the order of their hours. `ledger` has files of
/// `cost_allocation` of this date and the organization's shard, in any order. A file has at most `file_rows`
/// rows. There is no file if there are no rows.
///
/// # Errors
/// If a file cannot be read, or the rows cannot be written.
pub fn copy(
    ledger: &[Bytes],
    organization_id: &OrganizationId,
    file_rows: u64,
) -> Result<Vec<ClosedFile>, EncodeError> {
    guarded(unreadable, || write(&rows_of(Table::CostAllocation, ledger, organization_id)?, file_rows))
}

/// Returns files with the corrections that make the closed rows of one date equal to the ledger. There is no
/// file if nothing differs. See [`CorrectedRows`].
///
/// # Errors
/// If a file cannot be read, a sum needs more than 38 digits, or the corrections cannot be written.
pub fn correct(rows: &CorrectedRows<'_, Bytes>, file_rows: u64) -> Result<Vec<ClosedFile>, EncodeError> {
    guarded(unreadable, || {
        let ledger = rows_of(Table::CostAllocation, rows.ledger, rows.organization_id)?;
        let closed = rows_of(TABLE, rows.closed, rows.organization_id)?;
        write(&corrections::between(&ledger, &closed, rows.period)?, file_rows)
    })
}

/// Describes a file of `closed_allocation` as it is stored.
///
/// # Errors
/// If it cannot be read, has no rows, or has rows of several organizations.
pub fn describe(bytes: &Bytes) -> Result<ClosedFile, EncodeError> {
    guarded(unreadable, || {
        let rows = read(TABLE, bytes, None)?;
        let mut stats = Statistics::of(TABLE);
        stats.add(&rows);
        described(bytes.to_vec(), stats.into_json(rows.num_rows() as u64), &rows)
    })
}

/// Returns the basis of every row in a file of `hours`.
///
/// # Errors
/// If the file cannot be read, or has other columns.
pub fn bases(hours: &Bytes) -> Result<Vec<HourBasis>, EncodeError> {
    let failed = |source| EncodeError::Read { table: Table::Hours, source };
    guarded(failed, || {
        let file = ParquetRecordBatchReaderBuilder::try_new(hours.clone()).map_err(failed)?;
        let mask = ProjectionMask::columns(file.parquet_schema(), ["organization_id", "hour", "basis"]);
        let mut bases = Vec::new();
        for rows in file.with_projection(mask).build().map_err(failed)? {
            let rows = rows.map_err(|source| EncodeError::Columns { table: Table::Hours, source })?;
            let owners = texts(&rows, "organization_id")?;
            // A file of an older release has no basis.
            let basis = texts(&rows, "basis").ok();
            let is_final = |row| basis.is_some_and(|basis| basis.is_valid(row) && basis.value(row) == FINAL);
            let starts = instants(&rows, "hour")?.iter().enumerate();
            bases.extend(starts.map(|(row, start)| HourBasis {
                organization_id: owners.value(row).into(),
                hour: Timestamp(*start).hour(),
                is_final: is_final(row),
            }));
        }
        Ok(bases)
    })
}

fn unreadable(source: ParquetError) -> EncodeError {
    EncodeError::Read { table: TABLE, source }
}

fn no_columns(source: ArrowError) -> EncodeError {
    EncodeError::Columns { table: TABLE, source }
}

/// Returns an organization's rows in some files of one date, in the order of their hours. An hour's rows are
/// in one file, in the order of the table's grain, so the order does not depend on the files.
fn rows_of(
    table: Table,
    files: &[Bytes],
    organization_id: &OrganizationId,
) -> Result<RecordBatch, EncodeError> {
    let batches: Result<Vec<RecordBatch>, _> =
        files.iter().map(|file| read(table, file, Some(organization_id))).collect();
    let rows = concat_batches(&schema(table), &batches?).map_err(no_columns)?;
    let hours = instants(&rows, HOUR)?;
    if hours.is_sorted() {
        return Ok(rows);
    }
    let mut order: Vec<(i64, u64)> = hours.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let order = UInt64Array::from_iter_values(order.into_iter().map(|(_, row)| row));
    take_record_batch(&rows, &order).map_err(no_columns)
}

/// Returns the rows of a file in the columns of this release: of one organization, or of all.
fn read(
    table: Table,
    bytes: &Bytes,
    organization_id: Option<&OrganizationId>,
) -> Result<RecordBatch, EncodeError> {
    let unreadable = |source| EncodeError::Read { table, source };
    let file = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).map_err(unreadable)?;
    let mut file = file.with_batch_size(BATCH_ROWS);
    if let Some(organization_id) = organization_id {
        let (mask, owner) =
            (ProjectionMask::columns(file.parquet_schema(), [OWNER]), organization_id.to_string());
        let is_wanted = move |rows: RecordBatch| {
            let owners = texts(&rows, OWNER).map_err(|error| ArrowError::ExternalError(Box::new(error)));
            let is_owner = |found: Option<&str>| Some(found == Some(&*owner));
            owners.map(|owners| owners.iter().map(is_owner).collect::<BooleanArray>())
        };
        file = file.with_row_filter(RowFilter::new(vec![Box::new(ArrowPredicateFn::new(mask, is_wanted))]));
    }
    let mut batches = Vec::new();
    for batch in file.build().map_err(unreadable)? {
        batches.push(in_our_columns(table, &batch.map_err(no_columns)?)?);
    }
    concat_batches(&schema(table), &batches).map_err(no_columns)
}

fn write(rows: &RecordBatch, file_rows: u64) -> Result<Vec<ClosedFile>, EncodeError> {
    let step = usize::try_from(file_rows).unwrap_or(usize::MAX).max(1);
    let file = |first: usize| {
        let part = rows.slice(first, step.min(rows.num_rows() - first));
        let encoded = file::of_columns(TABLE, &part, String::new())?;
        described(encoded.bytes, encoded.stats, &part)
    };
    (0..rows.num_rows()).step_by(step).map(file).collect()
}

fn described(bytes: Vec<u8>, stats: String, rows: &RecordBatch) -> Result<ClosedFile, EncodeError> {
    let foreign = |cause| EncodeError::Foreign { table: TABLE, cause };
    let owners = texts(rows, OWNER)?;
    let owner = owners.iter().flatten().next().ok_or_else(|| foreign("it has no rows"))?;
    if owners.iter().any(|found| found != Some(owner)) {
        return Err(foreign("it has rows of several organizations"));
    }
    let classes = texts(rows, "ChargeClass")?;
    Ok(ClosedFile {
        organization_id: owner.into(),
        rows: rows.num_rows() as u64,
        corrections: classes.iter().filter(|class| *class == Some(CORRECTION)).count() as u64,
        stats,
        sha256: format!("{:x}", Sha256::digest(&bytes)),
        totals: totals(rows)?,
        invoices: texts(rows, "InvoiceId")?.iter().flatten().map(Text::from).collect::<BTreeSet<_>>(),
        bytes,
    })
}

fn totals(rows: &RecordBatch) -> Result<BTreeMap<Text, ClosedTotals>, EncodeError> {
    let (billed, effective) = (decimals(rows, "BilledCost")?, decimals(rows, "EffectiveCost")?);
    let mut totals: BTreeMap<Text, ClosedTotals> = BTreeMap::new();
    let costs = billed.iter().zip(effective.iter());
    for (currency, (billed, effective)) in texts(rows, "BillingCurrency")?.iter().zip(costs) {
        let row = ClosedTotals {
            rows: 1,
            billed: Decimal12::from_atoms(billed.unwrap_or_default()),
            effective: Decimal12::from_atoms(effective.unwrap_or_default()),
        };
        let sum = totals.entry(currency.unwrap_or_default().into()).or_default();
        let added = sum.checked_add(row);
        *sum = added.ok_or(EncodeError::Digits { table: TABLE, column: "EffectiveCost" })?;
    }
    Ok(totals)
}

fn texts<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a StringArray, EncodeError> {
    let column = rows.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or(EncodeError::Foreign { table: TABLE, cause: "a column has another type" })
}

fn instants<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a [i64], EncodeError> {
    let column = rows.column_by_name(name);
    let column = column.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    let column = column.ok_or(EncodeError::Foreign { table: TABLE, cause: "a column has another type" });
    column.map(|column| &**column.values())
}

fn decimals<'a>(
    rows: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<Decimal128Type>, EncodeError> {
    let column = rows.column_by_name(name).and_then(|column| column.as_primitive_opt::<Decimal128Type>());
    column.ok_or(EncodeError::Foreign { table: TABLE, cause: "a column has another type" })
}
