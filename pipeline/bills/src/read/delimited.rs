//! Reads CSV.

use std::io::Read;

use csv::{ByteRecord, Position, ReaderBuilder};

use super::bounded::{BoundedText, TextState};
use super::{BUFFER_BYTES, EachLine, Source};
use crate::cells::{Row, find_columns};
use crate::fault::{BillError, LineFault, Place};

/// Reads the rows of a text with a header.
pub fn read(source: &Source<'_>, from: impl Read, each: EachLine<'_>) -> Result<(), BillError> {
    let state = TextState::default();
    state.begin_row();
    let text = BoundedText { from, state: &state };
    // The number of cells is compared here, because only here the fault is one of a line.
    let mut reader = ReaderBuilder::new().flexible(true).buffer_capacity(BUFFER_BYTES).from_reader(text);
    let header = reader.headers().map_err(|error| source.broken(None, &error))?.clone();
    let places = find_columns(source.columns, header.iter()).map_err(|columns| source.lacks(columns))?;
    let (mut record, mut row) = (ByteRecord::new(), Row::new(source.columns));
    let (mut last, mut held) = (None, None);
    loop {
        state.begin_row();
        if !reader.read_byte_record(&mut record).map_err(|error| source.broken(last, &error))? {
            break;
        }
        if let Some((place, fault)) = held.take() {
            each(place, Err(fault))?;
        }
        let line = record.position().map_or(0, Position::line);
        let place = Place::Line(line);
        last = Some(place);
        if record.len() != header.len() {
            let lines = reader.position().line().saturating_sub(line);
            held = Some((place, wrong_count(source, record.len(), header.len(), place, lines)?));
            continue;
        }
        match fill(&mut row, &record, &places) {
            Ok(()) => each(place, Ok(&row))?,
            Err(fault) => each(place, Err(fault))?,
        }
    }
    match held {
        None => Ok(()),
        Some((place, fault)) if state.ends_line() => each(place, Err(fault)),
        Some((place, fault)) => Err(source.broken(Some(place), &fault)),
    }
}

/// Returns the fault of a row with too few or too many cells. A quote that is not closed makes one row of
/// many, so the fault is one of the document.
fn wrong_count(
    source: &Source<'_>,
    found: usize,
    expected: usize,
    place: Place,
    lines: u64,
) -> Result<LineFault, BillError> {
    let message = format!("the row has {found} cells, and the header has {expected}");
    if lines > 1 {
        let fix = "a quote may not be closed there, so correct it, or export the bill again";
        return Err(source.error(format!("{place}: {message}, and {lines} lines are in it; {fix}")));
    }
    let fix = "quote cells with a comma, or export the bill again";
    Ok(LineFault::of_line(format!("{message}; {fix}")))
}

fn fill(row: &mut Row, record: &ByteRecord, places: &[Option<usize>]) -> Result<(), LineFault> {
    row.clear();
    for (column, place) in places.iter().enumerate() {
        let cell = place.and_then(|place| record.get(place)).unwrap_or_default();
        match std::str::from_utf8(cell) {
            Ok(cell) => row.push(cell),
            Err(_) => return Err(row.fault(column, "the text is not UTF-8; export the bill as UTF-8")),
        }
    }
    Ok(())
}
