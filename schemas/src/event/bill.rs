//! Events of providers' bills.

use serde::{Deserialize, Serialize};

use crate::Text;
use crate::ids::{CommitmentId, ReservationId};
use crate::money::{Amount, Money, UnitPrice};
use crate::time::Timestamp;

/// The kind of a charge, as in FOCUS (`ChargeCategory`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChargeCategory {
    /// Use of a resource or a service.
    Usage,
    /// A purchase, such as the fee of a commitment.
    Purchase,
    /// A tax.
    Tax,
    /// A credit of the provider.
    Credit,
    /// A charge that changes the total of a bill, such as a rounding.
    Adjustment,
}

impl ChargeCategory {
    /// Returns the name in column `ChargeCategory`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usage => "Usage",
            Self::Purchase => "Purchase",
            Self::Tax => "Tax",
            Self::Credit => "Credit",
            Self::Adjustment => "Adjustment",
        }
    }
}

/// Whether a charge used a commitment or a reservation, as in FOCUS (`CommitmentDiscountStatus`,
/// `CapacityReservationStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UseStatus {
    /// The charge is for what was used.
    Used,
    /// The charge is for what nobody used.
    Unused,
}

impl UseStatus {
    /// Returns the name in the columns of the status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Used => "Used",
            Self::Unused => "Unused",
        }
    }
}

/// One line of a bill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillLine {
    /// Id of the line, unique in its set; not empty.
    pub line_id: Text,
    /// The end of the charge period, which begins at the event time of the set: a full hour, 1 hour to 32
    /// days later.
    pub period_end: Timestamp,
    /// The kind of the charge.
    pub category: ChargeCategory,
    /// Whether the charge corrects an earlier billing period.
    pub is_correction: bool,
    /// Name of the service, such as `Amazon Elastic Compute Cloud`; may be empty.
    pub service: Text,
    /// Id of the SKU; `None` if the bill has none.
    pub sku_id: Option<Text>,
    /// Text for people; `None` if the bill has none.
    pub description: Option<Text>,
    /// The account, project or subscription that the charge belongs to; `None` if the bill has none.
    pub account_id: Option<Text>,
    /// Id of the invoice; `None` until the provider has issued it.
    pub invoice_id: Option<Text>,
    /// The commitment that the charge uses, leaves unused or buys.
    pub commitment_id: Option<CommitmentId>,
    /// Whether the charge used the commitment; `None` for a purchase, and without a commitment.
    pub commitment_status: Option<UseStatus>,
    /// The capacity reservation that the charge uses or leaves unused.
    pub reservation_id: Option<ReservationId>,
    /// Whether the charge used the reservation; `None` without a reservation.
    pub reservation_status: Option<UseStatus>,
    /// Hours of the resource that the line bills, of all machines together; `None` if it is billed by
    /// anything else, or if the hours are unknown.
    pub hours: Option<Amount>,
    /// List price per hour of the resource; `None` if the line is not billed by hours.
    pub list_unit_price: Option<UnitPrice>,
    /// The invoiced cost; a credit is below zero.
    pub billed_cost: Money,
    /// The cost with purchases amortized over what used them.
    pub effective_cost: Money,
    /// The cost at list prices.
    pub list_cost: Money,
}

/// The lines of one export of a provider's bill for one resource, or for charges of no resource, whose
/// charge periods begin at the event time, a full hour. It replaces the set of an earlier export.
///
/// Natural key: provider, billing_account_id, resource_key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillSet {
    /// The provider that sent the bill.
    pub provider: Text,
    /// The account that the provider bills.
    pub billing_account_id: Text,
    /// The id of the resource in the bill, such as `i-0123456789abcdef0`; empty for charges of no resource.
    /// Nodes with this `resource_key` cost what the lines say.
    pub resource_key: Text,
    /// Currency of all amounts (ISO 4217), which must be the organization's configured currency.
    pub currency: Text,
    /// The lines, in any order; not empty.
    pub lines: Vec<BillLine>,
}

/// The bill of a calendar month is complete for one billing account. The event time is the first instant of
/// the month in UTC.
///
/// Natural key: provider, billing_account_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillingPeriodClosed {
    /// The provider that sent the bill.
    pub provider: Text,
    /// The account that the provider bills.
    pub billing_account_id: Text,
    /// Id of the invoice of the month; `None` if it is unknown, or if there are several.
    pub invoice_id: Option<Text>,
}
