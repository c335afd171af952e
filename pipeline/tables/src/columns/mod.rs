//! Columns: a name, a type, whether null may occur, and how a row gives the value.
//!
//! Text that is empty is null: a table never holds an empty string.

pub mod charge;
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
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, Timestamp};

use crate::EncodeError;

const PRECISION: u8 = 38;
const SCALE: i8 = 12;
const UTC: &str = "UTC";

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// UTF-8 text of one JSON value, with the Parquet logical type JSON.
    Json,
    /// `decimal(38,12)`.
    Decimal,
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
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Whether null may occur.
    pub nullable: bool,
    /// The value of a row, of type `kind` or null.
    pub value: for<'r> fn(&'r R) -> Cell<'r>,
    /// A column before it that has the same value in every row: the two are one array.
    pub copy_of: Option<&'static str>,
}

/// A column that may be null.
pub const fn optional<R>(name: &'static str, kind: Kind, value: for<'r> fn(&'r R) -> Cell<'r>) -> Column<R> {
    Column { name, kind, nullable: true, value, copy_of: None }
}

/// A column that is never null.
pub const fn required<R>(name: &'static str, kind: Kind, value: for<'r> fn(&'r R) -> Cell<'r>) -> Column<R> {
    Column { name, kind, nullable: false, value, copy_of: None }
}

impl<'a> Cell<'a> {
    /// Text, or null when it is empty or none.
    pub fn text(text: impl Into<Option<&'a str>>) -> Self {
        match text.into() {
            Some(text) if !text.is_empty() => Self::Text(text),
            _ => Self::Null,
        }
    }

    /// Text made for the column; null when empty or none.
    pub fn made(text: impl Into<Option<String>>) -> Self {
        match text.into() {
            Some(text) if !text.is_empty() => Self::Made(text),
            _ => Self::Null,
        }
    }

    /// The text of a textual cell.
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

/// The Arrow schema of columns.
pub fn schema<R>(columns: &[Column<R>]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn field<R>(column: &Column<R>) -> Field {
    let data_type = match column.kind {
        Kind::Text | Kind::Json => DataType::Utf8,
        Kind::Decimal => DataType::Decimal128(PRECISION, SCALE),
        Kind::Int => DataType::Int64,
        Kind::Time => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        Kind::Bool => DataType::Boolean,
    };
    let field = Field::new(column.name, data_type, column.nullable);
    if column.kind == Kind::Json { field.with_extension_type(Json::default()) } else { field }
}

/// The rows as a batch of `schema`, which is that of `columns`.
pub fn batch<R>(
    table: Table,
    schema: &SchemaRef,
    columns: &[Column<R>],
    rows: &[R],
) -> Result<RecordBatch, EncodeError> {
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for column in columns {
        let original = column.copy_of.and_then(|of| columns.iter().position(|column| column.name == of));
        let array = match original.and_then(|original| arrays.get(original)) {
            Some(original) => Arc::clone(original),
            None => array(table, column, rows)?,
        };
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
        .map_err(|source| EncodeError::Columns { table, source })
}

fn array<R>(table: Table, column: &Column<R>, rows: &[R]) -> Result<ArrayRef, EncodeError> {
    let cells = rows.iter().map(column.value);
    Ok(match column.kind {
        Kind::Text | Kind::Json => {
            let mut builder = StringBuilder::with_capacity(rows.len(), text_bytes(column, rows));
            cells.for_each(|cell| builder.append_option(cell.as_text()));
            Arc::new(builder.finish())
        }
        Kind::Decimal => {
            let mut builder = Decimal128Builder::with_capacity(rows.len())
                .with_precision_and_scale(PRECISION, SCALE)
                .map_err(|source| EncodeError::Columns { table, source })?;
            for cell in cells {
                builder.append_option(digits(table, column.name, &cell)?);
            }
            Arc::new(builder.finish())
        }
        Kind::Int => {
            let mut builder = Int64Builder::with_capacity(rows.len());
            cells
                .for_each(|cell| builder.append_option(if let Cell::Int(n) = cell { Some(n) } else { None }));
            Arc::new(builder.finish())
        }
        Kind::Time => {
            let mut builder = TimestampMicrosecondBuilder::with_capacity(rows.len()).with_timezone(UTC);
            cells.for_each(|cell| {
                builder.append_option(if let Cell::Time(t) = cell { Some(t.0) } else { None })
            });
            Arc::new(builder.finish())
        }
        Kind::Bool => {
            let mut builder = BooleanBuilder::with_capacity(rows.len());
            cells.for_each(|cell| {
                builder.append_option(if let Cell::Bool(b) = cell { Some(b) } else { None })
            });
            Arc::new(builder.finish())
        }
    })
}

/// About how many bytes the texts of a column have, by some of its rows. A builder that grows step by step
/// would move long columns again and again.
fn text_bytes<R>(column: &Column<R>, rows: &[R]) -> usize {
    const LOOKED_AT: usize = 32;
    let step = (rows.len() / LOOKED_AT).max(LOOKED_AT);
    let some = rows.iter().step_by(step).map(|row| (column.value)(row).as_text().map_or(0, str::len));
    let (count, bytes) = some.fold((0, 0), |(count, bytes), length| (count + 1, bytes + length));
    // An eighth more, for rows that were not looked at.
    bytes * rows.len() / std::cmp::max(count, 1) * 9 / 8
}

/// The value of a row in a column of one of our types.
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

/// A decimal's units, which fill at most 38 digits.
fn digits(table: Table, column: &'static str, cell: &Cell<'_>) -> Result<Option<i128>, EncodeError> {
    const LIMIT: u128 = 10_u128.pow(PRECISION as u32);
    match cell {
        Cell::Decimal(value) if value.atoms().unsigned_abs() >= LIMIT => {
            Err(EncodeError::Digits { table, column })
        }
        Cell::Decimal(value) => Ok(Some(value.atoms())),
        _ => Ok(None),
    }
}
