//! The rule book and the code that implements it name each other: every section that is cited is there, every
//! section is cited by the engine, and every file of its `rules/` says which section it implements.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, root, sources, texts};

/// The rule book.
const RULES: &str = "pipeline/engine/RULES.md";

/// The files of `pipeline/engine/src/rules/` and the section of the rule book that each implements.
const RULE_FILES: &[(&str, u32)] = &[
    ("split", 1),
    ("reservation", 2),
    ("waiting", 2),
    ("free_units", 2),
    ("commitment", 3),
    ("commitment/cover", 3),
    ("commitment/family", 3),
    ("commitment/place", 3),
    ("commitment/walk", 3),
    ("quota", 4),
    ("quota_labels", 4),
    ("quota_ledger", 4),
    ("quota_lending", 4),
    ("pool", 5),
];

/// The numbers of the rule book's sections.
fn sections() -> BTreeSet<u32> {
    let text = std::fs::read_to_string(root().join(RULES)).unwrap();
    let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
    headings.filter_map(|heading| heading.split_once(". ")?.0.parse().ok()).collect()
}

/// A file's text with comments that run over several lines on one.
fn unwrapped(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !matches!(*word, "//" | "///" | "//!" | "#" | "--"));
    words.collect::<Vec<_>>().join(" ")
}

/// The sections of the rule book that a text cites, as in "RULES.md section 3" or "RULES.md, sections 1
/// and 10".
fn cited(text: &str) -> BTreeSet<u32> {
    let text = unwrapped(text).replace("RULES.md, section", "RULES.md section");
    let mut cited = BTreeSet::new();
    for after in text.split("RULES.md section").skip(1) {
        let words = after.trim_start_matches('s').split(' ').filter(|word| !word.is_empty());
        for word in words {
            let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
            match digits.parse() {
                Ok(section) => cited.insert(section),
                Err(_) if matches!(word, "and" | "to") => continue,
                Err(_) => break,
            };
            if word.ends_with([';', '.', ':', ')', '"']) {
                break;
            }
        }
    }
    cited
}

#[test]
fn citations_are_read_over_line_ends() {
    let text = "/// As RULES.md, section\n/// 3 says; RULES.md, sections 1 and 10: nothing of 7.";
    assert_eq!(cited(text), BTreeSet::from([1, 3, 10]));
}

#[test]
fn every_section_that_source_cites_is_one_of_the_rule_book() {
    let sections = sections();
    assert_eq!(sections, (1..=11).collect());
    let mut faults = Vec::new();
    for (path, text) in texts(&[".rs", ".txt", ".sql", ".md", ".py"]) {
        let strange = cited(&text).into_iter().filter(|section| !sections.contains(section));
        faults.extend(
            strange.map(|section| format!("{path} cites section {section}, which {RULES} does not have")),
        );
    }
    assert_none(&faults);
}

#[test]
fn every_rule_and_the_file_that_implements_it_name_each_other() {
    let engine: Vec<(String, String)> =
        sources().into_iter().filter(|(path, _)| path.starts_with("pipeline/engine/src/")).collect();
    let all: BTreeSet<u32> = engine.iter().flat_map(|(_, text)| cited(text)).collect();
    let mut faults: Vec<String> = sections()
        .difference(&all)
        .map(|section| format!("no file of the engine cites section {section}"))
        .collect();
    let in_rules = |path: &str| {
        path.strip_prefix("pipeline/engine/src/rules/").map(|name| name.trim_end_matches(".rs").to_owned())
    };
    let rules: BTreeMap<String, &String> = engine
        .iter()
        .filter_map(|(path, text)| Some((in_rules(path)?, text)))
        .filter(|(name, _)| name != "mod")
        .collect();
    let known: BTreeSet<String> = RULE_FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(
        rules.keys().cloned().collect::<BTreeSet<_>>(),
        known,
        "the files of rules/ and their sections"
    );
    for (name, section) in RULE_FILES {
        let header: String = rules[*name]
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .map(|line| format!("{line}\n"))
            .collect();
        if !cited(&header).contains(section) {
            faults
                .push(format!("rules/{name}.rs does not say that it implements RULES.md, section {section}"));
        }
    }
    assert_none(&faults);
}
