//! Checks that lists in documents are complete. Tables of folders name every folder next to them, every crate
//! has a page, and the engine's table of files names every file.

use std::collections::BTreeSet;

use super::crates::crates;
use super::documents::{code_spans, folder_of, join, links, table};
use super::{assert_none, files, root, texts};

/// Pages that must have a table of the folders next to them. Tables on other pages are checked too.
const WITH_FOLDERS: &[&str] =
    &["pipeline/README.md", "testdata/collector/README.md", "testdata/rules/README.md"];

/// Returns the folders directly in a folder, without hidden ones.
fn folders(folder: &str) -> BTreeSet<String> {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let under = |file: &String| Some(file.strip_prefix(&prefix)?.split_once('/')?.0.to_owned());
    files().iter().filter_map(under).filter(|name| !name.starts_with('.')).collect()
}

#[test]
fn a_table_of_folders_names_every_folder() {
    let mut found = Vec::new();
    let mut faults = Vec::new();
    for (path, text) in texts(&[".md"]) {
        let rows = table(&text, "folder");
        if rows.is_empty() {
            continue;
        }
        // A cell is `schemas/` or [`schemas/`](schemas); a row may name a folder of a folder.
        let first = |row: &Vec<&str>| code_spans(row[0])[0].trim_end_matches('/').to_owned();
        let named: BTreeSet<String> = rows.iter().map(first).collect();
        let of_page = folder_of(&path);
        for folder in folders(of_page) {
            if !named.iter().any(|name| name.split('/').next() == Some(&*folder)) {
                faults.push(format!("{path}: its table of folders does not name {folder}/"));
            }
        }
        let is_there = |name: &&String| root().join(join(of_page, name)).is_dir();
        let strange = named.iter().filter(|name| !is_there(name));
        faults.extend(strange.map(|name| format!("{path}: its table names {name}/, which is not there")));
        found.push(path);
    }
    let missing = WITH_FOLDERS.iter().filter(|page| !found.iter().any(|path| path == *page));
    faults.extend(missing.map(|page| format!("{page} has no table headed `folder`")));
    assert_none(&faults);
}

#[test]
fn the_page_of_tests_names_every_folder_of_tests() {
    let page = std::fs::read_to_string(root().join("tests/README.md")).unwrap();
    let named: BTreeSet<String> = links(&page).into_iter().map(|link| join("tests", link)).collect();
    let unnamed = folders("tests").into_iter().filter(|folder| !named.contains(&format!("tests/{folder}")));
    assert_none(
        &unnamed.map(|folder| format!("tests/README.md has no row for {folder}/")).collect::<Vec<_>>(),
    );
}

#[test]
fn every_crate_has_a_page() {
    let pages = files();
    let has_page = |folder: &str| {
        let in_folder = |file: &String| folder_of(file) == folder && file.ends_with(".md");
        pages.iter().any(in_folder)
    };
    let without = crates().iter().filter(|one| !has_page(&one.folder));
    assert_none(&without.map(|one| format!("{} has no README.md", one.folder)).collect::<Vec<_>>());
}

#[test]
fn the_pipeline_s_table_is_the_workspace() {
    let page = std::fs::read_to_string(root().join("pipeline/README.md")).unwrap();
    let listed: BTreeSet<(String, String)> = table(&page, "folder")
        .into_iter()
        .map(|row| (join("pipeline", links(row[0])[0]), code_spans(row[1])[0].to_owned()))
        .collect();
    let in_pipeline = crates().iter().filter(|one| one.folder.starts_with("pipeline/"));
    let crates: BTreeSet<(String, String)> =
        in_pipeline.map(|one| (one.folder.clone(), one.name.clone())).collect();
    assert_eq!(listed, crates, "the table of pipeline/README.md, and the workspace");
}

/// The page whose table describes the engine's files, and the folder of these files.
const ENGINE: (&str, &str) = ("pipeline/engine/README.md", "pipeline/engine/src/");

#[test]
fn the_engine_s_page_names_every_file() {
    let (page, folder) = ENGINE;
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let mut named = BTreeSet::new();
    for row in table(&text, "file") {
        let mut before = "";
        for span in code_spans(row[0]) {
            // A second name in a row may omit the folder.
            named.insert(if span.contains('/') { span.to_owned() } else { join(before, span) });
            before = if span.contains('/') { folder_of(span) } else { before };
        }
    }
    let covers = |file: &str| {
        named.iter().any(|name| file == name || (!name.ends_with(".rs") && file.starts_with(&**name)))
    };
    let all = files();
    let own = all.iter().filter_map(|file| file.strip_prefix(folder)).filter(|file| !covers(file));
    assert_none(&own.map(|file| format!("{page} does not name {file}")).collect::<Vec<_>>());
}
