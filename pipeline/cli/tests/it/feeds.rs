//! `prorata prices` and `prorata agreements` as a program: files, exit codes and messages.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_prorata")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn ok(args: &[&str]) -> (String, String) {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

fn usage_error(args: &[&str]) -> String {
    let output = run(args);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty() && message.lines().count() == 1, "{message}");
    message
}

fn prices() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/prices")
}

fn in_prices(name: &str) -> String {
    prices().join(name).to_string_lossy().into_owned()
}

#[test]
fn documents_become_one_list() {
    let (list, summary) = ok(&["prices", "import", "aws", &in_prices("aws.json")]);
    assert_eq!(list, std::fs::read_to_string(prices().join("aws.csv")).unwrap());
    let lines: Vec<&str> = summary.lines().collect();
    assert_eq!(lines[0], "4 prices in 1 regions");
    assert!(
        lines.contains(&"1 left out: on dedicated hardware, such as AAA4, m5.large in eu-central-1"),
        "{summary}"
    );
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("list.csv").to_string_lossy().into_owned();
    let lists = [in_prices("aws.csv"), in_prices("azure.csv"), in_prices("on-premises.csv")];
    ok(&["prices", "import", "csv", &lists[0], &lists[1], &lists[2], "--output", &to]);
    assert_eq!(std::fs::read_to_string(&to).unwrap().lines().count(), 1 + 4 + 4 + 2);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn wrong_documents_are_named() {
    assert!(usage_error(&["prices", "import", "aws", "no-such-file"]).contains("'no-such-file'"));
    let message = usage_error(&["prices", "import", "azure", &in_prices("aws.json")]);
    assert!(message.contains("no price of a virtual machine was found"), "{message}");
    let csv = in_prices("aws.csv");
    assert!(usage_error(&["prices", "import", "csv", &csv, "--output", &csv]).contains("name another file"));
    let none = usage_error(&["prices", "import", "aws", &in_prices("aws.json"), "--currency", "EUR"]);
    assert!(none.contains("no price of a virtual machine was found in EUR: the currency"), "{none}");
}

const FILE: &str = include_str!("../../../../testdata/agreements.yaml");

#[test]
fn agreements_become_a_file_of_events_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agreements.yaml");
    std::fs::write(&file, FILE).unwrap();
    let (file, to) = (file.to_string_lossy().into_owned(), folder.path().join("events"));
    assert!(ok(&["agreements", "--file", &file]).0.starts_with("2 events, checked, not sent"));
    std::fs::create_dir(&to).unwrap();
    let to_text = to.to_string_lossy().into_owned();
    assert!(
        ok(&["agreements", "--file", &file, "--output", &to_text])
            .0
            .starts_with("2 events, in acme/agreements-")
    );
    let again = ok(&["agreements", "--file", &file, "--output", &to_text]).0;
    assert!(again.starts_with("0 events, nothing new to write\n"), "{again}");
    assert_eq!(std::fs::read_dir(to.join("acme")).unwrap().count(), 1);
    let lake = folder.path().join("lake").to_string_lossy().into_owned();
    let (report, _) = ok(&["backfill", "--events", &to_text, "--lake", &lake, "--json"]);
    assert!(report.contains("unused_reservations") || report.contains("reservation"), "{report}");
}

#[test]
fn earlier_events_are_corrected_and_the_hours_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let [file, events, kept, lake, fresh] =
        ["agreements.yaml", "events", "kept", "lake", "fresh"].map(|name| folder.path().join(name));
    for made in [&events, &kept] {
        std::fs::create_dir(made).unwrap();
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let agreements = |text_of_file: &str, args: &[&str]| {
        std::fs::write(&file, text_of_file).unwrap();
        ok(&[&["agreements", "--file", &text(&file)], args].concat()).0
    };
    let corrected = FILE.replace("from: 2026-01-01\n    to: 2027", "from: 2026-02-01\n    to: 2027");
    assert_ne!(corrected, FILE);
    agreements(FILE, &["--output", &text(&events)]);
    let shown = agreements(&corrected, &["--sent", &text(&events)]);
    assert!(shown.starts_with("2 events, checked, not sent\n"), "{shown}");
    assert!(shown.contains("\nreservation h100-eu changes in the hours 2026-01-01T00 to "), "{shown}");
    let written = agreements(&corrected, &["--output", &text(&events)]);
    assert!(written.starts_with("2 events, in acme/agreements-"), "{written}");
    agreements(&corrected, &["--output", &text(&kept)]);
    for (events, lake) in [(&events, &lake), (&kept, &fresh)] {
        let (events, lake) = (text(events), text(lake));
        ok(&["backfill", "--events", &events, "--lake", &lake, "--to", "2026-02-01T01"]);
    }
    // The first hour has other events but the same rows.
    ok(&["diff", "--lake", &text(&lake), "--with", &text(&fresh), "--from", "2026-01-01T01"]);
    std::fs::write(events.join("acme/agreements-0.avro"), b"Obj").unwrap();
    let damaged = usage_error(&["agreements", "--file", &text(&file), "--output", &text(&events)]);
    assert!(damaged.contains("'acme/agreements-0.avro'"), "{damaged}");
}

#[test]
fn wrong_agreements_are_named_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agreements.yaml");
    let file = path.to_string_lossy().into_owned();
    let fault = |text: &str| {
        std::fs::write(&path, text).unwrap();
        usage_error(&["agreements", "--file", &file])
    };
    assert!(
        fault(&FILE.replace("quantity: 2", "quantity: -2")).contains("entry 1 of reservations (h100-eu)")
    );
    assert!(fault(&FILE.replace("to: 2027", "to: 2025")).contains("which is not after its start"));
    let float = fault(&FILE.replace("\"98.32\"", "98.32"));
    assert!(float.contains("a decimal in quotes") && float.contains("line 13"), "{float}");
    assert!(fault(&FILE.replace("region: eu-central-1\n", "regoin: x\n")).contains("regoin"));
    assert!(usage_error(&["agreements", "--file", "no-such-file"]).contains("'no-such-file'"));
    let kafka = usage_error(&["agreements", "--file", &file, "--topic", "events"]);
    assert!(kafka.contains("are for --output kafka"), "{kafka}");
}

#[test]
fn lists_of_providers_become_agreements() {
    let folder = tempfile::tempdir().unwrap();
    let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/agreements");
    let list = |name: &str| lists.join(name).to_string_lossy().into_owned();
    let cut = folder.path().join("cut.json");
    std::fs::write(&cut, r#"[{"savingsPlanId": "sp-2"}, {"savings"#).unwrap();
    let (to, cut) = (folder.path().join("new.yaml").to_string_lossy().into_owned(), cut.to_string_lossy());
    let documents = [
        "gcp.json",
        "aws.json",
        "aws-savings-plan-rates.json",
        "aws-savings-plans.json",
        "azure.json",
        "azure.csv",
    ];
    let documents = documents.map(list);
    let mut args = vec!["agreements", "import", &cut, "--organization", "acme"];
    args.extend(documents.iter().map(String::as_str));
    args.extend(["--region", "eu-central-1", "--output", &to]);
    for machine in ["m5.xlarge=4,16", "Standard_D4s_v5=4,16", "m6.xlarge=4,16"] {
        args.extend(["--machine", machine]);
    }
    for cost in ["n2-iowa=1.6", "g2-iowa=2.5", "az-1=0.3", "az-3=0.1", "az-csv-1=0.2", "n3-iowa=1"] {
        args.extend(["--hourly-cost", cost]);
    }
    let (_, summary) = ok(&args);
    let yaml = std::fs::read_to_string(&to).unwrap();
    assert_eq!(yaml, std::fs::read_to_string(lists.join("agreements.yaml")).unwrap());
    assert!(
        summary.starts_with("7 commitments\n") && summary.contains("left out: a savings plan without rates"),
        "{summary}"
    );
    for unused in ["correct the type, such as m6.xlarge", "correct the id, such as n3-iowa"] {
        assert!(summary.contains(unused), "{summary}");
    }
    assert!(ok(&["agreements", "--file", &to]).0.starts_with("7 events, checked, not sent"));
    for (flag, value) in [("--machine", "m5.xlarge=8,32"), ("--hourly-cost", "az-1=0.3")] {
        let twice = usage_error(&[&args[..], &[flag, value]].concat());
        assert!(twice.contains(flag) && twice.contains("twice; give it once"), "{twice}");
    }
    assert!(usage_error(&["agreements", "import", &cut, "--organization", "acme"]).contains("not active"));
}
