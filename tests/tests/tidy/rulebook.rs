//! Checks that the rule book and its implementation name each other. Every cited section exists, the engine
//! cites every section, and every file of its `rules/` names the section that it implements.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, root, sources, texts};

/// The rule book.
const RULES: &str = "pipeline/engine/RULES.md";

/// The folder of the rules with a section of their own.
const RULE_FILES: &str = "pipeline/engine/src/rules/";

/// The sections that files of this folder implement; the other sections are about hours, rows and numbers.
const RULE_SECTIONS: [u32; 6] = [1, 2, 3, 4, 5, 13];

/// Returns the numbers of the rule book's sections.
fn sections() -> BTreeSet<u32> {
    let text = std::fs::read_to_string(root().join(RULES)).unwrap();
    let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
    headings.filter_map(|heading| heading.split_once(". ")?.0.parse().ok()).collect()
}

/// Joins each comment of a file's text into one line.
fn unwrapped(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !matches!(*word, "//" | "///" | "//!" | "#" | "--"));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the sections of the rule book that a text cites, as in "RULES.md section 3" or "RULES.md, sections
/// 1 and 10".
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
    let last = sections.last().copied().unwrap();
    assert_eq!(sections, (1..=last).collect());
    assert!(RULE_SECTIONS.iter().all(|section| sections.contains(section)));
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
    // The section of each rule file, by its path in the folder without the ending.
    let mut implemented: BTreeMap<String, u32> = BTreeMap::new();
    for (path, text) in &engine {
        let Some(name) = path.strip_prefix(RULE_FILES).and_then(|name| name.strip_suffix(".rs")) else {
            continue;
        };
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        match cited(&head.join("\n")).into_iter().find(|section| RULE_SECTIONS.contains(section)) {
            Some(section) => drop(implemented.insert(name.to_owned(), section)),
            None if name == "mod" => {}
            None => {
                faults.push(format!("{path} does not say at its top which section of {RULES} it implements"))
            }
        }
    }
    // Files of one rule have the same beginning: `quota.rs`, `quota_labels.rs`; `commitment.rs`,
    // `commitment/walk.rs`.
    for (name, section) in &implemented {
        let rule = name.split(['/', '_']).next().unwrap();
        if let Some(of_rule) = implemented.get(rule).filter(|of_rule| *of_rule != section) {
            faults.push(format!(
                "rules/{name}.rs implements section {section}, rules/{rule}.rs section {of_rule}"
            ));
        }
    }
    let missing = RULE_SECTIONS.iter().filter(|section| !implemented.values().any(|found| found == *section));
    faults.extend(missing.map(|section| format!("no file of {RULE_FILES} implements section {section}")));
    assert_none(&faults);
}
