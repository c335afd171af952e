//! The Parquet file: zstd, dictionaries, page statistics, row groups of at most a million rows.
//!
//! Columns with one value in the whole file are not compressed: a dictionary of one value is only a few
//! bytes. Columns whose values are nearly all different have no dictionary.
//!
//! The bytes depend on the rows alone, not on a clock or a run; the name of the writer is fixed. The embedded
//! Arrow schema declares JSON columns as text. Without it, Polars reads columns of the logical type JSON as
//! binary and rejects the table.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ArrowWriter, encode_arrow_schema};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use prorata_schemas::tables::{EncodedFile, Table};
use zstd::bulk::Compressor;

use crate::EncodeError;
use crate::columns::{self, Column};
use crate::digest::RowsDigest;
use crate::row_group::{self, BatchWriter};
use crate::stats::Statistics;

/// Largest number of rows in a row group.
const ROW_GROUP_ROWS: usize = 1_000_000;

/// Number of rows that are converted to columns at a time. It bounds the memory of a large hour.
pub const BATCH_ROWS: usize = 65_536;

/// Name of the writer. It has the form that readers parse, because some readers otherwise distrust the
/// statistics of text columns. The number counts our layouts, not releases: a new release writes the same
/// bytes.
const CREATED_BY: &str = "prorata version 1";

/// Compression level. Without needless dictionaries, files are no smaller at level 3 than at level 1.
pub const ZSTD_LEVEL: i32 = 1;

/// Columns in which at least half of the values in a file are distinct. A dictionary would be larger than the
/// values.
const DISTINCT: [&str; 28] = [
    "AllocatedMethodDetails",
    "AllocatedResourceId",
    "AllocatedResourceName",
    "BilledCost",
    "ChargeDescription",
    "ConsumedQuantity",
    "ContractedCost",
    "EffectiveCost",
    "ListCost",
    "PricingCurrencyEffectiveCost",
    "PricingQuantity",
    "x_CpuCoreHours",
    "x_CpuCost",
    "x_CpuSplitUsageRatio",
    "x_EstimatedCost",
    "x_MemoryCost",
    "x_MemoryGibHours",
    "x_MemorySplitUsageRatio",
    "x_PodName",
    "x_PodUid",
    "x_PoolCharge",
    "x_RequestedCpuCoreHours",
    "x_RequestedMemoryGibHours",
    "x_RunningSeconds",
    "x_SplitCost",
    "x_UnusedCost",
    "x_UsedCpuCoreHours",
    "x_UsedMemoryGibHours",
];

/// Texts that no query compares, so the minimum and the maximum do not help readers.
const WITHOUT_BOUNDS: [&str; 5] =
    ["AllocatedMethodDetails", "AllocatedTags", "ChargeDescription", "SkuPriceDetails", "Tags"];

/// Returns the file of rows of type `R`; `None` if there are no rows. `row` builds each row from its source
/// when the columns are built.
///
/// # Errors
/// If a number has too many digits, or the rows cannot be written.
pub fn write_rows<S, R>(
    table: Table,
    columns: &[Column<R>],
    sources: &[S],
    mut row: impl FnMut(&S) -> R,
) -> Result<Option<EncodedFile>, EncodeError> {
    if sources.is_empty() {
        return Ok(None);
    }
    let failed = |source| EncodeError::Write { table, source };
    let (schema, count) = (columns::schema(columns), sources.len() as u64);
    let (mut stats, mut digest) = (Statistics::of(table), RowsDigest::default());
    let mut batch = |sources: &[S]| {
        let batch = columns::batch(table, &schema, columns, (sources, &mut row))?;
        stats.add(&batch);
        digest.add(&batch);
        Ok(batch)
    };
    let bytes = if sources.len() <= BATCH_ROWS {
        write_whole(&batch(sources)?, None).map_err(failed)?
    } else {
        let mut writer = open_batches(&schema).map_err(failed)?;
        for sources in sources.chunks(BATCH_ROWS) {
            writer.write(&batch(sources)?).map_err(failed)?;
        }
        writer.finish().map_err(failed)?
    };
    Ok(Some(EncodedFile { bytes, rows: count, stats: stats.into_json(count), digest: digest.finish() }))
}

/// Writes rows that are already columns, to the same bytes as [`write_rows`].
fn write_columns(rows: &RecordBatch) -> Result<Vec<u8>, ParquetError> {
    let count = rows.num_rows();
    if count <= BATCH_ROWS {
        return write_whole(rows, None);
    }
    let mut writer = open_batches(rows.schema_ref())?;
    for first in (0..count).step_by(BATCH_ROWS) {
        writer.write(&rows.slice(first, BATCH_ROWS.min(count - first)))?;
    }
    writer.finish()
}

/// Writes a file of one batch, with `entry` in its footer if there is one. All rows are known before they are
/// written, so the constant columns are known too.
pub fn write_whole(rows: &RecordBatch, entry: Option<KeyValue>) -> Result<Vec<u8>, ParquetError> {
    let mut writer = open(rows.schema_ref(), Compression::UNCOMPRESSED)?;
    if let Some(entry) = entry {
        writer.append_key_value_metadata(entry);
    }
    row_group::write(writer, rows, &constant_columns(rows), &mut Compressor::new(ZSTD_LEVEL)?)
}

/// Returns a table file of columnar rows; `digest` is the digest of the rows.
///
/// # Errors
/// If the rows cannot be written.
pub fn of_columns(table: Table, rows: &RecordBatch, digest: String) -> Result<EncodedFile, EncodeError> {
    let bytes = write_columns(rows).map_err(|source| EncodeError::Write { table, source })?;
    let mut stats = Statistics::of(table);
    stats.add(rows);
    let count = rows.num_rows() as u64;
    Ok(EncodedFile { bytes, rows: count, stats: stats.into_json(count), digest })
}

/// Opens a file that is written in several batches. All its columns are compressed.
pub fn open_batches(schema: &SchemaRef) -> Result<BatchWriter, ParquetError> {
    let writer = open(schema, Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))?;
    BatchWriter::new(writer, ROW_GROUP_ROWS)
}

/// Opens a file whose columns the Parquet library compresses with `compression`.
pub fn open(schema: &SchemaRef, compression: Compression) -> Result<ArrowWriter<Vec<u8>>, ParquetError> {
    let options = ArrowWriterOptions::new()
        .with_properties(properties(schema).set_compression(compression).build())
        .with_skip_arrow_metadata(true);
    ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(schema), options)
}

/// Returns the indices of columns that have one value, or null, in all rows. Columns without a dictionary are
/// never among them.
pub fn constant_columns(batch: &RecordBatch) -> Vec<usize> {
    let rows = batch.num_rows().saturating_sub(1);
    let constant = |index: &usize| {
        let column = batch.column(*index);
        let has_dictionary = !DISTINCT.contains(&batch.schema_ref().field(*index).name().as_str());
        has_dictionary && column.slice(0, rows).to_data() == column.slice(1, rows).to_data()
    };
    (0..batch.num_columns()).filter(constant).collect()
}

/// Returns the properties with which all our files are written.
pub fn properties(schema: &Schema) -> WriterPropertiesBuilder {
    let has = |name: &&str| schema.index_of(name).is_ok();
    let properties = WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_dictionary_enabled(true)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_key_value_metadata(arrow_schema(schema).map(|hint| vec![hint]));
    let properties = DISTINCT.into_iter().filter(has).fold(properties, |properties, name| {
        properties.set_column_dictionary_enabled(ColumnPath::from(name), false)
    });
    WITHOUT_BOUNDS.into_iter().filter(has).fold(properties, |properties, name| {
        properties.set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::None)
    })
}

/// Returns the Arrow schema to embed; `None` if no column needs it. The schema lacks the metadata of fields,
/// which the writer would store in an arbitrary order.
fn arrow_schema(schema: &Schema) -> Option<KeyValue> {
    let plain = |field: &Field| Field::new(field.name(), field.data_type().clone(), field.is_nullable());
    let json = schema
        .fields()
        .iter()
        .any(|field| *field.data_type() == DataType::Utf8 && !field.metadata().is_empty());
    let plain = Schema::new(schema.fields().iter().map(|field| plain(field)).collect::<Vec<_>>());
    json.then(|| KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(&plain)))
}
