//! Statistics of a file in the form of the Delta log: minimum, maximum and number of nulls of a column.

use std::cmp::Ordering;

use arrow_array::RecordBatch;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Timestamp;

use crate::columns::{Cell, cell_of};
use crate::json::{Object, quoted};
use crate::stats_columns;

/// Longest text in statistics, in bytes. Every reader of a table loads the statistics of all its files.
const TEXT_BYTES_MAX: usize = 64;

/// Statistics of one column.
#[derive(Default)]
struct ColumnStats {
    least: Option<Cell<'static>>,
    greatest: Option<Cell<'static>>,
    nulls: u64,
}

impl ColumnStats {
    fn add(&mut self, cell: Cell<'_>) {
        if cell == Cell::Null {
            self.nulls += 1;
            return;
        }
        if self.least.as_ref().is_none_or(|least| order(&cell, least).is_lt()) {
            self.least = Some(owned(&cell));
        }
        if self.greatest.as_ref().is_none_or(|greatest| order(&cell, greatest).is_gt()) {
            self.greatest = Some(owned(&cell));
        }
    }
}

/// Statistics of rows that are columns.
pub struct Statistics(Vec<(&'static str, ColumnStats)>);

impl Statistics {
    /// Creates the statistics of no rows.
    pub fn of(table: Table) -> Self {
        Self(stats_columns(table).iter().map(|name| (*name, ColumnStats::default())).collect())
    }

    /// Adds the rows of a batch.
    pub fn add(&mut self, rows: &RecordBatch) {
        for (name, stats) in &mut self.0 {
            if let Some(column) = rows.column_by_name(name) {
                (0..rows.num_rows()).for_each(|row| stats.add(cell_of(column, row)));
            }
        }
    }

    /// Returns the Delta `stats` of a file of `rows` rows. Long texts are cut: the minimum is rounded down,
    /// and the maximum is rounded up.
    pub fn into_json(self, rows: u64) -> String {
        let bounds = |bound: fn(&ColumnStats) -> Option<String>| {
            let with_bound = self.0.iter().filter_map(|(name, stats)| Some((*name, bound(stats)?)));
            with_bound.fold(Object::default(), |object, (name, value)| object.raw(name, value)).finish()
        };
        let nulls =
            self.0.iter().fold(Object::default(), |object, (name, stats)| object.raw(name, stats.nulls));
        Object::default()
            .raw("numRecords", rows)
            .raw("minValues", bounds(|stats| Some(cut(stats.least.as_ref()?))))
            .raw("maxValues", bounds(|stats| cut_up(stats.greatest.as_ref()?)))
            .raw("nullCount", nulls.finish())
            .finish()
    }
}

/// Returns a value as JSON. A long text is cut to its beginning, which is not greater than the text.
fn cut(cell: &Cell<'_>) -> String {
    match text(cell) {
        long if long.len() > TEXT_BYTES_MAX => quoted(beginning(long)),
        _ => json_value(cell),
    }
}

/// Returns a value as JSON. A long text becomes a shorter text that is greater; `None` if no such text
/// exists.
fn cut_up(cell: &Cell<'_>) -> Option<String> {
    match text(cell) {
        long if long.len() > TEXT_BYTES_MAX => rounded_up(long).map(|text| quoted(&text)),
        _ => Some(json_value(cell)),
    }
}

/// Returns as many whole characters of a text as fit the bytes that statistics may have.
fn beginning(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default()
}

/// Returns a short text that sorts after every text with this beginning; `None` if there is none. The last
/// character that has a successor is replaced with the successor. UTF-8 text sorts like its characters.
fn rounded_up(text: &str) -> Option<String> {
    let mut short = beginning(text).to_owned();
    while let Some(last) = short.pop() {
        let next = (last..=char::MAX).nth(1);
        if let Some(next) = next.filter(|next| short.len() + next.len_utf8() <= TEXT_BYTES_MAX) {
            short.push(next);
            return Some(short);
        }
    }
    None
}

/// Compares two values of one column.
fn order(left: &Cell<'_>, right: &Cell<'_>) -> Ordering {
    match (left, right) {
        (Cell::Decimal(left), Cell::Decimal(right)) => left.cmp(right),
        (Cell::Int(left), Cell::Int(right)) => left.cmp(right),
        (Cell::Time(left), Cell::Time(right)) => left.cmp(right),
        (Cell::Bool(left), Cell::Bool(right)) => left.cmp(right),
        _ => text(left).cmp(text(right)),
    }
}

fn text<'a>(cell: &'a Cell<'_>) -> &'a str {
    match cell {
        Cell::Text(text) => text,
        Cell::Made(text) => text,
        Cell::Null | Cell::Decimal(_) | Cell::Int(_) | Cell::Time(_) | Cell::Bool(_) => "",
    }
}

fn owned(cell: &Cell<'_>) -> Cell<'static> {
    match cell {
        Cell::Null => Cell::Null,
        Cell::Text(_) | Cell::Made(_) => Cell::Made(text(cell).to_owned()),
        Cell::Decimal(value) => Cell::Decimal(*value),
        Cell::Int(value) => Cell::Int(*value),
        Cell::Time(value) => Cell::Time(*value),
        Cell::Bool(value) => Cell::Bool(*value),
    }
}

/// Returns a value as JSON: times in RFC 3339, decimals as exact numbers.
pub fn json_value(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Null => "null".to_owned(),
        Cell::Text(_) | Cell::Made(_) => quoted(text(cell)),
        Cell::Decimal(value) => value.to_string(),
        Cell::Int(value) => value.to_string(),
        Cell::Time(Timestamp(micros)) => quoted(&Timestamp(*micros).to_string()),
        Cell::Bool(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_down_and_up_at_characters() {
        let long = |unit: &str| unit.repeat(200);
        let before = |text: &str, last: char| format!("{}{last}", &text[..text.len() - 1]);
        let a63 = "a".repeat(63);
        let cases: [(String, String, Option<String>); 7] = [
            ("a".repeat(64), "a".repeat(64), Some("a".repeat(64))),
            (long("a"), "a".repeat(64), Some(before(&"a".repeat(64), 'b'))),
            // 21 characters of three bytes: the 22nd does not fit.
            (long("价"), "价".repeat(21), Some(format!("{}\u{4ef8}", "价".repeat(20)))),
            // The next character has two bytes, which do not fit, so the character before is raised.
            (long("\u{7f}"), "\u{7f}".repeat(64), Some(format!("{}\u{80}", "\u{7f}".repeat(62)))),
            // The last character of Unicode has no next one.
            (format!("{a63}{}", long("\u{10ffff}")), a63.clone(), Some(before(&a63, 'b'))),
            (long("\u{d7ff}"), "\u{d7ff}".repeat(21), Some(format!("{}\u{e000}", "\u{d7ff}".repeat(20)))),
            (long("\u{10ffff}"), "\u{10ffff}".repeat(16), None),
        ];
        for (text, least, greatest) in cases {
            let cell = Cell::Made(text.clone());
            assert_eq!(cut(&cell), quoted(&least), "{text}");
            assert_eq!(cut_up(&cell), greatest.as_deref().map(quoted), "{text}");
            assert!(least.len() <= TEXT_BYTES_MAX && least <= text);
            assert!(greatest.is_none_or(|greatest| greatest.len() <= TEXT_BYTES_MAX && greatest >= text));
        }
    }
}
