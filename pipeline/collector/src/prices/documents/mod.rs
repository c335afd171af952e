//! Price documents of providers, read in one pass because they have hundreds of megabytes.

mod aws;
mod azure;
mod gcp;
pub(crate) mod json;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};

use prorata_schemas::Text;
use prorata_schemas::event::CapacityType;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::reject::excerpt;

use super::list::{PriceList, PriceListError, PricedType, read_price_list};
use crate::instant::parse_instant;

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceDocument {
    /// AWS: the bulk offer file of Amazon EC2 of one region.
    Aws,
    /// Azure: pages of the retail prices API.
    Azure,
    /// Google Cloud: pages of the catalogue's SKUs of Compute Engine.
    Gcp,
    /// A price list in the form of this project.
    Csv,
}

/// Entries of documents that the price list does not contain, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Entries that were left out.
    pub skipped: BTreeMap<&'static str, LeftOut>,
}

/// Entries that were left out for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of entries.
    pub count: u64,
    /// The first entry, for messages; without control characters.
    pub example: String,
}

impl Imported {
    /// Counts an entry that was left out. Keeps the first example of a reason.
    pub(crate) fn skip(&mut self, reason: &'static str, example: impl FnOnce() -> String) {
        let left = self.skipped.entry(reason).or_default();
        if left.count == 0 {
            let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
            left.example = example().chars().take(EXAMPLE_MAX).map(shown).collect();
        }
        left.count += 1;
    }
}

/// Reason for an entry whose price or time does not parse.
const UNREADABLE: &str = "a price or time that cannot be read";

/// Maximum number of other currencies that an error names.
const CURRENCIES_MAX: usize = 8;

/// Maximum length of an example, in characters.
const EXAMPLE_MAX: usize = 200;

/// An error that makes a document unusable.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The document is not JSON, or is not from this provider.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The documents contain no price.
    #[error(
        "no price of a virtual machine was found{0}; aws takes index.json of the offer AmazonEC2 for one \
         region, azure takes pages of the retail prices API, gcp takes pages of the Compute Engine \
         catalogue, csv takes price lists"
    )]
    Nothing(String),
    /// A price list in the form of this project is invalid.
    #[error(transparent)]
    List(#[from] PriceListError),
}

/// A price as a document writes it.
struct Found<'d> {
    provider: &'d str,
    region: &'d str,
    instance_type: &'d str,
    os: &'d str,
    capacity_type: CapacityType,
    hourly: &'d str,
    valid_from: &'d str,
}

/// Builds a price list from documents.
#[derive(Debug)]
pub struct Importer {
    currency: String,
    list: PriceList,
    imported: Imported,
    /// Types with two prices from the same instant.
    contradicted: BTreeSet<PricedType>,
    /// Currencies of prices that were left out.
    other_currencies: BTreeSet<String>,
    /// Parts of Google's machines.
    parts: gcp::Parts,
}

impl Importer {
    /// Creates an importer of prices in this currency.
    pub fn new(currency: &str) -> Self {
        let (list, imported, parts) = Default::default();
        let (contradicted, other_currencies) = Default::default();
        Self { currency: currency.to_owned(), list, imported, contradicted, other_currencies, parts }
    }

    /// Reads a document once, from start to end.
    ///
    /// # Errors
    /// If the document cannot be read, or if it is a price list with an invalid line.
    pub fn read(&mut self, document: PriceDocument, from: impl Read) -> Result<(), ImportError> {
        let mut from = BufReader::new(from);
        // Windows marks UTF-8 with these bytes. An error recurs when the document is read.
        if from.fill_buf().is_ok_and(|start| start.starts_with(b"\xEF\xBB\xBF")) {
            from.consume(3);
        }
        match document {
            PriceDocument::Aws => aws::read(from, self),
            PriceDocument::Azure => azure::read(from, self),
            PriceDocument::Gcp => gcp::read(from, self),
            PriceDocument::Csv => Ok(read_price_list(from, &mut self.list)?),
        }
    }

    /// Returns the list from all documents, and the entries that were left out. A type with two prices from
    /// the same instant is left out entirely. Neither price is known to be right, and an older price would
    /// stay valid.
    ///
    /// # Errors
    /// If there is no price at all.
    pub fn finish(mut self) -> Result<(PriceList, Imported), ImportError> {
        gcp::add_machines(&mut self);
        for of in std::mem::take(&mut self.contradicted) {
            self.list.remove(&of);
            self.skip("two prices from one instant on", || format!("{} in {}", of.instance_type, of.region));
        }
        if self.list.is_empty() {
            return Err(ImportError::Nothing(self.why_nothing()));
        }
        Ok((self.list, self.imported))
    }

    /// Returns the reasons why the list is empty, for the error.
    fn why_nothing(&self) -> String {
        let currencies: Vec<&str> = self.other_currencies.iter().map(String::as_str).collect();
        if !currencies.is_empty() {
            let (wanted, found) = (&self.currency, currencies.join(", "));
            return format!(" in {wanted}: the currency of the documents is {found}, see --currency");
        }
        let left_out = self.imported.skipped.iter();
        left_out.map(|(reason, left)| format!("; left out: {reason}, such as {}", left.example)).collect()
    }

    fn skip(&mut self, reason: &'static str, example: impl FnOnce() -> String) {
        self.imported.skip(reason, example);
    }

    fn skip_currency(&mut self, currency: &str, example: impl FnOnce() -> String) {
        if self.other_currencies.len() < CURRENCIES_MAX {
            self.other_currencies.insert(excerpt(currency));
        }
        self.skip("another currency", || format!("{}: {currency}", example()));
    }

    /// Adds a price, or leaves it out with the reason.
    fn add(&mut self, found: &Found<'_>) {
        let place = || format!("{} in {}", found.instance_type, found.region);
        let Some(hourly) = decimal(found.hourly) else {
            return self.skip(UNREADABLE, || {
                format!("{}: '{}' is not a price with at most 12 decimals", place(), found.hourly)
            });
        };
        let Some(valid_from) = parse_instant(found.valid_from) else {
            return self.skip(UNREADABLE, || format!("{}: '{}' is not a time", place(), found.valid_from));
        };
        if hourly == UnitPrice::ZERO {
            return self.skip("price 0", place);
        }
        let of = PricedType {
            provider: found.provider.into(),
            region: found.region.into(),
            instance_type: found.instance_type.into(),
            os: found.os.into(),
            capacity_type: found.capacity_type,
        };
        let currency = Text::from(self.currency.as_str());
        match self.list.add(of.clone(), valid_from, hourly, &currency) {
            Ok(()) => {}
            Err(PriceListError::TwoPrices { .. }) => drop(self.contradicted.insert(of)),
            Err(error) => self.skip(UNREADABLE, || format!("{}: {error}", place())),
        }
    }
}

/// Parses a decimal of a document, which may have an exponent and zeros after the twelfth decimal.
pub(crate) fn decimal(text: &str) -> Option<UnitPrice> {
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.trim_start_matches('+').parse().ok().filter(|e| (-30..=30).contains(e))?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all: String = [whole, fraction].concat();
    if whole.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) || all.len() > 60 {
        return None;
    }
    // Shift the point, then cut off trailing zeros.
    let point = i32::try_from(whole.len()).ok()? + exponent;
    let before = usize::try_from(point.max(0)).ok()?;
    let missing = usize::try_from((-point).max(0)).ok()?;
    let padded = format!("{}{all}{}", "0".repeat(missing), "0".repeat(before.saturating_sub(all.len())));
    let (whole, fraction) = padded.split_at(before);
    let fraction = fraction.trim_end_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let text = if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") };
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn decimals_of_documents_are_exact() {
        for (text, expected) in [
            ("0.0960000000", "0.096"),
            ("98.32", "98.32"),
            ("1E-5", "0.00001"),
            ("1.5e+2", "150"),
            ("12e-1", "1.2"),
            ("0.00000000000100000", "0.000000000001"),
            ("3", "3"),
            ("0", "0"),
        ] {
            assert_eq!(decimal(text).map(|price| price.to_string()).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "-1", ".5", "1e99", "0.0000000000001", "NaN", "1,5", "1e", "99999999999999999999"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }
}
