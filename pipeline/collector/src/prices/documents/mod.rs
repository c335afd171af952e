//! Price documents of providers, read in one pass: they have hundreds of megabytes.

mod aws;
mod azure;
mod gcp;
mod json;

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use prorata_schemas::Text;
use prorata_schemas::event::CapacityType;
use prorata_schemas::money::UnitPrice;

use super::list::{PriceList, PriceListError, read_price_list};
use crate::instant::parse_instant;

/// Whose document it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceDocument {
    /// AWS: the bulk offer file of Amazon EC2 of one region.
    Aws,
    /// Azure: pages of the retail prices API.
    Azure,
    /// Google Cloud: pages of the catalogue's SKUs of Compute Engine.
    Gcp,
    /// A price list in our own form.
    Csv,
}

/// A document that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Entries that became a price.
    pub prices: u64,
    /// Entries that did not, by the reason.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It is no JSON, or not of this provider.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// There is no price at all.
    #[error(
        "no price of a virtual machine was found; aws takes index.json of the offer AmazonEC2 for one \
         region, azure takes pages of the retail prices API, gcp takes pages of the Compute Engine \
         catalogue, csv takes price lists"
    )]
    Nothing,
    /// All prices are in another currency.
    #[error(
        "there is no price in {currency}: {skipped} are in another currency; name the currency of the \
         documents with --currency"
    )]
    OtherCurrency {
        /// The currency that was asked for.
        currency: String,
        /// Prices in another.
        skipped: u64,
    },
    /// Parts of Google's machines contradict each other.
    #[error("{0}")]
    Contradiction(String),
    /// Prices contradict each other.
    #[error(transparent)]
    List(#[from] PriceListError),
}

/// Why an entry is skipped whose price is not in the list's currency.
const OTHER_CURRENCY: &str = "another currency";

/// A price as a document has it.
struct Found<'d> {
    provider: &'d str,
    region: &'d str,
    instance_type: &'d str,
    os: &'d str,
    capacity_type: CapacityType,
    hourly: &'d str,
    valid_from: &'d str,
}

/// Makes a price list of documents.
#[derive(Debug)]
pub struct Importer {
    currency: String,
    list: PriceList,
    imported: Imported,
    /// Parts that Google's machines are made of.
    parts: gcp::Parts,
}

impl Importer {
    /// An importer of prices in this currency.
    pub fn new(currency: &str) -> Self {
        let (list, imported, parts) = Default::default();
        Self { currency: currency.to_owned(), list, imported, parts }
    }

    /// Reads a document once, from its start to its end.
    ///
    /// # Errors
    /// When it cannot be read, or contradicts what was read before.
    pub fn read(&mut self, document: PriceDocument, from: impl Read) -> Result<(), ImportError> {
        let from = BufReader::new(from);
        match document {
            PriceDocument::Aws => aws::read(from, self),
            PriceDocument::Azure => azure::read(from, self),
            PriceDocument::Gcp => gcp::read(from, self),
            PriceDocument::Csv => {
                let before = self.list.len();
                read_price_list(from, &mut self.list)?;
                self.imported.prices += self.list.len().saturating_sub(before) as u64;
                Ok(())
            }
        }
    }

    /// The list of all documents.
    ///
    /// # Errors
    /// When there is no price at all, or prices contradict each other.
    pub fn finish(mut self) -> Result<(PriceList, Imported), ImportError> {
        gcp::add_machines(&mut self).map_err(ImportError::Contradiction)?;
        if self.list.is_empty() {
            let skipped = self.imported.skipped.get(OTHER_CURRENCY).copied();
            return Err(skipped.map_or(ImportError::Nothing, |skipped| ImportError::OtherCurrency {
                currency: self.currency,
                skipped,
            }));
        }
        Ok((self.list, self.imported))
    }

    fn skip(&mut self, reason: &'static str) {
        *self.imported.skipped.entry(reason).or_default() += 1;
    }

    /// Adds a price, or refuses it with what is wrong.
    fn add(&mut self, found: &Found<'_>) -> Result<(), String> {
        let place = || format!("{} in {}", found.instance_type, found.region);
        let hourly = decimal(found.hourly).ok_or_else(|| {
            format!("{}: '{}' is not a price with at most 12 decimals", place(), found.hourly)
        })?;
        let Some(valid_from) = parse_instant(found.valid_from) else {
            return Err(format!("{}: '{}' is not a time", place(), found.valid_from));
        };
        if hourly == UnitPrice::ZERO {
            self.skip("price 0");
            return Ok(());
        }
        let of = super::list::PricedType {
            provider: found.provider.into(),
            region: found.region.into(),
            instance_type: found.instance_type.into(),
            os: found.os.into(),
            capacity_type: found.capacity_type,
        };
        let currency = Text::from(self.currency.as_str());
        self.list.add(of, valid_from, hourly, &currency).map_err(|error| error.to_string())?;
        self.imported.prices += 1;
        Ok(())
    }
}

/// A decimal of a document, which may have an exponent and zeros behind the twelfth place.
fn decimal(text: &str) -> Option<UnitPrice> {
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.trim_start_matches('+').parse().ok().filter(|e| (-30..=30).contains(e))?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all: String = [whole, fraction].concat();
    if whole.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) || all.len() > 60 {
        return None;
    }
    // Shift the point, then cut off zeros that say nothing.
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
