//! Azure: exports of cost details, actual or amortized, of enterprise agreements and customer agreements.
//!
//! An export has one cost, and no column says which. The kinds of lines do:
//!
//! | line | found in | billed cost | effective cost |
//! |---|---|---|---|
//! | `Purchase` of a reservation or savings plan | actual | the cost | the cost |
//! | `Usage` under one of them | both | 0 | the cost, which is 0 in an actual export |
//! | `UnusedReservation`, `UnusedSavingsPlan` | amortized | 0 | the cost |
//! | all others | both | the cost | the cost |
//!
//! So billed costs are complete only in an actual export, and effective costs add up in either: an actual
//! export has no amortized cost, so the purchase keeps its own. Both together would count usage twice.

use std::borrow::Cow;

use prorata_schemas::event::{ChargeCategory, UseStatus};
use prorata_schemas::time::{HOUR_MICROS, Timestamp};

use super::keys::{NamedResource, agreement_id};
use super::units::QuantityColumns;
use crate::cells::{Row, columns};
use crate::decimal::Exact;
use crate::fault::LineFault;
use crate::line::{Charge, CostKind, Found, shortened};
use crate::time::{Span, parse_american_date, parse_time};

columns! {
    Cost: required ["CostInBillingCurrency", "Cost", "PreTaxCost"],
    Currency: required ["BillingCurrencyCode", "BillingCurrency", "Currency"],
    Date: required ["Date", "UsageDateTime", "UsageDate"],
    ChargeType: required ["ChargeType"],
    BillingAccountId: optional ["BillingAccountId"],
    SubscriptionId: optional ["SubscriptionId", "SubscriptionGuid"],
    ResourceId: optional ["ResourceId", "InstanceId", "InstanceName"],
    PricingModel: optional ["PricingModel"],
    Quantity: optional ["Quantity", "UsageQuantity"],
    UnitOfMeasure: optional ["UnitOfMeasure"],
    PayGPrice: optional ["PayGPrice", "MarketPrice"],
    PayGCost: optional ["paygCostInBillingCurrency"],
    PricingCurrency: optional ["pricingCurrency", "pricingCurrencyCode"],
    MeterId: optional ["MeterId"],
    MeterCategory: optional ["MeterCategory"],
    MeterName: optional ["MeterName"],
    ConsumedService: optional ["ConsumedService"],
    ProductName: optional ["ProductName", "Product"],
    PartNumber: optional ["PartNumber"],
    InvoiceId: optional ["InvoiceId"],
    PreviousInvoiceId: optional ["previousInvoiceId"],
    ReservationId: optional ["ReservationId"],
    BenefitId: optional ["benefitId"],
    Frequency: optional ["Frequency"],
    CostAllocationRuleName: optional ["CostAllocationRuleName"],
    InvoiceSectionId: optional ["InvoiceSectionId"],
}

const QUANTITY: QuantityColumns<Col> = QuantityColumns {
    unit: Col::UnitOfMeasure,
    quantity: Col::Quantity,
    list_unit_price: Some(Col::PayGPrice),
};

const DAY_MICROS: i64 = 24 * HOUR_MICROS;

/// The kind of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineKind {
    /// The purchase of a reservation or savings plan.
    Commitment,
    /// Usage under one of them.
    Covered,
    /// The unused part of one of them.
    Unused,
    Other,
}

/// Reads one line.
///
/// # Errors
/// If a cell is wrong.
pub fn read(row: &Row) -> Result<Vec<Found<'_>>, LineFault> {
    let cost = row.amount_filled(Col::Cost)?;
    let charge_type = row.filled(Col::ChargeType)?;
    let commitment = agreement_id(match row.text(Col::BenefitId) {
        "" => row.text(Col::ReservationId),
        benefit => benefit,
    });
    let kind = kind(row, charge_type, &commitment);
    let category = category(charge_type);
    let resource = NamedResource { id: row.text(Col::ResourceId), ..NamedResource::default() };
    let (resource_key, is_machine) = resource.key("azure");
    let is_use = category == ChargeCategory::Usage && kind != LineKind::Unused;
    let time = if is_use { QUANTITY.read(row)? } else { None };
    let currency = row.filled(Col::Currency)?;
    // A price in another currency says nothing.
    let has_list_price = ["", currency].contains(&row.text(Col::PricingCurrency));
    let begin = day(row)?;
    Ok(vec![Found::Charge(Box::new(Charge {
        provider: Cow::Borrowed("azure"),
        billing_account: billing_account(row)?,
        resource_key,
        is_machine,
        span: Span { begin: begin.hour(), end: Timestamp(begin.0 + DAY_MICROS).hour() },
        billing_month: None,
        category,
        is_correction: charge_type == "Refund" || !row.text(Col::PreviousInvoiceId).is_empty(),
        service: shortened(service(row)),
        sku: row.text(Col::MeterId),
        description: shortened(row.text(Col::ProductName)),
        account: row.text(Col::SubscriptionId),
        invoice: row.text(Col::InvoiceId),
        commitment_status: use_status(kind).filter(|_| !commitment.is_empty()),
        commitment,
        reservation: Cow::Borrowed(""),
        reservation_status: None,
        hours: time.map(|time| time.hours),
        list_unit_price: time.filter(|_| has_list_price).and_then(|time| time.list_unit_price),
        currency,
        billed: if matches!(kind, LineKind::Covered | LineKind::Unused) { Exact::ZERO } else { cost },
        effective: cost,
        list: if is_use { list_cost(row, cost, has_list_price)? } else { listed_otherwise(kind, cost) },
        cost_kind: cost_kind(kind, cost),
        provider_line_id: "",
        dimensions: [
            resource.id,
            row.text(Col::PartNumber),
            row.text(Col::MeterName),
            row.text(Col::PricingModel),
            charge_type,
            row.text(Col::Frequency),
            row.text(Col::CostAllocationRuleName),
            row.text(Col::InvoiceSectionId),
        ],
    }))])
}

fn kind(row: &Row, charge_type: &str, commitment: &str) -> LineKind {
    let model = row.text(Col::PricingModel);
    let is_committed = ["Reservation", "SavingsPlan"].iter().any(|name| model.eq_ignore_ascii_case(name));
    match charge_type {
        "UnusedReservation" | "UnusedSavingsPlan" => LineKind::Unused,
        "Purchase" if is_committed || !commitment.is_empty() => LineKind::Commitment,
        "Usage" if is_committed => LineKind::Covered,
        _ => LineKind::Other,
    }
}

/// Returns the kind of the export that has such a line; `None` if both have it.
const fn cost_kind(kind: LineKind, cost: Exact) -> Option<CostKind> {
    match kind {
        LineKind::Commitment => Some(CostKind::Actual),
        LineKind::Unused => Some(CostKind::Amortized),
        LineKind::Covered if !cost.is_zero() => Some(CostKind::Amortized),
        LineKind::Covered | LineKind::Other => None,
    }
}

const fn use_status(kind: LineKind) -> Option<UseStatus> {
    match kind {
        LineKind::Covered => Some(UseStatus::Used),
        LineKind::Unused => Some(UseStatus::Unused),
        LineKind::Commitment | LineKind::Other => None,
    }
}

/// Returns the account that is billed. Exports of a single subscription name no other account.
fn billing_account(row: &Row) -> Result<&str, LineFault> {
    match row.text(Col::BillingAccountId) {
        "" => row.filled(Col::SubscriptionId),
        account => Ok(account),
    }
}

fn service(row: &Row) -> &str {
    match row.text(Col::MeterCategory) {
        "" => row.text(Col::ConsumedService),
        name => name,
    }
}

fn category(charge_type: &str) -> ChargeCategory {
    match charge_type {
        "Usage" | "UnusedReservation" | "UnusedSavingsPlan" => ChargeCategory::Usage,
        "Purchase" => ChargeCategory::Purchase,
        "Tax" => ChargeCategory::Tax,
        "Credit" => ChargeCategory::Credit,
        _ => ChargeCategory::Adjustment,
    }
}

/// Reads the day of a charge. Exports write it as month/day/year or as year-month-day.
fn day(row: &Row) -> Result<Timestamp, LineFault> {
    let text = row.filled(Col::Date)?;
    let time = if text.contains('/') { parse_american_date(text) } else { parse_time(text) };
    let time = time.ok_or_else(|| row.wrong(Col::Date, "is not a date as 11/20/2026 or 2026-11-20"))?;
    Ok(Timestamp(time.0 - time.0.rem_euclid(DAY_MICROS)))
}

/// Returns the cost of usage at list prices: a column of customer agreements, or the price x the quantity.
fn list_cost(row: &Row, cost: Exact, has_list_price: bool) -> Result<Exact, LineFault> {
    if let Some(cost) = row.decimal(Col::PayGCost)? {
        return Ok(cost);
    }
    match (row.decimal(Col::PayGPrice)?, row.decimal(Col::Quantity)?) {
        (Some(price), Some(quantity)) if has_list_price => {
            let product = price.times(quantity);
            product.ok_or_else(|| row.wrong(Col::PayGPrice, "and Quantity have too many digits"))
        }
        _ => Ok(cost),
    }
}

/// Returns the cost at list prices of a line that is not for usage.
const fn listed_otherwise(kind: LineKind, cost: Exact) -> Exact {
    if matches!(kind, LineKind::Unused) { Exact::ZERO } else { cost }
}
