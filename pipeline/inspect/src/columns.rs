//! Values of a table file, by column name.

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{ArrowError, Schema};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, Timestamp};
use prorata_tables::{EncodeError, guarded};

/// An error that makes a file unreadable.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not Parquet, or a part of it is damaged.
    #[error("{0}")]
    Parquet(#[from] ParquetError),
    /// The rows cannot be decoded.
    #[error("{0}")]
    Rows(#[from] ArrowError),
    /// The columns differ from the columns of this release.
    #[error(transparent)]
    Layout(#[from] EncodeError),
    /// A required column is missing, or has another type.
    #[error("column {0} is missing or has another type")]
    Column(&'static str),
}

/// The rows of one batch of a file.
pub struct Rows(RecordBatch);

/// Reads columns of a file, and passes the rows to `each`, batch by batch.
///
/// # Errors
/// If the file cannot be read, or `each` returns an error.
pub fn read(
    bytes: Bytes,
    columns: &[&str],
    each: impl FnMut(&Rows) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    guarded(ReadError::Parquet, || read_columns(bytes, columns, each))
}

fn read_columns(
    bytes: Bytes,
    columns: &[&str],
    mut each: impl FnMut(&Rows) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
    let kept = builder.schema().fields().iter().enumerate();
    let kept = kept.filter(|(_, field)| columns.contains(&field.name().as_str())).map(|(index, _)| index);
    let mask = ProjectionMask::roots(builder.parquet_schema(), kept.collect::<Vec<_>>());
    for batch in builder.with_projection(mask).build()? {
        each(&Rows(batch?))?;
    }
    Ok(())
}

/// Returns a message about how the columns of a file differ from the columns of this release. Returns `None`
/// if they do not differ, or if no reader would notice.
///
/// # Errors
/// If the file is not Parquet.
pub fn drift(table: Table, bytes: Bytes) -> Result<Option<String>, ReadError> {
    guarded(ReadError::Parquet, || {
        let found = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
        Ok(compare(found.schema(), &prorata_tables::schema(table)))
    })
}

fn compare(found: &Schema, wanted: &Schema) -> Option<String> {
    let foreign = found.fields().iter().find_map(|field| match wanted.field_with_name(field.name()) {
        Err(_) => Some(format!("column {} is not one of this release", field.name())),
        Ok(wanted) if wanted.data_type() != field.data_type() => {
            Some(format!("column {} is {}, not {}", field.name(), field.data_type(), wanted.data_type()))
        }
        Ok(_) => None,
    });
    // A file of an older release lacks newer columns; they are read as null.
    let missing = || {
        let missing = wanted
            .fields()
            .iter()
            .find(|field| !field.is_nullable() && found.field_with_name(field.name()).is_err());
        missing.map(|field| format!("column {} is missing", field.name()))
    };
    foreign.or_else(missing)
}

impl Rows {
    /// Wraps the rows of a batch.
    pub const fn new(batch: RecordBatch) -> Self {
        Self(batch)
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.0.num_rows()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn column<'a, A: 'a>(
        &'a self,
        name: &'static str,
        cast: impl FnOnce(&'a dyn Array) -> Option<&'a A>,
    ) -> Result<&'a A, ReadError> {
        self.0.column_by_name(name).and_then(|column| cast(&**column)).ok_or(ReadError::Column(name))
    }

    /// Returns the texts of a column.
    ///
    /// # Errors
    /// If there is no such column of text.
    pub fn texts(&self, name: &'static str) -> Result<Vec<Option<&str>>, ReadError> {
        let column = self.column(name, |column| column.as_string_opt::<i32>())?;
        Ok(column.iter().collect())
    }

    /// Returns the amounts of a column.
    ///
    /// # Errors
    /// If there is no such column of decimals.
    pub fn amounts(&self, name: &'static str) -> Result<Vec<Option<Decimal12>>, ReadError> {
        let column = self.column(name, |column| column.as_primitive_opt::<Decimal128Type>())?;
        Ok(column.iter().map(|atoms| atoms.map(Decimal12::from_atoms)).collect())
    }

    /// Returns the whole numbers of a column.
    ///
    /// # Errors
    /// If there is no such column of 64-bit numbers.
    pub fn integers(&self, name: &'static str) -> Result<Vec<Option<i64>>, ReadError> {
        Ok(self.column(name, |column| column.as_primitive_opt::<Int64Type>())?.iter().collect())
    }

    /// Returns the boolean values of a column.
    ///
    /// # Errors
    /// If there is no such column of boolean values.
    pub fn flags(&self, name: &'static str) -> Result<Vec<Option<bool>>, ReadError> {
        Ok(self.column(name, |column| column.as_boolean_opt())?.iter().collect())
    }

    /// Returns the hour that contains each instant of a column.
    ///
    /// # Errors
    /// If there is no such column of instants.
    pub fn hours(&self, name: &'static str) -> Result<Vec<Option<Hour>>, ReadError> {
        let column = self.column(name, |column| column.as_primitive_opt::<TimestampMicrosecondType>())?;
        Ok(column.iter().map(|micros| micros.map(|micros| Timestamp(micros).hour())).collect())
    }
}
