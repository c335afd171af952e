//! Replaces the rows of some organizations in files whose other rows stay. The bytes are the same as if all
//! rows were encoded again, so they do not depend on the history of the table.

mod money;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::{CutFile, SplicedFiles, Table, TableSplice};

use crate::columns::organization_column;
use crate::cut::Cutter;
use crate::day::guarded;
use crate::{EncodeError, digest, encode, file, schema};

pub use money::{allocated_costs, budgets};

/// Replaces the rows of some organizations in consecutive files of one hour.
///
/// # Errors
/// If a file does not have the form that this program writes, or the new rows cannot be encoded; see
/// [`encode`].
pub fn splice(table: Table, splice: &TableSplice<'_>) -> Result<SplicedFiles, EncodeError> {
    let old: Vec<RecordBatch> =
        splice.old.iter().map(|bytes| read(table, bytes)).collect::<Result<_, _>>()?;
    let old_digests = old.iter().map(|rows| digest::of_columns(table, rows)).collect();
    let old = concat_batches(&schema(table), &old);
    let old = old.map_err(|source| EncodeError::Columns { table, source })?;
    let fresh = match encode(table, splice.hours, splice.clocks)? {
        Some(encoded) => read(table, &encoded.bytes)?,
        None => RecordBatch::new_empty(schema(table)),
    };
    let mut rows = merge(table, &old, &fresh, splice.organizations)?;
    if table == Table::Hours {
        rows = stamp(rows, splice)?;
    }
    let files = write_files(table, &rows, splice.file_rows)?;
    Ok(SplicedFiles { files, old_digests, old_incomplete: incomplete(&old), incomplete: incomplete(&rows) })
}

/// Writes rows to files that are cut between organizations.
fn write_files(table: Table, rows: &RecordBatch, file_rows: u64) -> Result<Vec<CutFile>, EncodeError> {
    let runs = runs(table, rows)?;
    let (mut cutter, mut files, mut first) = (Cutter::new(table, file_rows), Vec::new(), 0);
    for (index, run) in runs.iter().enumerate() {
        let end = run.first + run.rows;
        if cutter.ends_after(run.rows as u64) || index + 1 == runs.len() {
            let rows = rows.slice(first, end - first);
            let file = file::of_columns(table, &rows, digest::of_columns(table, &rows))?;
            files.push(CutFile { file, last_organization: run.organization_id.into() });
            first = end;
        }
    }
    Ok(files)
}

/// Reads all rows of a file that has the columns of this program.
pub fn read(table: Table, bytes: &[u8]) -> Result<RecordBatch, EncodeError> {
    guarded(|source| EncodeError::Read { table, source }, || read_whole(table, bytes))
}

fn read_whole(table: Table, bytes: &[u8]) -> Result<RecordBatch, EncodeError> {
    let unreadable = |source| EncodeError::Read { table, source };
    let builder = ParquetRecordBatchReaderBuilder::try_new(Bytes::copy_from_slice(bytes));
    let reader = builder.and_then(ParquetRecordBatchReaderBuilder::build).map_err(unreadable)?;
    let batches: Result<Vec<RecordBatch>, _> = reader.collect();
    let batches = batches.map_err(|source| EncodeError::Columns { table, source })?;
    let schema = schema(table);
    let named = batches.into_iter().map(|batch| {
        let names = |of: &arrow_schema::Schema| -> Vec<String> {
            of.fields().iter().map(|field| field.name().clone()).collect()
        };
        if names(batch.schema_ref()) != names(&schema) {
            return Err(EncodeError::Foreign { table, cause: "it has other columns" });
        }
        // Drops the file's column metadata except the types, so that the rows equal rows that were just made.
        RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec())
            .map_err(|source| EncodeError::Columns { table, source })
    });
    let named = named.collect::<Result<Vec<_>, _>>()?;
    concat_batches(&schema, &named).map_err(|source| EncodeError::Columns { table, source })
}

/// Returns the organization of each row.
fn organizations(table: Table, rows: &RecordBatch) -> Result<&StringArray, EncodeError> {
    let column =
        rows.column_by_name(organization_column(table)).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or(EncodeError::Foreign { table, cause: "it names no organizations" })
}

/// Consecutive rows of one organization.
struct Run<'a> {
    organization_id: &'a str,
    first: usize,
    rows: usize,
}

/// Returns the runs of consecutive rows of one organization. Organizations must be in ascending order.
fn runs(table: Table, rows: &RecordBatch) -> Result<Vec<Run<'_>>, EncodeError> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (row, organization_id) in organizations(table, rows)?.iter().enumerate() {
        let organization_id = organization_id.unwrap_or_default();
        match runs.last_mut() {
            Some(run) if run.organization_id == organization_id => run.rows += 1,
            Some(run) if run.organization_id > organization_id => {
                let cause = "its organizations are not in ascending order";
                return Err(EncodeError::Foreign { table, cause });
            }
            _ => runs.push(Run { organization_id, first: row, rows: 1 }),
        }
    }
    Ok(runs)
}

/// Merges the old rows of all other organizations with the new rows, in order.
fn merge(
    table: Table,
    old: &RecordBatch,
    fresh: &RecordBatch,
    replaced: &BTreeSet<OrganizationId>,
) -> Result<RecordBatch, EncodeError> {
    let stays = |run: &Run<'_>| !replaced.contains(run.organization_id);
    let mut pieces: Vec<(Run<'_>, &RecordBatch)> =
        runs(table, old)?.into_iter().filter(stays).map(|run| (run, old)).collect();
    pieces.extend(runs(table, fresh)?.into_iter().map(|run| (run, fresh)));
    pieces.sort_by_key(|(run, _)| run.organization_id);
    let pieces: Vec<RecordBatch> = pieces.iter().map(|(run, rows)| rows.slice(run.first, run.rows)).collect();
    concat_batches(&schema(table), &pieces).map_err(|source| EncodeError::Columns { table, source })
}

/// Sets revision and time of change, which belong to the hour, in every row.
fn stamp(rows: RecordBatch, splice: &TableSplice<'_>) -> Result<RecordBatch, EncodeError> {
    let count = rows.num_rows();
    let changed = splice.last_updated.event_time().0;
    let changed = TimestampMicrosecondArray::from_value(changed, count).with_timezone("UTC");
    let revision = Int64Array::from_value(splice.revision, count);
    let (schema, mut columns, _) = rows.into_parts();
    for (field, column) in schema.fields().iter().zip(&mut columns) {
        match field.name().as_str() {
            "revision" => *column = Arc::new(revision.clone()) as ArrayRef,
            "last_updated" => *column = Arc::new(changed.clone()) as ArrayRef,
            _ => {}
        }
    }
    let table = Table::Hours;
    RecordBatch::try_new(schema, columns).map_err(|source| EncodeError::Columns { table, source })
}

/// Returns the organizations whose hour is not complete; empty if the table does not have the column
/// `complete`.
fn incomplete(rows: &RecordBatch) -> Vec<OrganizationId> {
    let complete = rows.column_by_name("complete").and_then(|column| column.as_boolean_opt());
    let Some((complete, organizations)) = complete.zip(organizations(Table::Hours, rows).ok()) else {
        return Vec::new();
    };
    let named = organizations.iter().flatten().zip(complete.iter());
    named.filter(|(_, complete)| *complete == Some(false)).map(|(id, _)| id.into()).collect()
}
