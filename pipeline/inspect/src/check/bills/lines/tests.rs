//! Bills and rows by hand: what is compared with what, and which difference is reported.

use prorata_schemas::decimal::Decimal12;

use super::*;

const THROUGH: Option<Hour> = Some(Hour(47));

fn sums(billed: &str, effective: &str) -> BillSums {
    let sum = |text: &str| Sum::from(text.parse::<Decimal12>().unwrap());
    BillSums { billed: sum(billed), effective: sum(effective) }
}

/// Returns a line over the hours from `first` up to `end`, exclusive.
fn line(key: &str, id: &str, invoice: &str, [first, end]: [i64; 2], costs: [&str; 2]) -> ExpectedLine {
    let [billed, effective] = costs.map(|text| text.parse().unwrap());
    ExpectedLine {
        provider: "aws".into(),
        resource_key: key.into(),
        line_id: id.into(),
        invoice_id: (!invoice.is_empty()).then(|| invoice.into()),
        begin: Hour(first).start(),
        end: Hour(end).start(),
        billed,
        effective,
    }
}

fn row<'a>(key: &'a str, id: &'a str, hour: i64, costs: [&str; 2]) -> LineRow<'a> {
    let [billed, effective] = costs;
    LineRow {
        provider: "aws",
        key,
        line: (!id.is_empty()).then_some(id),
        invoice: None,
        hour: Hour(hour),
        costs: sums(billed, effective),
    }
}

fn compare(lines: Vec<ExpectedLine>, rows: &[LineRow<'_>]) -> BillChecked {
    let mut bill = ExpectedBill::new(lines);
    rows.iter().for_each(|row| bill.add(row));
    bill.compare(THROUGH, Findings::default())
}

fn problems(checked: &BillChecked) -> Vec<(Problem, u64)> {
    checked.findings.counts().iter().map(|(problem, count)| (*problem, *count)).collect()
}

/// Returns the difference of an invoice.
fn difference(checked: &BillChecked, invoice: &str) -> BillSums {
    let id: Option<Text> = (!invoice.is_empty()).then(|| invoice.into());
    let found = checked.invoices.get(&id).copied().unwrap_or_default();
    found.rows.minus(found.bill)
}

#[test]
fn rows_of_a_line_add_up_over_hours_pods_and_signs() {
    let lines = vec![
        line("i-1", "use", "A", [0, 3], ["6", "5"]),
        line("", "credit", "B", [0, 24], ["-0.5", "-0.5"]),
        line("", "free", "B", [0, 24], ["0", "0"]),
    ];
    let rows = [
        row("i-1", "use", 0, ["1", "1"]),
        row("i-1", "use", 0, ["1.5", "1"]),
        row("i-1", "use", 2, ["3.5", "3"]),
        row("", "credit", 23, ["-0.5", "-0.5"]),
    ];
    let checked = compare(lines, &rows);
    assert!(problems(&checked).is_empty(), "{checked}");
    assert_eq!((checked.lines, checked.rows, checked.waiting.0), (3, 4, 0));
    assert_eq!(checked.invoices[&Some(Text::from("A"))].bill, sums("6", "5"));
    assert!(difference(&checked, "A").is_zero() && difference(&checked, "B").is_zero());
}

#[test]
fn a_line_without_rows_and_a_line_with_other_costs_are_reported_with_the_difference() {
    let lines = vec![
        line("i-1", "gone", "A", [0, 1], ["2", "2"]),
        line("i-1", "less", "A", [1, 2], ["2", "2"]),
        line("i-1", "more", "B", [2, 3], ["0", "2"]),
    ];
    let rows = [row("i-1", "less", 1, ["1.9", "2"]), row("i-1", "more", 2, ["0", "2.000000000001"])];
    let checked = compare(lines, &rows);
    assert_eq!(problems(&checked), [(Problem::BillLineMissing, 1), (Problem::BillDiffers, 2)]);
    assert_eq!(difference(&checked, "A"), sums("-2.1", "-2"));
    assert_eq!(difference(&checked, "B"), sums("0", "0.000000000001"));
    let text = checked.to_string();
    assert!(text.contains("line 'gone' of 'i-1', hours 1970-01-01T00 to 1970-01-01T00"), "{text}");
    assert!(text.contains("billed cost is 2 in the bill, and 1.9 in the rows: difference -0.1"), "{text}");
    assert_eq!(checked.json()["invoices"][0]["difference"]["billed"], "-2.1");
}

#[test]
fn rows_that_join_lines_are_compared_with_all_lines_of_their_time() {
    // The line of the day is alone but in hour 3, in which it shares its rows with a line of the hour.
    let lines = || {
        vec![
            line("i-1", "day", "A", [0, 24], ["24", "24"]),
            line("i-1", "hour", "B", [3, 4], ["0.5", "0.5"]),
            line("i-1", "later", "A", [24, 25], ["1", "1"]),
            line("i-2", "day", "A", [0, 24], ["3", "3"]),
        ]
    };
    let rows = |joined: &'static str| {
        [
            row("i-1", "day", 0, ["20", "20"]),
            row("i-1", "", 3, [joined, joined]),
            row("i-1", "later", 24, ["1", "1"]),
            row("i-2", "day", 3, ["3", "3"]),
        ]
    };
    let checked = compare(lines(), &rows("4.5"));
    assert!(problems(&checked).is_empty() && checked.lines == 4, "{checked}");
    assert!(difference(&checked, "A").is_zero() && difference(&checked, "B").is_zero());
    let checked = compare(lines(), &rows("4.4"));
    assert_eq!(problems(&checked), [(Problem::BillDiffers, 1)]);
    assert_eq!(difference(&checked, "A"), sums("-0.1", "-0.1"));
    let text = checked.to_string();
    assert!(text.contains("2 lines of 'i-1', hours 1970-01-01T00 to 1970-01-01T23"), "{text}");
}

#[test]
fn rows_that_join_lines_of_several_resources_are_compared_in_sum() {
    let lines = || {
        vec![
            line("b-1", "day", "A", [0, 24], ["24", "24"]),
            line("b-2", "hour", "A", [3, 4], ["0.5", "0.5"]),
            line("", "fee", "A", [3, 5], ["2", "2"]),
            line("", "other", "B", [3, 4], ["7", "7"]),
        ]
    };
    // Pods divide three lines in hours 3 and 4. Until then the line of the day has rows of its own.
    let rows = |mixed: &'static str| {
        let of_invoice = |invoice, hour, costs| LineRow { invoice, ..row("", "", hour, [costs, costs]) };
        [
            row("b-1", "day", 0, ["3", "3"]),
            row("", "other", 3, ["7", "7"]),
            of_invoice(Some("A"), 3, "2.5"),
            of_invoice(Some("A"), 4, "2"),
            of_invoice(Some("A"), 23, mixed),
        ]
    };
    let checked = compare(lines(), &rows("19"));
    assert!(problems(&checked).is_empty() && checked.lines == 4, "{checked}");
    assert!(difference(&checked, "A").is_zero() && difference(&checked, "B").is_zero());
    let checked = compare(lines(), &rows("18.75"));
    assert_eq!(problems(&checked), [(Problem::BillDiffers, 1)]);
    assert_eq!(difference(&checked, "A"), sums("-0.25", "-0.25"));
    let text = checked.to_string();
    assert!(text.contains("3 lines of several resources, hours 1970-01-01T00"), "{text}");
    // Rows of an invoice that the bill lacks are of another bill, and so are rows of another provider.
    let strange = [
        LineRow { invoice: Some("C"), ..row("", "", 3, ["1", "1"]) },
        LineRow { provider: "gcp", ..row("", "", 3, ["1", "1"]) },
    ];
    let checked = compare(vec![line("b-1", "day", "", [0, 24], ["0", "0"])], &strange);
    assert_eq!(problems(&checked), [(Problem::OtherBill, 2)]);
}

#[test]
fn lines_that_pods_divide_wait_with_a_line_that_is_not_over() {
    let fee = line("b-1", "fee", "A", [0, 744], ["744", "0"]);
    let mixed = LineRow { invoice: Some("A"), ..row("", "", 3, ["2", "1"]) };
    let checked = compare(vec![fee, line("", "use", "A", [3, 4], ["1", "1"])], &[mixed]);
    assert!(problems(&checked).is_empty(), "{checked}");
    assert_eq!((checked.lines, checked.waiting.0), (0, 2));
}

#[test]
fn lines_of_two_accounts_with_one_id_are_compared_together() {
    let lines = || vec![line("", "fee", "A", [0, 2], ["1", "1"]), line("", "fee", "B", [1, 3], ["2", "2"])];
    let rows = [
        row("", "fee", 0, ["0.5", "0.5"]),
        row("", "fee", 1, ["0.5", "0.5"]),
        row("", "fee", 1, ["1", "1"]),
        row("", "fee", 2, ["1", "1"]),
    ];
    assert!(problems(&compare(lines(), &rows)).is_empty());
    assert_eq!(problems(&compare(lines(), &rows[1..])), [(Problem::BillDiffers, 1)]);
}

#[test]
fn a_line_that_is_not_over_waits() {
    let fee = line("", "fee", "A", [0, 744], ["744", "0"]);
    let lines = vec![fee, line("", "use", "A", [47, 48], ["1", "1"])];
    let rows = [row("", "fee", 0, ["1", "0"]), row("", "use", 47, ["1", "1"])];
    let checked = compare(lines, &rows);
    assert!(problems(&checked).is_empty(), "{checked}");
    assert_eq!((checked.lines, checked.waiting), (1, (1, sums("744", "0"))));
}

#[test]
fn rows_that_the_bill_lacks_are_errors_if_it_has_their_resource_or_invoice() {
    let lines = vec![line("i-1", "a", "A", [0, 1], ["1", "1"]), line("", "fee", "A", [0, 2], ["2", "2"])];
    let mut of_invoice = row("i-3", "x", 0, ["4", "4"]);
    of_invoice.invoice = Some("A");
    let rows = [
        row("i-1", "a", 0, ["1", "1"]),
        row("", "fee", 0, ["2", "2"]),
        row("i-1", "a", 1, ["0.25", "0.25"]),
        row("i-1", "b", 0, ["0.5", "0.5"]),
        row("i-1", "", 1, ["8", "8"]),
        row("i-2", "x", 0, ["16", "16"]),
        row("", "other fee", 0, ["32", "32"]),
        of_invoice,
    ];
    let checked = compare(lines, &rows);
    assert_eq!(problems(&checked), [(Problem::NotInBill, 4), (Problem::OtherBill, 2)]);
    assert_eq!(difference(&checked, "A"), sums("4", "4"));
    assert_eq!(difference(&checked, ""), sums("8.75", "8.75"));
}

#[test]
fn many_rows_of_other_bills_are_one_group() {
    let ids: Vec<String> = (0..100).map(|number| format!("x{number}")).collect();
    let rows: Vec<LineRow<'_>> = ids.iter().map(|id| row("", id, 0, ["1", "1"])).collect();
    let checked = compare(vec![line("i-1", "a", "", [0, 1], ["0", "0"])], &rows);
    assert_eq!(problems(&checked), [(Problem::OtherBill, 100)]);
    assert_eq!(checked.invoices.len(), 1);
}
