//! Units of time in bills: `Hrs`, `Seconds`, `100 Hours`.

use prorata_schemas::decimal::ONE;
use prorata_schemas::rules::bounds::{BILL_HOURS_MAX, PRICE_MAX};

use crate::cells::Row;
use crate::decimal::Exact;
use crate::fault::LineFault;

/// Seconds of each unit of time that bills name.
const SECONDS: &[(u32, &[&str])] = &[
    (3_600, &["hours", "hour", "hrs", "hr", "h"]),
    (60, &["minutes", "minute", "mins", "min"]),
    (1, &["seconds", "second", "secs", "sec", "s"]),
];

/// Number of seconds in an hour.
const HOUR: u32 = 3_600;

/// A charge for time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BilledTime {
    /// Number of hours, above 0.
    pub hours: Exact,
    /// List price per hour; `None` if the bill has none.
    pub list_unit_price: Option<Exact>,
}

/// The columns in which a format has a quantity.
pub struct QuantityColumns<C> {
    /// The unit, with an optional number, such as `Hrs` or `100 Hours`.
    pub unit: C,
    /// The number of units.
    pub quantity: C,
    /// The list price of one unit; `None` if the format has none.
    pub list_unit_price: Option<C>,
}

impl<C: Into<usize> + Copy> QuantityColumns<C> {
    /// Reads the time that a line bills; `None` if it bills anything else, or no time.
    ///
    /// # Errors
    /// If the quantity or the price is not a decimal.
    pub fn read(&self, row: &Row) -> Result<Option<BilledTime>, LineFault> {
        // Other quantities, such as bytes, may be too large to be read.
        let Some(seconds) = unit_seconds(row.text(self.unit)) else { return Ok(None) };
        let quantity = row.amount(self.quantity)?;
        let price = self.list_unit_price.map(|column| row.decimal(column)).transpose()?.flatten();
        let is_allowed = |number: &Exact, limit: i64| {
            !number.is_negative() && number.round().atoms <= i128::from(limit) * ONE
        };
        let hours = quantity.scaled(seconds, HOUR);
        let hours = hours.filter(|hours| !hours.is_zero() && is_allowed(hours, BILL_HOURS_MAX.into()));
        let price = price.and_then(|price| price.scaled(HOUR, seconds));
        let list_unit_price = price.filter(|price| is_allowed(price, PRICE_MAX));
        Ok(hours.map(|hours| BilledTime { hours, list_unit_price }))
    }
}

/// Returns the seconds of a unit of time; `None` for any other unit, such as `vCPU-Hours`.
fn unit_seconds(unit: &str) -> Option<u32> {
    let name = unit.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',');
    let count = unit.get(..unit.len() - name.len()).unwrap_or_default();
    let name = name.trim_matches(|c| matches!(c, ' ' | '/'));
    let (seconds, _) =
        SECONDS.iter().find(|(_, names)| names.iter().any(|known| known.eq_ignore_ascii_case(name)))?;
    let count = if count.is_empty() { 1 } else { count.replace(',', "").parse::<u32>().ok()? };
    seconds.checked_mul(count).filter(|seconds| *seconds > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Column;

    #[test]
    fn units_of_time_are_known_in_every_spelling() {
        for (unit, seconds) in [
            ("Hrs", 3_600),
            ("Hours", 3_600),
            ("1 Hour", 3_600),
            ("10 Hours", 36_000),
            ("1,000 Hours", 3_600_000),
            ("1/Hour", 3_600),
            ("seconds", 1),
            ("Minutes", 60),
        ] {
            assert_eq!(unit_seconds(unit), Some(seconds), "{unit}");
        }
        for unit in ["", "GB", "vCPU-Hours", "GB-Hours", "OCPU Hours", "1 GB", "10K", "0 Hours", "1/Day"] {
            assert_eq!(unit_seconds(unit), None, "{unit}");
        }
    }

    const COLUMNS: &[Column] =
        &[Column::optional(&["Unit"]), Column::optional(&["Quantity"]), Column::optional(&["Price"])];

    fn read(cells: [&str; 3]) -> Option<(String, Option<String>)> {
        let mut row = Row::new(COLUMNS);
        cells.into_iter().for_each(|cell| row.push(cell));
        let columns = QuantityColumns { unit: 0_usize, quantity: 1, list_unit_price: Some(2) };
        let time = columns.read(&row).unwrap()?;
        Some((time.hours.to_string(), time.list_unit_price.map(|price| price.to_string())))
    }

    #[test]
    fn quantities_and_prices_become_hours() {
        let hours = |hours: &str, price: Option<&str>| Some((hours.to_owned(), price.map(str::to_owned)));
        assert_eq!(read(["Hrs", "0.5", "0.096"]), hours("0.5", Some("0.096")));
        assert_eq!(read(["100 Hours", "0.24", "9.6"]), hours("24", Some("0.096")));
        assert_eq!(read(["Seconds", "5400", "0.001"]), hours("1.5", Some("3.6")));
        assert_eq!(read(["Hrs", "1", ""]), hours("1", None));
        assert_eq!(read(["Hrs", "1", "-1"]), hours("1", None));
        for none in [["Hrs", "0", "1"], ["Hrs", "-1", "1"], ["Hrs", "", "1"], ["GB", "x", "1"]] {
            assert_eq!(read(none), None, "{none:?}");
        }
    }
}
