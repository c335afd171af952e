//! Cost and Usage Reports of AWS.

use prorata_bills::BillFormat;
use prorata_schemas::event::{ChargeCategory, UseStatus};

use crate::rig::{costs, import, texts, time};

const CUR: &str = include_str!("../data/cur.csv");

#[test]
fn effective_costs_are_amortized_and_sums_stay() {
    let done = import(BillFormat::Cur, CUR).unwrap();
    assert_eq!((done.report.lines, done.report.faults), (12, 0), "{:?}", done.report.first_faults);
    // 0.096 + 0 + 0 + 0.10 + 42.705 + 300 + 1.23 - 2 - 0.0096 + 0.0000564902 - 0.5, and
    // 0.096 + 0.0585 + 0.07 + 0.03 + 1.75 + 1.23 - 2 - 0.0096 + 0.0000564902 - 0.5.
    assert_eq!(done.sums().map(|sum| sum.to_string()), ["341.6214564902", "0.7249564902"]);
    let left_out: Vec<_> = done.report.left_out.values().collect();
    assert_eq!(left_out.len(), 1);
    assert_eq!((left_out[0].lines, left_out[0].costs.billed_cost.to_string().as_str()), (2, "0"));
}

#[test]
fn covered_usage_names_its_commitment() {
    let done = import(BillFormat::Cur, CUR).unwrap();
    for (key, commitment, effective) in [("i-0bbb", "ri-1", "0.0585"), ("i-0ccc", "sp-1", "0.07")] {
        let (_, set) = done.only(key);
        let [line] = &*set.lines else { panic!("{set:?}") };
        assert_eq!(
            (line.commitment_id.as_deref(), line.commitment_status),
            (Some(commitment), Some(UseStatus::Used))
        );
        assert_eq!(costs(line), ["0", effective, "0.096"]);
        assert_eq!(time(line), texts(["1", "0.096"]));
    }
}

#[test]
fn fees_are_purchases_and_leave_an_unused_part() {
    let done = import(BillFormat::Cur, CUR).unwrap();
    let (_, reservation) = done.only("ri-1");
    let mut lines: Vec<_> =
        reservation.lines.iter().map(|line| (line.category, line.commitment_status, costs(line))).collect();
    lines.sort();
    let owned = |costs: [&str; 3]| costs.map(str::to_owned);
    assert_eq!(
        lines,
        [
            (ChargeCategory::Usage, Some(UseStatus::Unused), owned(["0", "1.75", "0"])),
            (ChargeCategory::Purchase, None, owned(["42.705", "0", "42.705"])),
        ]
    );
    let upfront = done.line("upfront fee");
    assert_eq!((upfront.category, costs(upfront)[1].as_str()), (ChargeCategory::Purchase, "0"));
    // A year is longer than a line may be, so it ends with the billing month.
    assert_eq!(upfront.period_end.to_string(), "2026-12-01T00:00:00.000000Z");
    assert_eq!(done.report.clipped, 1);
    assert_eq!(done.report.invoices["INV-7"].billed_cost.to_string(), "300");
}

#[test]
fn only_usage_by_the_hour_has_hours() {
    let done = import(BillFormat::Cur, CUR).unwrap();
    let (_, set) = done.only("i-0aaa");
    let mut hours: Vec<_> = set.lines.iter().map(|line| (line.category, time(line)[0].clone())).collect();
    hours.sort();
    assert_eq!(
        hours,
        [
            (ChargeCategory::Usage, None),
            (ChargeCategory::Usage, Some("1".to_owned())),
            (ChargeCategory::Adjustment, None),
        ]
    );
    assert!(done.line("a refund").is_correction);
}

#[test]
fn the_successor_has_the_same_columns_in_another_spelling() {
    let snake = |name: &str| {
        let mut snake = String::new();
        for c in name.chars() {
            match c {
                '/' => snake.push('_'),
                c if c.is_uppercase() => snake.extend(['_', c.to_ascii_lowercase()]),
                c => snake.push(c),
            }
        }
        snake.replace("__", "_")
    };
    let (header, rows) = CUR.split_once('\n').unwrap();
    let header: Vec<String> = header.split(',').map(snake).collect();
    assert!(header.contains(&"line_item_unblended_cost".to_owned()), "{header:?}");
    assert!(header.contains(&"reservation_reservation_a_r_n".to_owned()), "{header:?}");
    let done = import(BillFormat::Cur2, &format!("{}\n{rows}", header.join(","))).unwrap();
    assert_eq!(done.events, import(BillFormat::Cur, CUR).unwrap().events);
}

#[test]
fn a_line_that_occurs_twice_counts_once_and_a_contradiction_is_a_fault() {
    let first = CUR.lines().nth(1).unwrap();
    let twice = import(BillFormat::Cur, &format!("{CUR}{first}\n")).unwrap();
    let once = import(BillFormat::Cur, CUR).unwrap();
    assert_eq!((twice.events, twice.report.faults), (once.events, 0));
    let reasons = |done: &crate::rig::Done| done.report.left_out.keys().copied().collect::<Vec<_>>();
    assert_eq!(twice.report.left_out.len(), 2, "{:?}", twice.report.left_out);
    let other = first.replace("0.0960000000", "0.0970000000");
    let contradicted = import(BillFormat::Cur, &format!("{CUR}{other}\n")).unwrap();
    assert_eq!(contradicted.report.faults, 1);
    let fault = &contradicted.report.first_faults[0];
    assert!(fault.contains("'new-0', line 14") && fault.contains("the id of line 2"), "{fault}");
    assert!(reasons(&contradicted).iter().any(|reason| reason.contains("other amounts")));
}
