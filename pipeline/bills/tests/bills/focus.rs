//! FOCUS, in the dialects of four providers.

use std::collections::BTreeSet;
use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use prorata_bills::{BillFilter, BillFormat};
use prorata_schemas::event::{ChargeCategory, UseStatus};

use crate::rig::{RECORDED_AT, all, costs, import, import_with, texts, time};

const FOCUS: &str = include_str!("../data/focus.csv");
const SET: &str =
    "/subscriptions/sub-1/resourcegroups/rg/providers/microsoft.compute/virtualmachinescalesets/pool";

#[test]
fn lines_of_four_providers_become_sets() {
    let done = import(BillFormat::Focus, FOCUS).unwrap();
    assert_eq!((done.report.lines, done.report.sets, done.report.set_lines), (10, 7, 10));
    assert_eq!(done.report.faults, 0, "{:?}", done.report.first_faults);
    let (event, aws) = done.only("i-0aaa");
    assert_eq!(event.event_time.to_string(), "2026-11-01T00:00:00.000000Z");
    assert_eq!(event.recording.recorded_at(), Some(RECORDED_AT));
    assert_eq!((&*aws.provider, &*aws.billing_account_id, &*aws.currency), ("aws", "111", "USD"));
    assert_eq!(aws.lines.len(), 2);
    let on_demand = done.line("m5.large on demand");
    assert_eq!(costs(on_demand), ["0.096", "0.096", "0.096"]);
    assert_eq!(time(on_demand), texts(["1", "0.096"]));
    assert_eq!(on_demand.period_end.to_string(), "2026-11-01T01:00:00.000000Z");
    assert_eq!(
        (on_demand.account_id.as_deref(), on_demand.invoice_id.as_deref()),
        (Some("222"), Some("INV-1"))
    );
    let planned = done.line("m5.large under a plan");
    assert_eq!(costs(planned), ["0", "0.03", "0.048"]);
    assert_eq!(
        (planned.commitment_id.as_deref(), planned.commitment_status),
        (Some("sp-1"), Some(UseStatus::Used))
    );
    assert_eq!(
        (planned.reservation_id.as_deref(), planned.reservation_status),
        (Some("cr-1"), Some(UseStatus::Used))
    );
}

#[test]
fn agreements_credits_and_taxes_are_kinds_of_lines() {
    let done = import(BillFormat::Focus, FOCUS).unwrap();
    let purchase = done.line("a plan, no upfront");
    assert_eq!((purchase.category, purchase.commitment_status), (ChargeCategory::Purchase, None));
    assert_eq!(costs(purchase), ["0.1", "0", "0.1"]);
    let unused = done.line("unused plan");
    assert_eq!((unused.category, unused.commitment_status), (ChargeCategory::Usage, Some(UseStatus::Unused)));
    assert_eq!((costs(unused), time(unused)), (["0", "0.08", "0"].map(str::to_owned), [None, None]));
    let credit = done.line("a credit");
    assert!(credit.is_correction && credit.category == ChargeCategory::Credit);
    assert_eq!((costs(credit), credit.sku_id.as_deref()), (["-0.5"; 3].map(str::to_owned), None));
    let tax = done.line("VAT");
    assert_eq!(
        (tax.category, tax.period_end.to_string().as_str()),
        (ChargeCategory::Tax, "2026-12-01T00:00:00.000000Z")
    );
    assert_eq!(done.sets("").len(), 2);
}

#[test]
fn other_dialects_have_their_keys_and_hours() {
    let done = import(BillFormat::Focus, FOCUS).unwrap();
    let (_, azure) = done.only(SET);
    assert_eq!((&*azure.provider, azure.lines.len()), ("azure", 2));
    let mut hours: Vec<_> = azure.lines.iter().map(time).collect();
    hours.sort();
    assert_eq!(hours, [texts(["24", "0.1"]), texts(["48", "0.1"])]);
    let (_, google) = done.only("us-east1-b/gke-1");
    assert_eq!(&*google.provider, "gcp");
    // Four cores for an hour are one hour of the machine, so the hours are not known.
    assert_eq!(time(&google.lines[0]), [None, None]);
    assert_eq!(costs(&google.lines[0])[0], "0.133650169321");
    assert_eq!(done.report.rounding.billed_cost.to_string(), "-0.000000000000284");
    let (_, oracle) = done.only("ocid1.instance.oc1.phx.aaaa");
    // Without an effective cost, the billed cost takes its place.
    assert_eq!((costs(&oracle.lines[0])[1].as_str(), time(&oracle.lines[0])), ("0.24", [None, None]));
}

#[test]
fn sums_are_by_invoice_and_equal_the_file() {
    let done = import(BillFormat::Focus, FOCUS).unwrap();
    assert_eq!(done.sums().map(|sum| sum.to_string()), ["8.519650169321", "8.529650169321"]);
    let invoices = done.report.invoices.iter().map(|(id, costs)| (&**id, costs.billed_cost.to_string()));
    // INV-1: 0.096 + 0 + 0.1 + 0 - 0.5.
    assert_eq!(
        invoices.collect::<Vec<_>>(),
        [("", "8.823650169321".to_owned()), ("INV-1", "-0.304".to_owned())]
    );
}

#[test]
fn by_default_known_machines_and_agreements_are_imported() {
    let document = [Bytes::from_static(FOCUS.as_bytes())];
    let mut filter = BillFilter::default();
    filter.add_key("i-0aaa");
    filter.add_key(&SET.to_uppercase());
    let done = import_with(BillFormat::Focus, filter, &document, &[]).unwrap();
    assert_eq!((done.report.sets, done.report.set_lines), (3, 6));
    let left_out: Vec<_> = done.report.left_out.values().map(|left| left.lines).collect();
    assert_eq!(left_out, [2, 2], "{:?}", done.report.left_out);
    let filter = BillFilter::new(false, BTreeSet::from(["project-1".to_owned()]));
    let done = import_with(BillFormat::Focus, filter, &document, &[]).unwrap();
    // The lines of the plan, and the line of the project.
    assert_eq!(done.report.set_lines, 4);
}

#[test]
fn a_document_may_be_compressed_and_marked() {
    let mut parts = Vec::new();
    let (first, second) = FOCUS.split_at(FOCUS.len() / 2);
    // Two members, as a tool that appends writes them, and the mark of Windows.
    for part in ["\u{feff}", first, second] {
        let mut encoder = GzEncoder::new(&mut parts, Compression::fast());
        encoder.write_all(part.as_bytes()).unwrap();
        encoder.finish().unwrap();
    }
    let packed = import_with(BillFormat::Focus, all(), &[parts.into()], &[]).unwrap();
    let plain = import(BillFormat::Focus, &FOCUS.replace('\n', "\r\n")).unwrap();
    assert_eq!(packed.events, plain.events);
    assert_eq!(packed.events, import(BillFormat::Focus, FOCUS).unwrap().events);
}
