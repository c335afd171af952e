//! A row group of rows that are at hand whole, written column by column: the memory that encoding one column
//! takes is free again before the next. Columns that are one array are encoded once: `cost_allocation` has
//! many, because FOCUS asks for the same value under several names. One compressor serves all columns.
//!
//! The bytes are those that [`ArrowWriter::write`] makes of the same rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::Field;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::compute_leaves;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use crate::pages::{Chunk, PlainPages};

/// What closing a chunk gives when it has the name of another column.
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

/// Writes the rows as the only row group of a file, and returns the file.
///
/// The writer's properties compress no column. Columns are compressed here, but for those at the indices of
/// `plain`; a copy is what its original is.
pub fn write(
    writer: ArrowWriter<Vec<u8>>,
    rows: &RecordBatch,
    plain: &[usize],
    compressor: &mut Compressor<'static>,
) -> Result<Vec<u8>> {
    let originals = originals(rows);
    let is_copied = |index: usize| originals.contains(&Some(index));
    let pages = PlainPages::default();
    let (mut file, factory) = writer.into_serialized_writer()?;
    let writers = factory.with_page_store_factory(Arc::new(pages.clone())).create_column_writers(0)?;
    let columns = file.schema_descr().columns().to_vec();
    let mut group = file.next_row_group()?;
    let mut copied: BTreeMap<usize, (Bytes, ColumnCloseResult)> = BTreeMap::new();
    let fields = rows.schema_ref().fields().iter().zip(rows.columns());
    for (index, (((field, array), mut writer), column)) in fields.zip(writers).zip(columns).enumerate() {
        let original = originals.get(index).copied().flatten();
        if let Some((bytes, close)) = original.and_then(|original| copied.get(&original)) {
            group.append_column(bytes, closed_as(close, column)?)?;
            continue;
        }
        for leaf in compute_leaves(field, array)? {
            writer.write(&leaf)?;
        }
        let close = writer.close()?.close().clone();
        let compressor = (!plain.contains(&index)).then_some(&mut *compressor);
        let Chunk { bytes, close } = Chunk::new(&pages.take_all(), close, compressor)?;
        if is_copied(index) {
            copied.insert(index, (bytes.clone(), close.clone()));
        }
        group.append_column(&bytes, close)?;
    }
    group.close()?;
    file.into_inner()
}

/// For each column the first before it that is the same array, of the same type.
fn originals(rows: &RecordBatch) -> Vec<Option<usize>> {
    let (fields, columns) = (rows.schema_ref().fields(), rows.columns());
    let mut first: BTreeMap<*const (), usize> = BTreeMap::new();
    let of = |(index, (field, column)): (usize, (&Arc<Field>, &Arc<dyn Array>))| {
        let original = *first.entry(Arc::as_ptr(column).cast()).or_insert(index);
        let is_like = |other: &Arc<Field>| other.as_ref().clone().with_name(field.name()) == **field;
        (original != index && fields.get(original).is_some_and(is_like)).then_some(original)
    };
    fields.iter().zip(columns).enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Decimal128Array, StringArray};
    use arrow_schema::{ArrowError, DataType, Schema};
    use parquet::arrow::arrow_writer::ArrowWriterOptions;
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::schema::types::ColumnPath;

    use super::*;
    use crate::file;

    /// Texts of which a dictionary holds a part, a constant, numbers with and without nulls, and copies of
    /// all; the last is the same array as another type.
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

    /// The file that the Parquet library makes of the rows when it compresses by itself.
    fn expected(rows: &RecordBatch, plain: &[usize]) -> Vec<u8> {
        let zstd = Compression::ZSTD(ZstdLevel::try_new(file::ZSTD_LEVEL).unwrap());
        let mut properties = file::properties(rows.schema_ref()).set_compression(zstd);
        for index in plain {
            let path = ColumnPath::from(rows.schema_ref().field(*index).name().as_str());
            properties = properties.set_column_compression(path, Compression::UNCOMPRESSED);
        }
        let options = ArrowWriterOptions::new().with_properties(properties.build());
        let options = options.with_skip_arrow_metadata(true);
        let mut writer = ArrowWriter::try_new_with_options(Vec::new(), rows.schema(), options).unwrap();
        writer.write(rows).unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn a_file_has_the_bytes_that_the_writer_of_batches_makes() {
        // What one file leaves in a compressor does not show in the next.
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
    fn columns_of_one_array_and_type_are_copies() {
        let copies = originals(&rows(10).unwrap());
        assert_eq!(copies.iter().flatten().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1, 2, 3]);
    }
}
