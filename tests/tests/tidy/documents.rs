//! Checks that documents and source name existing things: every named document, link and file exists.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, files, texts};

/// Endings of file names that documents are checked for.
const NAMED: &[&str] = &[".rs", ".md", ".yaml", ".py", ".sql", ".avsc", ".toml", ".txt", ".tsv"];

/// Returns whether a path named by a file in `folder` exists: relative to the folder or to the root, or as
/// the end of the path of some file.
fn is_there(name: &str, folder: &str, files: &BTreeSet<String>) -> bool {
    let name = name.trim_start_matches("./");
    let joined = join(folder, name);
    let is_folder = |path: &str| {
        files.range(format!("{path}/")..).next().is_some_and(|file| file.starts_with(&format!("{path}/")))
    };
    files.contains(&joined)
        || is_folder(joined.trim_end_matches('/'))
        || files
            .iter()
            .any(|file| file.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/')))
}

/// Joins `folder/name`, without `..`.
pub fn join(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

pub fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns the words of a text that end in `.md`.
fn documents_named(text: &str) -> impl Iterator<Item = &str> {
    let part_of_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    text.split(move |c| !part_of_path(c))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.ends_with(".md") && *word != ".md")
}

/// Returns the rows, as cells, of the tables whose first column has this heading.
pub fn table<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let cells = |line: &'a str| line.trim().trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let mut rows = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.starts_with('|') || cells(line)[0] != heading {
            continue;
        }
        while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
            rows.push(cells(row));
        }
    }
    rows.into_iter().filter(|row| !row[0].starts_with('-')).collect()
}

#[test]
fn every_document_that_source_names_is_there() {
    let all: BTreeSet<String> = files().into_iter().collect();
    let endings =
        [".rs", ".py", ".toml", ".yaml", ".yml", ".tpl", ".sql", ".avsc", ".txt", "Dockerfile", "/run"];
    let mut named = 0;
    let mut faults = Vec::new();
    for (path, text) in texts(&endings) {
        for document in documents_named(&text) {
            named += 1;
            if !is_there(document, folder_of(&path), &all) {
                faults.push(format!("{path} names {document}, which is not there"));
            }
        }
    }
    assert!(named > 20, "{named} documents are named");
    assert_none(&faults);
}

/// Returns the targets of a document's links, outside of code.
pub fn links(text: &str) -> Vec<&str> {
    let outside = text.split("```").step_by(2);
    let targets = outside.flat_map(|part| part.split("](").skip(1));
    targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// Returns the anchors that the repository's web pages give to headings: lower case, hyphens for spaces,
/// other signs left out.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        kept.collect()
    };
    headings.map(slug).collect()
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let documents: BTreeMap<String, String> = texts(&[".md"]).into_iter().collect();
    let all: BTreeSet<String> = files().into_iter().collect();
    let mut faults = Vec::new();
    for (path, text) in &documents {
        for link in links(text).into_iter().filter(|link| !link.contains("://")) {
            let (target, anchor) =
                link.split_once('#').map_or((link, None), |(to, anchor)| (to, Some(anchor)));
            let to = if target.is_empty() { path.clone() } else { join(folder_of(path), target) };
            let folder = format!("{to}/");
            let there = all.contains(&to) || all.iter().any(|file| file.starts_with(&folder));
            let has_anchor =
                || documents.get(&to).is_some_and(|text| anchors(text).contains(anchor.unwrap_or_default()));
            if !there || (anchor.is_some() && !has_anchor()) {
                faults.push(format!("{path}: its link {link} leads nowhere"));
            }
        }
    }
    assert_none(&faults);
}

/// Returns the texts between backticks, outside of code blocks.
pub fn code_spans(text: &str) -> Vec<&str> {
    text.split("```").step_by(2).flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_file_that_a_document_names_is_there() {
    let all: BTreeSet<String> = files().into_iter().collect();
    let mut faults = Vec::new();
    let mut named = 0;
    for (path, text) in texts(&[".md"]) {
        let commands: String = text.split("```").skip(1).step_by(2).collect();
        for span in code_spans(&text) {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
            let is_file = NAMED.iter().any(|ending| span.ends_with(ending) && span.len() > ending.len());
            if !is_file || !span.chars().all(plain) || span.starts_with('.') {
                continue;
            }
            named += 1;
            // A file that the page's own commands write or read is not part of the repository.
            if !is_there(span, folder_of(&path), &all) && !commands.contains(span) {
                faults.push(format!("{path} names {span}, which is not there"));
            }
        }
    }
    assert!(named > 50, "{named} files are named");
    assert_none(&faults);
}

#[test]
fn every_folder_of_tests_has_its_row() {
    let table = std::fs::read_to_string(super::root().join("tests/README.md")).unwrap();
    let named: BTreeSet<String> = links(&table).into_iter().map(|link| join("tests", link)).collect();
    let covers = |folder: &str| named.iter().any(|name| name == folder);
    let mut faults = BTreeSet::new();
    for file in files().iter().filter(|file| file.ends_with(".rs") && *file != "tests/src/lib.rs") {
        let Some((before, behind)) = file.split_once("tests/") else { continue };
        // Tests of one subject may have a folder of their own, and the table may list the folder above.
        let top = format!("{before}tests");
        let own = behind.split_once('/').map(|(folder, _)| format!("{top}/{folder}"));
        if !covers(&top) && !covers(before.trim_end_matches('/')) && !own.is_some_and(|own| covers(&own)) {
            faults.insert(format!("tests/README.md has no row for {file}"));
        }
    }
    assert_none(&faults.into_iter().collect::<Vec<_>>());
}

/// Bounds of the project's README, in lines, bytes, and words from one full stop to the next. More text
/// belongs on a folder's page.
const README_LINES_MAX: usize = 160;
const README_BYTES_MAX: usize = 9_500;
const README_WORDS_MAX: usize = 30;

#[test]
fn the_readme_is_short_enough_to_be_read() {
    let readme = std::fs::read_to_string(super::root().join("README.md")).unwrap();
    let (lines, bytes) = (readme.lines().count(), readme.len());
    let mut faults = Vec::new();
    if lines > README_LINES_MAX {
        faults.push(format!("README.md: {lines} lines, at most {README_LINES_MAX}"));
    }
    if bytes > README_BYTES_MAX {
        faults.push(format!("README.md: {bytes} bytes, at most {README_BYTES_MAX}"));
    }
    // The prose is split by paragraph, list item, and table row.
    let prose: String = readme.split("```").step_by(2).collect();
    let paragraphs = prose.replace("\n- ", "\n\n").replace("\n|", "\n\n");
    for paragraph in paragraphs.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")) {
        for message in paragraph.split(". ") {
            let words = message.split_whitespace().count();
            if words > README_WORDS_MAX {
                faults.push(format!("README.md: a message of {words} words: {message}"));
            }
        }
    }
    assert_none(&faults);
}
