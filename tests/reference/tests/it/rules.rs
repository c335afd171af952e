//! Runs every table of `testdata/rules` through the engine and through the model. `testdata/rules/README.md`
//! explains the format.

use std::fs;
use std::path::{Path, PathBuf};

use prorata_reference::text::{BASE_HOUR, parse, parse_division};
use prorata_schemas::event::EventRecord;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::{Allocation, Rules};
use prorata_schemas::time::Hour;

use super::measure::{Measured, agrees, measure};

/// One case of a file: its events, and the expectations of its hours.
#[derive(Default)]
struct Case {
    name: String,
    rules: Rules,
    records: Vec<EventRecord>,
    expected: Vec<Expected>,
}

/// One expectation: hours (first and last), line number and words.
struct Expected {
    hours: (i64, i64),
    line: usize,
    words: Vec<String>,
}

/// Returns every text under `testdata/rules`, in order.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/rules");
    let mut files = Vec::new();
    for rule in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let texts = fs::read_dir(rule).unwrap().map(|entry| entry.unwrap().path());
        files.extend(texts.filter(|path| path.extension().is_some_and(|extension| extension == "txt")));
    }
    files.sort();
    files
}

/// Reads the cases of a file.
fn cases(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    let mut hours = (0, 0);
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.starts_with("--")).collect();
        let Some(first) = words.first() else { continue };
        if first.starts_with('#') {
            continue;
        }
        let at = |error: String| format!("line {}: {error}", index + 1);
        if *first == "case" {
            cases.push(Case { name: words[1..].join(" "), ..Case::default() });
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| at("before the first 'case'".into()))?;
        match *first {
            "rules" => words[1..].iter().try_for_each(|word| set_rule(&mut case.rules, word)).map_err(at)?,
            "hour" => hours = span(words.get(1).unwrap_or(&"")).map_err(at)?,
            _ if first.contains(':') => {
                case.records.push(EventRecord::new(parse(&words.join(" ")).map_err(at)?));
            }
            _ => {
                let words = words.into_iter().map(str::to_owned).collect();
                case.expected.push(Expected { hours, line: index + 1, words });
            }
        }
    }
    Ok(cases)
}

/// Reads `10` or `10-12`.
fn span(text: &str) -> Result<(i64, i64), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let hour = |text: &str| text.parse::<i64>().map_err(|_| format!("'{text}' is not an hour"));
    Ok((hour(first)?, hour(last)?))
}

fn set_rule(rules: &mut Rules, word: &str) -> Result<(), String> {
    let error = || format!("'{word}' is not a rule");
    match word.split_once('=').ok_or_else(error)? {
        ("allocation", "requests") => rules.allocation = Allocation::Requests,
        ("gpu-memory-gb", gigabytes) => rules.gpu_memory_gb = gigabytes.parse().map_err(|_| error())?,
        ("gpu-resource", name) => rules.gpu_resources.push(name.into()),
        ("eviction-protection-ratio", ratio) => {
            rules.eviction_protection_ratio = ratio.parse().map_err(|_| error())?;
        }
        ("divide", entry) => rules.shared_charges.push(parse_division(entry)?),
        _ => return Err(error()),
    }
    Ok(())
}

/// Checks one case against tables that the engine or the model computed. Returns one line for each failure.
fn failures(case: &Case, by: &str, tables: &[HourTables]) -> Vec<String> {
    let mut failures = Vec::new();
    for expected in &case.expected {
        let hours = BASE_HOUR + expected.hours.0..=BASE_HOUR + expected.hours.1;
        let here: Vec<&HourTables> = tables.iter().filter(|tables| hours.contains(&tables.hour.0)).collect();
        let words: Vec<&str> = expected.words.iter().map(String::as_str).collect();
        let (want, what) = words.split_last().unwrap();
        let got = measure(&here, what);
        let good = got.as_ref().is_ok_and(|got| agrees(got, want));
        if !good {
            let got = got.map_or_else(|error| error, |got: Measured| got.to_string());
            failures.push(format!("line {}: {by}: {} is {got}, not {want}", expected.line, what.join(" ")));
        }
    }
    failures
}

/// Asserts that no case of any file fails.
fn run(by: &str, tables: impl Fn(&Case, Hour) -> Result<Vec<HourTables>, String>) {
    let mut failed = Vec::new();
    let mut expectations = 0;
    for file in files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        for case in
            cases(&fs::read_to_string(&file).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"))
        {
            assert!(!case.expected.is_empty(), "{name}: case '{}' expects nothing", case.name);
            expectations += case.expected.len();
            let last = case.expected.iter().map(|expected| expected.hours.1).max().unwrap();
            let lines = match tables(&case, Hour(BASE_HOUR + last)) {
                Ok(tables) => failures(&case, by, &tables),
                Err(error) => vec![format!("{by}: {error}")],
            };
            failed.extend(lines.into_iter().map(|line| format!("{name}: {}: {line}", case.name)));
        }
    }
    assert!(expectations > 200, "only {expectations} expectations were found");
    assert!(
        failed.is_empty(),
        "{} of {expectations} expectations fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

#[test]
fn the_engine_reproduces_every_table() {
    run("engine", |case, through| super::common::engine_tables(&case.records, &case.rules, through));
}

#[test]
fn the_model_reproduces_every_table() {
    run("model", |case, through| Ok(prorata_reference::tables(&case.records, &case.rules, through)));
}

#[test]
fn an_expectation_that_does_not_hold_fails() {
    let text = "case wrong\n10:00 node n cost=10 cpu=4\nhour 10\nidle n total 9\nidle n total 10\n";
    let cases = cases(text).unwrap();
    let case = cases.first().unwrap();
    let tables = prorata_reference::tables(&case.records, &case.rules, Hour(BASE_HOUR + 10));
    assert_eq!(failures(case, "model", &tables), ["line 4: model: idle n total is 10, not 9"]);
}
