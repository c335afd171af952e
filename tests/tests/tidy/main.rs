//! Checks that lints cannot do. They cover the dependencies of crates (`crates`), the form of source files
//! (`text`), the layers of modules (`directions`), and the names that documents and source use for each other
//! (`documents`). They also cover complete lists in documents (`lists`, `recipes`) and words that must not
//! return (`english`).

#![expect(clippy::unwrap_used, reason = "what these tests read is part of the repository")]

mod crates;
mod directions;
mod documents;
mod english;
mod lists;
mod modules;
mod names;
mod recipes;
mod rulebook;
mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs cargo. Returns its output.
fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the path of every file of the repository under the root: tracked by git, or about to be added.
/// Ignored output of a run, such as a lake, is left out.
fn files() -> Vec<String> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(listing).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).unwrap();
    let names: BTreeSet<&str> = listed.split('\0').filter(|name| root().join(name).is_file()).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Returns the files whose names have one of these endings, with their text.
fn texts(endings: &[&str]) -> Vec<(String, String)> {
    let wanted = |path: &String| endings.iter().any(|ending| path.ends_with(ending));
    let read = |path: String| {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        (path, text)
    };
    files().into_iter().filter(wanted).map(read).collect()
}

/// Returns all Rust source files.
fn sources() -> Vec<(String, String)> {
    texts(&[".rs"])
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
