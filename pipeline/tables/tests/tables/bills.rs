//! `cost_allocation`: rows whose cost lines of bills decide.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_samples::bill::bill_line;
use prorata_samples::hour::{dec, full_hour};
use prorata_schemas::event::{BillLine, BillSet, ChargeCategory, UseStatus};
use prorata_schemas::rows::{BilledLine, CostBasis, CostRow, HourTables, RowKind};
use prorata_schemas::tables::Table;
use prorata_tables::encode;

use crate::read::{HOUR, assert_values, clock, file, read, texts};

/// Returns a line of usage that costs 2.5, without any text that may be missing.
fn line(id: &str) -> BillLine {
    BillLine { list_cost: "3".parse().unwrap(), ..bill_line(id, HOUR.end(), "2.5") }
}

/// Returns the lines of a bill for a resource.
fn billed(resource_key: &str, lines: Vec<BillLine>) -> Arc<[BilledLine]> {
    let set = Arc::new(BillSet {
        provider: "aws".into(),
        billing_account_id: "999900001111".into(),
        resource_key: resource_key.into(),
        currency: "USD".into(),
        lines,
    });
    let lines = 0..set.lines.len();
    lines.map(|index| BilledLine { set: Arc::clone(&set), begins_at: HOUR.start(), index }).collect()
}

/// Returns the row of a line, as the engine makes it.
fn row_of(kind: RowKind, resource_id: &str, resource_key: &str, line: BillLine) -> CostRow {
    CostRow {
        commitment_id: line.commitment_id.clone(),
        reservation_id: line.reservation_id.clone(),
        list_unit_price: line.list_unit_price.map(Into::into).unwrap_or_default(),
        pricing_quantity: line.hours.map(Into::into).unwrap_or_default(),
        billed_cost: line.billed_cost.into(),
        effective_cost: line.effective_cost.into(),
        list_cost: line.list_cost.into(),
        lines: billed(resource_key, vec![line]),
        ..CostRow::new(kind, resource_id.into(), "aws".into())
    }
}

/// Returns a pod's share of a node at its own price, which costs 1, with lines of a bill in place of the
/// price.
fn billed_share(lines: Vec<BillLine>) -> CostRow {
    let mut rows = full_hour("acme", HOUR).cost_allocation.into_iter();
    let is_of_node = |row: &CostRow| row.kind == RowKind::PodNode && row.node.is_some();
    let row = *rows.find(|row| is_of_node(row) && row.commitment_id.is_none()).unwrap();
    CostRow { lines: billed("i-n1", lines), estimated_cost: Some(dec("1")), list_unit_price: dec("8"), ..row }
}

fn hour_of(rows: impl IntoIterator<Item = CostRow>) -> HourTables {
    let cost_allocation = rows.into_iter().map(Box::new).collect();
    HourTables { cost_allocation, ..full_hour("acme", HOUR) }
}

/// Returns a row of `cost_allocation` as text.
fn written(row: CostRow) -> BTreeMap<String, String> {
    texts(&read(&file(Table::CostAllocation, &[hour_of([row])]).bytes), 0)
}

#[test]
fn a_shared_charge_is_described_by_its_line() {
    let gateway = BillLine {
        service: "Amazon Virtual Private Cloud".into(),
        sku_id: Some("NatGateway-Bytes".into()),
        description: Some("$0.045 per GB of data through a NAT gateway".into()),
        account_id: Some("111122223333".into()),
        invoice_id: Some("inv-1".into()),
        ..line("l1")
    };
    assert_values(
        &written(row_of(RowKind::SharedCharge, "nat-1", "nat-1", gateway)),
        &[
            ("x_RowKind", "shared_charge"),
            ("x_CostBasis", "billed"),
            ("x_EstimatedCost", "-"),
            ("ChargeCategory", "Usage"),
            ("ChargeClass", "-"),
            ("ChargeFrequency", "Usage-Based"),
            ("ChargeDescription", "$0.045 per GB of data through a NAT gateway"),
            ("PricingCategory", "Standard"),
            ("BilledCost", "2.5"),
            ("EffectiveCost", "2.5"),
            ("ListCost", "3"),
            ("ContractedCost", "3"),
            ("PricingQuantity", "0"),
            ("ConsumedQuantity", "-"),
            ("ConsumedUnit", "-"),
            ("InvoiceId", "inv-1"),
            ("InvoiceDetailId", "l1"),
            ("ServiceName", "Amazon Virtual Private Cloud"),
            ("ServiceCategory", "Other"),
            ("ServiceSubcategory", "Other (Other)"),
            ("SkuId", "NatGateway-Bytes"),
            ("SkuPriceId", "aws/NatGateway-Bytes"),
            ("SkuMeter", "Billed Hours"),
            ("ResourceId", "nat-1"),
            ("ResourceType", "Billed Resource"),
            ("ResourceName", "-"),
            ("RegionId", "-"),
            ("AvailabilityZone", "-"),
            ("SubAccountId", "-"),
            ("SubAccountType", "-"),
            ("Tags", "-"),
            ("AllocatedMethodId", "-"),
            ("CommitmentDiscountId", "-"),
            ("x_AccountId", "111122223333"),
            ("x_ResourceKey", "nat-1"),
            ("x_NodeId", "-"),
            ("x_Namespace", "-"),
        ],
    );
}

#[test]
fn a_line_with_hours_consumes_them() {
    let hours = BillLine {
        hours: Some("0.5".parse().unwrap()),
        list_unit_price: Some("6".parse().unwrap()),
        ..line("l1")
    };
    assert_values(
        &written(row_of(RowKind::SharedCharge, "i-9", "i-9", hours)),
        &[
            ("ListUnitPrice", "6"),
            ("PricingQuantity", "0.5"),
            ("PricingUnit", "Hours"),
            ("ConsumedQuantity", "0.5"),
            ("ConsumedUnit", "Hours"),
            ("SkuId", "bill/Amazon Elastic Compute Cloud"),
            (
                "ChargeDescription",
                "Usage of Amazon Elastic Compute Cloud, resource i-9, line l1 of the bill of account \
                 999900001111",
            ),
        ],
    );
}

#[test]
fn a_tax_has_no_resource_sku_or_price() {
    let tax = BillLine { category: ChargeCategory::Tax, service: "".into(), ..line("t1") };
    assert_values(
        &written(row_of(RowKind::SharedCharge, "", "", tax)),
        &[
            ("ChargeCategory", "Tax"),
            ("ChargeFrequency", "One-Time"),
            ("ServiceName", "Shared charges"),
            ("ChargeDescription", "Tax on shared charges, line t1 of the bill of account 999900001111"),
            ("ResourceId", "-"),
            ("ResourceType", "-"),
            ("x_ResourceKey", "-"),
            ("SkuId", "-"),
            ("SkuMeter", "-"),
            ("SkuPriceId", "-"),
            ("ListUnitPrice", "-"),
            ("ContractedUnitPrice", "-"),
            ("PricingCurrencyListUnitPrice", "-"),
            ("PricingCategory", "-"),
            ("PricingQuantity", "-"),
            ("PricingUnit", "-"),
            ("InvoiceId", "-"),
            ("InvoiceDetailId", "t1"),
        ],
    );
}

#[test]
fn a_credit_is_below_zero_in_the_row_and_in_the_statistics() {
    let credit = BillLine {
        category: ChargeCategory::Credit,
        is_correction: true,
        billed_cost: "-1.5".parse().unwrap(),
        effective_cost: "-1.5".parse().unwrap(),
        list_cost: "-1.5".parse().unwrap(),
        ..line("c1")
    };
    let row = row_of(RowKind::SharedCharge, "", "", credit);
    let encoded = file(Table::CostAllocation, &[hour_of([row])]);
    assert_values(
        &texts(&read(&encoded.bytes), 0),
        &[
            ("ChargeCategory", "Credit"),
            ("ChargeClass", "Correction"),
            ("ChargeFrequency", "One-Time"),
            ("BilledCost", "-1.5"),
            ("EffectiveCost", "-1.5"),
            ("ListCost", "-1.5"),
            ("ContractedCost", "-1.5"),
            ("PricingCategory", "Standard"),
        ],
    );
    assert_eq!(encoded.stats.matches(r#""EffectiveCost":-1.5"#).count(), 2, "{}", encoded.stats);
}

#[test]
fn lines_of_agreements_say_what_they_use() {
    let plan = |id: &str, status: Option<UseStatus>, category: ChargeCategory| BillLine {
        category,
        commitment_id: Some("sp-1".into()),
        commitment_status: status,
        hours: Some("1".parse().unwrap()),
        ..line(id)
    };
    let unused = plan("l1", Some(UseStatus::Unused), ChargeCategory::Usage);
    assert_values(
        &written(row_of(RowKind::CommitmentUnused, "sp-1", "", unused)),
        &[
            ("ChargeCategory", "Usage"),
            ("CommitmentDiscountId", "sp-1"),
            ("CommitmentDiscountStatus", "Unused"),
            ("CommitmentDiscountType", "Commitment"),
            ("CommitmentDiscountQuantity", "-"),
            ("PricingCategory", "Committed"),
            ("ConsumedQuantity", "-"),
            ("ResourceId", "sp-1"),
            ("ResourceType", "Commitment"),
            (
                "ChargeDescription",
                "Unused part of commitment sp-1, line l1 of the bill of account 999900001111",
            ),
        ],
    );
    let purchase = plan("l2", None, ChargeCategory::Purchase);
    assert_values(
        &written(row_of(RowKind::CommitmentPurchase, "sp-1", "", purchase)),
        &[
            ("ChargeCategory", "Purchase"),
            ("ChargeFrequency", "Recurring"),
            ("CommitmentDiscountStatus", "-"),
            ("PricingCategory", "Standard"),
            ("ConsumedQuantity", "-"),
            ("ChargeDescription", "Purchase of commitment sp-1, line l2 of the bill of account 999900001111"),
        ],
    );
    let reserved = BillLine {
        reservation_id: Some("cr-1".into()),
        reservation_status: Some(UseStatus::Unused),
        ..line("l3")
    };
    assert_values(
        &written(row_of(RowKind::ReservationUnused, "cr-1", "", reserved)),
        &[
            ("CapacityReservationId", "cr-1"),
            ("CapacityReservationStatus", "Unused"),
            ("ResourceType", "Capacity Reservation"),
            (
                "ChargeDescription",
                "Unused units of capacity reservation cr-1, line l3 of the bill of account 999900001111",
            ),
        ],
    );
}

#[test]
fn a_billed_share_of_a_node_names_what_its_lines_agree_on() {
    let of = |id: &str, invoice: &str, account: &str| BillLine {
        invoice_id: Some(invoice.into()),
        account_id: Some(account.into()),
        ..line(id)
    };
    let both = |second: BillLine| written(billed_share(vec![of("l1", "inv-1", "444455556666"), second]));
    assert_values(
        &both(of("l2", "inv-1", "444455556666")),
        &[
            ("x_CostBasis", "billed"),
            ("x_EstimatedCost", "1"),
            ("InvoiceId", "inv-1"),
            ("InvoiceDetailId", "-"),
            ("x_AccountId", "444455556666"),
            ("x_ResourceKey", "i-n1"),
            ("ChargeCategory", "Usage"),
            ("ServiceName", "Kubernetes Nodes"),
            ("SkuMeter", "Node Hours"),
            ("ChargeDescription", "Pod team-a/a-0 on node gpu-1 (g5.48xlarge, on demand), as billed"),
        ],
    );
    // The node's own account is 111122223333.
    assert_values(
        &both(of("l2", "inv-2", "777788889999")),
        &[("InvoiceId", "-"), ("InvoiceDetailId", "-"), ("x_AccountId", "111122223333")],
    );
    assert_values(&both(line("l2")), &[("InvoiceId", "-"), ("x_AccountId", "111122223333")]);
    assert_values(
        &written(billed_share(vec![of("l1", "inv-1", "444455556666")])),
        &[("InvoiceId", "inv-1"), ("InvoiceDetailId", "l1"), ("x_AccountId", "444455556666")],
    );
}

#[test]
fn rows_that_differ_only_in_their_lines_are_in_the_order_of_the_lines() {
    let charge = |id: &str| row_of(RowKind::SharedCharge, "", "", line(id));
    let encoded = |ids: [&str; 2]| encode(Table::CostAllocation, &[hour_of(ids.map(charge))], &[clock()]);
    assert_eq!(encoded(["a", "b"]).unwrap().unwrap().rows, 2);
    for ids in [["b", "a"], ["a", "a"]] {
        let refusal = encoded(ids).unwrap_err().to_string();
        assert!(refusal.starts_with("row 1 of cost_allocation"), "{refusal}");
    }
}

/// Returns a pod's part of lines of a bill.
fn part_of_charge(resource_id: &str, lines: Vec<BillLine>) -> CostRow {
    let pod = full_hour("acme", HOUR).cost_allocation.iter().find_map(|row| row.pod.clone()).unwrap();
    CostRow {
        cluster_id: Some(pod.cluster_id.clone()),
        pod_uid: Some(pod.pod_uid.clone()),
        allocated_ratio: Some(dec("0.25")),
        pricing_quantity: dec("2"),
        lines: billed(resource_id, lines),
        pod: Some(pod),
        ..CostRow::new(RowKind::SharedCharge, resource_id.into(), "aws".into())
    }
}

#[test]
fn a_part_of_a_shared_charge_names_the_pod_that_bears_it() {
    let eks = |id: &str| BillLine {
        service: "Amazon EKS".into(),
        sku_id: Some("EKS-Hours".into()),
        invoice_id: Some("inv-1".into()),
        hours: Some("8".parse().unwrap()),
        ..line(id)
    };
    let volume = part_of_charge("vol-1", vec![eks("l1")]);
    let pod = volume.pod.clone().unwrap();
    let name = format!("Pod {}/{}, part of: ", pod.namespace, pod.pod_name);
    let what = "Usage of Amazon EKS";
    assert_values(
        &written(volume),
        &[
            ("x_RowKind", "shared_charge"),
            ("AllocatedMethodId", "prorata-shared-charge"),
            ("AllocatedMethodDetails", r#"{"Elements":[{"AllocatedRatio":0.25}]}"#),
            ("AllocatedResourceId", &*pod.pod_uid),
            ("AllocatedResourceName", &*pod.pod_name),
            ("SubAccountId", &*pod.cluster_id),
            ("x_Namespace", &*pod.namespace),
            ("x_PodUid", &*pod.pod_uid),
            ("x_NodeId", "-"),
            ("x_QuotaId", "-"),
            ("x_CpuCoreHours", "-"),
            ("x_RunningSeconds", "-"),
            ("Tags", "-"),
            ("ResourceId", "vol-1"),
            ("ResourceType", "Billed Resource"),
            ("x_ResourceKey", "vol-1"),
            ("InvoiceId", "inv-1"),
            ("InvoiceDetailId", "l1"),
            ("PricingQuantity", "2"),
            ("ConsumedQuantity", "2"),
            ("SkuId", "EKS-Hours"),
            (
                "ChargeDescription",
                &*format!("{name}{what}, resource vol-1, line l1 of the bill of account 999900001111"),
            ),
        ],
    );
    let credit = BillLine { category: ChargeCategory::Credit, ..eks("l2") };
    assert_values(
        &written(part_of_charge("", vec![eks("l1"), credit])),
        &[
            ("ResourceId", "-"),
            ("ResourceType", "-"),
            ("x_ResourceKey", "-"),
            ("InvoiceId", "inv-1"),
            ("InvoiceDetailId", "-"),
            ("ChargeCategory", "Usage"),
            ("ChargeFrequency", "Usage-Based"),
            ("SkuId", "bill/Amazon EKS"),
            (
                "ChargeDescription",
                &*format!("{name}{what}, line l1 of the bill of account 999900001111, and 1 more line"),
            ),
        ],
    );
    let taxes = ["l1", "l2"].map(|id| BillLine { category: ChargeCategory::Tax, ..eks(id) });
    assert_values(
        &written(part_of_charge("", taxes.to_vec())),
        &[("ChargeCategory", "Tax"), ("ChargeFrequency", "One-Time"), ("SkuId", "-")],
    );
}

#[test]
fn hours_say_what_bills_cost() {
    let mut tables = hour_of([]);
    tables.totals.bill_cost = dec("-2.5");
    tables.totals.bill_billed_cost = dec("4");
    let basis_of = |basis: CostBasis| {
        let mut tables = tables.clone();
        tables.totals.basis = basis;
        texts(&read(&file(Table::Hours, &[tables]).bytes), 0)
    };
    let row = basis_of(CostBasis::Partial);
    assert_values(&row, &[("bill_cost", "-2.5"), ("bill_billed_cost", "4"), ("basis", "partial")]);
    assert_values(&basis_of(CostBasis::Billed), &[("basis", "billed")]);
    assert_values(&basis_of(CostBasis::Estimated), &[("basis", "estimated")]);
}
