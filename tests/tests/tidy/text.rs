//! Checks the form of source files: a purpose at the top, a bounded length, unsafe code in one file, no work
//! left for later.

use super::{assert_none, files, root, sources, texts};

/// Maximum number of lines of a source file.
const LINES_MAX: usize = 500;

/// The only file with unsafe code: it calls a C library.
const UNSAFE: &str = "connectors/src/kafka/client/batch.rs";

#[test]
fn every_source_file_opens_with_its_purpose() {
    let sources = sources();
    assert!(sources.len() > 20);
    let silent = sources.iter().filter(|(_, text)| !text.starts_with("//! "));
    assert_none(
        &silent.map(|(path, _)| format!("{path}: its first line is no `//!` message")).collect::<Vec<_>>(),
    );
}

#[test]
fn no_source_file_is_longer_than_it_may_be() {
    let long = |(path, text): &(String, String)| {
        let lines = text.lines().count();
        (lines > LINES_MAX)
            .then(|| format!("{path}: {lines} lines, at most {LINES_MAX}; split it by what it does"))
    };
    assert_none(&sources().iter().filter_map(long).collect::<Vec<_>>());
}

#[test]
fn one_file_alone_is_unsafe() {
    let expected = concat!("(unsafe", "_code");
    let lifted = sources().into_iter().filter(|(_, text)| text.contains(expected));
    assert_eq!(lifted.map(|(path, _)| path).collect::<Vec<_>>(), [UNSAFE]);
}

#[test]
fn nothing_is_left_for_later() {
    let marks =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("#[ig", "nore"), concat!("unimplemen", "ted!")];
    let mut faults = Vec::new();
    let written = |path: &String| !path.contains("testdata/") && !path.ends_with(".lock");
    for path in files().into_iter().filter(written) {
        let text = String::from_utf8_lossy(&std::fs::read(root().join(&path)).unwrap()).into_owned();
        for (index, line) in text.lines().enumerate() {
            let mark = marks.iter().find(|mark| line.contains(*mark));
            faults.extend(mark.map(|mark| format!("{path}:{}: {mark}", index + 1)));
        }
    }
    assert_none(&faults);
}

/// Archaic words, in two parts so that this file does not contain them. Write "even", "everyone who",
/// "besides" or "next to", "whose", "for fear that", "although", "while", "among" instead.
const ARCHAIC: &[(&str, &str)] = &[
    ("be", " it"),
    ("who", "ever"),
    ("who", "m"),
    ("be", "side"),
    ("le", "st"),
    ("al", "beit"),
    ("whi", "lst"),
    ("among", "st"),
    ("an", "ew"),
];

/// Returns the first position of a word or phrase that is not part of a longer word.
pub fn find_word(text: &str, word: &str) -> Option<usize> {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let (first, last) = (part(word.chars().next()), part(word.chars().next_back()));
    let found = text.match_indices(word).find(|(at, _)| {
        let (before, after) = (text[..*at].chars().next_back(), text[at + word.len()..].chars().next());
        !(first && part(before) || last && part(after))
    });
    found.map(|(at, _)| at)
}

#[test]
fn a_word_is_found_between_its_edges_only() {
    assert_eq!(find_word("reached at each", "each"), Some(11));
    assert_eq!(find_word("reached; each_one", "each"), None);
    assert_eq!(find_word("from gs://bucket", "gs://"), Some(5));
}

#[test]
fn nobody_writes_as_they_did_long_ago() {
    let words: Vec<String> = ARCHAIC.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let mut faults = Vec::new();
    for (path, text) in texts(&[
        ".rs",
        ".md",
        ".py",
        ".yaml",
        ".toml",
        ".tpl",
        ".sql",
        "Dockerfile",
        "/run",
        "/install",
        "/check",
    ]) {
        for (index, line) in text.lines().enumerate() {
            let line = line.to_ascii_lowercase();
            let stands = words.iter().filter(|word| find_word(&line, word).is_some());
            faults.extend(stands.map(|word| format!("{path}:{}: {word}", index + 1)));
        }
    }
    assert_none(&faults);
}

/// Maximum number of characters of a line.
const COLUMNS_MAX: usize = 110;

#[test]
fn no_line_is_wider_than_it_may_be() {
    let mut faults = Vec::new();
    for (path, text) in texts(&[".rs", ".md", ".py", ".yaml", ".yml", ".sh", "/run", "/install", "/check"]) {
        for (index, line) in text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS_MAX) {
            let table = path.ends_with(".md") && line.trim_start().starts_with('|');
            let address = line.contains("://") && !line.trim().contains(' ');
            if !table && !address {
                let columns = line.chars().count();
                faults.push(format!("{path}:{}: {columns} columns, at most {COLUMNS_MAX}", index + 1));
            }
        }
    }
    assert_none(&faults);
}
