//! The detailed export of Google.

use prorata_bills::BillFormat;
use prorata_schemas::event::ChargeCategory;

use crate::rig::{costs, import};

const CSV: &str = include_str!("../data/gcp.csv");
const JSON: &str = include_str!("../data/gcp.jsonl");

#[test]
fn credits_are_lines_of_their_resource() {
    let done = import(BillFormat::Gcp, CSV).unwrap();
    assert_eq!((done.report.lines, done.report.faults), (5, 0), "{:?}", done.report.first_faults);
    // 0.126 - 0.06 - 0.01 + 0.002 + 1.5 - 0.5 + 0.2 - 0.000001.
    assert_eq!(done.sums().map(|sum| sum.to_string()), ["1.257999"; 2]);
    assert_eq!(done.report.invoices["202611"].billed_cost.to_string(), "1.257999");
    let (_, machine) = done.only("us-east1-b/gke-1");
    let mut lines: Vec<_> =
        machine.lines.iter().map(|line| (line.category, costs(line)[0].clone())).collect();
    lines.sort();
    let expected = [
        (ChargeCategory::Usage, "0.126"),
        (ChargeCategory::Credit, "-0.01"),
        (ChargeCategory::Credit, "-0.06"),
    ];
    assert_eq!(lines, expected.map(|(category, cost)| (category, cost.to_owned())));
    let (_, disk) = done.only("us-east1-b/disks/disk-1");
    assert_eq!(disk.lines.len(), 1);
}

#[test]
fn a_line_with_a_fault_leaves_no_credit() {
    let done = import(BillFormat::Gcp, &CSV.replacen(",0.126,", ",9999999999999,", 1)).unwrap();
    assert_eq!((done.report.lines, done.report.faults), (5, 1), "{:?}", done.report.first_faults);
    assert!(done.sets("us-east1-b/gke-1").is_empty());
}

#[test]
fn fees_taxes_and_roundings_have_no_resource() {
    let done = import(BillFormat::Gcp, CSV).unwrap();
    for (description, category) in [
        ("Commitment v1: Cpu in Americas for 1 Year", ChargeCategory::Purchase),
        ("Tax", ChargeCategory::Tax),
        ("Rounding error", ChargeCategory::Adjustment),
    ] {
        assert_eq!(done.line(description).category, category);
    }
    let lines: usize = done.sets("").iter().map(|(_, set)| set.lines.len()).sum();
    assert_eq!(lines, 4);
}

#[test]
fn json_is_read_like_csv() {
    let (csv, json) = (import(BillFormat::Gcp, CSV).unwrap(), import(BillFormat::Gcp, JSON).unwrap());
    assert_eq!(json.report.faults, 0, "{:?}", json.report.first_faults);
    assert_eq!((json.report.lines, json.sums()), (csv.report.lines, csv.sums()));
    let keys = |done: &crate::rig::Done| {
        let mut keys: Vec<_> = done
            .events
            .iter()
            .map(|event| (event.event_time, crate::rig::set(event).resource_key.clone()))
            .collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&json), keys(&csv));
}

#[test]
fn damaged_json_is_named() {
    let cut = JSON.get(..JSON.len() - 40).unwrap();
    let error = import(BillFormat::Gcp, cut).err().unwrap().to_string();
    assert!(error.contains("after line 6") && error.contains("cut off"), "{error}");
    let done = import(BillFormat::Gcp, &JSON.replacen("\"cost\":1.5", "\"cost\":1.5.0", 1)).unwrap();
    assert_eq!(done.report.faults, 1);
    assert!(done.report.first_faults[0].contains("line 4"), "{:?}", done.report.first_faults);
    let list = import(BillFormat::Gcp, "[{}]").err().unwrap().to_string();
    assert!(list.contains("one JSON object a line"), "{list}");
    let other = import(BillFormat::Focus, JSON).err().unwrap().to_string();
    assert!(other.contains("it is JSON; export CSV or Parquet"), "{other}");
}
