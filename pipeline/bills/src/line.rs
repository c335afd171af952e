//! Charges as a format reads them, before their sets are known.

use std::borrow::Cow;

use prorata_schemas::event::{ChargeCategory, UseStatus};
use prorata_schemas::rules::bounds::TEXT_BYTES_MAX;
use sha2::{Digest, Sha256};

use crate::decimal::Exact;
use crate::time::Span;

/// Number of bytes of a [`LineDigest`].
const DIGEST_BYTES: usize = 16;

/// The identity of a line in its set: a part of a SHA-256 digest.
pub type LineDigest = [u8; DIGEST_BYTES];

/// Number of further dimensions of a charge.
pub const DIMENSIONS: usize = 8;

/// The kind of the export that a charge of Azure is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostKind {
    /// Costs as invoiced: a purchase is a charge, and usage under a commitment costs nothing.
    Actual,
    /// Costs with purchases amortized over what used them.
    Amortized,
}

/// A charge of a bill. Its texts belong to the row that it is read from; an empty text is null.
#[derive(Clone, Debug)]
pub struct Charge<'r> {
    /// The canonical name of the provider.
    pub provider: Cow<'r, str>,
    /// The account that the provider bills.
    pub billing_account: &'r str,
    /// The key of the resource.
    pub resource_key: Cow<'r, str>,
    /// Whether the key has the form of a machine's key.
    pub is_machine: bool,
    /// The charge period in full hours, which may be too long for a set.
    pub span: Span,
    /// The billing period; `None` if the bill has none.
    pub billing_month: Option<Span>,
    /// The kind of the charge.
    pub category: ChargeCategory,
    /// Whether the charge corrects an earlier billing period.
    pub is_correction: bool,
    /// Name of the service.
    pub service: &'r str,
    /// Id of the SKU.
    pub sku: &'r str,
    /// Text for people.
    pub description: &'r str,
    /// The account, project or subscription.
    pub account: &'r str,
    /// Id of the invoice.
    pub invoice: &'r str,
    /// Id of the commitment.
    pub commitment: Cow<'r, str>,
    /// Whether the charge used the commitment.
    pub commitment_status: Option<UseStatus>,
    /// Id of the capacity reservation.
    pub reservation: Cow<'r, str>,
    /// Whether the charge used the reservation.
    pub reservation_status: Option<UseStatus>,
    /// Hours that the charge bills; `None` if it is billed by anything else.
    pub hours: Option<Exact>,
    /// List price per hour; `None` if the charge is not billed by hours, or if the bill has no list price.
    pub list_unit_price: Option<Exact>,
    /// ISO 4217 code of the currency.
    pub currency: &'r str,
    /// The invoiced cost.
    pub billed: Exact,
    /// The cost with purchases amortized.
    pub effective: Exact,
    /// The cost at list prices.
    pub list: Exact,
    /// The kind of the export; `None` if the charge is the same in all exports.
    pub cost_kind: Option<CostKind>,
    /// The id that the provider gives to the line.
    pub provider_line_id: &'r str,
    /// Dimensions that an event does not have, such as the usage type. They distinguish lines.
    pub dimensions: [&'r str; DIMENSIONS],
}

/// A result of reading a line.
#[derive(Clone, Debug)]
pub enum Found<'r> {
    /// A charge to import.
    Charge(Box<Charge<'r>>),
    /// An amount that no format imports.
    LeftOut {
        /// The reason.
        reason: &'static str,
        /// The invoiced cost.
        billed: Exact,
        /// The cost with purchases amortized.
        effective: Exact,
    },
}

impl Charge<'_> {
    /// Returns the charge's identity: a digest of the id that the provider gives to the line, if any, and of
    /// all dimensions. Amounts are not part of it, so a line keeps its identity if a later export corrects
    /// it. `buffer` is memory to reuse.
    pub fn digest(&self, buffer: &mut Vec<u8>) -> LineDigest {
        let texts = [
            self.provider_line_id,
            &self.provider,
            self.billing_account,
            &self.resource_key,
            self.service,
            self.sku,
            self.description,
            self.account,
            self.invoice,
            &self.commitment,
            &self.reservation,
        ];
        let numbers = [
            self.span.begin.0,
            self.span.end.0,
            self.category as i64,
            i64::from(self.is_correction),
            self.commitment_status.map_or(-1, |status| status as i64),
            self.reservation_status.map_or(-1, |status| status as i64),
        ];
        let price = self.list_unit_price.map(|price| price.round().atoms);
        digest_of(texts.into_iter().chain(self.dimensions), &numbers, price, buffer)
    }
}

/// Returns a digest of texts and numbers. `buffer` is memory to reuse.
pub fn digest_of<'t>(
    texts: impl Iterator<Item = &'t str>,
    numbers: &[i64],
    price: Option<i128>,
    buffer: &mut Vec<u8>,
) -> LineDigest {
    buffer.clear();
    for text in texts {
        // The length keeps "ab", "c" apart from "a", "bc".
        buffer.extend_from_slice(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
        buffer.extend_from_slice(text.as_bytes());
    }
    for number in numbers {
        buffer.extend_from_slice(&number.to_le_bytes());
    }
    buffer.push(u8::from(price.is_some()));
    buffer.extend_from_slice(&price.unwrap_or_default().to_le_bytes());
    let digest = Sha256::digest(buffer.as_slice());
    std::array::from_fn(|index| digest.get(index).copied().unwrap_or_default())
}

/// Returns a text for people, without the end that an event has no room for.
pub fn shortened(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or(text)
}

/// Returns an id that an event has room for. A longer id keeps its beginning, and ends in its digest, so that
/// different ids stay different.
pub fn bounded(id: Cow<'_, str>) -> Cow<'_, str> {
    if id.len() <= TEXT_BYTES_MAX {
        return id;
    }
    let digest = hex(&digest_of(std::iter::once(&*id), &[], None, &mut Vec::new()));
    let room = TEXT_BYTES_MAX - digest.len() - 1;
    let start = id.get(..id.floor_char_boundary(room)).unwrap_or_default();
    Cow::Owned(format!("{start}#{digest}"))
}

/// Writes a digest in hexadecimal.
pub fn hex(digest: &LineDigest) -> String {
    format!("{:032x}", u128::from_be_bytes(*digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_into_events() {
        let long = "é".repeat(TEXT_BYTES_MAX);
        assert_eq!(shortened(&long).len(), TEXT_BYTES_MAX);
        assert_eq!(shortened("short"), "short");
        let other = format!("{long}x");
        let (first, second) = (bounded(long.into()), bounded(other.into()));
        assert!(first.len() <= TEXT_BYTES_MAX && second.len() <= TEXT_BYTES_MAX && first != second);
        assert_eq!(bounded("id".into()), "id");
    }

    #[test]
    fn a_digest_depends_on_the_edges_of_texts() {
        let digest = |texts: [&str; 2]| digest_of(texts.into_iter(), &[1], Some(2), &mut vec![0]);
        assert_eq!(digest(["ab", "c"]), digest(["ab", "c"]));
        assert_ne!(digest(["ab", "c"]), digest(["a", "bc"]));
        let digest = std::array::from_fn(|index| index as u8);
        assert_eq!(hex(&digest), "000102030405060708090a0b0c0d0e0f");
    }
}
