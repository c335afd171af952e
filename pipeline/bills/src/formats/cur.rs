//! AWS: Cost and Usage Reports, version 2.0 and legacy. Their columns have the same names in two spellings.
//!
//! A report has unblended costs, which are invoiced. Effective costs are in columns of their own:
//!
//! | line item type | billed cost | effective cost |
//! |---|---|---|
//! | `DiscountedUsage` | the unblended cost, 0 | `reservation/EffectiveCost` |
//! | `SavingsPlanCoveredUsage` | 0 | `savingsPlan/SavingsPlanEffectiveCost` |
//! | `SavingsPlanNegation` | left out | left out |
//! | `RIFee`, `SavingsPlanRecurringFee`, `SavingsPlanUpfrontFee`, `Fee` of a commitment | unblended | 0 |
//! | all others | unblended | unblended |
//!
//! What is unused of a commitment is in columns of its fee, and becomes a line of its own.

use std::borrow::Cow;

use prorata_schemas::event::{ChargeCategory, UseStatus};

use super::keys::{NamedResource, agreement_id};
use super::units::QuantityColumns;
use crate::cells::{Row, columns};
use crate::decimal::Exact;
use crate::fault::LineFault;
use crate::line::{Charge, Found, shortened};
use crate::time::Span;

columns! {
    LineItemType: required ["lineItem/LineItemType"],
    UnblendedCost: required ["lineItem/UnblendedCost"],
    CurrencyCode: required ["lineItem/CurrencyCode"],
    UsageStartDate: required ["lineItem/UsageStartDate"],
    UsageEndDate: required ["lineItem/UsageEndDate"],
    PayerAccountId: required ["bill/PayerAccountId"],
    LineItemId: optional ["identity/LineItemId"],
    InvoiceId: optional ["bill/InvoiceId"],
    BillingPeriodStartDate: optional ["bill/BillingPeriodStartDate"],
    BillingPeriodEndDate: optional ["bill/BillingPeriodEndDate"],
    UsageAccountId: optional ["lineItem/UsageAccountId"],
    ProductCode: optional ["lineItem/ProductCode"],
    UsageType: optional ["lineItem/UsageType"],
    Operation: optional ["lineItem/Operation"],
    AvailabilityZone: optional ["lineItem/AvailabilityZone"],
    ResourceId: optional ["lineItem/ResourceId"],
    UsageAmount: optional ["lineItem/UsageAmount"],
    Description: optional ["lineItem/LineItemDescription"],
    TaxType: optional ["lineItem/TaxType"],
    ProductName: optional ["product/ProductName"],
    Sku: optional ["product/sku"],
    PublicOnDemandCost: optional ["pricing/publicOnDemandCost"],
    PublicOnDemandRate: optional ["pricing/publicOnDemandRate"],
    Unit: optional ["pricing/unit"],
    RateCode: optional ["pricing/RateCode", "pricing/RateId"],
    ReservationArn: optional ["reservation/ReservationARN"],
    ReservationEffectiveCost: optional ["reservation/EffectiveCost"],
    UnusedUpfrontFee: optional ["reservation/UnusedAmortizedUpfrontFeeForBillingPeriod"],
    UnusedRecurringFee: optional ["reservation/UnusedRecurringFee"],
    PlanArn: optional ["savingsPlan/SavingsPlanARN"],
    PlanEffectiveCost: optional ["savingsPlan/SavingsPlanEffectiveCost"],
    TotalCommitment: optional ["savingsPlan/TotalCommitmentToDate"],
    UsedCommitment: optional ["savingsPlan/UsedCommitment"],
    CapacityReservationArn: optional ["capacityReservation/CapacityReservationArn"],
    CapacityReservationStatus: optional ["capacityReservation/CapacityReservationStatus"],
}

const QUANTITY: QuantityColumns<Col> = QuantityColumns {
    unit: Col::Unit,
    quantity: Col::UsageAmount,
    list_unit_price: Some(Col::PublicOnDemandRate),
};

/// Reason for prices on demand that AWS adds and takes back.
const NEGATED: &str = "prices on demand of usage under savings plans, and the lines that take them back";

/// Type of the dimension of lines for what is unused of a commitment.
const UNUSED: &str = "Unused";

/// Reads one line.
///
/// # Errors
/// If a cell is wrong.
pub fn read(row: &Row) -> Result<Vec<Found<'_>>, LineFault> {
    let kind = row.filled(Col::LineItemType)?;
    let unblended = row.amount(Col::UnblendedCost)?;
    let charge = charge(row, kind, unblended)?;
    match kind {
        "DiscountedUsage" => {
            let effective = row.amount_filled(Col::ReservationEffectiveCost)?;
            Ok(vec![used(Charge { effective, ..charge })])
        }
        "SavingsPlanCoveredUsage" => {
            // AWS writes the price on demand into this line, and takes it back in a line of type
            // `SavingsPlanNegation`, which names no resource. The invoice has the fee of the plan instead. So
            // this line is billed 0, and the other line is left out: together they were 0 before, too.
            let effective = row.amount_filled(Col::PlanEffectiveCost)?;
            let negated = Found::LeftOut { reason: NEGATED, billed: unblended, effective: unblended };
            let line = Charge { billed: Exact::ZERO, effective, ..charge };
            Ok(vec![used(line), negated])
        }
        "SavingsPlanNegation" => {
            Ok(vec![Found::LeftOut { reason: NEGATED, billed: unblended, effective: unblended }])
        }
        "RIFee" => {
            let unused = row.amount(Col::UnusedUpfrontFee)?.plus(row.amount(Col::UnusedRecurringFee)?);
            let unused = unused.ok_or_else(|| row.wrong(Col::UnusedRecurringFee, "is too large"))?;
            Ok(fee(charge, unused))
        }
        "SavingsPlanRecurringFee" => {
            // Both columns include the part of the upfront fee.
            let unused = row.amount(Col::TotalCommitment)?.minus(row.amount(Col::UsedCommitment)?);
            let unused = unused.ok_or_else(|| row.wrong(Col::UsedCommitment, "is too large"))?;
            Ok(fee(charge, unused))
        }
        "SavingsPlanUpfrontFee" => Ok(fee(charge, Exact::ZERO)),
        "Fee" if !charge.commitment.is_empty() => Ok(fee(charge, Exact::ZERO)),
        _ => Ok(vec![Found::Charge(Box::new(charge))]),
    }
}

/// Returns what all lines have in common. The effective cost is the unblended cost.
fn charge<'r>(row: &'r Row, kind: &str, unblended: Exact) -> Result<Charge<'r>, LineFault> {
    let resource = NamedResource { id: row.text(Col::ResourceId), ..NamedResource::default() };
    let (resource_key, is_machine) = resource.key("aws");
    let category = category(kind);
    let is_use = category == ChargeCategory::Usage;
    let time = if is_use { QUANTITY.read(row)? } else { None };
    let span = Span::of(row.time(Col::UsageStartDate)?, row.time(Col::UsageEndDate)?)
        .ok_or_else(|| row.wrong(Col::UsageEndDate, "is before lineItem/UsageStartDate"))?;
    let arn = match row.text(Col::PlanArn) {
        "" => row.text(Col::ReservationArn),
        arn => arn,
    };
    let reservation = if is_use { row.text(Col::CapacityReservationArn) } else { "" };
    let list = row.decimal(Col::PublicOnDemandCost)?.filter(|_| is_use).unwrap_or(unblended);
    Ok(Charge {
        provider: Cow::Borrowed("aws"),
        billing_account: row.filled(Col::PayerAccountId)?,
        resource_key,
        is_machine,
        span,
        billing_month: billing_month(row)?,
        category,
        is_correction: kind == "Refund",
        service: shortened(match row.text(Col::ProductName) {
            "" => row.text(Col::ProductCode),
            name => name,
        }),
        sku: row.text(Col::Sku),
        description: shortened(row.text(Col::Description)),
        account: row.text(Col::UsageAccountId),
        invoice: row.text(Col::InvoiceId),
        commitment: agreement_id(arn),
        commitment_status: None,
        reservation: agreement_id(reservation),
        reservation_status: (!reservation.is_empty()).then(|| reservation_status(row)),
        hours: time.map(|time| time.hours),
        list_unit_price: time.and_then(|time| time.list_unit_price),
        currency: row.filled(Col::CurrencyCode)?,
        billed: unblended,
        effective: unblended,
        list,
        cost_kind: None,
        provider_line_id: row.text(Col::LineItemId),
        dimensions: [
            row.text(Col::LineItemType),
            row.text(Col::UsageType),
            row.text(Col::Operation),
            row.text(Col::AvailabilityZone),
            row.text(Col::RateCode),
            row.text(Col::TaxType),
            resource.id,
            "",
        ],
    })
}

fn category(kind: &str) -> ChargeCategory {
    match kind {
        "Usage" | "DiscountedUsage" | "SavingsPlanCoveredUsage" | "SavingsPlanNegation" => {
            ChargeCategory::Usage
        }
        "Fee" | "RIFee" | "SavingsPlanRecurringFee" | "SavingsPlanUpfrontFee" => ChargeCategory::Purchase,
        "Tax" => ChargeCategory::Tax,
        "Credit" => ChargeCategory::Credit,
        // Refunds, and discounts such as `EdpDiscount`, `BundledDiscount` and `PrivateRateDiscount`.
        _ => ChargeCategory::Adjustment,
    }
}

/// Returns a line for usage under a commitment.
fn used(charge: Charge<'_>) -> Found<'_> {
    let commitment_status = (!charge.commitment.is_empty()).then_some(UseStatus::Used);
    Found::Charge(Box::new(Charge { commitment_status, ..charge }))
}

/// Returns a line for the fee of a commitment, which is amortized elsewhere, and a line for what is unused of
/// the commitment, if any.
fn fee(charge: Charge<'_>, unused: Exact) -> Vec<Found<'_>> {
    let purchase = Charge { effective: Exact::ZERO, ..charge.clone() };
    let mut found = vec![Found::Charge(Box::new(purchase))];
    if !unused.is_zero() {
        let mut dimensions = charge.dimensions;
        let [.., last] = &mut dimensions;
        *last = UNUSED;
        found.push(Found::Charge(Box::new(Charge {
            category: ChargeCategory::Usage,
            commitment_status: (!charge.commitment.is_empty()).then_some(UseStatus::Unused),
            billed: Exact::ZERO,
            effective: unused,
            list: Exact::ZERO,
            dimensions,
            ..charge
        })));
    }
    found
}

/// Returns whether a capacity reservation was used. A cancelled one counts as unused.
fn reservation_status(row: &Row) -> UseStatus {
    let status = row.text(Col::CapacityReservationStatus);
    let is_unused = ["Unused", "Cancelled", "Canceled"].iter().any(|name| status.eq_ignore_ascii_case(name));
    if is_unused { UseStatus::Unused } else { UseStatus::Used }
}

fn billing_month(row: &Row) -> Result<Option<Span>, LineFault> {
    let (start, end) = (Col::BillingPeriodStartDate, Col::BillingPeriodEndDate);
    if row.text(start).is_empty() || row.text(end).is_empty() {
        return Ok(None);
    }
    Ok(Span::of(row.time(start)?, row.time(end)?))
}
