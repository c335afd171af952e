//! Row groups that encode an array only once if several columns share it. `cost_allocation` has many such
//! columns. The bytes are the same as the bytes that [`ArrowWriter::write`] writes for the same rows.
//!
//! Rows that are all in memory are written column by column. The memory for encoding one column is released
//! before the next column, and one compressor serves all columns. [`BatchWriter`] writes rows that come in
//! batches, with a compressor for each column.

mod pages;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::Field;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use crate::columns::originals;

use pages::{Chunk, Pages, unexpected};

/// Returns the result of closing a chunk, under the name of another column.
fn closed_as(close: &ColumnCloseResult, column: ColumnDescPtr) -> Result<ColumnCloseResult> {
    let chunk = &close.metadata;
    let mut builder = ColumnChunkMetaData::builder(column)
        .set_compression_codec(chunk.compression_codec())
        .set_encodings_mask(*chunk.encodings_mask())
        .set_total_compressed_size(chunk.compressed_size())
        .set_total_uncompressed_size(chunk.uncompressed_size())
        .set_num_values(chunk.num_values())
        .set_data_page_offset(chunk.data_page_offset())
        .set_dictionary_page_offset(chunk.dictionary_page_offset())
        .set_unencoded_byte_array_data_bytes(chunk.unencoded_byte_array_data_bytes())
        .set_repetition_level_histogram(chunk.repetition_level_histogram().cloned())
        .set_definition_level_histogram(chunk.definition_level_histogram().cloned());
    if let Some(statistics) = chunk.statistics() {
        builder = builder.set_statistics(statistics.clone());
    }
    if let Some(encodings) = chunk.page_encoding_stats() {
        builder = builder.set_page_encoding_stats(encodings.clone());
    }
    Ok(ColumnCloseResult { metadata: builder.build()?, ..close.clone() })
}

/// The closed columns of a row group.
struct Closed {
    /// For each column, the column that it copies; `None` if it is not a copy.
    originals: Vec<Option<usize>>,
    /// Columns that other columns copy.
    copied: BTreeMap<usize, (Bytes, ColumnCloseResult)>,
}

type GroupWriter<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

impl Closed {
    fn new(originals: Vec<Option<usize>>) -> Self {
        Self { originals, copied: BTreeMap::new() }
    }

    /// Adds a column to the group. Calls `chunk` only if the column is not a copy.
    fn add(
        &mut self,
        index: usize,
        column: &ColumnDescPtr,
        group: &mut GroupWriter<'_>,
        chunk: impl FnOnce() -> Result<Chunk>,
    ) -> Result<()> {
        let original = self.originals.get(index).copied().flatten();
        if let Some((bytes, close)) = original.and_then(|original| self.copied.get(&original)) {
            group.append_column(bytes, closed_as(close, Arc::clone(column))?)?;
            return Ok(());
        }
        let Chunk { bytes, close } = chunk()?;
        if self.originals.contains(&Some(index)) {
            self.copied.insert(index, (bytes.clone(), close.clone()));
        }
        group.append_column(&bytes, close)?;
        Ok(())
    }
}

/// Writes the rows as the only row group of a file, and returns the file.
///
/// The writer's properties must not compress any column. This function compresses the columns, except the
/// columns at the indices in `plain`. A copy is treated like its original.
pub fn write(
    writer: ArrowWriter<Vec<u8>>,
    rows: &RecordBatch,
    plain: &[usize],
    compressor: &mut Compressor<'static>,
) -> Result<Vec<u8>> {
    let mut closed = Closed::new(originals(rows));
    let pages = Pages::default();
    let (mut file, factory) = writer.into_serialized_writer()?;
    let writers = factory.with_page_store_factory(Arc::new(pages.clone())).create_column_writers(0)?;
    let columns = file.schema_descr().columns().to_vec();
    let mut group = file.next_row_group()?;
    let fields = rows.schema_ref().fields().iter().zip(rows.columns());
    for (index, (((field, array), mut writer), column)) in fields.zip(writers).zip(&columns).enumerate() {
        closed.add(index, column, &mut group, || {
            write_column(&mut writer, field, array)?;
            let compressor = (!plain.contains(&index)).then_some(&mut *compressor);
            let close = writer.close()?.close().clone();
            Chunk::new(&pages.take(index), close, compressor)
        })?;
    }
    group.close()?;
    file.into_inner()
}

fn write_column(writer: &mut ArrowColumnWriter, field: &Arc<Field>, array: &ArrayRef) -> Result<()> {
    compute_leaves(field, array)?.iter().try_for_each(|leaf| writer.write(leaf))
}

/// Writes a file whose rows come in batches. Every row group except the last is full.
pub struct BatchWriter {
    file: SerializedFileWriter<Vec<u8>>,
    factory: ArrowRowGroupWriterFactory,
    pages: Pages,
    group_rows: usize,
    open: Option<OpenGroup>,
}

/// A row group that is not yet full.
struct OpenGroup {
    /// Writers of the columns; `None` for a copy.
    writers: Vec<Option<ArrowColumnWriter>>,
    originals: Vec<Option<usize>>,
    rows: usize,
}

impl BatchWriter {
    /// Creates a writer of row groups with `group_rows` rows. The writer's properties must compress all
    /// columns.
    pub fn new(writer: ArrowWriter<Vec<u8>>, group_rows: usize) -> Result<Self> {
        let (file, factory) = writer.into_serialized_writer()?;
        let pages = Pages::default();
        let factory = factory.with_page_store_factory(Arc::new(pages.clone()));
        Ok(Self { file, factory, pages, group_rows, open: None })
    }

    /// Adds rows. All batches of a file must have the same copies.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let originals = originals(rows);
        let mut rest = rows.clone();
        while rest.num_rows() > 0 {
            let open = match self.open.take() {
                Some(open) if open.originals == originals => open,
                Some(_) => return Err(unexpected("batches of other copies")),
                None => self.open_group(&originals)?,
            };
            let open = self.open.insert(open);
            let count = rest.num_rows().min(self.group_rows - open.rows);
            open.write(&rest.slice(0, count))?;
            rest = rest.slice(count, rest.num_rows() - count);
            if open.rows == self.group_rows {
                self.close_group()?;
            }
        }
        Ok(())
    }

    fn open_group(&self, originals: &[Option<usize>]) -> Result<OpenGroup> {
        let writers = self.factory.create_column_writers(self.file.flushed_row_groups().len())?;
        let originals = originals.to_vec();
        let writers = writers.into_iter().zip(&originals).map(|(writer, of)| of.is_none().then_some(writer));
        Ok(OpenGroup { writers: writers.collect(), originals, rows: 0 })
    }

    fn close_group(&mut self) -> Result<()> {
        let Some(OpenGroup { writers, originals, .. }) = self.open.take() else { return Ok(()) };
        let mut closed = Closed::new(originals);
        let columns = self.file.schema_descr().columns().to_vec();
        let mut group = self.file.next_row_group()?;
        for (index, (writer, column)) in writers.into_iter().zip(&columns).enumerate() {
            closed.add(index, column, &mut group, || {
                let writer = writer.ok_or_else(|| unexpected("a copy before its original"))?;
                let close = writer.close()?.close().clone();
                Chunk::new(&self.pages.take(index), close, None)
            })?;
        }
        group.close()?;
        Ok(())
    }

    /// Adds an entry to the footer.
    pub fn add_entry(&mut self, entry: KeyValue) {
        self.file.append_key_value_metadata(entry);
    }

    /// Returns the file.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.close_group()?;
        self.file.into_inner()
    }
}

impl OpenGroup {
    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let columns = rows.schema_ref().fields().iter().zip(rows.columns());
        for (writer, (field, array)) in self.writers.iter_mut().zip(columns) {
            if let Some(writer) = writer {
                write_column(writer, field, array)?;
            }
        }
        self.rows += rows.num_rows();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Decimal128Array, StringArray};
    use arrow_schema::{ArrowError, DataType, Schema};
    use parquet::arrow::arrow_writer::ArrowWriterOptions;
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::file::properties::WriterPropertiesBuilder;
    use parquet::schema::types::ColumnPath;

    use super::*;
    use crate::file;

    /// Returns texts that a dictionary holds in part, texts with nulls, a constant, numbers, and copies of
    /// all columns. The last column shares the array of the constant, but is required.
    fn rows(count: i128) -> std::result::Result<RecordBatch, ArrowError> {
        let texts: StringArray = (0..count).map(|row| Some(format!("{row:0100}"))).collect();
        let sparse: StringArray =
            (0..count).map(|row| (row % 3 > 0).then(|| (row % 7).to_string())).collect();
        let same: StringArray = (0..count).map(|_| Some("same")).collect();
        let numbers: Decimal128Array = (0..count).map(|row| Some(row * row)).collect();
        let arrays: [ArrayRef; 4] = [Arc::new(texts), Arc::new(sparse), Arc::new(same), Arc::new(numbers)];
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for copy in 0..3 {
            for (index, array) in arrays.iter().enumerate() {
                fields.push(Field::new(format!("{index} {copy}"), array.data_type().clone(), true));
                columns.push(Arc::clone(array));
            }
        }
        fields.push(Field::new("required", DataType::Utf8, false));
        columns.push(Arc::clone(&arrays[2]));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
    }

    fn properties(rows: &RecordBatch) -> WriterPropertiesBuilder {
        let zstd = Compression::ZSTD(ZstdLevel::try_new(file::ZSTD_LEVEL).unwrap());
        file::properties(rows.schema_ref()).set_compression(zstd)
    }

    fn writer(rows: &RecordBatch, properties: WriterPropertiesBuilder) -> ArrowWriter<Vec<u8>> {
        let options = ArrowWriterOptions::new().with_properties(properties.build());
        let options = options.with_skip_arrow_metadata(true);
        ArrowWriter::try_new_with_options(Vec::new(), rows.schema(), options).unwrap()
    }

    /// Returns the file that the Parquet library writes for the rows if it compresses them itself.
    fn expected(rows: &RecordBatch, plain: &[usize]) -> Vec<u8> {
        let mut properties = properties(rows);
        for index in plain {
            let path = ColumnPath::from(rows.schema_ref().field(*index).name().as_str());
            properties = properties.set_column_compression(path, Compression::UNCOMPRESSED);
        }
        let mut writer = writer(rows, properties);
        writer.write(rows).unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn a_file_has_the_bytes_that_the_writer_of_batches_makes() {
        // State that one file leaves in a compressor must not affect the next file.
        let mut compressor = Compressor::new(file::ZSTD_LEVEL).unwrap();
        for count in [20_000, 1, 100, 3000, 20_000] {
            let rows = rows(count).unwrap();
            let constant = file::constant_columns(&rows);
            let writer = file::open(rows.schema_ref(), Compression::UNCOMPRESSED).unwrap();
            let written = write(writer, &rows, &constant, &mut compressor).unwrap();
            assert!(written == expected(&rows, &constant), "{count} rows");
        }
    }

    #[test]
    fn batches_make_the_file_that_the_writer_of_batches_makes() {
        let batches = [1100, 20_000, 3, 900].map(|count| rows(count).unwrap());
        for group_rows in [1000, 21_103, 30_000] {
            let properties = || properties(&batches[0]).set_max_row_group_row_count(Some(group_rows));
            let entry = || KeyValue::new("key".to_owned(), "value".to_owned());
            let mut expected = writer(&batches[0], properties());
            let mut ours = BatchWriter::new(writer(&batches[0], properties()), group_rows).unwrap();
            for rows in &batches {
                expected.write(rows).unwrap();
                ours.write(rows).unwrap();
            }
            expected.append_key_value_metadata(entry());
            ours.add_entry(entry());
            assert!(ours.finish().unwrap() == expected.into_inner().unwrap(), "groups of {group_rows} rows");
        }
    }

    #[test]
    fn batches_of_other_copies_are_refused() {
        let rows = rows(10).unwrap();
        let mut arrays = rows.columns().to_vec();
        arrays[4] = arrays[4].slice(0, 10);
        let other = RecordBatch::try_new(rows.schema(), arrays).unwrap();
        let mut writer = BatchWriter::new(writer(&rows, properties(&rows)), 100).unwrap();
        writer.write(&rows).unwrap();
        assert!(writer.write(&other).is_err());
    }
}
