//! Files of `closed_allocation`, and what a month needs to close.

use std::collections::{BTreeMap, BTreeSet};

use crate::Text;
use crate::decimal::Decimal12;
use crate::ids::OrganizationId;
use crate::time::{Hour, Timestamp};

/// A file of `closed_allocation`: rows of one organization and date, before it is stored or as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedFile {
    /// The file.
    pub bytes: Vec<u8>,
    /// The organization of all rows.
    pub organization_id: OrganizationId,
    /// Number of rows, at least one.
    pub rows: u64,
    /// Number of rows whose `ChargeClass` is `Correction`.
    pub corrections: u64,
    /// Statistics in the form of the Delta log.
    pub stats: String,
    /// SHA-256 of the bytes, 64 hexadecimal digits.
    pub sha256: String,
    /// Sums by currency.
    pub totals: BTreeMap<Text, ClosedTotals>,
    /// Ids of the invoices that rows name.
    pub invoices: BTreeSet<Text>,
}

/// Sums of rows of one currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosedTotals {
    /// Number of rows.
    pub rows: u64,
    /// Sum of `BilledCost`.
    pub billed: Decimal12,
    /// Sum of `EffectiveCost`.
    pub effective: Decimal12,
}

impl ClosedTotals {
    /// Returns the sums of both; `None` if a sum is out of range.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            rows: self.rows.checked_add(other.rows)?,
            billed: self.billed.checked_add(other.billed)?,
            effective: self.effective.checked_add(other.effective)?,
        })
    }
}

/// Files with the rows of one date, between which corrections are computed.
#[derive(Clone, Copy, Debug)]
pub struct CorrectedRows<'a, B> {
    /// The organization. Rows of others are left out.
    pub organization_id: &'a OrganizationId,
    /// Files of `cost_allocation`.
    pub ledger: &'a [B],
    /// Files of `closed_allocation`.
    pub closed: &'a [B],
    /// First instant of the billing period of the corrections, and the first instant after it.
    pub period: (Timestamp, Timestamp),
}

/// The basis of one row of `hours`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HourBasis {
    /// The organization.
    pub organization_id: OrganizationId,
    /// The hour.
    pub hour: Hour,
    /// Whether the basis is `final`: the provider's bills for the hour are closed.
    pub is_final: bool,
}
