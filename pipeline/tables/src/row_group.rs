//! A row group of rows that are at hand whole, written column by column: the memory that encoding one column
//! takes is free again before the next. Columns that are one array are encoded once: `cost_allocation` has
//! many, because FOCUS asks for the same value under several names.
//!
//! The bytes are those that [`ArrowWriter::write`] makes of the same rows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, RecordBatch};
use arrow_schema::Field;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    InMemoryPageStore, PageKey, PageStore, PageStoreArgs, PageStoreFactory, compute_leaves,
};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescPtr;

/// A column chunk in the order of the file.
type Pages = Arc<Mutex<Vec<Bytes>>>;

/// Keeps the pages of columns that others copy, by index.
#[derive(Debug)]
struct KeptPages(BTreeMap<usize, Pages>);

/// A store that keeps what is taken from it.
struct KeepingStore {
    store: InMemoryPageStore,
    taken: Pages,
}

/// A column chunk that others copy.
struct Original {
    bytes: Bytes,
    close: ColumnCloseResult,
}

impl PageStoreFactory for KeptPages {
    fn create(&self, args: &PageStoreArgs<'_>) -> Result<Box<dyn PageStore>> {
        let store = InMemoryPageStore::default();
        Ok(match self.0.get(&args.column_index()) {
            Some(taken) => Box::new(KeepingStore { store, taken: Arc::clone(taken) }),
            None => Box::new(store),
        })
    }
}

impl PageStore for KeepingStore {
    fn put(&mut self, page: Bytes) -> Result<PageKey> {
        self.store.put(page)
    }

    fn take(&mut self, key: PageKey) -> Result<Bytes> {
        let page = self.store.take(key)?;
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(page.clone());
        Ok(page)
    }

    fn memory_size(&self) -> usize {
        self.store.memory_size()
    }
}

impl Original {
    /// A chunk whose pages were taken, with what closing it gave.
    fn new(pages: &Pages, close: ColumnCloseResult) -> Result<Self> {
        let pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
        // A dictionary is a header and its values, and comes first.
        let dictionary = if close.metadata.dictionary_page_offset().is_some() { 2 } else { 0 };
        let dictionary_bytes = pages.iter().take(dictionary).map(Bytes::len).sum();
        let close = close.update_dictionary_location(dictionary_bytes)?;
        Ok(Self { bytes: pages.concat().into(), close })
    }

    /// What closing the same chunk gives under another name.
    fn closed_as(&self, column: ColumnDescPtr) -> Result<ColumnCloseResult> {
        let chunk = &self.close.metadata;
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
        Ok(ColumnCloseResult { metadata: builder.build()?, ..self.close.clone() })
    }
}

/// Writes the rows as the only row group of a file, and returns the file.
pub fn write(writer: ArrowWriter<Vec<u8>>, rows: &RecordBatch) -> Result<Vec<u8>> {
    let originals = originals(rows);
    let kept = originals.iter().flatten().map(|index| (*index, Pages::default())).collect();
    let kept = Arc::new(KeptPages(kept));
    let (mut file, factory) = writer.into_serialized_writer()?;
    let writers = factory.with_page_store_factory(kept.clone()).create_column_writers(0)?;
    let columns = file.schema_descr().columns().to_vec();
    let mut group = file.next_row_group()?;
    let mut copied: BTreeMap<usize, Original> = BTreeMap::new();
    let fields = rows.schema_ref().fields().iter().zip(rows.columns());
    for (index, (((field, array), mut writer), column)) in fields.zip(writers).zip(columns).enumerate() {
        let original = originals.get(index).copied().flatten();
        if let Some(original) = original.and_then(|original| copied.get(&original)) {
            group.append_column(&original.bytes, original.closed_as(column)?)?;
            continue;
        }
        for leaf in compute_leaves(field, array)? {
            writer.write(&leaf)?;
        }
        let chunk = writer.close()?;
        match kept.0.get(&index) {
            Some(pages) => {
                let close = chunk.close().clone();
                chunk.append_to_row_group(&mut group)?;
                copied.insert(index, Original::new(pages, close)?);
            }
            None => chunk.append_to_row_group(&mut group)?,
        }
    }
    group.close()?;
    file.into_inner()
}

/// Names of the columns that [`write`] copies from others, whatever their own compression is.
pub fn copied_columns(rows: &RecordBatch) -> impl Iterator<Item = String> {
    let copied = originals(rows).into_iter().zip(rows.schema_ref().fields());
    copied.filter_map(|(original, field)| original.map(|_| field.name().clone()))
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

    use super::*;
    use crate::file;

    const ROWS: i128 = 20_000;

    /// Texts of which a dictionary holds a part, a constant, numbers with and without nulls, and copies of
    /// all; the last is the same array as another type.
    fn rows() -> std::result::Result<RecordBatch, ArrowError> {
        let texts: StringArray = (0..ROWS).map(|row| Some(format!("{row:0100}"))).collect();
        let sparse: StringArray = (0..ROWS).map(|row| (row % 3 > 0).then(|| (row % 7).to_string())).collect();
        let same: StringArray = (0..ROWS).map(|_| Some("same")).collect();
        let numbers: Decimal128Array = (0..ROWS).map(|row| Some(row * row)).collect();
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

    #[test]
    fn a_file_has_the_bytes_that_the_writer_of_batches_makes() {
        let rows = rows().unwrap();
        let open = || file::open(rows.schema_ref(), &file::constant_columns(&rows)).unwrap();
        let mut writer = open();
        writer.write(&rows).unwrap();
        let expected = writer.into_inner().unwrap();
        assert!(write(open(), &rows).unwrap() == expected);
        let copied: Vec<_> = copied_columns(&rows).chain(file::constant_columns(&rows)).collect();
        assert!(write(file::open(rows.schema_ref(), &copied).unwrap(), &rows).unwrap() == expected);
        let copies = originals(&rows);
        assert_eq!(copies.iter().flatten().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1, 2, 3]);
    }
}
