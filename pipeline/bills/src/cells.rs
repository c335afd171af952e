//! Columns that a format reads, and the cells of one line in them.

use std::fmt::{Display, Write};

use prorata_schemas::reject::excerpt;
use prorata_schemas::time::Timestamp;

use crate::decimal::Exact;
use crate::fault::LineFault;
use crate::time::parse_time;

/// A column that a format reads.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The names that exports give it; the first is the name in messages.
    names: &'static [&'static str],
    is_required: bool,
}

impl Column {
    /// Creates a column that every document has.
    pub const fn required(names: &'static [&'static str]) -> Self {
        Self { names, is_required: true }
    }

    /// Creates a column that a document may lack.
    pub const fn optional(names: &'static [&'static str]) -> Self {
        Self { names, is_required: false }
    }

    /// Returns the name in messages.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}

/// Declares the columns of a format: an enum of their places, and their list.
macro_rules! columns {
    ($($column:ident: $kind:ident [$($name:literal),+],)+) => {
        #[derive(Clone, Copy)]
        enum Col {
            $($column,)+
        }

        impl From<Col> for usize {
            fn from(column: Col) -> Self {
                column as Self
            }
        }

        /// The columns that the format reads.
        pub const COLUMNS: &[crate::cells::Column] = &[$(crate::cells::Column::$kind(&[$($name),+]),)+];
    };
}
pub(crate) use columns;

/// Finds the columns of a format in the header of a document. Returns the place of each, `None` where an
/// optional column is missing.
///
/// # Errors
/// Returns the required columns that are missing.
pub fn find_columns<'h>(
    columns: &[Column],
    header: impl Iterator<Item = &'h str>,
) -> Result<Vec<Option<usize>>, Vec<&'static str>> {
    let header: Vec<String> = header.map(spelling).collect();
    let find = |column: &Column| {
        // Names are in the order of preference.
        column.names.iter().find_map(|name| {
            let wanted = spelling(name);
            header.iter().position(|found| *found == wanted)
        })
    };
    let places: Vec<Option<usize>> = columns.iter().map(find).collect();
    let missing = columns.iter().zip(&places).filter(|(column, place)| column.is_required && place.is_none());
    let missing: Vec<&'static str> = missing.map(|(column, _)| column.name()).collect();
    if missing.is_empty() { Ok(places) } else { Err(missing) }
}

/// Returns a name as names are compared: letters and digits alone, in lower case. So `lineItem/UsageType` of
/// a legacy report is `line_item_usage_type` of its successor.
fn spelling(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The cells of one line, in the order of the format's columns. One row serves all lines of a document, so a
/// line needs no memory of its own.
#[derive(Debug)]
pub struct Row {
    columns: &'static [Column],
    text: String,
    /// The end of each cell in `text`.
    ends: Vec<usize>,
}

impl Row {
    /// Creates an empty row.
    pub fn new(columns: &'static [Column]) -> Self {
        Self { columns, text: String::new(), ends: Vec::new() }
    }

    /// Removes all cells.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Adds the cell of the next column. `NULL` and blanks are an empty cell.
    pub fn push(&mut self, cell: &str) {
        let cell = cell.trim();
        if !cell.eq_ignore_ascii_case("null") {
            self.text.push_str(cell);
        }
        self.ends.push(self.text.len());
    }

    /// Adds the cell of the next column: a value as it prints.
    pub fn push_value(&mut self, value: impl Display) {
        // Writing to a string never fails.
        let _infallible = write!(self.text, "{value}");
        self.ends.push(self.text.len());
    }

    /// Returns the text of a cell, which is empty for null and for a column that is missing.
    pub fn text(&self, column: impl Into<usize>) -> &str {
        let column = column.into();
        let end_of = |column: usize| self.ends.get(column).copied();
        let start = column.checked_sub(1).and_then(end_of).unwrap_or_default();
        end_of(column).and_then(|end| self.text.get(start..end)).unwrap_or_default()
    }

    /// Returns the name of a column.
    pub fn name(&self, column: impl Into<usize>) -> &'static str {
        self.columns.get(column.into()).map_or("", Column::name)
    }

    /// Returns the text of a cell that must not be empty.
    ///
    /// # Errors
    /// If it is empty.
    pub fn filled(&self, column: impl Into<usize>) -> Result<&str, LineFault> {
        let column = column.into();
        match self.text(column) {
            "" => Err(self.fault(column, "the cell is empty; fill it in, or export the bill again")),
            text => Ok(text),
        }
    }

    /// Returns the decimal in a cell; `None` if the cell is empty.
    ///
    /// # Errors
    /// If the text is not a decimal.
    pub fn decimal(&self, column: impl Into<usize>) -> Result<Option<Exact>, LineFault> {
        let column = column.into();
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        Exact::parse(text).map(Some).ok_or_else(|| {
            let form = "is not a decimal such as 0.25 or 5.6E-05, without separators of thousands";
            self.wrong(column, form)
        })
    }

    /// Returns the amount in a cell that must not be empty.
    ///
    /// # Errors
    /// If the text is not a decimal.
    pub fn amount_filled(&self, column: impl Into<usize>) -> Result<Exact, LineFault> {
        let column = column.into();
        self.filled(column)?;
        self.amount(column)
    }

    /// Returns the amount in a cell, which is 0 if the cell is empty.
    ///
    /// # Errors
    /// If the text is not a decimal.
    pub fn amount(&self, column: impl Into<usize>) -> Result<Exact, LineFault> {
        self.decimal(column).map(Option::unwrap_or_default)
    }

    /// Returns the time in a cell that must not be empty.
    ///
    /// # Errors
    /// If the text is not a time.
    pub fn time(&self, column: impl Into<usize>) -> Result<Timestamp, LineFault> {
        let column = column.into();
        let form = "is not a time such as 2026-11-20T13:00:00Z or 2026-11-20 13:00:00";
        parse_time(self.filled(column)?).ok_or_else(|| self.wrong(column, form))
    }

    /// Creates a fault of a cell whose text has a wrong form. Often, an unquoted comma before it shifted the
    /// cells of the row.
    pub fn wrong(&self, column: impl Into<usize>, form: &str) -> LineFault {
        let column = column.into();
        let text = excerpt(self.text(column));
        self.fault(column, &format!("'{text}' {form}; correct the cell, or export the bill again"))
    }

    /// Creates a fault of a cell.
    pub fn fault(&self, column: impl Into<usize>, message: &str) -> LineFault {
        LineFault::of_cell(self.name(column), message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column::required(&["BilledCost"]),
        Column::optional(&["ServiceProviderName", "ProviderName"]),
        Column::optional(&["lineItem/UsageType"]),
    ];

    #[test]
    fn columns_are_found_in_any_spelling() {
        let found = |header: &[&'static str]| find_columns(COLUMNS, header.iter().copied());
        let places = vec![Some(1), Some(0), Some(2)];
        assert_eq!(found(&["providername", "Billed Cost", "line_item_usage_type"]), Ok(places));
        assert_eq!(
            found(&["ProviderName", "BilledCost", "ServiceProviderName"]),
            Ok(vec![Some(1), Some(2), None])
        );
        assert_eq!(found(&["Billed"]), Err(vec!["BilledCost"]));
    }

    #[test]
    fn cells_are_read_or_named_in_a_fault() {
        let mut row = Row::new(COLUMNS);
        for _ in 0..2 {
            row.clear();
            row.push(" -1.5E+1 ");
            row.push("NULL");
            row.push_value(5.649_02e-5_f64);
        }
        assert_eq!(row.amount(0_usize).unwrap().to_string(), "-15");
        assert_eq!((row.text(1_usize), row.decimal(1_usize)), ("", Ok(None)));
        assert_eq!(row.text(2_usize), "0.0000564902");
        assert_eq!(row.text(3_usize), "");
        let fault = row.time(0_usize).unwrap_err();
        assert_eq!(fault.column, Some("BilledCost"));
        assert!(fault.message.contains("'-1.5E+1' is not a time"), "{fault}");
        assert!(row.filled(1_usize).unwrap_err().to_string().contains("column ServiceProviderName"));
    }
}
