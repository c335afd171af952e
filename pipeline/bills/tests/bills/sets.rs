//! Sets: which lines they have, how lines are merged, and which sets an export takes back.

use std::collections::BTreeSet;

use bytes::Bytes;
use prorata_bills::BillFormat;
use prorata_schemas::body;
use prorata_schemas::rules::bounds::LIST_MAX;

use crate::rig::{Done, RECORDED_AT, all, import, import_with, set};

const HEADER: &str = "ProviderName,BillingAccountId,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,\
                      ChargeCategory,BilledCost,EffectiveCost,ResourceId,SkuId,SubAccountId,InvoiceId,\
                      ChargeDescription\n";

/// A row of a day.
#[derive(Clone)]
struct Line {
    day: u32,
    cost: String,
    resource: String,
    sku: String,
    account: String,
    invoice: String,
    description: String,
}

fn line(day: u32, resource: &str) -> Line {
    let empty = String::new;
    Line {
        day,
        cost: "0.1".into(),
        resource: resource.into(),
        sku: empty(),
        account: empty(),
        invoice: empty(),
        description: empty(),
    }
}

fn document(lines: impl IntoIterator<Item = Line>) -> String {
    let mut text = HEADER.to_owned();
    for Line { day, cost, resource, sku, account, invoice, description } in lines {
        let period = format!("2026-11-{day:02},2026-11-{:02}", day + 1);
        text += &format!(
            "AWS,111,USD,{period},Usage,{cost},{cost},{resource},{sku},{account},{invoice},{description}\n"
        );
    }
    text
}

#[test]
fn a_set_is_one_resource_and_one_begin() {
    let lines = [line(1, "i-1"), line(2, "i-1"), line(1, "i-2"), line(1, ""), line(1, "i-1")];
    let other = document(lines.clone()).replace("AWS,111,USD,2026-11-02", "AWS,999,USD,2026-11-02");
    let done = import(BillFormat::Focus, &other).unwrap();
    let mut sets: Vec<_> = done
        .events
        .iter()
        .map(|event| {
            (event.event_time, set(event).billing_account_id.clone(), set(event).resource_key.clone())
        })
        .collect();
    sets.sort();
    let shown: Vec<_> = sets.iter().map(|(time, account, key)| format!("{time} {account} {key}")).collect();
    assert_eq!(
        shown,
        [
            "2026-11-01T00:00:00.000000Z 111 ",
            "2026-11-01T00:00:00.000000Z 111 i-1",
            "2026-11-01T00:00:00.000000Z 111 i-2",
            "2026-11-02T00:00:00.000000Z 999 i-1",
        ]
    );
    // Two equal lines are one.
    assert_eq!((done.report.merged, done.report.set_lines), (1, 4));
    assert_eq!(done.line_costs("i-1"), ["0.2", "0.1"]);
}

impl Done {
    fn line_costs(&self, resource_key: &str) -> Vec<String> {
        let lines = self.sets(resource_key).into_iter().flat_map(|(_, set)| &set.lines);
        lines.map(|line| line.billed_cost.to_string()).collect()
    }
}

#[test]
fn line_ids_survive_another_order_and_other_amounts() {
    let lines: Vec<Line> = (0..20)
        .map(|number| Line {
            sku: format!("sku-{}", number % 5),
            description: format!("{}", number / 5),
            ..line(1, "i-1")
        })
        .collect();
    let mut other: Vec<Line> = lines.iter().cloned().map(|line| Line { cost: "7".into(), ..line }).collect();
    other.reverse();
    let ids = |lines: Vec<Line>| -> BTreeSet<String> {
        let done = import(BillFormat::Focus, &document(lines)).unwrap();
        done.only("i-1").1.lines.iter().map(|line| line.line_id.to_string()).collect()
    };
    let first = ids(lines);
    assert_eq!(first.len(), 20);
    assert!(first.iter().all(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
    assert_eq!(ids(other), first);
}

#[test]
fn similar_lines_of_a_full_set_are_merged() {
    let many = |differ: fn(&mut Line, usize)| {
        let lines = (0..LIST_MAX + 10).map(|number| {
            let mut line = Line { invoice: format!("inv-{}", number % 2), ..line(1, "i-1") };
            differ(&mut line, number);
            line
        });
        import(BillFormat::Focus, &document(lines))
    };
    let described = many(|line, number| line.description = format!("description {number}")).unwrap();
    let total = "410.6";
    assert_eq!((described.report.set_lines, described.report.merged_similar), (2, LIST_MAX as u64 + 8));
    assert_eq!(described.sums()[0].to_string(), total);
    let skus = many(|line, number| line.sku = format!("sku {number}")).unwrap();
    assert_eq!((skus.report.set_lines, skus.sums()[0].to_string().as_str()), (2, total));
    let accounts = many(|line, number| line.account = format!("account {number}")).unwrap();
    assert_eq!((accounts.report.set_lines, accounts.sums()[0].to_string().as_str()), (2, total));
    let invoices = many(|line, number| line.invoice = format!("invoice {number}")).err().unwrap().to_string();
    assert!(invoices.contains("the charges of 'i-1' from 2026-11-01T00 on have 4106 lines"), "{invoices}");
    assert!(invoices.contains("at most 4096 lines and 900000 bytes"), "{invoices}");
}

#[test]
fn similar_lines_of_a_set_with_long_texts_are_merged() {
    let long = "x".repeat(900);
    let many = |count: usize, differ: &dyn Fn(&mut Line, usize)| {
        let lines = (0..count).map(|number| {
            let mut line = Line { invoice: format!("inv-{}", number % 2), ..line(1, "i-1") };
            differ(&mut line, number);
            line
        });
        import(BillFormat::Focus, &document(lines))
    };
    let describe = |line: &mut Line, number: usize| line.description = format!("{long}{number}");
    let full = many(850, &describe).unwrap();
    assert_eq!((full.report.set_lines, full.report.merged_similar), (850, 0));
    let size = body::encode(full.only("i-1").0).len();
    assert!((800_000..=900_000).contains(&size), "{size}");
    let merged = many(900, &describe).unwrap();
    assert_eq!((merged.report.set_lines, merged.report.merged_similar), (2, 898));
    assert_eq!(merged.sums()[0].to_string(), "90");
    let invoices = many(900, &|line, number| line.invoice = format!("{long}{number}")).err().unwrap();
    assert!(invoices.to_string().contains("have 900 lines"), "{invoices}");
}

#[test]
fn sets_that_the_new_export_lacks_are_retracted() {
    let old = document([line(1, "i-1"), line(1, "i-2"), line(1, "i-2"), line(2, "i-2"), line(3, "")]);
    let new = document([Line { cost: "0.3".into(), ..line(1, "i-1") }, line(2, "i-2")]);
    let (old, new) = (Bytes::from(old), Bytes::from(new));
    let done = import_with(BillFormat::Focus, all(), &[new], &[old]).unwrap();
    let retracted: BTreeSet<_> = done
        .events
        .iter()
        .filter(|event| event.recording.is_retraction())
        .map(|event| (event.event_time.to_string(), set(event).resource_key.to_string()))
        .collect();
    let expected = [("2026-11-01T00:00:00.000000Z", "i-2"), ("2026-11-03T00:00:00.000000Z", "")];
    let expected = expected.map(|(time, key)| (time.to_owned(), key.to_owned()));
    assert_eq!(retracted, BTreeSet::from(expected));
    assert!(done.events.iter().all(|event| event.recording.recorded_at() == Some(RECORDED_AT)));
    assert_eq!((done.report.sets, done.report.retractions), (2, 2));
    assert_eq!((done.report.lines, done.report.previous_lines), (2, 5));
    assert_eq!(done.sums()[0].to_string(), "0.4");
}

#[test]
fn long_texts_are_shortened_and_stay_different() {
    let long = "x".repeat(2_000);
    let lines = ["a", "b"].map(|end| Line {
        sku: format!("{long}{end}"),
        description: long.clone(),
        ..line(1, &format!("{long}{end}"))
    });
    let done = import(BillFormat::Focus, &document(lines)).unwrap();
    assert_eq!(done.report.sets, 2);
}
