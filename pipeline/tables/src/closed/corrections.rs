//! Corrections: the rows that make closed rows equal to the ledger's rows of one date.
//!
//! Rows that agree in all columns except the additive ones, the charge class and the billing period form a
//! group. A group becomes one correction if the ledger and the closed rows differ in any sum.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Decimal128Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use prorata_schemas::time::Timestamp;

use super::{CORRECTION, HOUR, TABLE, additive, decimals, instants, no_columns};
use crate::{EncodeError, schema};

/// Columns in which a correction differs from the row that it corrects.
const FREE: [&str; 3] = ["ChargeClass", "BillingPeriodStart", "BillingPeriodEnd"];

/// The first number that needs more than 38 digits.
const LIMIT: u128 = 10_u128.pow(38);

/// Rows with equal values in all columns that identify a charge.
struct ChargeGroup {
    /// One of the rows.
    row: usize,
    /// For each additive column, the ledger's sum minus the closed sum; `None` if all values are null.
    sums: Vec<Option<i128>>,
}

/// Returns the corrections, ordered by hour and then by the values of their groups. They belong to the
/// billing period `period`: its first instant, and the first instant after it.
///
/// # Errors
/// If a sum needs more than 38 digits.
pub fn between(
    ledger: &RecordBatch,
    closed: &RecordBatch,
    period: (Timestamp, Timestamp),
) -> Result<RecordBatch, EncodeError> {
    let all = concat_batches(&schema(TABLE), [ledger, closed]).map_err(no_columns)?;
    let names = additive();
    let keys = keys(&all, &names).map_err(no_columns)?;
    let groups = groups(&all, &names, ledger.num_rows(), &keys)?;
    let rows = UInt64Array::from_iter_values(groups.iter().map(|group| group.row as u64));
    let rows = take_record_batch(&all, &rows).map_err(no_columns)?;
    let instant = |Timestamp(micros): Timestamp| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from_value(micros, groups.len()).with_timezone("UTC"))
    };
    let (schema, mut columns, _) = rows.into_parts();
    for (field, column) in schema.fields().iter().zip(&mut columns) {
        let name = field.name().as_str();
        if let Some(index) = names.iter().position(|additive| *additive == name) {
            let sums = groups.iter().map(|group| group.sums.get(index).copied().flatten());
            let sums: Decimal128Array = sums.collect();
            *column = Arc::new(sums.with_data_type(field.data_type().clone()));
        }
        match name {
            "ChargeClass" => *column = Arc::new(StringArray::from(vec![CORRECTION; groups.len()])),
            "BillingPeriodStart" => *column = instant(period.0),
            "BillingPeriodEnd" => *column = instant(period.1),
            _ => {}
        }
    }
    RecordBatch::try_new(schema, columns).map_err(no_columns)
}

/// Returns, for each row, the values that identify its group.
fn keys(rows: &RecordBatch, additive: &[&str]) -> Result<Rows, ArrowError> {
    let columns = rows.schema_ref().fields().iter().zip(rows.columns());
    let identifying = columns
        .filter(|(field, _)| !additive.contains(&field.name().as_str()))
        .filter(|(field, _)| !FREE.contains(&field.name().as_str()));
    let (fields, columns): (Vec<SortField>, Vec<ArrayRef>) = identifying
        .map(|(field, column)| (SortField::new(field.data_type().clone()), Arc::clone(column)))
        .unzip();
    RowConverter::new(fields)?.convert_columns(&columns)
}

/// Returns the groups with a difference. The first `ledger` rows are the ledger's, and all others are closed.
fn groups(
    rows: &RecordBatch,
    additive: &[&'static str],
    ledger: usize,
    keys: &Rows,
) -> Result<Vec<ChargeGroup>, EncodeError> {
    let columns: Result<Vec<&Decimal128Array>, _> =
        additive.iter().map(|name| decimals(rows, name)).collect();
    let columns = columns?;
    let mut groups: BTreeMap<(i64, &[u8]), ChargeGroup> = BTreeMap::new();
    for (row, hour) in instants(rows, HOUR)?.iter().enumerate() {
        let empty = || ChargeGroup { row, sums: vec![None; columns.len()] };
        let group = groups.entry((*hour, keys.row(row).data())).or_insert_with(empty);
        for ((sum, column), name) in group.sums.iter_mut().zip(&columns).zip(additive) {
            if column.is_null(row) {
                continue;
            }
            let (before, value) = (sum.unwrap_or_default(), column.value(row));
            let after = if row < ledger { before.checked_add(value) } else { before.checked_sub(value) };
            let after = after.filter(|sum| sum.unsigned_abs() < LIMIT);
            *sum = Some(after.ok_or(EncodeError::Digits { table: TABLE, column: name })?);
        }
    }
    let differs = |group: &ChargeGroup| group.sums.iter().flatten().any(|sum| *sum != 0);
    Ok(groups.into_values().filter(differs).collect())
}
