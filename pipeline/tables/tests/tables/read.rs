//! Helpers that write rows to a file and read them back as text.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{EncodedFile, HourClock, Table};
use prorata_schemas::time::{Hour, Timestamp, WallTime};
use prorata_tables::encode;

/// 2026-11-20T13.
pub const HOUR: Hour = Hour(498_661);

pub fn clock() -> HourClock {
    HourClock {
        late_events: 2,
        max_event_time_seen: Some(Timestamp(HOUR.start().0 + 5)),
        complete: true,
        revision: 3,
        last_updated: WallTime(HOUR.end().0),
    }
}

pub fn file(table: Table, hours: &[HourTables]) -> EncodedFile {
    encode(table, hours, &vec![clock(); hours.len()]).unwrap().unwrap()
}

pub fn read(bytes: &[u8]) -> RecordBatch {
    let bytes = Bytes::copy_from_slice(bytes);
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    let reader = builder.with_batch_size(100_000).build().unwrap();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    assert_eq!(batches.len(), 1);
    batches[0].clone()
}

/// Returns the values of a row by column, as text; null columns are left out.
pub fn texts(batch: &RecordBatch, row: usize) -> BTreeMap<String, String> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    columns
        .filter(|(_, column)| column.is_valid(row))
        .map(|(field, column)| (field.name().clone(), text(column, row)))
        .collect()
}

pub fn text(column: &dyn Array, row: usize) -> String {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Decimal128Type, Int64Type, TimestampMicrosecondType};
    use arrow_schema::DataType;
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::Decimal128(38, 12) => prorata_schemas::decimal::Decimal12::from_atoms(
            column.as_primitive::<Decimal128Type>().value(row),
        )
        .to_string(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Timestamp(_, Some(zone)) if &**zone == "UTC" => {
            Timestamp(column.as_primitive::<TimestampMicrosecondType>().value(row)).to_string()
        }
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        other => panic!("no column is of type {other}"),
    }
}

/// Asserts values; `-` stands for null.
#[track_caller]
pub fn assert_values(row: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(row.get(*name).map_or("-", String::as_str), *value, "{name}");
    }
}
