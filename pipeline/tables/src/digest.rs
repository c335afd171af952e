//! Digests that show whether the rows of a file have changed. They hash values, not files: other settings or
//! another release of the Parquet writer do not change a digest. `README.md` describes the form.

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field};
use prorata_schemas::tables::Table;
use sha2::{Digest, Sha256};

use crate::columns::{Cell, cell_of, originals, usage};
use crate::stats::json_value;

/// Prefix of the hash. Another form of the digest has another number.
const FORM: &str = "prorata rows 1\n";

/// Number of bytes of runs that are hashed at once.
const BUFFER_BYTES: usize = 16_384;

/// Returns the first 128 bits of a SHA-256 in hexadecimal: enough to distinguish files, and short enough for
/// a file name.
pub fn short(digest: Sha256) -> String {
    let mut text = format!("{:x}", digest.finalize());
    text.truncate(32);
    text
}

/// Returns the digest of a file with these rows.
pub fn of_columns(table: Table, rows: &RecordBatch) -> String {
    if table == Table::Hours {
        return of_hour_columns(rows);
    }
    let mut digest = RowsDigest::default();
    digest.add(rows);
    digest.finish()
}

/// The digest of rows that are added in batches. It does not depend on how the rows are divided into batches.
#[derive(Default)]
pub struct RowsDigest {
    rows: u64,
    columns: Vec<ColumnDigest>,
}

struct ColumnDigest {
    name: String,
    kind: &'static str,
    /// An earlier column that has shared the array in all batches so far, so that both have the same values;
    /// `None` if there is none.
    original: Option<usize>,
    values: ValuesDigest,
}

/// The values of one column, as runs of equal values: most columns repeat one value for many rows.
#[derive(Clone, Default)]
struct ValuesDigest {
    /// Whether any row has a value. A column without values is left out, so a new column changes no digest.
    has_values: bool,
    /// The run that may continue: an encoded value, and the number of rows that have it.
    last: Vec<u8>,
    count: u64,
    /// Buffer for an encoded value.
    value: Vec<u8>,
    /// Runs that are still to be hashed.
    runs: Vec<u8>,
    hash: Sha256,
}

impl RowsDigest {
    /// Adds the rows of a batch, which has the same columns as the batches before.
    pub fn add(&mut self, rows: &RecordBatch) {
        self.rows += rows.num_rows() as u64;
        let originals = originals(rows);
        if self.columns.is_empty() {
            let fields = rows.schema_ref().fields().iter().zip(&originals);
            self.columns = fields.map(|(field, original)| ColumnDigest::new(field, *original)).collect();
        }
        self.end_copies(&originals);
        for (digest, column) in self.columns.iter_mut().zip(rows.columns()) {
            if digest.original.is_none() {
                digest.values.add_column(column);
            }
        }
    }

    /// Gives columns their own values if they are no longer copies.
    fn end_copies(&mut self, originals: &[Option<usize>]) {
        for (index, now) in originals.iter().enumerate().take(self.columns.len()) {
            if let Some(original) = self.columns[index].original
                && *now != Some(original)
            {
                self.columns[index].values = self.columns[original].values.clone();
                self.columns[index].original = None;
            }
        }
    }

    /// Returns the digest of all rows.
    pub fn finish(self) -> String {
        let mut digest = Sha256::new_with_prefix(FORM);
        digest.update(self.rows.to_le_bytes());
        let mut hashes: Vec<Option<[u8; 32]>> = Vec::with_capacity(self.columns.len());
        for ColumnDigest { name, kind, original, values } in self.columns {
            let original = original.and_then(|original| hashes.get(original).copied());
            let hash = original.unwrap_or_else(|| values.finish());
            hashes.push(hash);
            let Some(hash) = hash else { continue };
            for text in [&name, kind] {
                digest.update((text.len() as u64).to_le_bytes());
                digest.update(text);
            }
            digest.update(hash);
        }
        short(digest)
    }
}

impl ColumnDigest {
    fn new(field: &Field, original: Option<usize>) -> Self {
        let kind = match field.data_type() {
            DataType::Utf8 => "text",
            DataType::Decimal128(..) => "decimal",
            DataType::Int64 => "long",
            DataType::Timestamp(..) => "timestamp",
            DataType::Boolean => "boolean",
            _ => "",
        };
        Self { name: field.name().clone(), kind, original, values: ValuesDigest::default() }
    }
}

impl ValuesDigest {
    fn add_column(&mut self, column: &dyn Array) {
        if let Some(text) = column.as_string_opt::<i32>() {
            self.add_values(text.iter(), |text, form| {
                form.extend((text.len() as u64).to_le_bytes());
                form.extend(text.as_bytes());
            });
        } else if let Some(decimal) = column.as_primitive_opt::<Decimal128Type>() {
            self.add_values(decimal.iter(), |atoms, form| form.extend(atoms.to_le_bytes()));
        } else if let Some(number) = column.as_primitive_opt::<Int64Type>() {
            self.add_values(number.iter(), |number, form| form.extend(number.to_le_bytes()));
        } else if let Some(time) = column.as_primitive_opt::<TimestampMicrosecondType>() {
            self.add_values(time.iter(), |micros, form| form.extend(micros.to_le_bytes()));
        } else if let Some(truth) = column.as_boolean_opt() {
            self.add_values(truth.iter(), |truth, form| form.push(u8::from(truth)));
        }
    }

    fn add_values<V: Copy + PartialEq>(
        &mut self,
        values: impl Iterator<Item = Option<V>>,
        form: impl Fn(V, &mut Vec<u8>),
    ) {
        let (mut run, mut is_first): (Option<(Option<V>, u64)>, bool) = (None, true);
        for value in values {
            match &mut run {
                Some((same, count)) if *same == value => *count += 1,
                _ => {
                    let Some((value, count)) = run.replace((value, 1)) else { continue };
                    if is_first {
                        self.add_run(value, count, &form);
                    } else {
                        self.add_whole_run(value, count, &form);
                    }
                    is_first = false;
                }
            }
        }
        if let Some((value, count)) = run {
            self.add_run(value, count, &form);
        }
    }

    /// Adds the first or last run of a batch, which may continue a run of the last batch, or continue in the
    /// next batch.
    fn add_run<V>(&mut self, value: Option<V>, count: u64, form: impl Fn(V, &mut Vec<u8>)) {
        self.has_values |= value.is_some();
        self.value.clear();
        put_value(value, &mut self.value, form);
        if self.value != self.last {
            self.end_last();
            std::mem::swap(&mut self.value, &mut self.last);
        }
        self.count += count;
    }

    /// Adds a run that lies between other runs of its batch, so that the run is complete.
    fn add_whole_run<V>(&mut self, value: Option<V>, count: u64, form: impl Fn(V, &mut Vec<u8>)) {
        self.has_values |= value.is_some();
        self.end_last();
        self.runs.extend(count.to_le_bytes());
        put_value(value, &mut self.runs, form);
    }

    fn end_last(&mut self) {
        if self.count > 0 {
            self.runs.extend(self.count.to_le_bytes());
            self.runs.extend(&self.last);
            self.count = 0;
        }
        if self.runs.len() >= BUFFER_BYTES {
            self.hash.update(&self.runs);
            self.runs.clear();
        }
    }

    /// Returns the hash of all values; `None` if there is no value.
    fn finish(mut self) -> Option<[u8; 32]> {
        self.end_last();
        self.hash.update(&self.runs);
        self.has_values.then(|| self.hash.finalize().into())
    }
}

/// Writes whether there is a value, then the encoded value.
fn put_value<V>(value: Option<V>, out: &mut Vec<u8>, form: impl Fn(V, &mut Vec<u8>)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        form(value, out);
    }
}

/// Returns a shortened SHA-256 over the rows of `hours` without the clock columns.
pub fn of_hours<'a>(lines: impl Iterator<Item = usage::HourLine<'a>>) -> String {
    let columns = usage::total_columns();
    let mut digest = Sha256::new();
    for line in lines {
        for column in &columns {
            digest.update(cell(column.name, &(column.value)(&line)));
        }
    }
    short(digest)
}

/// Returns the digest that `of_hours` returns, for rows that are already columns.
fn of_hour_columns(rows: &RecordBatch) -> String {
    let columns = usage::total_columns();
    let columns = columns.iter().filter_map(|column| Some((column.name, rows.column_by_name(column.name)?)));
    let columns: Vec<_> = columns.collect();
    let mut digest = Sha256::new();
    for row in 0..rows.num_rows() {
        for (name, column) in &columns {
            digest.update(cell(name, &cell_of(column, row)));
        }
    }
    short(digest)
}

fn cell(name: &str, cell: &Cell<'_>) -> String {
    format!("{name}={};", json_value(cell))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, StringArray};
    use arrow_schema::Schema;
    use proptest::prelude::*;

    use super::*;

    fn digest(batches: &[Vec<Option<&str>>]) -> String {
        let schema = Arc::new(Schema::new(vec![Field::new("text", DataType::Utf8, true)]));
        let mut digest = RowsDigest::default();
        for values in batches {
            let column = Arc::new(StringArray::from(values.clone()));
            digest.add(&RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap());
        }
        digest.finish()
    }

    #[test]
    fn a_copy_counts_as_the_column_that_it_is() {
        let array = |values: &[&str]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
        let schema = Schema::new(["a", "b", "c"].map(|name| Field::new(name, DataType::Utf8, true)).to_vec());
        let schema = Arc::new(schema);
        let digest = |is_shared: fn(usize) -> bool, last: &[&str]| {
            let mut digest = RowsDigest::default();
            for (batch, values) in [&["x", "y"][..], &["y"], &["y", "z"]].into_iter().enumerate() {
                let original = array(values);
                let copy = || if is_shared(batch) { Arc::clone(&original) } else { array(values) };
                let third = if batch == 2 { array(last) } else { copy() };
                let columns = vec![Arc::clone(&original), copy(), third];
                digest.add(&RecordBatch::try_new(Arc::clone(&schema), columns).unwrap());
            }
            digest.finish()
        };
        for last in [&["y", "z"], &["y", "y"]] {
            let expected = digest(|_| false, last);
            assert_eq!(digest(|_| true, last), expected);
            assert_eq!(digest(|batch| batch != 1, last), expected);
            assert_eq!(digest(|batch| batch > 0, last), expected);
        }
        assert_ne!(digest(|_| true, &["y", "z"]), digest(|_| true, &["y", "y"]));
    }

    proptest! {
        #[test]
        fn how_rows_are_divided_into_batches_does_not_matter(
            batches in prop::collection::vec(
                prop::collection::vec(prop::sample::select(vec![None, Some(""), Some("a"), Some("b")]), 0..9),
                0..9,
            ),
        ) {
            let rows = batches.concat();
            let one_by_one: Vec<_> = rows.iter().map(|value| vec![*value]).collect();
            prop_assert_eq!(digest(&batches), digest(&one_by_one));
            prop_assert_eq!(digest(&[rows]), digest(&one_by_one));
        }
    }
}
