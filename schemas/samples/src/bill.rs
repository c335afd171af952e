//! Lines of bills.

use prorata_schemas::event::{BillLine, ChargeCategory};
use prorata_schemas::money::Money;
use prorata_schemas::time::Timestamp;

/// Returns a line of usage whose charge period ends at `end`, without optional values. All three costs are
/// `cost`.
pub fn bill_line(id: &str, end: Timestamp, cost: &str) -> BillLine {
    let cost: Money = cost.parse().unwrap();
    BillLine {
        line_id: id.into(),
        period_end: end,
        category: ChargeCategory::Usage,
        is_correction: false,
        service: "Amazon Elastic Compute Cloud".into(),
        sku_id: None,
        description: None,
        account_id: None,
        invoice_id: None,
        commitment_id: None,
        commitment_status: None,
        reservation_id: None,
        reservation_status: None,
        hours: None,
        list_unit_price: None,
        billed_cost: cost,
        effective_cost: cost,
        list_cost: cost,
    }
}
