//! The digest of a file depends on its rows: no setting of the writer changes it, and every value does.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use prorata_samples::hour::full_hour;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{Table, TableSplice};
use prorata_schemas::time::WallTime;
use prorata_tables::{schema, splice};

use crate::read::{HOUR, file, read};

fn hours() -> Vec<HourTables> {
    ["acme", "bird", "calm"].map(|organization_id| full_hour(organization_id, HOUR)).into()
}

/// Returns the digest that is computed when a file is read.
fn digest_of(table: Table, bytes: &[u8]) -> String {
    let splice_nothing = TableSplice {
        old: &[bytes],
        organizations: &std::collections::BTreeSet::new(),
        hours: &[],
        clocks: &[],
        revision: 0,
        last_updated: WallTime(0),
        file_rows: u64::MAX,
    };
    splice(table, &splice_nothing).unwrap().old_digests.remove(0)
}

fn write(rows: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.into_inner().unwrap()
}

/// Returns rows as this program holds them in memory.
fn rows_of(table: Table) -> RecordBatch {
    let rows = read(&file(table, &hours()).bytes);
    RecordBatch::try_new(schema(table), rows.columns().to_vec()).unwrap()
}

#[test]
fn equal_rows_have_one_digest_however_they_are_written() {
    let settings = || WriterProperties::builder();
    let zstd = Compression::ZSTD(ZstdLevel::try_new(19).unwrap());
    for table in Table::HOURLY {
        let rows = rows_of(table);
        let all = [
            settings().build(),
            settings().set_compression(Compression::UNCOMPRESSED).build(),
            settings().set_compression(zstd).set_created_by("another library 99".to_owned()).build(),
            settings().set_dictionary_enabled(false).build(),
            settings().set_max_row_group_row_count(Some(2)).build(),
            settings().set_data_page_row_count_limit(1).set_write_batch_size(1).build(),
            settings().set_writer_version(WriterVersion::PARQUET_2_0).build(),
        ];
        let ours = file(table, &hours());
        for (index, settings) in all.into_iter().enumerate() {
            let bytes = write(&rows, settings);
            assert_ne!(bytes, ours.bytes, "{} {index}", table.name());
            assert_eq!(digest_of(table, &bytes), ours.digest, "{} {index}", table.name());
        }
    }
}

/// Returns a copy of a column with another value in one row.
fn other_value(column: &ArrayRef, row: usize) -> ArrayRef {
    fn put<T: Copy>(
        values: impl Iterator<Item = Option<T>>,
        row: usize,
        other: impl Fn(Option<T>) -> T,
    ) -> Vec<Option<T>> {
        values.enumerate().map(|(at, value)| if at == row { Some(other(value)) } else { value }).collect()
    }
    let next = |value: Option<i64>| value.map_or(0, |value| value + 1);
    if let Some(texts) = column.as_string_opt::<i32>() {
        let other = |text: Option<&str>| format!("{} ", text.unwrap_or_default());
        let texts = texts.iter().enumerate();
        let texts =
            texts.map(|(at, text)| if at == row { Some(other(text)) } else { text.map(str::to_owned) });
        Arc::new(StringArray::from_iter(texts))
    } else if let Some(decimals) = column.as_primitive_opt::<Decimal128Type>() {
        let other = put(decimals.iter(), row, |value| value.map_or(0, |value| value + 1));
        Arc::new(Decimal128Array::from_iter(other).with_precision_and_scale(38, 12).unwrap())
    } else if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
        Arc::new(Int64Array::from_iter(put(numbers.iter(), row, next)))
    } else if let Some(times) = column.as_primitive_opt::<TimestampMicrosecondType>() {
        Arc::new(TimestampMicrosecondArray::from_iter(put(times.iter(), row, next)).with_timezone("UTC"))
    } else {
        let other = put(column.as_boolean().iter(), row, |value| !value.unwrap_or_default());
        Arc::new(BooleanArray::from_iter(other))
    }
}

/// Returns a column in which a row is null.
fn null_at(column: &ArrayRef, row: usize) -> ArrayRef {
    let mask: Vec<bool> = (0..column.len()).map(|at| at == row).collect();
    arrow_select::nullif::nullif(column, &BooleanArray::from(mask)).unwrap()
}

#[test]
fn one_other_value_anywhere_changes_the_digest() {
    const CLOCKS: [&str; 5] = ["late_events", "max_event_time_seen", "complete", "revision", "last_updated"];
    for table in Table::HOURLY {
        let rows = rows_of(table);
        let digest = file(table, &hours()).digest;
        for (index, field) in rows.schema().fields().iter().enumerate() {
            if table == Table::Hours && CLOCKS.contains(&field.name().as_str()) {
                continue;
            }
            // Organizations must ascend.
            let is_key = ["BillingAccountId", "organization_id"].contains(&field.name().as_str());
            for row in [0, rows.num_rows() - 1] {
                let column = rows.column(index);
                let mut others = vec![other_value(column, row)];
                if field.is_nullable() && column.is_valid(row) {
                    others.push(null_at(column, row));
                }
                if is_key && row != rows.num_rows() - 1 {
                    continue;
                }
                for other in others {
                    let mut columns = rows.columns().to_vec();
                    columns[index] = other;
                    let changed = RecordBatch::try_new(rows.schema(), columns).unwrap();
                    let found = digest_of(table, &write(&changed, WriterProperties::default()));
                    assert_ne!(found, digest, "{} of {}, row {row}", field.name(), table.name());
                }
            }
        }
    }
}

#[test]
fn rows_in_another_order_or_fewer_rows_have_another_digest() {
    let digest = |hours: &[HourTables]| file(Table::QuotaUsage, hours).digest;
    let all = hours();
    assert_ne!(digest(&all), digest(&all[..2]));
    let swapped = [all[1].clone(), all[2].clone()];
    assert_ne!(digest(&all[..2]), digest(&swapped));
}

/// The digest is stored in names. This value changes only if the form changes, and then the form's version
/// changes too.
#[test]
fn the_digest_of_known_rows_is_known() {
    let known = |table: Table| file(table, &[full_hour("acme", HOUR)]).digest;
    let digests = [
        "e5b75ab9f4ca0799092dc884cfcddcaf",
        "3aaaf75ebfc211312bb583c189128abf",
        "e39089e22274b848bbedac9c4c30e9e5",
        "f52d4d2a09856532c06b11564e276d9c",
        "fbf43606201875c75b3c61eb9c19758b",
        "ffcfaedfe9d03a32aeaaed74b9d31e43",
    ];
    assert_eq!(Table::HOURLY.map(known), digests);
}
