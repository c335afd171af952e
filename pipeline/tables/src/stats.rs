//! Statistics of a file as the Delta log carries them: minimum, maximum and number of nulls of a column.

use std::cmp::Ordering;

use arrow_array::RecordBatch;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Timestamp;

use crate::columns::{Cell, cell_of};
use crate::json::{Object, quoted};
use crate::stats_columns;

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
    /// Of no rows yet.
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

    /// The Delta `stats` of a file of `rows` rows.
    pub fn into_json(self, rows: u64) -> String {
        let bounds = |bound: fn(&ColumnStats) -> &Option<Cell<'static>>| {
            let with_bound = self.0.iter().filter_map(|(name, stats)| Some((*name, bound(stats).as_ref()?)));
            let object = Object::default();
            with_bound.fold(object, |object, (name, cell)| object.raw(name, json_value(cell))).finish()
        };
        let nulls =
            self.0.iter().fold(Object::default(), |object, (name, stats)| object.raw(name, stats.nulls));
        Object::default()
            .raw("numRecords", rows)
            .raw("minValues", bounds(|stats| &stats.least))
            .raw("maxValues", bounds(|stats| &stats.greatest))
            .raw("nullCount", nulls.finish())
            .finish()
    }
}

/// Order of two values of one column.
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

/// A value as JSON: times in RFC 3339, decimals as the numbers they are.
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
