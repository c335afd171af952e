//! Cost details of Azure.

use bytes::Bytes;
use prorata_bills::BillFormat;
use prorata_schemas::event::{ChargeCategory, UseStatus};

use crate::rig::{all, costs, import, import_with, texts, time};

const AMORTIZED: &str = include_str!("../data/azure-ea-amortized.csv");
const ACTUAL: &str = include_str!("../data/azure-mca-actual.csv");
const MACHINES: &str = "/subscriptions/sub-1/resourcegroups/rg/providers/microsoft.compute/virtualmachines/";

#[test]
fn amortized_costs_are_effective_and_not_invoiced() {
    let done = import(BillFormat::Azure, AMORTIZED).unwrap();
    assert_eq!((done.report.lines, done.report.faults), (4, 0), "{:?}", done.report.first_faults);
    // 4.608 + 0.0000564902, and with 2.88 + 0.72.
    assert_eq!(done.sums().map(|sum| sum.to_string()), ["4.6080564902", "8.2080564902"]);
    let (event, set) = done.only(&format!("{MACHINES}node-1"));
    assert_eq!(event.event_time.to_string(), "2026-11-02T00:00:00.000000Z");
    assert_eq!((&*set.billing_account_id, &*set.currency), ("8611", "CAD"));
    // 10 Hours x 2.4, at a price of 2.4 per 10 hours.
    assert_eq!((time(&set.lines[0]), costs(&set.lines[0])[2].as_str()), (texts(["24", "0.24"]), "5.76"));
    assert_eq!(set.lines[0].period_end.to_string(), "2026-11-03T00:00:00.000000Z");
    let (_, set) = done.only(&format!("{MACHINES}node-2"));
    let line = &set.lines[0];
    assert_eq!(
        (line.commitment_id.as_deref(), line.commitment_status),
        (Some("res-1"), Some(UseStatus::Used))
    );
    assert_eq!(costs(line), ["0", "2.88", "5.76"]);
    let unused = done.line("Reserved VM Instance");
    assert_eq!(
        (unused.commitment_status, costs(unused)),
        (Some(UseStatus::Unused), ["0", "0.72", "0"].map(str::to_owned))
    );
    // 0.0129 x 0.004379084.
    assert_eq!(costs(done.line("Queues v2")), ["0.0000564902", "0.0000564902", "0.000056490184"]);
}

#[test]
fn actual_costs_are_invoiced() {
    let done = import(BillFormat::Azure, ACTUAL).unwrap();
    assert_eq!(done.sums().map(|sum| sum.to_string()), ["999.66", "999.66"]);
    assert_eq!(done.report.invoices["G01"].billed_cost.to_string(), "999.66");
    let purchase = done.line("Reserved VM Instance");
    assert_eq!(
        (purchase.category, purchase.commitment_id.as_deref()),
        (ChargeCategory::Purchase, Some("res-1"))
    );
    let (_, set) = done.only(&format!("{MACHINES}node-2"));
    assert_eq!(costs(&set.lines[0]), ["0", "0", "5.3"]);
    // The list price is in another currency than the bill.
    assert_eq!(time(&set.lines[0]), [Some("24".to_owned()), None]);
    let (_, set) = done.only(&format!("{MACHINES}node-1"));
    assert!(set.lines[0].is_correction && set.lines[0].hours.is_none());
}

#[test]
fn actual_and_amortized_costs_are_refused_together() {
    let amortized = AMORTIZED.replace("CAD", "EUR");
    let documents = [Bytes::from_static(ACTUAL.as_bytes()), amortized.into()];
    let error = import_with(BillFormat::Azure, all(), &documents, &[]).err().unwrap().to_string();
    assert!(error.contains("line 3 of 'new-0' is an actual cost"), "{error}");
    assert!(error.contains("line 3 of 'new-1' an amortized cost"), "{error}");
}
