//! Values that an expectation of a rule table measures, and their comparison with the expected values.

mod columns;

use std::fmt;

use prorata_reference::rounding::{Exact, exact, half_even, ratio, whole, zero};
use prorata_reference::text::parse_duration;
use prorata_schemas::decimal::{Decimal12, ONE, PLACES};
use prorata_schemas::rows::{CostRow, HourTables, RowKind};

/// A number with the error that rounding may cause, or a text.
pub enum Measured {
    /// A sum of decimals, and the units of the last place by which largest remainders may move it.
    Number(Exact, i128),
    /// A text; `-` for null.
    Text(String),
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number, _) => write!(f, "{}", half_even(number)),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Returns whether the measured value is the expected value. The expected value is a number (`9365/4906`,
/// `1.5`), a number rounded to its last place (`1.8477374643~`), a duration (`20m`), `-` (null) or a text. A
/// duration has seconds, minutes or hours, and is compared in seconds.
pub fn agrees(got: &Measured, want: &str) -> bool {
    let (got, slack) = match got {
        Measured::Text(text) => return text == want,
        Measured::Number(number, slack) => (number, *slack),
    };
    let (want, places) = match want.strip_suffix('~') {
        Some(rounded) => (rounded, rounded.split_once('.').map_or(0, |(_, places)| places.len())),
        None => (want, PLACES),
    };
    let Some(want) = number(want) else { return false };
    let difference = got - exact(half_even(&want));
    let difference = if difference < zero() { -difference } else { difference };
    let half = if places < PLACES { ratio(1, 2 * 10_i64.pow(places as u32)) } else { zero() };
    difference <= half + ratio(slack, ONE)
}

/// Reads a fraction, a decimal or a duration in seconds; `None` if the text has another form.
fn number(text: &str) -> Option<Exact> {
    if let Some((numerator, denominator)) = text.split_once('/') {
        return Some(
            exact(numerator.parse::<Decimal12>().ok()?) / exact(denominator.parse::<Decimal12>().ok()?),
        );
    }
    match parse_duration(text) {
        Some(micros) => Some(ratio(micros, 1_000_000)),
        None => text.parse::<Decimal12>().ok().map(exact),
    }
}

/// Measures one thing in the tables of some hours.
pub fn measure(tables: &[&HourTables], words: &[&str]) -> Result<Measured, String> {
    let (&subject, rest) = words.split_first().ok_or("nothing to measure")?;
    match subject {
        "reservation" | "commitment" | "quota" | "pool" | "hours" => table_cell(tables, subject, rest),
        _ => cost_rows(tables, subject, rest),
    }
}

/// Measures a column of one of our own tables: one value, or the sum over the hours.
fn table_cell(tables: &[&HourTables], subject: &str, words: &[&str]) -> Result<Measured, String> {
    let mut cells = Vec::new();
    for hour in tables {
        cells.extend(match (subject, words) {
            ("reservation", [id, column @ ..]) => columns::reservation(hour, id, column)?,
            ("commitment", [id, column @ ..]) => columns::commitment(hour, id, column)?,
            ("quota", [id, resource, column]) => columns::quota(hour, id, resource, column)?,
            ("pool", [id, column]) => columns::pool(hour, id, column)?,
            ("hours", [column]) => columns::hours(&hour.totals, column)?,
            _ => return Err(format!("'{subject}' wants an id and a column")),
        });
    }
    match cells.as_slice() {
        [] => Ok(Measured::Text("missing".into())),
        [columns::Cell::Text(text)] => Ok(Measured::Text(text.clone())),
        cells => {
            let mut sum = zero();
            for cell in cells {
                let columns::Cell::Number(number) = cell else { return Err("texts do not add up".into()) };
                sum += exact(*number);
            }
            Ok(Measured::Number(sum, 0))
        }
    }
}

/// Returns the sum of a column of `cost_allocation` over the rows that the words choose.
fn cost_rows(tables: &[&HourTables], subject: &str, words: &[&str]) -> Result<Measured, String> {
    let mut rows: Vec<&CostRow> =
        tables.iter().flat_map(|tables| &tables.cost_allocation).map(|row| &**row).collect();
    let mut words = words.iter().copied();
    let mut id = || words.next().ok_or_else(|| format!("'{subject}' of which?"));
    let of_kind =
        |row: &CostRow, kinds: &[RowKind], id: &str| kinds.contains(&row.kind) && *row.resource_id == *id;
    match subject {
        "all" => {}
        "pod" => retain(&mut rows, id()?, |row, id| row.pod_uid.as_deref() == Some(id)),
        "namespace" => {
            retain(&mut rows, id()?, |row, id| row.pod.as_ref().is_some_and(|pod| *pod.namespace == *id))
        }
        "node" => {
            retain(&mut rows, id()?, |row, id| of_kind(row, &[RowKind::PodNode, RowKind::NodeIdle], id))
        }
        "idle" => retain(&mut rows, id()?, |row, id| of_kind(row, &[RowKind::NodeIdle], id)),
        "unused" => retain(&mut rows, id()?, |row, id| {
            of_kind(row, &[RowKind::ReservationUnused, RowKind::CommitmentUnused], id)
        }),
        "purchase" => retain(&mut rows, id()?, |row, id| of_kind(row, &[RowKind::CommitmentPurchase], id)),
        "shared" => retain(&mut rows, id()?, |row, id| {
            of_kind(row, &[RowKind::SharedCharge], if id == "-" { "" } else { id })
        }),
        other => return Err(format!("'{other}' is nothing to measure")),
    }
    let mut column = None;
    while let Some(word) = words.next() {
        let mut id = || words.next().ok_or_else(|| format!("'{word}' what?"));
        match word {
            "in-quota" | "over-quota" => {
                retain(&mut rows, word, |row, word| {
                    row.quota_state.is_some_and(|state| state.name() == word)
                });
            }
            "unlabelled" => rows.retain(|row| row.quota_state.is_none()),
            "under" => retain(&mut rows, id()?, |row, id| row.quota_id.as_deref() == Some(id)),
            "on" => retain(&mut rows, id()?, |row, id| *row.resource_id == *id),
            "with" => retain(&mut rows, id()?, |row, id| row.reservation_id.as_deref() == Some(id)),
            "alone" => rows.retain(|row| row.reservation_id.is_none()),
            "paid-by" => retain(&mut rows, id()?, |row, id| row.commitment_id.as_deref() == Some(id)),
            "uncommitted" => rows.retain(|row| row.commitment_id.is_none()),
            "tagged" => retain(&mut rows, id()?, |row, id| {
                let mut labels = row.pod.iter().flat_map(|pod| pod.labels.iter());
                labels.any(|(name, value)| format!("{name}={value}") == id)
            }),
            "priced" => rows.retain(|row| row.unpriced.is_none()),
            "by-bill" => rows.retain(|row| !row.lines.is_empty()),
            "by-estimate" => rows.retain(|row| row.lines.is_empty()),
            "of-line" => {
                retain(&mut rows, id()?, |row, id| row.lines.iter().any(|line| *line.line().line_id == *id));
            }
            "of-pod" => retain(&mut rows, id()?, |row, id| row.pod_uid.as_deref() == Some(id)),
            "billed-by" => retain(&mut rows, id()?, |row, id| *row.provider == *id),
            "for" => {
                retain(&mut rows, id()?, |row, id| row.unpriced.is_some_and(|reason| reason.name() == id))
            }
            "at" => retain(&mut rows, id()?, |row, id| row.list_unit_price.to_string() == id),
            name => column = Some(name),
        }
    }
    sum(&rows, subject, column.ok_or("which column?")?)
}

fn retain(rows: &mut Vec<&CostRow>, id: &str, keep: impl Fn(&CostRow, &str) -> bool) {
    rows.retain(|row| keep(row, id));
}

/// Sums a column. `rows` counts the rows.
fn sum(rows: &[&CostRow], subject: &str, column: &str) -> Result<Measured, String> {
    if column == "rows" {
        return Ok(Measured::Number(whole(rows.len() as i64), 0));
    }
    let mut values: Vec<Decimal12> = Vec::new();
    for row in rows {
        values.extend(columns::cost(row, column)?);
    }
    if values.is_empty() {
        return Ok(Measured::Text("-".into()));
    }
    // Each row's part of a charge may be one unit off. The sum of all rows may not.
    let slack = if subject == "all" { 0 } else { rows.len() as i128 };
    Ok(Measured::Number(values.into_iter().map(exact).sum(), slack))
}
