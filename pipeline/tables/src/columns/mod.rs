//! Columns: a name, a type, whether null may occur, and a function from row to value.
//!
//! Empty text becomes null: a table never holds an empty string.

mod bill;
pub mod charge;
mod copies;
pub mod cost;
pub mod usage;

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Decimal128Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::extension::Json;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, Timestamp};

use crate::EncodeError;

pub use copies::originals;

const PRECISION: u8 = 38;
const SCALE: i8 = 12;
const UTC: &str = "UTC";

/// Returns the column that names a row's organization.
pub(crate) const fn organization_column(table: Table) -> &'static str {
    match table {
        Table::CostAllocation | Table::ClosedAllocation => "BillingAccountId",
        _ => "organization_id",
    }
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// UTF-8 text of one JSON value, with the Parquet logical type JSON.
    Json,
    /// `decimal(38,12)`.
    Decimal,
    /// `decimal(38,12)` of `cost_allocation` that adds up over rows: a cost, a quantity or hours.
    Additive,
    /// 64-bit whole number.
    Int,
    /// Instant in microseconds, UTC.
    Time,
    /// Truth value.
    Bool,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// Text that the row owns.
    Text(&'a str),
    /// Text made for the column.
    Made(String),
    /// A decimal.
    Decimal(Decimal12),
    /// A whole number.
    Int(i64),
    /// An instant.
    Time(Timestamp),
    /// A truth value.
    Bool(bool),
}

/// One column of rows of type `R`.
pub struct Column<R> {
    /// Name of the column.
    pub name: &'static str,
    /// Type of the column.
    pub kind: Kind,
    /// Whether null may occur.
    pub nullable: bool,
    /// Returns the value of a row, of type `kind` or null.
    pub value: for<'r> fn(&'r R) -> Cell<'r>,
    /// An earlier column that has the same value in every row; both columns share one array.
    pub copy_of: Option<&'static str>,
}

/// Returns a column that may be null.
pub const fn optional<R>(name: &'static str, kind: Kind, value: for<'r> fn(&'r R) -> Cell<'r>) -> Column<R> {
    Column { name, kind, nullable: true, value, copy_of: None }
}

/// Returns a column that is never null.
pub const fn required<R>(name: &'static str, kind: Kind, value: for<'r> fn(&'r R) -> Cell<'r>) -> Column<R> {
    Column { name, kind, nullable: false, value, copy_of: None }
}

impl<'a> Cell<'a> {
    /// Returns text; null if it is empty or `None`.
    pub fn text(text: impl Into<Option<&'a str>>) -> Self {
        match text.into() {
            Some(text) if !text.is_empty() => Self::Text(text),
            _ => Self::Null,
        }
    }

    /// Returns text that was built for the column; null if it is empty or `None`.
    pub fn made(text: impl Into<Option<String>>) -> Self {
        match text.into() {
            Some(text) if !text.is_empty() => Self::Made(text),
            _ => Self::Null,
        }
    }

    /// Returns the text of a textual cell.
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Made(text) => Some(text),
            Self::Null | Self::Decimal(_) | Self::Int(_) | Self::Time(_) | Self::Bool(_) => None,
        }
    }
}

impl From<Decimal12> for Cell<'_> {
    fn from(value: Decimal12) -> Self {
        Self::Decimal(value)
    }
}

impl From<Option<Decimal12>> for Cell<'_> {
    fn from(value: Option<Decimal12>) -> Self {
        value.map_or(Self::Null, Self::Decimal)
    }
}

impl From<i64> for Cell<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<Timestamp> for Cell<'_> {
    fn from(value: Timestamp) -> Self {
        Self::Time(value)
    }
}

impl From<Hour> for Cell<'_> {
    fn from(value: Hour) -> Self {
        Self::Time(value.start())
    }
}

/// Returns the Arrow schema of columns.
pub fn schema<R>(columns: &[Column<R>]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn field<R>(column: &Column<R>) -> Field {
    let data_type = match column.kind {
        Kind::Text | Kind::Json => DataType::Utf8,
        Kind::Decimal | Kind::Additive => DataType::Decimal128(PRECISION, SCALE),
        Kind::Int => DataType::Int64,
        Kind::Time => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        Kind::Bool => DataType::Boolean,
    };
    let field = Field::new(column.name, data_type, column.nullable);
    if column.kind == Kind::Json { field.with_extension_type(Json::default()) } else { field }
}

/// Number of rows that are added to all columns at a time. Until all columns have a row, the row and the
/// values that it refers to stay in the processor's caches.
const ROWS_AT_A_TIME: usize = 256;

/// Number of sampled rows, from which the size of all texts is estimated.
const ROWS_LOOKED_AT: usize = 32;

/// Returns rows as a batch of `schema`, the schema of `columns`. `row` builds each row from its source.
///
/// # Errors
/// If a number has too many digits.
pub fn batch<S, R>(
    table: Table,
    schema: &SchemaRef,
    columns: &[Column<R>],
    (sources, mut row): (&[S], impl FnMut(&S) -> R),
) -> Result<RecordBatch, EncodeError> {
    let failed = |source| EncodeError::Columns { table, source };
    let original = |(copy, column): (usize, &Column<R>)| {
        let of = column.copy_of?;
        columns.iter().take(copy).position(|column| column.name == of)
    };
    let originals: Vec<Option<usize>> = columns.iter().enumerate().map(original).collect();
    let step = (sources.len() / ROWS_LOOKED_AT).max(ROWS_LOOKED_AT);
    let mut rows: Vec<R> = sources.iter().step_by(step).map(&mut row).collect();
    // A copy needs no values of its own.
    let values = |(column, original): (_, &Option<usize>)| {
        original.is_none().then(|| Values::new(column, sources.len(), &rows)).transpose()
    };
    let values: Result<Vec<_>, _> = columns.iter().zip(&originals).map(values).collect();
    let mut values = values.map_err(failed)?;
    for sources in sources.chunks(ROWS_AT_A_TIME) {
        rows.clear();
        rows.extend(sources.iter().map(&mut row));
        for (column, values) in columns.iter().zip(&mut values) {
            let Some(values) = values else { continue };
            values
                .add(rows.iter().map(column.value))
                .map_err(|TooManyDigits| EncodeError::Digits { table, column: column.name })?;
        }
    }
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for (values, original) in values.into_iter().zip(originals) {
        let original = original.and_then(|original| arrays.get(original).cloned());
        arrays.extend(values.map(Values::finish).or(original));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(sources.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options).map_err(failed)
}

/// The values of a column under construction.
enum Values {
    Text(StringBuilder),
    Decimal(Decimal128Builder),
    Int(Int64Builder),
    Time(TimestampMicrosecondBuilder),
    Bool(BooleanBuilder),
}

/// A number has more digits than a column holds.
struct TooManyDigits;

impl Values {
    /// Creates an empty column with space for `count` rows like these.
    fn new<R>(column: &Column<R>, count: usize, rows: &[R]) -> Result<Self, ArrowError> {
        Ok(match column.kind {
            Kind::Text | Kind::Json => {
                Self::Text(StringBuilder::with_capacity(count, text_bytes(column, count, rows)))
            }
            Kind::Decimal | Kind::Additive => {
                let builder = Decimal128Builder::with_capacity(count);
                Self::Decimal(builder.with_precision_and_scale(PRECISION, SCALE)?)
            }
            Kind::Int => Self::Int(Int64Builder::with_capacity(count)),
            Kind::Time => Self::Time(TimestampMicrosecondBuilder::with_capacity(count).with_timezone(UTC)),
            Kind::Bool => Self::Bool(BooleanBuilder::with_capacity(count)),
        })
    }

    fn add<'r>(&mut self, cells: impl Iterator<Item = Cell<'r>>) -> Result<(), TooManyDigits> {
        match self {
            Self::Text(builder) => cells.for_each(|cell| builder.append_option(cell.as_text())),
            Self::Decimal(builder) => {
                for cell in cells {
                    builder.append_option(digits(&cell)?);
                }
            }
            Self::Int(builder) => cells
                .for_each(|cell| builder.append_option(if let Cell::Int(n) = cell { Some(n) } else { None })),
            Self::Time(builder) => cells.for_each(|cell| {
                builder.append_option(if let Cell::Time(t) = cell { Some(t.0) } else { None })
            }),
            Self::Bool(builder) => cells.for_each(|cell| {
                builder.append_option(if let Cell::Bool(b) = cell { Some(b) } else { None })
            }),
        }
        Ok(())
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Text(mut builder) => Arc::new(builder.finish()),
            Self::Decimal(mut builder) => Arc::new(builder.finish()),
            Self::Int(mut builder) => Arc::new(builder.finish()),
            Self::Time(mut builder) => Arc::new(builder.finish()),
            Self::Bool(mut builder) => Arc::new(builder.finish()),
        }
    }
}

/// Estimates the bytes of a column's texts in `count` rows like these. A builder that grows step by step
/// would move long columns again and again.
fn text_bytes<R>(column: &Column<R>, count: usize, rows: &[R]) -> usize {
    let bytes: usize = rows.iter().map(|row| (column.value)(row).as_text().map_or(0, str::len)).sum();
    // An eighth more, for the rows that were not sampled.
    bytes * count / std::cmp::max(rows.len(), 1) * 9 / 8
}

/// Returns the value of a row in a column of one of our types; null if the column has another type.
pub fn cell_of(column: &dyn Array, row: usize) -> Cell<'_> {
    if column.is_null(row) {
        return Cell::Null;
    }
    if let Some(text) = column.as_string_opt::<i32>() {
        Cell::Text(text.value(row))
    } else if let Some(decimal) = column.as_primitive_opt::<Decimal128Type>() {
        Cell::Decimal(Decimal12::from_atoms(decimal.value(row)))
    } else if let Some(number) = column.as_primitive_opt::<Int64Type>() {
        Cell::Int(number.value(row))
    } else if let Some(time) = column.as_primitive_opt::<TimestampMicrosecondType>() {
        Cell::Time(Timestamp(time.value(row)))
    } else if let Some(truth) = column.as_boolean_opt() {
        Cell::Bool(truth.value(row))
    } else {
        Cell::Null
    }
}

/// Returns a decimal's atoms; `None` if the cell is not a decimal. Fails if the atoms have more than 38
/// digits.
fn digits(cell: &Cell<'_>) -> Result<Option<i128>, TooManyDigits> {
    const LIMIT: u128 = 10_u128.pow(PRECISION as u32);
    match cell {
        Cell::Decimal(value) if value.atoms().unsigned_abs() >= LIMIT => Err(TooManyDigits),
        Cell::Decimal(value) => Ok(Some(value.atoms())),
        _ => Ok(None),
    }
}
