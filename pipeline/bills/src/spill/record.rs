//! A charge between reading and grouping: in a partition, or in memory with its other charges.

use prorata_schemas::event::{ChargeCategory, UseStatus};
use serde::{Deserialize, Serialize};

use super::dictionary::TextId;
use crate::fault::Place;
use crate::line::LineDigest;

/// A text of a charge in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredText<'r> {
    /// The number of a text in the dictionary.
    Known(TextId),
    /// A text for which the dictionary has no room.
    Own(&'r str),
}

/// The texts of a charge that other charges repeat; an empty text is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineTexts<T> {
    /// The canonical name of the provider.
    pub provider: T,
    /// The account that the provider bills.
    pub billing_account: T,
    /// Name of the service.
    pub service: T,
    /// Id of the SKU.
    pub sku: T,
    /// Text for people.
    pub description: T,
    /// The account, project or subscription.
    pub account: T,
    /// Id of the invoice.
    pub invoice: T,
    /// Id of the commitment.
    pub commitment: T,
    /// Id of the capacity reservation.
    pub reservation: T,
}

impl<T> LineTexts<T> {
    /// Returns the results of `each` of all texts.
    pub fn map<U>(self, mut each: impl FnMut(T) -> U) -> LineTexts<U> {
        LineTexts {
            provider: each(self.provider),
            billing_account: each(self.billing_account),
            service: each(self.service),
            sku: each(self.sku),
            description: each(self.description),
            account: each(self.account),
            invoice: each(self.invoice),
            commitment: each(self.commitment),
            reservation: each(self.reservation),
        }
    }
}

/// The amounts of a charge, in 10^-12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// The invoiced cost.
    pub billed: i128,
    /// The cost with purchases amortized.
    pub effective: i128,
    /// The cost at list prices.
    pub list: i128,
    /// Hours of the resource; `None` if they are unknown.
    pub hours: Option<i128>,
}

impl Costs {
    /// Returns the sums of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let hours = match (self.hours, other.hours) {
            (Some(hours), Some(more)) => Some(hours.saturating_add(more)),
            (hours, more) => hours.or(more),
        };
        Self {
            billed: self.billed.saturating_add(other.billed),
            effective: self.effective.saturating_add(other.effective),
            list: self.list.saturating_add(other.list),
            hours,
        }
    }
}

/// A charge with a key of type `K` and texts of type `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLine<K, T> {
    /// The key of the resource.
    pub resource_key: K,
    /// The texts.
    pub texts: LineTexts<T>,
    /// The first hour.
    pub begin: i64,
    /// Number of hours.
    pub hours: i64,
    /// The kind of the charge.
    pub category: ChargeCategory,
    /// Whether the charge corrects an earlier billing period.
    pub is_correction: bool,
    /// Whether the charge used the commitment.
    pub commitment_status: Option<UseStatus>,
    /// Whether the charge used the reservation.
    pub reservation_status: Option<UseStatus>,
    /// List price per hour, in 10^-12.
    pub list_unit_price: Option<i128>,
    /// The amounts.
    pub costs: Costs,
    /// The identity of the line.
    pub digest: LineDigest,
    /// Whether the provider gives an id to the line.
    pub has_provider_id: bool,
    /// Whether the charge is in the export that this one replaces.
    pub is_previous: bool,
    /// The number of the document.
    pub file: u32,
    /// The place in the document.
    pub place: Place,
}

/// A charge in a partition.
pub type Record<'r> = StoredLine<&'r str, StoredText<'r>>;

/// A charge in memory.
pub type Entry = StoredLine<TextId, TextId>;

impl Record<'_> {
    /// Returns a hash of the key and the first hour. It is the same in every run (FNV-1a).
    pub fn partition_hash(&self) -> u64 {
        let bytes = self.resource_key.bytes().chain(self.begin.to_le_bytes());
        bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}

impl Entry {
    /// Returns what the charges of one set have in common.
    pub const fn set_key(&self) -> (TextId, i64, TextId, TextId) {
        (self.resource_key, self.begin, self.texts.provider, self.texts.billing_account)
    }
}
