//! Digests that tell whether the rows of a file have changed. They hash values, not a file: other settings or
//! another release of the Parquet writer change none. `README.md` describes the form.

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use prorata_schemas::tables::Table;
use sha2::{Digest, Sha256};

use crate::columns::{Cell, cell_of, usage};
use crate::stats::json_value;

/// Comes first in the hash. Another form of the digest has another number.
const FORM: &str = "prorata rows 1\n";

/// Runs that are hashed at once, in bytes.
const BUFFER_BYTES: usize = 16_384;

/// The first 128 bits of a SHA-256 in hexadecimal: enough to tell files apart, and short enough for a file
/// name.
pub fn short(digest: Sha256) -> String {
    let mut text = format!("{:x}", digest.finalize());
    text.truncate(32);
    text
}

/// The digest of a file with these rows.
pub fn of_columns(table: Table, rows: &RecordBatch) -> String {
    if table == Table::Hours {
        return of_hour_columns(rows);
    }
    let mut digest = RowsDigest::default();
    digest.add(rows);
    digest.finish()
}

/// The digest of rows that come in batches. How they are divided into batches does not matter.
#[derive(Default)]
pub struct RowsDigest {
    rows: u64,
    columns: Vec<ColumnDigest>,
}

/// The values of one column, as runs of equal values: most columns say the same for many rows.
struct ColumnDigest {
    name: String,
    kind: &'static str,
    /// Whether a row has a value. A column without any is left out: a new one changes no digest.
    has_values: bool,
    /// The run that may go on: a value in its form, and how many rows have it.
    last: Vec<u8>,
    count: u64,
    /// A value in its form.
    value: Vec<u8>,
    /// Runs that are yet to be hashed.
    runs: Vec<u8>,
    hash: Sha256,
}

impl RowsDigest {
    /// Adds the rows of a batch, which has the columns of those before.
    pub fn add(&mut self, rows: &RecordBatch) {
        self.rows += rows.num_rows() as u64;
        if self.columns.is_empty() {
            let fields = rows.schema_ref().fields().iter();
            self.columns = fields.map(|field| ColumnDigest::new(field.name(), field.data_type())).collect();
        }
        for (digest, column) in self.columns.iter_mut().zip(rows.columns()) {
            digest.add_column(column);
        }
    }

    /// The digest of all rows.
    pub fn finish(self) -> String {
        let mut digest = Sha256::new_with_prefix(FORM);
        digest.update(self.rows.to_le_bytes());
        for mut column in self.columns.into_iter().filter(|column| column.has_values) {
            column.end_last();
            for text in [&column.name, column.kind] {
                digest.update((text.len() as u64).to_le_bytes());
                digest.update(text);
            }
            column.hash.update(&column.runs);
            digest.update(column.hash.finalize());
        }
        short(digest)
    }
}

impl ColumnDigest {
    fn new(name: &str, data_type: &DataType) -> Self {
        let kind = match data_type {
            DataType::Utf8 => "text",
            DataType::Decimal128(..) => "decimal",
            DataType::Int64 => "long",
            DataType::Timestamp(..) => "timestamp",
            DataType::Boolean => "boolean",
            _ => "",
        };
        let (last, value, runs) = (Vec::new(), Vec::new(), Vec::new());
        let name = name.to_owned();
        Self { name, kind, has_values: false, last, count: 0, value, runs, hash: Sha256::new() }
    }

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

    /// Adds the first or the last run of a batch: one run may end a batch and begin the next.
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

    /// Adds a run between others of its batch: it is whole.
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
}

/// Writes whether there is a value, and the value in its form.
fn put_value<V>(value: Option<V>, out: &mut Vec<u8>, form: impl Fn(V, &mut Vec<u8>)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        form(value, out);
    }
}

/// SHA-256 over the rows of `hours` without the clock columns.
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

/// The same digest, of rows that are columns already.
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

    use arrow_array::StringArray;
    use arrow_schema::{Field, Schema};
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
