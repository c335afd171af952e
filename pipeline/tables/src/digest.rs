//! Digests that tell whether the content of a file has changed.

use arrow_array::RecordBatch;
use sha2::{Digest, Sha256};

use crate::columns::{Cell, cell_of, usage};
use crate::stats::json_value;

/// The first 128 bits of a SHA-256 in hexadecimal: enough to tell files apart, and short enough for a file
/// name.
pub fn short(digest: Sha256) -> String {
    let mut text = format!("{:x}", digest.finalize());
    text.truncate(32);
    text
}

/// SHA-256 over the rows of `hours` without the clock columns. It hashes values, not a file, so that a new
/// release of the Parquet writer does not make a new revision of an hour.
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
pub fn of_hour_columns(rows: &RecordBatch) -> String {
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
