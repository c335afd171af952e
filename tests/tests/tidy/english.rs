//! Words and phrases that must not return to pages in plain English, each with a replacement.

use super::text::find_word;
use super::{assert_none, texts};

/// Phrases, in two parts so that this file does not contain them, and their replacements.
const PHRASES: &[(&str, &str, &str)] = &[
    ("men", "d", "fix"),
    ("men", "ds", "fixes"),
    ("men", "ded", "fixed"),
    ("men", "ding", "fixing"),
    ("sel", "dom", "rarely"),
    ("sen", "tence", "message"),
    ("sen", "tences", "messages"),
    ("te", "ll", "report, print, distinguish"),
    ("te", "lls", "reports, prints, distinguishes"),
    ("to", "ld", "reported, printed, distinguished"),
    ("at h", "and", "available"),
    ("go", " on", "continue, resume"),
    ("goes", " on", "continues, resumes"),
    ("went", " on", "continued, resumed"),
    ("once", " more", "again"),
    ("who", "ever", "everyone who"),
    ("those", " of", "repeat the noun"),
    ("that", " of", "repeat the noun"),
    ("by it", "self", "on its own, automatically"),
];

/// Files, and folders with a slash at the end, whose pages and configuration are checked. Rewritten pages are
/// added until the list covers everything.
const IN_ENGLISH: &[&str] = &[
    ".cargo/",
    ".github/ISSUE_TEMPLATE/",
    ".github/RELEASING.md",
    ".github/dependabot.yml",
    ".github/pull_request_template.md",
    ".github/workflows/release.yml",
    "CHANGELOG.md",
    "Cargo.toml",
    "GLOSSARY.md",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
    "connectors/README.md",
    "connectors/src/kafka/README.md",
    "deny.toml",
    "deploy/README.md",
    "deploy/RUNBOOK.md",
    "deploy/compose/",
    "deploy/helm/",
    "deploy/prorata.yaml",
    "deploy/sql/",
    "pipeline/README.md",
    "pipeline/bills/",
    "pipeline/cli/README.md",
    "pipeline/cli/src/operations/README.md",
    "pipeline/collector/",
    "pipeline/engine/README.md",
    "pipeline/generate/",
    "pipeline/inspect/",
    "pipeline/testkit/",
    "pipeline/worker/",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "schemas/README.md",
    "schemas/samples/",
    "testdata/README.md",
    "testdata/collector/README.md",
    "testdata/prices/README.md",
    "testdata/rules/README.md",
    "tests/README.md",
    "tests/bench/",
    "tests/fuzz/",
    "tests/reference/",
    "tests/sql/",
];

/// Joins a text into one line, without comment signs.
fn unwrapped(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !matches!(*word, "#" | "--" | "//" | "///" | "//!"));
    words.collect::<Vec<_>>().join(" ").to_ascii_lowercase()
}

#[test]
fn pages_in_plain_english_stay_so() {
    let texts = texts(&[".md", ".yaml", ".yml", ".toml", ".sql", ".tpl", ".txt", "Dockerfile"]);
    let holds = |part: &str, path: &str| path == part || (part.ends_with('/') && path.starts_with(part));
    let mut faults = Vec::new();
    for part in IN_ENGLISH {
        if !texts.iter().any(|(path, _)| holds(part, path)) {
            faults.push(format!("{part} is not there"));
        }
    }
    for (path, text) in texts.iter().filter(|(path, _)| IN_ENGLISH.iter().any(|part| holds(part, path))) {
        let text = unwrapped(text);
        for (first, second, instead) in PHRASES {
            let phrase = format!("{first}{second}");
            if let Some(at) = find_word(&text, &phrase) {
                let before: String = text[..at].chars().rev().take(30).collect();
                let before: String = before.chars().rev().collect();
                faults.push(format!("{path}: \"..{before}{phrase}\"; write: {instead}"));
            }
        }
    }
    assert_none(&faults);
}
