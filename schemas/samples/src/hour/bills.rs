//! The provider's bill of the hour: a node, and a credit.

use prorata_schemas::event::{BillLine, BillSet, ChargeCategory};
use prorata_schemas::time::Hour;

use crate::bill::bill_line;

/// Returns a set with one line of one hour, without optional values. All three costs are `cost`.
fn set(hour: Hour, category: ChargeCategory, cost: &str) -> BillSet {
    let line = BillLine { category, ..bill_line("1", hour.end(), cost) };
    BillSet {
        provider: "AWS".into(),
        billing_account_id: "444455556666".into(),
        resource_key: "".into(),
        currency: "USD".into(),
        lines: vec![line],
    }
}

/// Returns the bill of node `n3`: an hour, with a value in every column that a line of use fills.
pub(super) fn node_bill(hour: Hour) -> BillSet {
    let mut bill = set(hour, ChargeCategory::Usage, "1");
    bill.resource_key = "i-n3".into();
    for line in &mut bill.lines {
        line.sku_id = Some("JPTXYQGHUZFXZS7C".into());
        line.description = Some("1.2 USD per on-demand hour of g5.48xlarge".into());
        line.account_id = Some("111122223333".into());
        line.invoice_id = Some("INV-2026-11".into());
        line.hours = Some("1".parse().unwrap());
        line.list_unit_price = Some("1.2".parse().unwrap());
        line.billed_cost = "0.9".parse().unwrap();
        line.list_cost = "1.2".parse().unwrap();
    }
    bill
}

/// Returns the bill of no resource: a credit, which corrects an earlier bill and is not invoiced yet.
pub(super) fn credit(hour: Hour) -> BillSet {
    let mut bill = set(hour, ChargeCategory::Credit, "-0.5");
    for line in &mut bill.lines {
        line.is_correction = true;
    }
    bill
}
