//! Columns of `cost_allocation`: the columns of FOCUS 1.2, 1.3 and 1.4 together, alphabetical, then ours.
//! Views in `deploy/sql` choose an edition, and derive the columns that are not here.

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::Labels;
use prorata_schemas::rows::{BilledLine, CostRow, QuotaState, ResourceHours, Unpriced};
use prorata_schemas::time::Timestamp;

use super::Kind::{Additive, Decimal, Json, Text, Time};
use super::charge::{Charge, HOURS};
use super::{Cell, Column, optional, required};

/// Columns, each with an earlier column that has the same value in every row, because FOCUS asks for the
/// value under both names.
const COPIES: [(&str, &str); 14] = [
    ("BillingAccountName", "BillingAccountId"),
    ("InvoiceIssuerName", "HostProviderName"),
    ("ListCost", "ContractedCost"),
    ("ListUnitPrice", "ContractedUnitPrice"),
    ("PricingCurrency", "BillingCurrency"),
    ("PricingCurrencyContractedUnitPrice", "ContractedUnitPrice"),
    ("PricingCurrencyEffectiveCost", "EffectiveCost"),
    ("PricingCurrencyListUnitPrice", "ContractedUnitPrice"),
    ("ProviderName", "HostProviderName"),
    ("PublisherName", "HostProviderName"),
    ("RegionName", "RegionId"),
    ("ServiceProviderName", "HostProviderName"),
    ("SubAccountName", "SubAccountId"),
    ("x_ClusterId", "SubAccountId"),
];

type SharedText<'a> = &'a prorata_schemas::Text;

/// Key of a line of a bill.
type LineKey<'a> = (SharedText<'a>, SharedText<'a>, SharedText<'a>, Timestamp, SharedText<'a>);

type Grain<'a> = (
    prorata_schemas::rows::RowKind,
    Option<&'a str>,
    &'a str,
    Option<&'a str>,
    Option<&'a str>,
    Option<&'a str>,
    Option<&'a str>,
    Option<QuotaState>,
    Decimal12,
    Option<&'static str>,
    Option<&'a Labels>,
    Option<LineKey<'a>>,
);

/// Returns the grain of a row, which orders the rows of one organization's hour. No two rows share a grain.
pub fn grain(row: &CostRow) -> Grain<'_> {
    (
        row.kind,
        row.cluster_id.as_deref(),
        &row.resource_id,
        row.pod_uid.as_deref(),
        row.commitment_id.as_deref(),
        row.reservation_id.as_deref(),
        row.quota_id.as_deref(),
        row.quota_state,
        row.list_unit_price,
        row.unpriced.map(Unpriced::name),
        row.pod.as_ref().map(|pod| &pod.labels),
        row.lines.first().map(BilledLine::key),
    )
}

/// Returns all columns, in order.
pub fn columns<'a>() -> Vec<Column<Charge<'a>>> {
    let mut columns = allocation_to_charge();
    columns.extend(commitment_to_invoice());
    columns.extend(list_to_resource());
    columns.extend(service_to_tags());
    columns.extend(our_descriptions());
    for column in &mut columns {
        column.copy_of = COPIES.iter().find(|(copy, _)| *copy == column.name).map(|(_, original)| *original);
    }
    columns
}

/// Returns the names of the columns that add up over rows, in order: costs, quantities and hours. Unit
/// prices, ratios and texts do not.
pub fn additive() -> Vec<&'static str> {
    columns().iter().filter(|column| column.kind == Additive).map(|column| column.name).collect()
}

fn allocation_to_charge<'a>() -> Vec<Column<Charge<'a>>> {
    vec![
        optional("AllocatedMethodDetails", Json, |c: &Charge<'_>| Cell::made(c.allocated_details())),
        optional("AllocatedMethodId", Text, |c| Cell::text(c.allocated_method())),
        optional("AllocatedResourceId", Text, |c| Cell::text(c.allocated_resource_id())),
        optional("AllocatedResourceName", Text, |c| Cell::text(c.allocated_pod().map(|pod| &*pod.pod_name))),
        optional("AllocatedTags", Json, |c| Cell::text(c.allocated_tags())),
        optional("AvailabilityZone", Text, |c| Cell::text(c.zone())),
        required("BilledCost", Additive, |c| c.row.billed_cost.into()),
        required("BillingAccountId", Text, |c| Cell::text(&*c.tables.organization_id)),
        required("BillingAccountName", Text, |c| Cell::text(&*c.tables.organization_id)),
        required("BillingAccountType", Text, |_| Cell::Text("Organization")),
        required("BillingCurrency", Text, |c| Cell::text(&*c.tables.currency)),
        required("BillingPeriodEnd", Time, |c| month(c).1.into()),
        required("BillingPeriodStart", Time, |c| month(c).0.into()),
        optional("CapacityReservationId", Text, |c| Cell::text(c.row.reservation_id.as_deref())),
        optional("CapacityReservationStatus", Text, |c| Cell::text(c.reservation_status())),
        required("ChargeCategory", Text, |c| Cell::Text(c.category().name())),
        optional("ChargeClass", Text, |c| Cell::text(c.class())),
        required("ChargeDescription", Text, |c| Cell::text(&*c.description)),
        required("ChargeFrequency", Text, |c| Cell::Text(c.frequency())),
        required("ChargePeriodEnd", Time, |c| c.tables.hour.end().into()),
        required("ChargePeriodStart", Time, |c| c.tables.hour.start().into()),
    ]
}

fn commitment_to_invoice<'a>() -> Vec<Column<Charge<'a>>> {
    vec![
        optional("CommitmentDiscountCategory", Text, |c: &Charge<'_>| Cell::text(c.commitment_category())),
        optional("CommitmentDiscountId", Text, |c| Cell::text(c.row.commitment_id.as_deref())),
        optional("CommitmentDiscountName", Text, |c| {
            Cell::text(c.row.commitment.as_ref().map(|set| &*set.name))
        }),
        optional("CommitmentDiscountQuantity", Additive, |c| c.row.commitment_quantity.into()),
        optional("CommitmentDiscountStatus", Text, |c| Cell::text(c.commitment_status())),
        optional("CommitmentDiscountType", Text, |c| Cell::text(c.commitment_type())),
        optional("CommitmentDiscountUnit", Text, |c| Cell::text(c.commitment_unit())),
        optional("ConsumedQuantity", Additive, |c| c.consumed().into()),
        optional("ConsumedUnit", Text, |c| Cell::text(c.consumed().map(|_| HOURS))),
        required("ContractedCost", Additive, |c| c.row.list_cost.into()),
        optional("ContractedUnitPrice", Decimal, |c| c.unit_price().into()),
        required("EffectiveCost", Additive, |c| c.row.effective_cost.into()),
        required("HostProviderName", Text, |c| Cell::Text(c.provider())),
        optional("InvoiceDetailId", Text, |c| Cell::text(c.invoice_detail_id())),
        optional("InvoiceId", Text, |c| Cell::text(c.invoice_id())),
        required("InvoiceIssuerName", Text, |c| Cell::Text(c.provider())),
    ]
}

fn list_to_resource<'a>() -> Vec<Column<Charge<'a>>> {
    vec![
        required("ListCost", Additive, |c: &Charge<'_>| c.row.list_cost.into()),
        optional("ListUnitPrice", Decimal, |c| c.unit_price().into()),
        optional("PricingCategory", Text, |c| Cell::text(c.pricing_category())),
        required("PricingCurrency", Text, |c| Cell::text(&*c.tables.currency)),
        optional("PricingCurrencyContractedUnitPrice", Decimal, |c| c.unit_price().into()),
        required("PricingCurrencyEffectiveCost", Additive, |c| c.row.effective_cost.into()),
        optional("PricingCurrencyListUnitPrice", Decimal, |c| c.unit_price().into()),
        optional("PricingQuantity", Additive, |c| c.quantity().into()),
        optional("PricingUnit", Text, |c| Cell::text(c.quantity().map(|_| HOURS))),
        required("ProviderName", Text, |c| Cell::Text(c.provider())),
        required("PublisherName", Text, |c| Cell::Text(c.provider())),
        optional("RegionId", Text, |c| Cell::text(c.region())),
        optional("RegionName", Text, |c| Cell::text(c.region())),
        optional("ResourceId", Text, |c| Cell::text(&*c.row.resource_id)),
        optional("ResourceName", Text, |c| Cell::text(c.resource_name())),
        optional("ResourceType", Text, |c| Cell::text(c.resource_type())),
    ]
}

fn service_to_tags<'a>() -> Vec<Column<Charge<'a>>> {
    vec![
        required("ServiceCategory", Text, |c: &Charge<'_>| Cell::Text(c.service_category()[0])),
        required("ServiceName", Text, |c| Cell::Text(c.service_name())),
        required("ServiceProviderName", Text, |c| Cell::Text(c.provider())),
        required("ServiceSubcategory", Text, |c| Cell::Text(c.service_category()[1])),
        optional("SkuId", Text, |c| Cell::text(c.priced_sku().map(|sku| &*sku.id))),
        optional("SkuMeter", Text, |c| Cell::text(c.priced_sku().map(|sku| sku.meter))),
        optional("SkuPriceDetails", Json, |c| {
            Cell::text(c.priced_sku().and_then(|sku| sku.details.as_deref()))
        }),
        optional("SkuPriceId", Text, |c| Cell::text(c.priced_sku().map(|sku| &*sku.price_id))),
        optional("SubAccountId", Text, |c| Cell::text(c.row.cluster_id.as_deref())),
        optional("SubAccountName", Text, |c| Cell::text(c.row.cluster_id.as_deref())),
        optional("SubAccountType", Text, |c| {
            Cell::text(c.row.cluster_id.as_ref().map(|_| "Kubernetes Cluster"))
        }),
        optional("Tags", Json, |c| c.tags()),
    ]
}

fn our_descriptions<'a>() -> Vec<Column<Charge<'a>>> {
    vec![
        optional("x_AccountId", Text, |c: &Charge<'_>| Cell::text(c.account_id())),
        optional("x_ClusterId", Text, |c| Cell::text(c.row.cluster_id.as_deref())),
        required("x_CostBasis", Text, |c| Cell::Text(c.basis())),
        optional("x_CpuCoreHours", Additive, |c| cpu(c.row.allocated)),
        optional("x_CpuCost", Additive, |c| c.row.cpu_cost.into()),
        optional("x_CpuSplitUsageRatio", Decimal, |c| c.row.split_usage.cpu.into()),
        optional("x_CpuUnusedRatio", Decimal, |c| c.row.unused.cpu.into()),
        optional("x_EstimatedCost", Additive, |c| c.row.estimated_cost.into()),
        optional("x_GpuCost", Additive, |c| c.row.gpu_cost.into()),
        optional("x_GpuHours", Additive, |c| gpu(c.row.allocated)),
        optional("x_GpuModel", Text, |c| Cell::text(c.gpu_model())),
        optional("x_GpuSplitUsageRatio", Decimal, |c| c.row.split_usage.gpu.into()),
        optional("x_GpuUnusedRatio", Decimal, |c| c.row.unused.gpu.into()),
        optional("x_MemoryCost", Additive, |c| c.row.memory_cost.into()),
        optional("x_MemoryGibHours", Additive, |c| memory(c.row.allocated)),
        optional("x_MemorySplitUsageRatio", Decimal, |c| c.row.split_usage.memory.into()),
        optional("x_MemoryUnusedRatio", Decimal, |c| c.row.unused.memory.into()),
        optional("x_Namespace", Text, |c| Cell::text(c.pod().map(|pod| &*pod.namespace))),
        optional("x_NodeId", Text, |c| Cell::text(c.node_id())),
        optional("x_NodeName", Text, |c| Cell::text(c.node().map(|node| &*node.node_name))),
        optional("x_PodName", Text, |c| Cell::text(c.pod().map(|pod| &*pod.pod_name))),
        optional("x_PodUid", Text, |c| Cell::text(c.row.pod_uid.as_deref())),
        optional("x_PoolCharge", Additive, |c| c.row.pool_charge.into()),
        optional("x_PoolId", Text, |c| Cell::text(c.pool_id())),
        optional("x_Qos", Text, |c| Cell::text(c.pod().map(|pod| &*pod.qos))),
        optional("x_QuotaId", Text, |c| Cell::text(c.row.quota_id.as_deref())),
        optional("x_QuotaState", Text, |c| Cell::text(c.row.quota_state.map(QuotaState::name))),
        optional("x_RequestedCpuCoreHours", Additive, |c| cpu(c.row.requested)),
        optional("x_RequestedGpuHours", Additive, |c| gpu(c.row.requested)),
        optional("x_RequestedMemoryGibHours", Additive, |c| memory(c.row.requested)),
        optional("x_ResourceKey", Text, |c| Cell::text(c.resource_key())),
        required("x_RowKind", Text, |c| Cell::Text(c.row.kind.name())),
        required("x_RulesVersion", Text, |c| Cell::text(&*c.tables.rules_version)),
        optional("x_RunningSeconds", Additive, |c| c.row.running_seconds.into()),
        optional("x_SplitCost", Additive, |c| c.row.split_cost.into()),
        optional("x_Unpriced", Text, |c| Cell::text(c.row.unpriced.map(Unpriced::name))),
        optional("x_UnusedCost", Additive, |c| c.row.unused_cost.into()),
        optional("x_UsedCpuCoreHours", Additive, |c| cpu(c.row.used)),
        optional("x_UsedGpuHours", Additive, |c| gpu(c.row.used)),
        optional("x_UsedMemoryGibHours", Additive, |c| memory(c.row.used)),
        optional("x_WorkloadKind", Text, |c| {
            Cell::text(c.pod().and_then(|pod| pod.workload_kind.as_deref()))
        }),
        optional("x_WorkloadName", Text, |c| {
            Cell::text(c.pod().and_then(|pod| pod.workload_name.as_deref()))
        }),
    ]
}

/// Returns the first instant of the hour's calendar month, and the first instant after the month.
fn month(charge: &Charge<'_>) -> (Timestamp, Timestamp) {
    let date = charge.tables.hour.date();
    (date.month_start().start(), date.next_month_start().start())
}

fn cpu(hours: Option<ResourceHours>) -> Cell<'static> {
    hours.map(|hours| hours.cpu_core_hours).into()
}

fn memory(hours: Option<ResourceHours>) -> Cell<'static> {
    hours.map(|hours| hours.memory_gib_hours).into()
}

fn gpu(hours: Option<ResourceHours>) -> Cell<'static> {
    hours.map(|hours| hours.gpu_hours).into()
}

#[cfg(test)]
mod tests {
    use prorata_samples::hour::full_hour;
    use prorata_schemas::time::Hour;

    use super::*;
    use crate::columns::charge::Charges;

    #[test]
    fn a_copy_has_the_value_of_its_original_in_every_row() {
        let tables = full_hour("acme", Hour(498_661));
        let columns = columns();
        let mut charges = Charges::default();
        for row in &tables.cost_allocation {
            let charge = charges.charge(&tables, row);
            for (copy, original) in COPIES {
                let place = |name| columns.iter().position(|column| column.name == name).unwrap();
                let (copy, original) = (place(copy), place(original));
                assert!(original < copy);
                let (copy, original) = (&columns[copy], &columns[original]);
                assert_eq!((copy.kind, copy.nullable), (original.kind, original.nullable), "{}", copy.name);
                assert_eq!((copy.value)(&charge), (original.value)(&charge), "{}", copy.name);
            }
        }
    }
}
