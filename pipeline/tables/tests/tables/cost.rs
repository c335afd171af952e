//! `cost_allocation`: every column of every kind of row.

use std::collections::BTreeMap;

use prorata_schemas::tables::Table;
use prorata_tables::schema;

use crate::read::{HOUR, assert_values, file, read, texts};
use prorata_samples::hour::full_hour;

/// Returns the row of `cost_allocation` at an index of the full hour, as text.
fn cost_row(index: usize) -> BTreeMap<String, String> {
    texts(&read(&file(Table::CostAllocation, &[full_hour("acme", HOUR)]).bytes), index)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one line for each column")]
fn every_column_of_a_committed_share_of_a_node() {
    let row = cost_row(2);
    let expected: BTreeMap<String, String> = [
        (
            "AllocatedMethodDetails",
            concat!(
                r#"{"Elements":[{"AllocatedRatio":0,"UsageUnit":"vCPU-Hours","UsageQuantity":2},"#,
                r#"{"AllocatedRatio":0,"UsageUnit":"GiB-Hours","UsageQuantity":15},"#,
                r#"{"AllocatedRatio":0.25,"UsageUnit":"GPU-Hours","UsageQuantity":0.333333333333}]}"#
            ),
        ),
        ("AllocatedMethodId", "prorata-node-split"),
        ("AllocatedResourceId", "a"),
        ("AllocatedResourceName", "a-0"),
        ("AllocatedTags", r#"{"app":"train","note":"say \"hi\""}"#),
        ("AvailabilityZone", "us-east-1a"),
        ("BilledCost", "0"),
        ("BillingAccountId", "acme"),
        ("BillingAccountName", "acme"),
        ("BillingAccountType", "Organization"),
        ("BillingCurrency", "USD"),
        ("BillingPeriodEnd", "2026-12-01T00:00:00.000000Z"),
        ("BillingPeriodStart", "2026-11-01T00:00:00.000000Z"),
        ("ChargeCategory", "Usage"),
        (
            "ChargeDescription",
            "Pod team-a/a-0 on node gpu-1 (g5.48xlarge, on demand), paid by reserved instance g5 for a year",
        ),
        ("ChargeFrequency", "Usage-Based"),
        ("ChargePeriodEnd", "2026-11-20T14:00:00.000000Z"),
        ("ChargePeriodStart", "2026-11-20T13:00:00.000000Z"),
        ("CommitmentDiscountCategory", "Usage"),
        ("CommitmentDiscountId", "c1"),
        ("CommitmentDiscountName", "g5 for a year"),
        ("CommitmentDiscountQuantity", "0.15"),
        ("CommitmentDiscountStatus", "Used"),
        ("CommitmentDiscountType", "Reserved Instance"),
        ("CommitmentDiscountUnit", "Hours"),
        ("ConsumedQuantity", "0.125"),
        ("ConsumedUnit", "Hours"),
        ("ContractedCost", "1"),
        ("ContractedUnitPrice", "8"),
        ("EffectiveCost", "0.45"),
        ("HostProviderName", "aws"),
        ("InvoiceIssuerName", "aws"),
        ("ListCost", "1"),
        ("ListUnitPrice", "8"),
        ("PricingCategory", "Committed"),
        ("PricingCurrency", "USD"),
        ("PricingCurrencyContractedUnitPrice", "8"),
        ("PricingCurrencyEffectiveCost", "0.45"),
        ("PricingCurrencyListUnitPrice", "8"),
        ("PricingQuantity", "0.125"),
        ("PricingUnit", "Hours"),
        ("ProviderName", "aws"),
        ("PublisherName", "aws"),
        ("RegionId", "us-east-1"),
        ("RegionName", "us-east-1"),
        ("ResourceId", "n1"),
        ("ResourceName", "gpu-1"),
        ("ResourceType", "Node"),
        ("ServiceCategory", "Compute"),
        ("ServiceName", "Kubernetes Nodes"),
        ("ServiceProviderName", "aws"),
        ("ServiceSubcategory", "Containers"),
        ("SkuId", "g5.48xlarge"),
        ("SkuMeter", "Node Hours"),
        (
            "SkuPriceDetails",
            concat!(
                r#"{"CoreCount":192,"GpuCount":8,"InstanceSeries":"g5","InstanceType":"g5.48xlarge","#,
                r#""MemorySize":768,"x_CapacityType":"ON_DEMAND","x_GpuModel":"a10g"}"#
            ),
        ),
        ("SkuPriceId", "aws/us-east-1/g5.48xlarge/on-demand"),
        ("SubAccountId", "prod"),
        ("SubAccountName", "prod"),
        ("SubAccountType", "Kubernetes Cluster"),
        (
            "Tags",
            concat!(
                r#"{"node.kubernetes.io/instance-type":"g5.48xlarge","#,
                r#""topology.kubernetes.io/region":"us-east-1","topology.kubernetes.io/zone":"us-east-1a"}"#
            ),
        ),
        ("x_AccountId", "111122223333"),
        ("x_ClusterId", "prod"),
        ("x_CostBasis", "estimated"),
        ("x_CpuCoreHours", "2"),
        ("x_CpuCost", "0"),
        ("x_CpuSplitUsageRatio", "0.010416666667"),
        ("x_CpuUnusedRatio", "0.25"),
        ("x_GpuCost", "0.45"),
        ("x_GpuHours", "0.333333333333"),
        ("x_GpuModel", "a10g"),
        ("x_MemoryCost", "0"),
        ("x_MemoryGibHours", "15"),
        ("x_MemorySplitUsageRatio", "0.02"),
        ("x_MemoryUnusedRatio", "0"),
        ("x_Namespace", "team-a"),
        ("x_NodeId", "n1"),
        ("x_NodeName", "gpu-1"),
        ("x_PodName", "a-0"),
        ("x_PodUid", "a"),
        ("x_Qos", "default"),
        ("x_RequestedCpuCoreHours", "2"),
        ("x_RequestedGpuHours", "0.333333333333"),
        ("x_RequestedMemoryGibHours", "15"),
        ("x_ResourceKey", "i-n1"),
        ("x_RowKind", "pod_node"),
        ("x_RulesVersion", "1"),
        ("x_RunningSeconds", "900"),
        ("x_SplitCost", "0.45"),
        ("x_UnusedCost", "0"),
        ("x_WorkloadKind", "Job"),
        ("x_WorkloadName", "train"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    assert_eq!(row, expected);
}

#[test]
fn a_share_of_a_node_at_its_own_price_carries_label_and_bill() {
    assert_values(
        &cost_row(4),
        &[
            ("BilledCost", "1"),
            ("EffectiveCost", "1"),
            ("PricingCategory", "Standard"),
            ("CommitmentDiscountId", "-"),
            ("CommitmentDiscountCategory", "-"),
            ("CommitmentDiscountStatus", "-"),
            ("CommitmentDiscountUnit", "-"),
            ("x_QuotaId", "team"),
            ("x_QuotaState", "over-quota"),
            ("ChargeDescription", "Pod team-a/b-0 on node gpu-1 (g5.48xlarge, on demand) at 8 USD per hour"),
        ],
    );
}

#[test]
fn a_pod_on_an_unknown_node_keeps_the_names_that_it_brought() {
    assert_values(
        &cost_row(0),
        &[
            ("AllocatedMethodId", "prorata-node-split"),
            ("AllocatedMethodDetails", "-"),
            ("AllocatedResourceId", "c"),
            ("ResourceId", "gone"),
            ("ResourceName", "-"),
            ("RegionId", "-"),
            ("RegionName", "-"),
            ("ProviderName", "unknown"),
            ("SkuId", "unpriced"),
            ("SkuPriceId", "unpriced/unknown-node"),
            ("SkuPriceDetails", "-"),
            ("Tags", "-"),
            ("x_NodeId", "gone"),
            ("x_NodeName", "-"),
            ("x_Unpriced", "unknown_node"),
            ("PricingCategory", "Standard"),
            ("ChargeDescription", "Pod team-a/c-0 on node gone, which is not known to run: no price"),
        ],
    );
}

#[test]
fn a_pool_pod_on_a_node_has_node_cost_and_pool_charge() {
    assert_values(
        &cost_row(7),
        &[
            ("EffectiveCost", "1"),
            ("x_CostBasis", "billed"),
            ("x_EstimatedCost", "0.8"),
            ("x_PoolCharge", "1.69416"),
            ("x_PoolId", "shared"),
            ("x_UsedCpuCoreHours", "2"),
            ("x_UsedGpuHours", "0.333333333333"),
            ("x_UsedMemoryGibHours", "15"),
        ],
    );
}

#[test]
fn idle_capacity_is_allocated_to_nobody() {
    let idle = cost_row(9);
    assert_values(
        &idle,
        &[
            ("x_RowKind", "node_idle"),
            ("AllocatedMethodId", "prorata-node-split"),
            ("AllocatedMethodDetails", r#"{"Elements":[{"AllocatedRatio":0.25}]}"#),
            ("AllocatedResourceId", "-"),
            ("AllocatedResourceName", "-"),
            ("AllocatedTags", "-"),
            ("CommitmentDiscountStatus", "Used"),
            ("x_PodUid", "-"),
            ("x_CpuCoreHours", "-"),
            ("x_SplitCost", "-"),
            ("x_NodeId", "n1"),
            ("x_PoolId", "-"),
            (
                "ChargeDescription",
                "Idle capacity of node gpu-1 (g5.48xlarge, on demand), paid by reserved instance g5 for a \
                 year",
            ),
        ],
    );
    // A name that only repeats the id is not a display name; spot prices change.
    assert_values(
        &cost_row(10),
        &[("ResourceName", "-"), ("x_NodeName", "n2"), ("PricingCategory", "Dynamic")],
    );
}

#[test]
fn a_serverless_pod_is_the_resource_itself() {
    let matched = cost_row(12);
    assert_values(
        &matched,
        &[
            ("x_RowKind", "pod_serverless"),
            ("ResourceId", "g"),
            ("ResourceName", "g-0"),
            ("ResourceType", "Pod"),
            ("ServiceName", "Serverless Pods"),
            ("AllocatedMethodId", "-"),
            ("AllocatedResourceId", "-"),
            ("AllocatedTags", "-"),
            ("Tags", r#"{"app":"train","note":"say \"hi\""}"#),
            ("CapacityReservationId", "r1"),
            ("CapacityReservationStatus", "Used"),
            ("SkuId", "serverless-pod/P16EN"),
            ("SkuPriceId", "alibaba/cn-hangzhou/serverless-pod/P16EN/default/8vcpu-60gib-1gpu"),
            ("SkuMeter", "Serverless Pod Hours"),
            (
                "SkuPriceDetails",
                r#"{"CoreCount":8,"GpuCount":1,"MemorySize":60,"x_GpuModel":"P16EN","x_Qos":"default"}"#,
            ),
            ("RegionId", "cn-hangzhou"),
            ("x_GpuModel", "P16EN"),
            ("x_NodeId", "-"),
            ("x_GpuCost", "5"),
        ],
    );
    assert_eq!(
        matched["ChargeDescription"],
        "Serverless pod team-a/g-0 (8 vCPU, 60 GiB, 1 x P16EN) in cn-hangzhou at 10 USD per hour, \
         on capacity reservation r1"
    );
    assert_values(&cost_row(11), &[("CapacityReservationId", "-"), ("CapacityReservationStatus", "-")]);
    let unpriced = cost_row(13);
    assert_values(
        &unpriced,
        &[("x_Unpriced", "no_rate"), ("ListUnitPrice", "0"), ("ProviderName", "unknown")],
    );
    assert!(unpriced["ChargeDescription"].ends_with("in cn-hangzhou: no rate applies yet"));
}

#[test]
fn a_pool_pod_on_no_node_costs_its_charge() {
    assert_values(
        &cost_row(14),
        &[
            ("x_RowKind", "pod_pool"),
            ("ServiceName", "GPU Pools"),
            ("EffectiveCost", "0.84708"),
            ("x_PoolCharge", "0.84708"),
            ("SkuId", "gpu-pool/shared"),
            ("SkuMeter", "Pool Pod Hours"),
            (
                "ChargeDescription",
                "Pod team-a/e-0 in GPU pool shared (quality of service default) at 1.69416 USD per hour",
            ),
        ],
    );
    assert_values(
        &cost_row(15),
        &[
            ("x_Unpriced", "unknown_pool"),
            ("x_PoolCharge", "-"),
            ("ChargeDescription", "Pod team-a/f-0 in GPU pool lost: the pool is not set"),
        ],
    );
}

#[test]
fn an_unused_reservation_is_a_resource_of_no_cluster() {
    assert_values(
        &cost_row(16),
        &[
            ("x_RowKind", "reservation_unused"),
            ("ResourceId", "r1"),
            ("ResourceName", "night batch"),
            ("ResourceType", "Capacity Reservation"),
            ("CapacityReservationId", "r1"),
            ("CapacityReservationStatus", "Unused"),
            ("SubAccountId", "-"),
            ("SubAccountName", "-"),
            ("SubAccountType", "-"),
            ("x_ClusterId", "-"),
            ("ConsumedQuantity", "0.5"),
            ("SkuId", "capacity-reservation/P16EN/10vcpu-80gib-1gpu"),
            ("x_GpuModel", "P16EN"),
            (
                "ChargeDescription",
                "Unused units of capacity reservation night batch (10 vCPU, 80 GiB, 1 x P16EN) at 2 USD per \
                 hour",
            ),
        ],
    );
}

#[test]
fn a_commitment_is_bought_and_its_unused_part_is_usage() {
    assert_values(
        &cost_row(17),
        &[
            ("x_RowKind", "commitment_unused"),
            ("ChargeCategory", "Usage"),
            ("ChargeFrequency", "Usage-Based"),
            ("PricingCategory", "Committed"),
            ("CommitmentDiscountStatus", "Unused"),
            ("CommitmentDiscountQuantity", "0.4"),
            ("ConsumedQuantity", "-"),
            ("ConsumedUnit", "-"),
            ("BilledCost", "0"),
            ("EffectiveCost", "1.2"),
            ("ResourceType", "Commitment"),
            ("AvailabilityZone", "-"),
            ("RegionId", "us-east-1"),
        ],
    );
    assert_values(
        &cost_row(18),
        &[
            ("x_RowKind", "commitment_purchase"),
            ("ChargeCategory", "Purchase"),
            ("ChargeFrequency", "Recurring"),
            ("PricingCategory", "Standard"),
            ("CommitmentDiscountStatus", "-"),
            ("CommitmentDiscountQuantity", "1"),
            ("ConsumedQuantity", "-"),
            ("BilledCost", "3"),
            ("EffectiveCost", "0"),
            ("SkuId", "reserved-instance/g5"),
            ("SkuPriceId", "aws/us-east-1/reserved-instance/g5/160vcpu-640gib"),
            (
                "ChargeDescription",
                "Recurring cost of reserved instance g5 for a year (g5 in us-east-1: 160 vCPU, 640 GiB) \
                 at 3 USD per hour",
            ),
        ],
    );
}

#[test]
fn focus_columns_come_first_and_both_parts_are_alphabetical() {
    let schema = schema(Table::CostAllocation);
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let (focus, ours): (Vec<_>, Vec<_>) = names.iter().copied().partition(|name| !name.starts_with("x_"));
    assert_eq!(names, [focus.clone(), ours.clone()].concat());
    assert!(focus.is_sorted() && ours.is_sorted());
    assert_eq!((focus.len(), ours.len()), (65, 42));
    assert!(!names.contains(&"date"), "the partition column is not in the files");
}
