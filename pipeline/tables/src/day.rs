//! Files of a day: the rows of the day's hour files, one after another. The footer lists the number of rows
//! and the digest of each hour file, so that [`split`] restores the files of the hours.
//!
//! [`join`] works in batches: besides its input files it holds the file that it writes, and a few thousand
//! rows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{PrimitiveArray, RecordBatch, new_null_array};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use prorata_schemas::tables::{EncodedFile, HourFile, RowSource, Table};
use prorata_schemas::time::{Hour, Timestamp};
use sha2::{Digest, Sha256};

use crate::columns::organization_column;
use crate::row_group::BatchWriter;
use crate::stats::Statistics;
use crate::{EncodeError, digest, file, schema};

/// Name of the footer entry that lists the parts: hour, digest and number of rows of each.
const PARTS: &str = "prorata.hours";

/// Error for a file whose number of rows differs from the number that its footer lists.
const OTHER_ROWS: &str = "its number of rows differs from its footer";

/// Number of rows read at a time.
const BATCH_ROWS: usize = 8_192;

/// The rows of one hour's file within a file of the day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayPart {
    /// The hour.
    pub hour: Hour,
    /// Digest of the hour's file.
    pub digest: String,
    /// Number of rows.
    pub rows: u64,
}

/// Rows of a source, at their place in the new file.
struct Piece<'a> {
    part: DayPart,
    /// The first organization of the rows. This organization orders the files of one hour, because they hold
    /// different organizations.
    organization_id: String,
    bytes: &'a Bytes,
    first: usize,
}

/// Returns one file with the rows of several files, all of one date and shard. Hours ascend, and the files of
/// one hour are ordered by organization. Columns that a file of an older release lacks are null.
///
/// # Errors
/// If a file does not have the form that this release or an older one writes.
pub fn join(table: Table, sources: &[RowSource<Bytes>]) -> Result<EncodedFile, EncodeError> {
    guarded(|source| EncodeError::Read { table, source }, || join_whole(table, sources))
}

fn join_whole(table: Table, sources: &[RowSource<Bytes>]) -> Result<EncodedFile, EncodeError> {
    let mut pieces = Vec::new();
    for source in sources {
        add_pieces(table, source, &mut pieces)?;
    }
    pieces.sort_by(|left, right| {
        (left.part.hour, &left.organization_id).cmp(&(right.part.hour, &right.organization_id))
    });
    let rows: u64 = pieces.iter().map(|piece| piece.part.rows).sum();
    let listed = pieces.iter().map(|Piece { part, .. }| (part.hour.to_string(), &part.digest, part.rows));
    let listed = serde_json::json!(listed.collect::<Vec<_>>()).to_string();
    let mut writer = DayWriter { table, rows: Vec::new(), writer: None, stats: Statistics::of(table) };
    for piece in &pieces {
        piece.read(table, |batch| writer.add(batch, rows <= file::BATCH_ROWS as u64))?;
    }
    let digest = digest::short(Sha256::new_with_prefix(&listed));
    let (bytes, stats) = writer.finish(listed)?;
    Ok(EncodedFile { bytes, rows, stats: stats.into_json(rows), digest })
}

/// Returns the hour files from which a file of the day was joined, in order. Each has its original digest,
/// and the same bytes as if its rows were encoded again.
///
/// # Errors
/// If the file is not a file of a day, or its rows differ from its footer.
pub fn split(table: Table, joined: &Bytes) -> Result<Vec<HourFile>, EncodeError> {
    guarded(|source| EncodeError::Read { table, source }, || split_whole(table, joined))
}

fn split_whole(table: Table, joined: &Bytes) -> Result<Vec<HourFile>, EncodeError> {
    let (source, mut pieces) = (RowSource::Day(joined.clone()), Vec::new());
    add_pieces(table, &source, &mut pieces)?;
    let files = pieces.into_iter().map(|piece| {
        let mut batches = Vec::new();
        piece.read(table, |batch| {
            batches.push(batch);
            Ok(())
        })?;
        let rows = concat_batches(&schema(table), &batches);
        let rows = rows.map_err(|source| EncodeError::Columns { table, source })?;
        let DayPart { hour, digest, .. } = piece.part;
        Ok(HourFile { hour, file: file::of_columns(table, &rows, digest)? })
    });
    files.collect()
}

/// Returns the parts of a file of a day, as its footer lists them.
///
/// # Errors
/// If the file cannot be read, or is not a file of a day.
pub fn day_parts(table: Table, joined: &Bytes) -> Result<Vec<DayPart>, EncodeError> {
    guarded(|source| EncodeError::Read { table, source }, || listed_parts(table, joined))
}

fn listed_parts(table: Table, joined: &Bytes) -> Result<Vec<DayPart>, EncodeError> {
    let foreign = |cause| EncodeError::Foreign { table, cause };
    let file = open(table, joined)?;
    let metadata = file.metadata().file_metadata();
    let mut entries = metadata.key_value_metadata().into_iter().flatten();
    let listed = entries.find(|entry| entry.key == PARTS).and_then(|entry| entry.value.as_deref());
    let listed = listed.ok_or_else(|| foreign("its footer does not list hours"))?;
    let parts: Option<Vec<DayPart>> =
        serde_json::from_str::<Vec<(String, String, u64)>>(listed).ok().and_then(|parts| {
            let parts = parts.into_iter();
            parts
                .map(|(hour, digest, rows)| Some(DayPart { hour: hour.parse().ok()?, digest, rows }))
                .collect()
        });
    let parts = parts.ok_or_else(|| foreign("its footer does not list hours"))?;
    let rows = parts.iter().try_fold(0_u64, |rows, part| rows.checked_add(part.rows));
    if rows.and_then(|rows| i64::try_from(rows).ok()) != Some(metadata.num_rows()) {
        return Err(foreign(OTHER_ROWS));
    }
    Ok(parts)
}

fn open(table: Table, bytes: &Bytes) -> Result<ParquetRecordBatchReaderBuilder<Bytes>, EncodeError> {
    let opened = ParquetRecordBatchReaderBuilder::try_new(bytes.clone());
    opened.map_err(|source| EncodeError::Read { table, source })
}

/// Adds the pieces of a source.
fn add_pieces<'a>(
    table: Table,
    source: &'a RowSource<Bytes>,
    pieces: &mut Vec<Piece<'a>>,
) -> Result<(), EncodeError> {
    let (bytes, parts) = match source {
        RowSource::Hour { hour, digest, bytes } => {
            let rows = open(table, bytes)?.metadata().file_metadata().num_rows().unsigned_abs();
            (bytes, vec![DayPart { hour: *hour, digest: digest.clone(), rows }])
        }
        RowSource::Day(bytes) => (bytes, listed_parts(table, bytes)?),
    };
    let mut first = 0;
    for part in parts {
        let rows = usize::try_from(part.rows).unwrap_or(usize::MAX);
        let organization_id = first_organization(table, bytes, first)?;
        pieces.push(Piece { part, organization_id, bytes, first });
        first = first.saturating_add(rows);
    }
    Ok(())
}

/// Returns the organization of a row.
fn first_organization(table: Table, bytes: &Bytes, row: usize) -> Result<String, EncodeError> {
    let file = open(table, bytes)?;
    let name = organization_column(table);
    let mask = ProjectionMask::columns(file.parquet_schema(), [name]);
    let reader = file.with_projection(mask).with_offset(row).with_limit(1).build();
    let mut reader = reader.map_err(|source| EncodeError::Read { table, source })?;
    let Some(batch) = reader.next() else { return Ok(String::new()) };
    let batch = batch.map_err(|source| EncodeError::Columns { table, source })?;
    let column = batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    let column = column.ok_or(EncodeError::Foreign { table, cause: "it names no organizations" })?;
    Ok(column.iter().flatten().next().unwrap_or_default().to_owned())
}

impl Piece<'_> {
    /// Reads the piece's rows in the columns of this release, batch by batch.
    ///
    /// # Errors
    /// If the rows are of another hour, or their number differs from the footer.
    fn read(
        &self,
        table: Table,
        mut each: impl FnMut(RecordBatch) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let rows = usize::try_from(self.part.rows).unwrap_or(usize::MAX);
        let file = open(table, self.bytes)?.with_batch_size(BATCH_ROWS).with_offset(self.first);
        let reader = file.with_limit(rows).build();
        let reader = reader.map_err(|source| EncodeError::Read { table, source })?;
        let mut read = 0;
        for batch in reader {
            let batch = batch.map_err(|source| EncodeError::Columns { table, source })?;
            let batch = in_our_columns(table, &batch)?;
            check_hour(table, &batch, self.part.hour)?;
            read += batch.num_rows();
            each(batch)?;
        }
        if read == rows { Ok(()) } else { Err(EncodeError::Foreign { table, cause: OTHER_ROWS }) }
    }
}

/// Returns the same rows in the columns of this release, without the file's column metadata except the types.
/// Columns that a file of an older release lacks are null.
///
/// # Errors
/// If the rows have a column that this release does not know, or a column of another type.
pub fn in_our_columns(table: Table, rows: &RecordBatch) -> Result<RecordBatch, EncodeError> {
    let schema = schema(table);
    let found = rows.schema_ref();
    if found.fields().iter().any(|field| schema.field_with_name(field.name()).is_err()) {
        return Err(EncodeError::Foreign { table, cause: "it has a column that this release does not know" });
    }
    let columns = schema.fields().iter().map(|field| match rows.column_by_name(field.name()) {
        Some(column) => Arc::clone(column),
        None => new_null_array(field.data_type(), rows.num_rows()),
    });
    let columns = columns.collect();
    RecordBatch::try_new(schema, columns).map_err(|source| EncodeError::Columns { table, source })
}

fn check_hour(table: Table, rows: &RecordBatch, hour: Hour) -> Result<(), EncodeError> {
    let name = match table {
        Table::CostAllocation | Table::ClosedAllocation => "ChargePeriodStart",
        _ => "hour",
    };
    let column = rows.column_by_name(name).and_then(|column| column.as_primitive_opt());
    let column = column.map(|column: &PrimitiveArray<TimestampMicrosecondType>| column.values());
    let is_of_hour = |micros: &i64| Timestamp(*micros).hour() == hour;
    match column {
        Some(micros) if micros.iter().all(is_of_hour) => Ok(()),
        _ => Err(EncodeError::Foreign { table, cause: "it has rows of another hour" }),
    }
}

/// Runs a reader of table files. The Parquet library panics on some damaged files; such a panic becomes an
/// error.
///
/// # Errors
/// Returns the reader's own error, or the error into which `failed` converts a panic.
pub fn guarded<T, E>(
    failed: impl FnOnce(ParquetError) -> E,
    read: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let panicked = |_| Err(failed(ParquetError::General("it is damaged: its reader panicked".to_owned())));
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(panicked)
}

/// Writes a file of a day batch by batch.
struct DayWriter {
    table: Table,
    /// Rows of a small file, collected to be written at once.
    rows: Vec<RecordBatch>,
    writer: Option<BatchWriter>,
    stats: Statistics,
}

impl DayWriter {
    fn add(&mut self, rows: RecordBatch, are_few: bool) -> Result<(), EncodeError> {
        self.stats.add(&rows);
        if are_few {
            self.rows.push(rows);
            return Ok(());
        }
        let failed = |source| EncodeError::Write { table: self.table, source };
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(file::open_batches(rows.schema_ref()).map_err(failed)?),
        };
        writer.write(&rows).map_err(failed)
    }

    fn finish(self, listed: String) -> Result<(Vec<u8>, Statistics), EncodeError> {
        let table = self.table;
        let parts = KeyValue::new(PARTS.to_owned(), listed);
        let failed = |source| EncodeError::Write { table, source };
        if let Some(mut writer) = self.writer {
            writer.add_entry(parts);
            return Ok((writer.finish().map_err(failed)?, self.stats));
        }
        if self.rows.is_empty() {
            return Err(EncodeError::Foreign { table, cause: "it has no rows" });
        }
        let rows = concat_batches(&schema(table), &self.rows);
        let rows = rows.map_err(|source| EncodeError::Columns { table, source })?;
        Ok((file::write_whole(&rows, Some(parts)).map_err(failed)?, self.stats))
    }
}
