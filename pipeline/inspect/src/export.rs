//! Exports the current rows of one organization, for a reader who must not see rows of others. An export has
//! one plain Parquet file for each table and date.

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::ArrowError;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowPredicateFn, ParquetRecordBatchReaderBuilder, RowFilter};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange};
use prorata_worker::WorkerError;

use crate::columns::{ReadError, Rows};
use crate::lake::{FoundFile, LakeTables};

/// The rows to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// The organization.
    pub organization: String,
    /// The hours to export.
    pub range: HourRange,
}

/// A Parquet file of one organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportFile {
    /// Number of rows, at least one.
    pub rows: u64,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// An error that prevents an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Storage failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A live file cannot be read.
    #[error("'{file}' cannot be exported: {why}; run prorata check to see how to fix the lake")]
    Unreadable {
        /// The file.
        file: String,
        /// The reason.
        why: String,
    },
    /// The rows cannot be written as Parquet.
    #[error("rows of {} cannot be written as Parquet: {why}", table.name())]
    Write {
        /// The table.
        table: Table,
        /// The reason.
        why: String,
    },
}

/// Reads the organization's rows of one table from live files of one date, in the order of their hours.
/// Returns `None` if there are none.
///
/// # Errors
/// If storage is unavailable, or a file is gone or damaged.
pub async fn export(
    lake: &LakeTables<'_>,
    table: Table,
    of_date: &[FoundFile],
    options: &ExportOptions,
) -> Result<Option<ExportFile>, ExportError> {
    let mut files: Vec<&FoundFile> = of_date.iter().filter(|file| file.table == table).collect();
    files.sort_by_cached_key(|file| (file.hours(), file.path.clone()));
    let mut rows = Writer::new(table);
    let mut failed = None;
    lake.read_each(files, |file, bytes| {
        if failed.is_some() {
            return;
        }
        let added = match bytes {
            Some(bytes) => rows.add(bytes, options).map_err(|error| error.to_string()),
            None => Err("the object is gone".to_owned()),
        };
        failed = added.err().map(|why| ExportError::Unreadable { file: file.to_string(), why });
    })
    .await?;
    match failed {
        Some(error) => Err(error),
        None => rows.finish(),
    }
}

/// Returns the names of the organization column and the hour column.
const fn key_columns(table: Table) -> [&'static str; 2] {
    match table {
        Table::CostAllocation | Table::ClosedAllocation => ["BillingAccountId", "ChargePeriodStart"],
        _ => ["organization_id", "hour"],
    }
}

/// Writes the rows of one table.
struct Writer {
    table: Table,
    /// `None` until there is a row.
    writer: Option<ArrowWriter<Vec<u8>>>,
    rows: u64,
}

impl Writer {
    const fn new(table: Table) -> Self {
        Self { table, writer: None, rows: 0 }
    }

    fn add(&mut self, bytes: Bytes, options: &ExportOptions) -> Result<(), ReadError> {
        prorata_tables::guarded(ReadError::Parquet, || self.add_rows(bytes, options))
    }

    fn add_rows(&mut self, bytes: Bytes, options: &ExportOptions) -> Result<(), ReadError> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
        let keys = key_columns(self.table);
        let mask = ProjectionMask::columns(builder.parquet_schema(), keys);
        let (organization, range) = (options.organization.clone(), options.range);
        let is_wanted = move |batch: RecordBatch| {
            wanted(&Rows::new(batch), keys, &organization, range)
                .map_err(|error| ArrowError::ExternalError(Box::new(error)))
        };
        let filter = RowFilter::new(vec![Box::new(ArrowPredicateFn::new(mask, is_wanted))]);
        for batch in builder.with_row_filter(filter).build()? {
            self.write(&batch?)?;
        }
        Ok(())
    }

    /// Writes rows in the columns of this release.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ReadError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = prorata_tables::in_our_columns(self.table, batch)?;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let properties = WriterProperties::builder()
                    .set_created_by("prorata export".to_owned())
                    .set_compression(Compression::ZSTD(ZstdLevel::default()));
                none.insert(ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build()))?)
            }
        };
        writer.write(&batch)?;
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn finish(self) -> Result<Option<ExportFile>, ExportError> {
        let Some(writer) = self.writer else { return Ok(None) };
        let failed = |why: String| ExportError::Write { table: self.table, why };
        let bytes = writer.into_inner().map_err(|error| failed(error.to_string()))?;
        Ok(Some(ExportFile { rows: self.rows, bytes }))
    }
}

/// Returns for each row whether it belongs to the organization and its hour is in range.
fn wanted(
    rows: &Rows,
    [organizations, hours]: [&'static str; 2],
    organization: &str,
    range: HourRange,
) -> Result<BooleanArray, ReadError> {
    let (organizations, hours) = (rows.texts(organizations)?, rows.hours(hours)?);
    let is_wanted = |(owner, hour): (Option<&str>, Option<Hour>)| {
        Some(owner == Some(organization) && hour.is_some_and(|hour| range.contains(hour)))
    };
    Ok(organizations.into_iter().zip(hours).map(is_wanted).collect())
}
