//! `prorata bills` as a program: files, exit codes and messages.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::backfill::harness::{program, run_on_full_disk};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_prorata")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn ok(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn usage_error(args: &[&str]) -> String {
    let output = run(args);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty() && message.lines().count() == 1, "{message}");
    message
}

fn document(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bills/tests/data");
    data.join(name).to_string_lossy().into_owned()
}

/// Returns the arguments of an import of all charges.
fn import<'a>(format: &'a str, files: &[&'a str]) -> Vec<&'a str> {
    let options = ["--organization", "acme", "--all", "--recorded-at", "2026-12-05T00:00:00Z"];
    [&["bills", "import", format], files, &options].concat()
}

#[test]
fn a_bill_becomes_one_file_or_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (bill, file, again) = (document("focus.csv"), at("november.avro"), at("again.avro"));
    let args = import("focus", &[&bill]);
    assert!(ok(&args).starts_with("10 lines read, 7 sets of 10 lines, only checked, not written\n"));
    let report = ok(&[&args[..], &["--output", &file, "--json"]].concat());
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["sets"], &report["faults"]), (&Value::from(7), &Value::from(0)));
    assert_eq!(report["invoices"][1]["invoice_id"], "INV-1");
    assert_eq!(report["invoices"][1]["billed_cost"], "-0.304");
    assert_eq!(report["rounding"]["billed_cost"], "-0.000000000000284");
    ok(&[&args[..], &["--output", &again]].concat());
    assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(&again).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    let events = at("events");
    std::fs::create_dir(&events).unwrap();
    for _ in 0..2 {
        assert!(ok(&[&args[..], &["--output", &events]].concat()).contains("in 1 files of "));
    }
    assert_eq!(std::fs::read_dir(Path::new(&events).join("acme")).unwrap().count(), 1);
}

#[test]
fn a_full_disk_leaves_no_part_of_a_bill() {
    let folder = tempfile::tempdir().unwrap();
    let (bill, file) = (document("focus.csv"), folder.path().join("november.avro"));
    let mut command = program();
    command.args(import("focus", &[&bill])).arg("--output").arg(&file);
    let output = run_on_full_disk(&command, 1);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    assert!(command.status().unwrap().success() && file.is_file());
}

#[test]
fn the_events_of_a_bill_are_folded() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (bill, events, lake) = (document("focus.csv"), at("events"), at("lake"));
    std::fs::create_dir(&events).unwrap();
    ok(&[&import("focus", &[&bill])[..], &["--output", &format!("{events}/november.avro")]].concat());
    ok(&["backfill", "--events", &events, "--lake", &lake, "--to", "2026-11-01T12"]);
    ok(&["check", "--lake", &lake, "--allow-warnings"]);
}

#[test]
fn a_month_is_closed_and_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (events, lake) = (at("events"), at("lake"));
    std::fs::create_dir(&events).unwrap();
    let close = |provider: &str, recorded_at: &str, more: &[&str]| -> Vec<String> {
        let account = ["bills", "close", "--organization", "acme", "--billing-account", "1234"];
        let month = ["--provider", provider, "--period", "2026-10", "--recorded-at", recorded_at];
        [&account[..], &month, more].concat().into_iter().map(str::to_owned).collect()
    };
    let run = |args: Vec<String>| ok(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let fail = |args: Vec<String>| usage_error(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let files = || std::fs::read_dir(Path::new(&events).join("acme")).unwrap().count();
    let (first, second) = ("2026-11-12T00:00:00Z", "2026-11-13T00:00:00Z");
    for _ in 0..2 {
        let report = run(close("aws", first, &["--to", &events]));
        let closed = "the bill of aws, account 1234, for 2026-10 is complete";
        assert_eq!(report, format!("{closed}, in 1 files of {events}\n"));
        assert_eq!(files(), 1);
    }
    let report = run(close("aws", second, &["--to", &events, "--retract"]));
    assert!(report.starts_with("the bill of aws, account 1234, for 2026-10 is open again, "), "{report}");
    assert_eq!(files(), 2);
    let message = fail(close("", first, &["--to", &events]));
    assert!(message.contains("BillingPeriodClosed.provider"), "{message}");
    let message = fail(close("aws", first, &["--to", &events, "--topic", "bills"]));
    assert!(message.contains("are for --output kafka"), "{message}");
    assert_eq!(files(), 2);
    ok(&["backfill", "--events", &events, "--lake", &lake]);
}

/// A folder with a lake that has all lines of an hour of a bill, and with a file of these lines.
struct Room {
    folder: tempfile::TempDir,
}

impl Room {
    /// Imports the lines of `focus.csv` whose charge period is one hour, and folds them.
    fn new() -> Self {
        let room = Self { folder: tempfile::tempdir().unwrap() };
        let all = std::fs::read_to_string(document("focus.csv")).unwrap();
        let is_longer = |line: &&str| line.starts_with("Microsoft,") || line.contains(",Tax,");
        let lines: Vec<&str> = all.lines().filter(|line| !is_longer(line)).collect();
        room.write("hour.csv", &lines.join("\n"));
        let events = room.path("events");
        std::fs::create_dir(&events).unwrap();
        ok(&[&import("focus", &[&room.path("hour.csv")])[..], &["--output", &events]].concat());
        ok(&["backfill", "--events", &events, "--lake", &room.path("lake"), "--to", "2026-11-01T12"]);
        room
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Writes a copy of the file in which one text is replaced.
    fn change(&self, name: &str, before: &str, after: &str) {
        let good = std::fs::read_to_string(self.path("hour.csv")).unwrap();
        assert_eq!(good.matches(before).count(), 1, "{before}");
        self.write(name, &good.replace(before, after));
    }

    /// Compares a file with the lake. Returns the exit code and the output.
    fn check(&self, file: &str, options: &[&str]) -> (i32, String) {
        let lake = self.path("lake");
        let args = ["bills", "check", "focus", file, "--organization", "acme", "--all", "--lake", &lake];
        let output = run(&[&args[..], options].concat());
        let printed = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
        (output.status.code().unwrap(), text(printed))
    }

    /// Compares a file with the lake. Returns the exit code and the document.
    fn check_json(&self, file: &str, options: &[&str]) -> (i32, Value) {
        let (code, output) = self.check(file, &[&["--json"], options].concat());
        (code, serde_json::from_str(&output).unwrap())
    }
}

#[test]
fn every_line_of_an_imported_bill_is_accounted_for() {
    let room = Room::new();
    let hour = room.path("hour.csv");
    let (code, report) = room.check(&hour, &[]);
    assert_eq!(code, 0, "{report}");
    assert!(report.starts_with("7 lines read, 7 lines to compare\nrounding added "), "{report}");
    assert!(report.contains("\nCompared 7 lines of the bill with 7 billed rows, through 2026-11-01T12.\n"));
    assert!(report.ends_with("Every compared line is accounted for.\n"), "{report}");
    let (code, report) = room.check_json(&hour, &[]);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!((&report["files"]["lines"], &report["lines"]), (&Value::from(7), &Value::from(7)));
    let invoices = report["invoices"].as_array().unwrap();
    assert_eq!(invoices.len(), 2);
    for invoice in invoices {
        assert_eq!(invoice["difference"], serde_json::json!({ "billed": "0", "effective": "0" }));
    }
}

#[test]
fn a_line_that_differs_from_the_lake_is_named_and_ends_with_code_1() {
    let room = Room::new();
    room.change("other.csv", ",0.24,,0.24,", ",0.25,,0.24,");
    let (code, report) = room.check(&room.path("other.csv"), &[]);
    assert_eq!(code, 1, "{report}");
    assert!(report.contains("\nerror bill_differs (1). To fix: "), "{report}");
    let line = " of 'ocid1.instance.oc1.phx.aaaa', hours 2026-11-01T00 to 2026-11-01T00: billed cost is 0.25 \
                in the bill, and 0.24 in the rows: difference -0.01;";
    assert!(report.contains(line), "{report}");
    assert!(report.ends_with("The rows differ from the bill.\n"), "{report}");
    let (code, report) = room.check_json(&room.path("other.csv"), &["--allow-warnings"]);
    assert_eq!((code, &report["counts"]), (1, &serde_json::json!({ "bill_differs": 1 })));
}

#[test]
fn a_line_that_cannot_be_compared_is_reported() {
    let room = Room::new();
    room.change("faulty.csv", ",0.24,,0.24,", ",x,,0.24,");
    let (code, report) = room.check(&room.path("faulty.csv"), &["--allow-warnings"]);
    assert_eq!(code, 1, "{report}");
    assert!(report.contains("\n1 lines cannot be imported") && report.contains("column BilledCost"));
    // Lines of a day and of a month end after the last closed hour.
    let bill = document("focus.csv");
    let (code, report) = room.check_json(&bill, &[]);
    assert_eq!(code, 3, "{report:#}");
    assert_eq!((&report["lines"], &report["waiting"]["lines"]), (&Value::from(7), &Value::from(3)));
    assert_eq!(report["findings"], serde_json::json!([]));
    assert_eq!(room.check(&bill, &["--allow-warnings"]).0, 0);
}

#[test]
fn a_check_of_a_bill_needs_a_lake() {
    let folder = tempfile::tempdir().unwrap();
    let lake = folder.path().to_string_lossy().into_owned();
    let bill = document("focus.csv");
    let args = ["bills", "check", "focus", &bill, "--organization", "acme", "--lake", &lake];
    assert!(usage_error(&args).contains("it is not a prorata lake"));
}

#[test]
fn a_fault_is_named_and_ends_with_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let bill = folder.path().join("bill.csv");
    let good = std::fs::read_to_string(document("focus.csv")).unwrap();
    std::fs::write(&bill, good.replacen("0.096,0.096,0.096", "x,0.096,0.096", 1)).unwrap();
    let bill = bill.to_string_lossy().into_owned();
    let output = run(&import("focus", &[&bill]));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    assert!(
        report.contains("\n1 lines cannot be imported") && report.contains("column BilledCost"),
        "{report}"
    );
}

#[test]
fn wrong_arguments_and_documents_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("events.avro");
    let output_text = output.to_string_lossy().into_owned();
    let bill = document("focus.csv");
    assert!(usage_error(&import("focus", &["no-such-file"])).contains("'no-such-file'"));
    assert!(usage_error(&import("focus", &[&bill, &bill])).contains("is named twice"));
    let nobody = ["bills", "import", "focus", &bill, "--organization", "", "--all"];
    assert!(usage_error(&nobody).contains("--organization is empty"));
    let of_folder = folder.path().to_string_lossy().into_owned();
    assert!(usage_error(&import("focus", &[&of_folder])).contains("it is a folder"));
    let other = [&import("cur", &[&bill])[..], &["--output", &output_text]].concat();
    assert!(usage_error(&other).contains("has no column lineItem/LineItemType"));
    assert!(!output.exists(), "nothing is written");
    let topic = [&import("focus", &[&bill])[..], &["--topic", "events"]].concat();
    assert!(usage_error(&topic).contains("are for --output kafka"));
    let keys = [&import("focus", &[&bill])[..], &["--key-file", "no-such-keys"]].concat();
    assert!(usage_error(&keys).contains("'no-such-keys'"));
}
