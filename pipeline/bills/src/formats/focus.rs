//! FOCUS 1.0 to 1.4: the dataset of cost and usage, as AWS, Microsoft, Google and Oracle write it.

use std::borrow::Cow;

use prorata_schemas::event::{ChargeCategory, UseStatus, names};

use super::keys::{NamedResource, agreement_id};
use super::units::QuantityColumns;
use crate::cells::{Row, columns};
use crate::fault::LineFault;
use crate::line::{Charge, Found, bounded, shortened};
use crate::time::Span;

columns! {
    BilledCost: required ["BilledCost"],
    EffectiveCost: required ["EffectiveCost"],
    BillingCurrency: required ["BillingCurrency"],
    BillingAccountId: required ["BillingAccountId"],
    ChargePeriodStart: required ["ChargePeriodStart"],
    ChargePeriodEnd: required ["ChargePeriodEnd"],
    ChargeCategory: required ["ChargeCategory"],
    // Version 1.3 adds the first of these, and version 1.4 removes the second.
    ServiceProviderName: optional ["ServiceProviderName"],
    ProviderName: optional ["ProviderName"],
    ChargeClass: optional ["ChargeClass"],
    BillingPeriodStart: optional ["BillingPeriodStart"],
    BillingPeriodEnd: optional ["BillingPeriodEnd"],
    ListCost: optional ["ListCost"],
    ListUnitPrice: optional ["ListUnitPrice"],
    PricingQuantity: optional ["PricingQuantity"],
    PricingUnit: optional ["PricingUnit"],
    ConsumedQuantity: optional ["ConsumedQuantity"],
    ConsumedUnit: optional ["ConsumedUnit"],
    ServiceName: optional ["ServiceName"],
    SkuId: optional ["SkuId"],
    SkuPriceId: optional ["SkuPriceId"],
    ChargeDescription: optional ["ChargeDescription"],
    SubAccountId: optional ["SubAccountId"],
    InvoiceId: optional ["InvoiceId"],
    ResourceId: optional ["ResourceId"],
    ResourceName: optional ["ResourceName"],
    AvailabilityZone: optional ["AvailabilityZone"],
    CommitmentDiscountId: optional ["CommitmentDiscountId"],
    CommitmentDiscountStatus: optional ["CommitmentDiscountStatus"],
    CapacityReservationId: optional ["CapacityReservationId"],
    CapacityReservationStatus: optional ["CapacityReservationStatus"],
    PricingCategory: optional ["PricingCategory"],
    RegionId: optional ["RegionId"],
    AllocatedResourceId: optional ["AllocatedResourceId"],
    ChargeFrequency: optional ["ChargeFrequency"],
}

/// The quantity by which a charge is priced.
const PRICED: QuantityColumns<Col> = QuantityColumns {
    unit: Col::PricingUnit,
    quantity: Col::PricingQuantity,
    list_unit_price: Some(Col::ListUnitPrice),
};

/// The quantity that was consumed.
const CONSUMED: QuantityColumns<Col> =
    QuantityColumns { unit: Col::ConsumedUnit, quantity: Col::ConsumedQuantity, list_unit_price: None };

/// The id of an agreement, which may be empty, and whether it was used.
type Agreement<'r> = (Cow<'r, str>, Option<UseStatus>);

/// Reads one line.
///
/// # Errors
/// If a cell is wrong.
pub fn read(row: &Row) -> Result<Vec<Found<'_>>, LineFault> {
    let provider = match row.text(Col::ServiceProviderName) {
        "" => row.filled(Col::ProviderName)?,
        name => name,
    };
    let provider = bounded(names::provider(provider));
    let resource = NamedResource {
        id: row.text(Col::ResourceId),
        name: row.text(Col::ResourceName),
        zone: row.text(Col::AvailabilityZone),
    };
    let (resource_key, is_machine) = resource.key(&provider);
    let category = category(row)?;
    let time = match category {
        ChargeCategory::Usage if provider != "gcp" => match PRICED.read(row)? {
            None => CONSUMED.read(row)?,
            time => time,
        },
        // Google bills a machine by its cores, memory and GPUs. Their hours are not hours of the machine.
        _ => None,
    };
    let billed = row.amount_filled(Col::BilledCost)?;
    let begin = row.time(Col::ChargePeriodStart)?;
    let span = Span::of(begin, row.time(Col::ChargePeriodEnd)?)
        .ok_or_else(|| row.wrong(Col::ChargePeriodEnd, "is before ChargePeriodStart"))?;
    let (commitment, commitment_status) = commitment(row, category)?;
    let (reservation, reservation_status) = reservation(row, category)?;
    Ok(vec![Found::Charge(Box::new(Charge {
        billing_account: row.filled(Col::BillingAccountId)?,
        resource_key,
        is_machine,
        span,
        billing_month: billing_month(row)?,
        category,
        is_correction: row.text(Col::ChargeClass).eq_ignore_ascii_case("Correction"),
        service: shortened(row.text(Col::ServiceName)),
        sku: row.text(Col::SkuId),
        description: shortened(row.text(Col::ChargeDescription)),
        account: row.text(Col::SubAccountId),
        invoice: row.text(Col::InvoiceId),
        commitment,
        commitment_status,
        reservation,
        reservation_status,
        hours: time.map(|time| time.hours),
        list_unit_price: time.and_then(|time| time.list_unit_price),
        currency: row.filled(Col::BillingCurrency)?,
        billed,
        effective: row.decimal(Col::EffectiveCost)?.unwrap_or(billed),
        list: row.decimal(Col::ListCost)?.unwrap_or(billed),
        cost_kind: None,
        provider_line_id: "",
        dimensions: [
            resource.id,
            resource.name,
            row.text(Col::SkuPriceId),
            row.text(Col::PricingCategory),
            row.text(Col::RegionId),
            row.text(Col::AllocatedResourceId),
            row.text(Col::ChargeFrequency),
            row.text(Col::PricingUnit),
        ],
        provider,
    }))])
}

fn category(row: &Row) -> Result<ChargeCategory, LineFault> {
    let text = row.filled(Col::ChargeCategory)?;
    let known = [
        ChargeCategory::Usage,
        ChargeCategory::Purchase,
        ChargeCategory::Tax,
        ChargeCategory::Credit,
        ChargeCategory::Adjustment,
    ];
    known.into_iter().find(|category| category.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
        row.wrong(Col::ChargeCategory, "is none of Usage, Purchase, Tax, Credit and Adjustment")
    })
}

/// Returns the commitment, and whether the charge used it.
fn commitment(row: &Row, category: ChargeCategory) -> Result<Agreement<'_>, LineFault> {
    let id = agreement_id(row.text(Col::CommitmentDiscountId));
    let status = use_status(row, Col::CommitmentDiscountStatus)?;
    let has_status = !id.is_empty() && category != ChargeCategory::Purchase;
    Ok((id, status.filter(|_| has_status)))
}

/// Returns the capacity reservation, and whether the charge used it.
fn reservation(row: &Row, category: ChargeCategory) -> Result<Agreement<'_>, LineFault> {
    let id = agreement_id(row.text(Col::CapacityReservationId));
    let status = match use_status(row, Col::CapacityReservationStatus)? {
        None if category == ChargeCategory::Usage => Some(UseStatus::Used),
        status => status,
    };
    match status {
        Some(status) if !id.is_empty() => Ok((id, Some(status))),
        // The purchase of a reservation neither uses it nor leaves it unused.
        _ => Ok((Cow::Borrowed(""), None)),
    }
}

fn use_status(row: &Row, column: Col) -> Result<Option<UseStatus>, LineFault> {
    match row.text(column) {
        "" => Ok(None),
        text if text.eq_ignore_ascii_case("Used") => Ok(Some(UseStatus::Used)),
        text if text.eq_ignore_ascii_case("Unused") => Ok(Some(UseStatus::Unused)),
        _ => Err(row.wrong(column, "is neither Used nor Unused")),
    }
}

fn billing_month(row: &Row) -> Result<Option<Span>, LineFault> {
    if row.text(Col::BillingPeriodStart).is_empty() || row.text(Col::BillingPeriodEnd).is_empty() {
        return Ok(None);
    }
    Ok(Span::of(row.time(Col::BillingPeriodStart)?, row.time(Col::BillingPeriodEnd)?))
}
