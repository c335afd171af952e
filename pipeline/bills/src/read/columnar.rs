//! Reads Parquet, in batches of rows, and only the columns that the format needs.

use std::fmt;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray};
use arrow_schema::{DataType, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::reader::ChunkReader;
use prorata_schemas::time::{Date, Timestamp};

use super::{EachLine, Source};
use crate::cells::{Row, find_columns};
use crate::fault::{BillError, Place};

/// Number of rows in memory.
const BATCH_ROWS: usize = 4_096;

/// Reads the rows of a file.
pub fn read<D: ChunkReader + 'static>(
    source: &Source<'_>,
    document: D,
    each: EachLine<'_>,
) -> Result<(), BillError> {
    // Without the schema of the writer, each kind of value has one type.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(document, options)
        .map_err(|error| source.broken(None, &error))?;
    let names: Vec<String> = builder.schema().fields().iter().map(|field| field.name().clone()).collect();
    let places = find_columns(source.columns, names.iter().map(String::as_str));
    let places = places.map_err(|columns| source.lacks(columns))?;
    let wanted: Vec<Option<&str>> = places.iter().map(|place| Some(names.get((*place)?)?.as_str())).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), places.iter().flatten().copied());
    let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build();
    let mut row = Row::new(source.columns);
    let (mut number, mut last) = (0, None);
    for batch in reader.map_err(|error| source.broken(None, &error))? {
        let batch = batch.map_err(|error| source.broken(last, &error))?;
        let columns = values(source, &batch, &wanted)?;
        for index in 0..batch.num_rows() {
            number += 1;
            let place = Place::Row(number);
            last = Some(place);
            row.clear();
            columns.iter().for_each(|column| column.push(index, &mut row));
            each(place, Ok(&row))?;
        }
    }
    Ok(())
}

/// Returns the wanted columns of a batch.
fn values<'b>(
    source: &Source<'_>,
    batch: &'b RecordBatch,
    wanted: &[Option<&str>],
) -> Result<Vec<Values<'b>>, BillError> {
    let column = |name: &Option<&str>| -> Result<Values<'b>, BillError> {
        let array = name.and_then(|name| batch.column_by_name(name));
        let Some(array) = array else { return Ok(Values { nulls: None, kind: ValueKind::Absent }) };
        let kind = ValueKind::of(array).ok_or_else(|| {
            let (name, found) = (name.unwrap_or_default(), array.data_type());
            let fix = "export it as text, a number or a timestamp";
            source.error(format!("column {name} has the type {found}; {fix}"))
        })?;
        Ok(Values { nulls: Some(array), kind })
    };
    wanted.iter().map(column).collect()
}

/// The values of a column in a batch.
struct Values<'b> {
    /// The array, which knows where values are null.
    nulls: Option<&'b ArrayRef>,
    kind: ValueKind<'b>,
}

/// Values by their type.
enum ValueKind<'b> {
    Absent,
    Text(&'b StringArray),
    Bytes(&'b BinaryArray),
    Double(&'b [f64]),
    Float(&'b [f32]),
    Long(&'b [i64]),
    Int(&'b [i32]),
    /// Whole numbers, and the number of their decimals.
    Decimal(&'b [i128], u32),
    Time(&'b [i64], TimeUnit),
    /// Days since 1970-01-01.
    Date(&'b [i32]),
}

impl<'b> ValueKind<'b> {
    /// Returns the values of an array; `None` if its type is not one of bills.
    fn of(array: &'b ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Null => Self::Absent,
            DataType::Utf8 => Self::Text(array.as_string_opt::<i32>()?),
            DataType::Binary => Self::Bytes(array.as_binary_opt::<i32>()?),
            DataType::Float64 => Self::Double(array.as_primitive_opt::<Float64Type>()?.values()),
            DataType::Float32 => Self::Float(array.as_primitive_opt::<Float32Type>()?.values()),
            DataType::Int64 => Self::Long(array.as_primitive_opt::<Int64Type>()?.values()),
            DataType::Int32 => Self::Int(array.as_primitive_opt::<Int32Type>()?.values()),
            DataType::Date32 => Self::Date(array.as_primitive_opt::<Date32Type>()?.values()),
            DataType::Decimal128(_, scale) => {
                let values = array.as_primitive_opt::<Decimal128Type>()?.values();
                Self::Decimal(values, u32::try_from(*scale).ok()?)
            }
            DataType::Timestamp(unit, _) => {
                let values: &[i64] = match unit {
                    TimeUnit::Second => array.as_primitive_opt::<TimestampSecondType>()?.values(),
                    TimeUnit::Millisecond => array.as_primitive_opt::<TimestampMillisecondType>()?.values(),
                    TimeUnit::Microsecond => array.as_primitive_opt::<TimestampMicrosecondType>()?.values(),
                    TimeUnit::Nanosecond => array.as_primitive_opt::<TimestampNanosecondType>()?.values(),
                };
                Self::Time(values, *unit)
            }
            _ => return None,
        })
    }
}

impl Values<'_> {
    /// Adds a value as the next cell of a row.
    fn push(&self, index: usize, row: &mut Row) {
        if self.nulls.is_none_or(|array| array.is_null(index)) {
            return row.push("");
        }
        match &self.kind {
            ValueKind::Absent => row.push(""),
            ValueKind::Text(values) => row.push(values.value(index)),
            ValueKind::Bytes(values) => row.push(&String::from_utf8_lossy(values.value(index))),
            // A double prints as the shortest decimal that is nearest to no other double. That is the decimal
            // that the provider wrote, if it has at most 15 digits. The bits of the double are no better.
            ValueKind::Double(values) => push_some(row, values.get(index)),
            ValueKind::Float(values) => push_some(row, values.get(index)),
            ValueKind::Long(values) => push_some(row, values.get(index)),
            ValueKind::Int(values) => push_some(row, values.get(index)),
            ValueKind::Decimal(values, scale) => {
                push_some(row, values.get(index).map(|value| Scaled { value: *value, scale: *scale }));
            }
            ValueKind::Time(values, unit) => {
                push_some(row, values.get(index).map(|value| Timestamp(micros(*value, *unit))));
            }
            ValueKind::Date(values) => {
                push_some(row, values.get(index).map(|days| Date::from_days(i64::from(*days))));
            }
        }
    }
}

fn push_some(row: &mut Row, value: Option<impl fmt::Display>) {
    match value {
        Some(value) => row.push_value(value),
        None => row.push(""),
    }
}

/// Converts a time to microseconds. A time out of range becomes the last of all, which no bill has.
fn micros(value: i64, unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => value.saturating_mul(1_000_000),
        TimeUnit::Millisecond => value.saturating_mul(1_000),
        TimeUnit::Microsecond => value,
        TimeUnit::Nanosecond => value.div_euclid(1_000),
    }
}

/// A decimal as Parquet stores it.
struct Scaled {
    value: i128,
    scale: u32,
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, magnitude) = (if self.value < 0 { "-" } else { "" }, self.value.unsigned_abs());
        match 10_u128.checked_pow(self.scale) {
            Some(one) if one > 1 => {
                let (whole, fraction) = (magnitude / one, magnitude % one);
                let places = usize::try_from(self.scale).unwrap_or_default();
                write!(f, "{sign}{whole}.{fraction:0>places$}")
            }
            _ => write!(f, "{sign}{magnitude}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_of_parquet_print_with_all_places() {
        for (value, scale, text) in [(-5, 3, "-0.005"), (123, 2, "1.23"), (7, 0, "7"), (0, 9, "0.000000000")]
        {
            assert_eq!(Scaled { value, scale }.to_string(), text);
        }
    }
}
