//! The Parquet file: zstd, dictionaries, page statistics, row groups of a million rows at most.
//!
//! Columns that say one thing in the whole file are not compressed: a dictionary of one value is a few bytes
//! already.
//!
//! Bytes depend on the rows alone: no clock, no run, a fixed name of the writer. The embedded Arrow schema
//! says that JSON columns are text, else Polars reads columns of the logical type JSON as binary and refuses
//! the table.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ArrowWriter, encode_arrow_schema};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use prorata_schemas::tables::{EncodedFile, Table};
use zstd::bulk::Compressor;

use crate::columns::{self, Column};
use crate::digest::RowsDigest;
use crate::stats::{self, ColumnStats, Statistics};
use crate::{EncodeError, row_group, stats_columns};

/// Most rows in a row group.
const ROW_GROUP_ROWS: usize = 1_000_000;

/// Rows turned into columns at a time: bounds the memory of a large hour.
pub const BATCH_ROWS: usize = 65_536;

/// In the form that readers parse, because some readers otherwise distrust the statistics of text columns.
/// The number is that of our layout, not of a release: a new release writes the same bytes.
const CREATED_BY: &str = "prorata version 1";

/// The level of compression.
pub const ZSTD_LEVEL: i32 = 3;

/// Writes rows of type `R` to one file.
pub struct FileWriter<R> {
    table: Table,
    columns: Vec<Column<R>>,
    schema: SchemaRef,
    stats: Vec<(&'static str, ColumnStats)>,
}

impl<R> FileWriter<R> {
    /// A file with these columns.
    pub fn new(table: Table, columns: Vec<Column<R>>) -> Self {
        let schema = columns::schema(&columns);
        let stats = stats_columns(table).iter().map(|name| (*name, ColumnStats::default())).collect();
        Self { table, columns, schema, stats }
    }

    /// Writes all rows; none when there are no rows.
    pub fn write(mut self, rows: impl Iterator<Item = R>) -> Result<Option<EncodedFile>, EncodeError> {
        let table = self.table;
        let failed = |source| EncodeError::Write { table, source };
        let mut rows = rows.peekable();
        let mut count = 0_u64;
        let mut writer: Option<ArrowWriter<Vec<u8>>> = None;
        let mut whole = None;
        let mut digest = RowsDigest::default();
        while rows.peek().is_some() {
            let chunk: Vec<R> = rows.by_ref().take(BATCH_ROWS).collect();
            count += chunk.len() as u64;
            let batch = self.batch(&chunk)?;
            digest.add(&batch);
            if writer.is_none() && rows.peek().is_none() {
                whole = Some(write_whole(&batch, None).map_err(failed)?);
                break;
            }
            let writer = match &mut writer {
                Some(writer) => writer,
                None => writer.insert(open_zstd(&self.schema).map_err(failed)?),
            };
            writer.write(&batch).map_err(failed)?;
        }
        let bytes = match (whole, writer) {
            (Some(bytes), _) => bytes,
            (None, Some(writer)) => writer.into_inner().map_err(failed)?,
            (None, None) => return Ok(None),
        };
        let (stats, digest) = (stats::to_json(count, &self.stats), digest.finish());
        Ok(Some(EncodedFile { bytes, rows: count, stats, digest }))
    }

    fn batch(&mut self, rows: &[R]) -> Result<RecordBatch, EncodeError> {
        for (name, stats) in &mut self.stats {
            for column in self.columns.iter().filter(|column| column.name == *name) {
                rows.iter().map(column.value).for_each(|cell| stats.add(cell));
            }
        }
        columns::batch(self.table, &self.schema, &self.columns, rows)
    }
}

/// Writes rows that are columns already, to the bytes that [`FileWriter::write`] makes of the same rows.
fn write_columns(rows: &RecordBatch) -> Result<Vec<u8>, ParquetError> {
    let count = rows.num_rows();
    if count <= BATCH_ROWS {
        return write_whole(rows, None);
    }
    let mut writer = open_zstd(rows.schema_ref())?;
    for first in (0..count).step_by(BATCH_ROWS) {
        writer.write(&rows.slice(first, BATCH_ROWS.min(count - first)))?;
    }
    writer.into_inner()
}

/// A file of one batch, with an entry in its footer. It is known whole before it is written, so its constant
/// columns are too.
pub fn write_whole(rows: &RecordBatch, entry: Option<KeyValue>) -> Result<Vec<u8>, ParquetError> {
    let mut writer = open(rows.schema_ref(), Compression::UNCOMPRESSED)?;
    if let Some(entry) = entry {
        writer.append_key_value_metadata(entry);
    }
    row_group::write(writer, rows, &constant_columns(rows), &mut Compressor::new(ZSTD_LEVEL)?)
}

/// The file of rows that are columns, with the digest of its content.
///
/// # Errors
/// When they cannot be written.
pub fn of_columns(table: Table, rows: &RecordBatch, digest: String) -> Result<EncodedFile, EncodeError> {
    let bytes = write_columns(rows).map_err(|source| EncodeError::Write { table, source })?;
    let mut stats = Statistics::of(table);
    stats.add(rows);
    let count = rows.num_rows() as u64;
    Ok(EncodedFile { bytes, rows: count, stats: stats.into_json(count), digest })
}

/// A file that is written in several batches. All its columns are compressed.
pub fn open_zstd(schema: &SchemaRef) -> Result<ArrowWriter<Vec<u8>>, ParquetError> {
    open(schema, Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
}

/// A file to be written, whose columns the Parquet library compresses so.
pub fn open(schema: &SchemaRef, compression: Compression) -> Result<ArrowWriter<Vec<u8>>, ParquetError> {
    let options = ArrowWriterOptions::new()
        .with_properties(properties(schema).set_compression(compression).build())
        .with_skip_arrow_metadata(true);
    ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(schema), options)
}

/// Indices of columns with one value, or none, in all rows.
pub fn constant_columns(batch: &RecordBatch) -> Vec<usize> {
    let rows = batch.num_rows().saturating_sub(1);
    let constant = |index: &usize| {
        let column = batch.column(*index);
        column.slice(0, rows).to_data() == column.slice(1, rows).to_data()
    };
    (0..batch.num_columns()).filter(constant).collect()
}

/// How all our files are written.
pub fn properties(schema: &Schema) -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_dictionary_enabled(true)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_key_value_metadata(arrow_schema(schema).map(|hint| vec![hint]))
}

/// The Arrow schema to embed, where a column needs it. It goes without the metadata of fields, which the
/// writer would store in an arbitrary order.
fn arrow_schema(schema: &Schema) -> Option<KeyValue> {
    let plain = |field: &Field| Field::new(field.name(), field.data_type().clone(), field.is_nullable());
    let json = schema
        .fields()
        .iter()
        .any(|field| *field.data_type() == DataType::Utf8 && !field.metadata().is_empty());
    let plain = Schema::new(schema.fields().iter().map(|field| plain(field)).collect::<Vec<_>>());
    json.then(|| KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(&plain)))
}
