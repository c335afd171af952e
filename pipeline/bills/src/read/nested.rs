//! Reads JSON with one object a line. Numbers are read as text, so no amount is ever a binary fraction.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use prorata_schemas::reject::excerpt;
use serde_json::value::RawValue;

use super::bounded::ROW_BYTES_MAX;
use super::{EachLine, Source};
use crate::cells::{Column, Row};
use crate::fault::{BillError, LineFault, Place};

/// The members of an object, with their values as they are in the text.
type Members<'l> = BTreeMap<&'l str, &'l RawValue>;

/// Reads the objects of a text.
pub fn read(source: &Source<'_>, mut from: impl BufRead, each: EachLine<'_>) -> Result<(), BillError> {
    let limit = u64::try_from(ROW_BYTES_MAX).unwrap_or(u64::MAX);
    let (mut line, mut row) = (Vec::new(), Row::new(source.columns));
    let (mut number, mut last) = (0, None);
    loop {
        line.clear();
        let read = from.by_ref().take(limit).read_until(b'\n', &mut line);
        if read.map_err(|error| source.broken(last, &error))? == 0 {
            return Ok(());
        }
        number += 1;
        let place = Place::Line(number);
        last = Some(place);
        let is_whole = line.ends_with(b"\n");
        if !is_whole && line.len() >= ROW_BYTES_MAX {
            return Err(source.error(format!("{place} is larger than 8 MiB; export one JSON object a line")));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match fill(&mut row, source.columns, &line) {
            Ok(()) => each(place, Ok(&row))?,
            Err(fault) if is_whole => each(place, Err(fault))?,
            Err(fault) => return Err(source.broken(Some(place), &fault)),
        }
    }
}

fn fill(row: &mut Row, columns: &[Column], line: &[u8]) -> Result<(), LineFault> {
    let text = std::str::from_utf8(line)
        .map_err(|_| LineFault::of_line("the line is not UTF-8; export the bill as UTF-8"))?;
    let members: Members<'_> = parse(text)?;
    row.clear();
    let mut inner = ("", Members::new());
    for column in columns {
        let (outer, key) = match column.name().split_once('.') {
            Some((outer, key)) => (outer, Some(key)),
            None => (column.name(), None),
        };
        let value = match (members.get(outer), key) {
            (Some(value), Some(key)) => {
                // Columns of one object follow each other, so it is read once.
                if inner.0 != outer {
                    inner = (outer, parse::<Option<Members<'_>>>(value.get())?.unwrap_or_default());
                }
                inner.1.get(key)
            }
            (value, None) => value,
            (None, Some(_)) => None,
        };
        push(row, value.map_or("", |value| value.get()))?;
    }
    Ok(())
}

/// Adds a value as a cell: a text without its quotes, and anything else as it is.
fn push(row: &mut Row, value: &str) -> Result<(), LineFault> {
    match value.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        None => row.push(value),
        Some(text) if !text.contains('\\') => row.push(text),
        Some(_) => row.push(&parse::<String>(value)?),
    }
    Ok(())
}

fn parse<'l, V: serde::Deserialize<'l>>(text: &'l str) -> Result<V, LineFault> {
    serde_json::from_str(text).map_err(|error| {
        let text = excerpt(text);
        LineFault::of_line(format!("'{text}' is not the JSON of an export: {error}; export the bill again"))
    })
}
