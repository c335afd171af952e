//! Google: the detailed export of Cloud Billing, as CSV with flat names or as JSON, one line each.
//!
//! A line has a cost and a list of credits, below zero, and the invoice has their sum. Each credit becomes a
//! line of its own, with the resource of the usage. The export does not say what of a commitment its usage
//! used: the fee is a line, and the usage has the discount as a credit. So effective costs are billed costs.

use std::borrow::Cow;

use prorata_schemas::event::ChargeCategory;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::keys::{NamedResource, agreement_id};
use crate::cells::{Row, columns};
use crate::decimal::Exact;
use crate::fault::LineFault;
use crate::line::{Charge, Found, shortened};
use crate::time::Span;

// The first name of each column is its path in JSON.
columns! {
    Cost: required ["cost"],
    Currency: required ["currency"],
    BillingAccountId: required ["billing_account_id"],
    UsageStartTime: required ["usage_start_time"],
    UsageEndTime: required ["usage_end_time"],
    ServiceDescription: required ["service.description"],
    SkuId: optional ["sku.id"],
    SkuDescription: optional ["sku.description"],
    ProjectId: optional ["project.id"],
    Region: optional ["location.region"],
    Zone: optional ["location.zone"],
    Credits: optional ["credits"],
    InvoiceMonth: optional ["invoice.month"],
    CostType: optional ["cost_type"],
    CostAtList: optional ["cost_at_list"],
    ResourceName: optional ["resource.name"],
    ResourceGlobalName: optional ["resource.global_name"],
    AdjustmentId: optional ["adjustment_info.id"],
    SubscriptionId: optional ["subscription.instance_id"],
}

/// Beginning of the SKUs of fees of commitments.
const COMMITMENT: &str = "Commitment";

/// A credit, with its values as they are in the JSON text.
#[derive(Deserialize)]
struct Credit<'c> {
    #[serde(borrow)]
    amount: &'c RawValue,
    #[serde(borrow, default)]
    id: Option<&'c RawValue>,
    #[serde(borrow, default)]
    name: Option<&'c RawValue>,
    #[serde(borrow, default)]
    full_name: Option<&'c RawValue>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'c RawValue>,
}

/// Reads one line. `scratch` is memory for a text that is read in another form.
///
/// # Errors
/// If a cell is wrong.
pub fn read<'r>(row: &'r Row, scratch: &'r mut String) -> Result<Vec<Found<'r>>, LineFault> {
    let charge = charge(row)?;
    let mut found = Vec::new();
    for credit in credits(row, scratch)? {
        let amount = Exact::parse(unquoted(Some(credit.amount)));
        let amount = amount.ok_or_else(|| row.wrong(Col::Credits, "has an amount that is not a decimal"))?;
        if amount.is_zero() {
            continue;
        }
        let names = [credit.full_name, credit.name, credit.id];
        let name = names.into_iter().map(unquoted).find(|name| !name.is_empty());
        let mut dimensions = charge.dimensions;
        let [.., id, kind] = &mut dimensions;
        (*id, *kind) = (unquoted(credit.id), unquoted(credit.kind));
        found.push(Found::Charge(Box::new(Charge {
            category: ChargeCategory::Credit,
            description: shortened(name.unwrap_or_default()),
            billed: amount,
            effective: amount,
            list: Exact::ZERO,
            dimensions,
            ..charge.clone()
        })));
    }
    found.push(Found::Charge(Box::new(charge)));
    Ok(found)
}

/// Returns the charge of a line without its credits.
fn charge(row: &Row) -> Result<Charge<'_>, LineFault> {
    let cost = row.amount_filled(Col::Cost)?;
    let resource = NamedResource {
        id: row.text(Col::ResourceGlobalName),
        name: row.text(Col::ResourceName),
        zone: row.text(Col::Zone),
    };
    let (resource_key, is_machine) = resource.key("gcp");
    let sku = row.text(Col::SkuDescription);
    let category = match row.text(Col::CostType) {
        "" | "regular" if sku.starts_with(COMMITMENT) => ChargeCategory::Purchase,
        "" | "regular" => ChargeCategory::Usage,
        "tax" => ChargeCategory::Tax,
        _ => ChargeCategory::Adjustment,
    };
    let is_purchase = category == ChargeCategory::Purchase;
    let subscription = if is_purchase { row.text(Col::SubscriptionId) } else { "" };
    let span = Span::of(row.time(Col::UsageStartTime)?, row.time(Col::UsageEndTime)?)
        .ok_or_else(|| row.wrong(Col::UsageEndTime, "is before usage_start_time"))?;
    Ok(Charge {
        provider: Cow::Borrowed("gcp"),
        billing_account: row.filled(Col::BillingAccountId)?,
        resource_key,
        is_machine,
        span,
        billing_month: None,
        category,
        is_correction: !row.text(Col::AdjustmentId).is_empty(),
        service: shortened(row.text(Col::ServiceDescription)),
        sku: row.text(Col::SkuId),
        description: shortened(sku),
        account: row.text(Col::ProjectId),
        // The export has no id of an invoice, but there is one invoice a month.
        invoice: row.text(Col::InvoiceMonth),
        commitment: agreement_id(subscription),
        commitment_status: None,
        reservation: Cow::Borrowed(""),
        reservation_status: None,
        // Google bills a machine by its cores, memory and GPUs. Their hours are not hours of the machine.
        hours: None,
        list_unit_price: None,
        currency: row.filled(Col::Currency)?,
        billed: cost,
        effective: cost,
        list: row.decimal(Col::CostAtList)?.unwrap_or(cost),
        cost_kind: None,
        provider_line_id: "",
        dimensions: [
            resource.id,
            resource.name,
            row.text(Col::Region),
            row.text(Col::CostType),
            row.text(Col::AdjustmentId),
            "",
            "",
            "",
        ],
    })
}

/// Returns the credits of a line. Each is an object of a list; some exports have a single object.
fn credits<'r>(row: &'r Row, scratch: &'r mut String) -> Result<Vec<Credit<'r>>, LineFault> {
    let text = row.text(Col::Credits);
    if matches!(text, "" | "[]") {
        return Ok(Vec::new());
    }
    let text = if text.contains('"') {
        text
    } else {
        // Python prints lists with apostrophes, and some tools write them like that.
        scratch.clear();
        scratch.extend(text.chars().map(|c| if c == '\'' { '"' } else { c }));
        &*scratch
    };
    let credits = if text.starts_with('{') {
        serde_json::from_str(text).map(|credit| vec![credit])
    } else {
        serde_json::from_str(text)
    };
    credits.map_err(|error| {
        let message =
            format!("it is no JSON list of credits: {error}; export the column as it is in BigQuery");
        row.fault(Col::Credits, &message)
    })
}

/// Returns a JSON text or number without its quotes; an empty text for null.
fn unquoted(value: Option<&RawValue>) -> &str {
    value.map_or("", |value| value.get().trim_matches('"'))
}
