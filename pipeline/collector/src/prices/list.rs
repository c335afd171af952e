//! The price list, and its CSV form.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, names};
use prorata_schemas::money::DecimalError;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::reject::excerpt;
use prorata_schemas::time::Timestamp;

use crate::instant::{parse_date, parse_instant};

/// The first line of a list.
const HEADER: [&str; 8] =
    ["provider", "region", "instance_type", "os", "capacity_type", "currency", "hourly", "valid_from"];

/// The key of a price.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PricedType {
    /// Provider, as in node events.
    pub provider: Text,
    /// Region.
    pub region: Text,
    /// Instance type.
    pub instance_type: Text,
    /// Operating system, as in the label `kubernetes.io/os`.
    pub os: Text,
    /// On demand or spot.
    pub capacity_type: CapacityType,
}

impl PricedType {
    /// Returns the key with the canonical names of provider and region (RULES.md, section 12).
    fn canonical(&self) -> Self {
        Self {
            provider: names::shared(&self.provider, names::provider),
            region: names::shared(&self.region, names::place),
            ..self.clone()
        }
    }
}

/// Prices by type, each valid from an instant until the next price, all in one currency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceList {
    currency: Option<Text>,
    /// Prices by canonical names.
    prices: BTreeMap<PricedType, Listed>,
}

/// A type as the list spells it, and its prices by the instant from which they apply.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    of: PricedType,
    prices: BTreeMap<Timestamp, UnitPrice>,
}

/// An error that keeps a price out of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriceListError {
    /// A type has two prices from the same instant.
    #[error("{instance_type} in {region} has two prices from {valid_from}: {one} and {other}; keep one")]
    TwoPrices {
        /// The instance type.
        instance_type: Text,
        /// Region of the type.
        region: Text,
        /// The instant from which both prices apply.
        valid_from: Timestamp,
        /// The price that came first.
        one: UnitPrice,
        /// The other price.
        other: UnitPrice,
    },
    /// A price is not in the list's currency.
    #[error("a price in {other}, but the list is in {one}; make a list for each currency")]
    TwoCurrencies {
        /// Currency of the list.
        one: Text,
        /// The other currency.
        other: Text,
    },
    /// The price is below zero.
    #[error("the price {0} is negative")]
    Negative(UnitPrice),
    /// The file is not CSV, or cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The header has other columns.
    #[error("the first line must be {}", HEADER.join(","))]
    Header,
    /// A value does not parse.
    #[error("line {line}: {column}: {fault}")]
    Value {
        /// The line number, from 1.
        line: u64,
        /// Column of the value.
        column: &'static str,
        /// The error.
        fault: String,
    },
    /// A line contradicts an earlier line.
    #[error("line {line}: {source}")]
    Line {
        /// The line number, from 1.
        line: u64,
        /// The error.
        #[source]
        source: Box<PriceListError>,
    },
}

impl PriceList {
    /// Adds a price. The same price counts once, even if its provider or region is spelled differently.
    ///
    /// # Errors
    /// If the price is negative or not in the list's currency. Also if the list already has a different price
    /// of this type from the same instant; the existing price then stays.
    pub fn add(
        &mut self,
        of: PricedType,
        valid_from: Timestamp,
        hourly: UnitPrice,
        currency: &Text,
    ) -> Result<(), PriceListError> {
        if hourly < UnitPrice::ZERO {
            return Err(PriceListError::Negative(hourly));
        }
        let one = self.currency.get_or_insert_with(|| currency.clone());
        if one != currency {
            return Err(PriceListError::TwoCurrencies { one: one.clone(), other: currency.clone() });
        }
        let (instance_type, region) = (of.instance_type.clone(), of.region.clone());
        let listed = self.prices.entry(of.canonical());
        let listed = listed.or_insert_with(|| Listed { of, prices: BTreeMap::new() });
        match *listed.prices.entry(valid_from).or_insert(hourly) {
            one if one == hourly => Ok(()),
            one => Err(PriceListError::TwoPrices { instance_type, region, valid_from, one, other: hourly }),
        }
    }

    /// Removes all prices of a type.
    pub(super) fn remove(&mut self, of: &PricedType) {
        self.prices.remove(&of.canonical());
    }

    /// Returns the currency of the list, or `None` if the list has no price.
    pub const fn currency(&self) -> Option<&Text> {
        self.currency.as_ref()
    }

    /// Returns the prices, ordered by the canonical names of their types and then by instant.
    pub fn iter(&self) -> impl Iterator<Item = (&PricedType, Timestamp, UnitPrice)> {
        let all = self.prices.values();
        all.flat_map(|listed| listed.prices.iter().map(move |(from, price)| (&listed.of, *from, *price)))
    }

    /// Returns the number of prices.
    pub fn len(&self) -> usize {
        self.prices.values().map(|listed| listed.prices.len()).sum()
    }

    /// Returns whether the list has no price.
    pub fn is_empty(&self) -> bool {
        self.prices.is_empty()
    }

    pub(super) fn prices_of(&self, of: &PricedType) -> Option<&BTreeMap<Timestamp, UnitPrice>> {
        Some(&self.prices.get(&of.canonical())?.prices)
    }
}

/// Adds the prices of a CSV file to a list.
///
/// # Errors
/// Returns the first error, with its line number.
pub fn read_price_list(from: impl Read, list: &mut PriceList) -> Result<(), PriceListError> {
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder.has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(from);
    let unreadable = |error: csv::Error| PriceListError::Unreadable(error.to_string());
    let mut record = csv::StringRecord::new();
    let has_header = reader.read_record(&mut record).map_err(unreadable)?;
    if !has_header || record.iter().ne(HEADER) {
        return Err(PriceListError::Header);
    }
    // The reader counts line feeds. If lines end with CRLF, it ends them before the line feed.
    let uncounted = 2_u64.saturating_sub(reader.position().line());
    while reader.read_record(&mut record).map_err(unreadable)? {
        let line = record.position().map_or(0, csv::Position::line) + uncounted;
        let (of, valid_from, hourly, currency) = row(&record, line)?;
        list.add(of, valid_from, hourly, &currency)
            .map_err(|source| PriceListError::Line { line, source: source.into() })?;
    }
    Ok(())
}

fn row(
    record: &csv::StringRecord,
    line: u64,
) -> Result<(PricedType, Timestamp, UnitPrice, Text), PriceListError> {
    let mut columns = record.iter().zip(HEADER);
    let fault = |column, fault: String| PriceListError::Value { line, column, fault };
    if record.len() > HEADER.len() {
        return Err(fault("valid_from", "the line has too many columns".into()));
    }
    let mut text = || match columns.next() {
        Some(("", column)) => Err(fault(column, "it is empty".into())),
        Some((value, column)) => Ok((value, column)),
        None => Err(fault("valid_from", "the line has too few columns".into())),
    };
    let of = PricedType {
        provider: text()?.0.into(),
        region: text()?.0.into(),
        instance_type: text()?.0.into(),
        os: text()?.0.into(),
        capacity_type: match text()? {
            ("ON_DEMAND", _) => CapacityType::OnDemand,
            ("SPOT", _) => CapacityType::Spot,
            (other, column) => {
                return Err(fault(column, format!("'{}' is not ON_DEMAND or SPOT", excerpt(other))));
            }
        },
    };
    let currency = text()?.0.into();
    let (hourly, column) = text()?;
    let hourly = hourly.parse().map_err(|error: DecimalError| fault(column, error.to_string()))?;
    let (from, column) = text()?;
    let valid_from = parse_instant(from).or_else(|| Some(parse_date(from)?.start()));
    let valid_from = valid_from.ok_or_else(|| {
        fault(column, format!("'{}' is not a time such as 2026-11-01 or 2026-11-01T08:00:00Z", excerpt(from)))
    })?;
    Ok((of, valid_from, hourly, currency))
}

/// Writes a list as CSV, ordered by type and instant, so that equal lists give equal bytes.
///
/// # Errors
/// If `to` cannot be written.
pub fn write_price_list(list: &PriceList, to: impl Write) -> std::io::Result<()> {
    let mut writer = csv::Writer::from_writer(to);
    writer.write_record(HEADER)?;
    let currency = list.currency().cloned().unwrap_or_default();
    for (of, valid_from, hourly) in list.iter() {
        let capacity_type = match of.capacity_type {
            CapacityType::OnDemand => "ON_DEMAND",
            CapacityType::Spot => "SPOT",
        };
        let (hourly, from) = (hourly.to_string(), valid_from.to_string().replace(".000000Z", "Z"));
        let row = [
            &*of.provider,
            &*of.region,
            &*of.instance_type,
            &*of.os,
            capacity_type,
            &*currency,
            &hourly,
            &from,
        ];
        writer.write_record(row)?;
    }
    writer.flush()
}
