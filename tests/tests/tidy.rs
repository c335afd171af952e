//! What lints cannot see: the rooms of the workspace and who may depend on whom, the engine's purity, licences,
//! doubled crates, and the form of source files.

#![expect(clippy::unwrap_used, reason = "what these tests read is part of the repository")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Longest source file, in lines.
const LINES_MAX: usize = 500;

/// The folders at the top, and nothing beside them.
const ROOMS: &[&str] = &["connectors", "deploy", "pipeline", "schemas", "testdata", "tests"];

/// Our crates, their folders, and which of ours they may depend on.
const CRATES: &[(&str, &str, &[&str])] = &[
    ("prorata-schemas", "schemas", &[]),
    ("prorata-engine", "pipeline/engine", &["prorata-schemas"]),
    ("prorata-worker", "pipeline/worker", &["prorata-schemas", "prorata-engine"]),
    ("prorata-testkit", "pipeline/testkit", &["prorata-schemas", "prorata-worker"]),
    ("prorata-connectors", "connectors", &["prorata-schemas", "prorata-worker"]),
    (
        "prorata",
        "pipeline/cli",
        &["prorata-schemas", "prorata-engine", "prorata-worker", "prorata-connectors"],
    ),
    ("prorata-reference", "tests/reference", &["prorata-schemas"]),
    (
        "prorata-tests",
        "tests",
        &["prorata-schemas", "prorata-engine", "prorata-worker", "prorata-connectors", "prorata-reference"],
    ),
];

/// What the engine stands on: types, their serialization, and integers of any size. No clock, no I/O, no randomness.
const ENGINE_STANDS_ON: &[&str] = &[
    "arrayvec",
    "cfg-if",
    "dashu-base",
    "dashu-int",
    "dashu-ratio",
    "itoa",
    "num-modular",
    "num-order",
    "num-traits",
    "proc-macro2",
    "prorata-engine",
    "prorata-schemas",
    "quote",
    "rustversion",
    "serde",
    "serde_core",
    "serde_derive",
    "static_assertions",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
];

/// Crates whose types cannot cross from one version to another.
const SINGLE: &[&str] = &[
    "apache-avro",
    "arrow-array",
    "arrow-buffer",
    "arrow-schema",
    "deltalake-core",
    "object_store",
    "parquet",
    "rustls",
    "tokio",
];

/// The one file that may be unsafe: it calls a C library.
const UNSAFE: &str = "connectors/src/kafka/batch.rs";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The packages that a build for our servers uses.
fn packages() -> Vec<Value> {
    let target = "x86_64-unknown-linux-gnu";
    let text = cargo(&["metadata", "--format-version", "1", "--filter-platform", target]);
    let metadata: Value = serde_json::from_str(&text).unwrap();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let used: BTreeSet<&str> = nodes.iter().map(|node| node["id"].as_str().unwrap()).collect();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(|package| used.contains(package["id"].as_str().unwrap())).cloned().collect()
}

/// Every file of the repository, by its path under the root: what git tracks or would add. What a run leaves in the
/// clone, such as a lake, is ignored.
fn files() -> Vec<(String, PathBuf)> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(listing).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).unwrap();
    let names: BTreeSet<&str> = listed.split('\0').filter(|name| !name.is_empty()).collect();
    let paths = names.into_iter().map(|name| (name.to_owned(), root().join(name)));
    paths.filter(|(_, path)| path.exists()).collect()
}

fn sources() -> Vec<(String, String)> {
    let rust = files().into_iter().filter(|(name, _)| name.ends_with(".rs"));
    rust.map(|(name, path)| (name, std::fs::read_to_string(path).unwrap())).collect()
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_source_file_opens_with_its_purpose() {
    let sources = sources();
    assert!(sources.len() > 20);
    let silent = sources.iter().filter(|(_, text)| !text.starts_with("//! "));
    assert_none(
        &silent.map(|(name, _)| format!("{name}: its first line is no `//!` sentence")).collect::<Vec<_>>(),
    );
}

#[test]
fn no_source_file_is_longer_than_it_may_be() {
    let long = |(name, text): &(String, String)| {
        let lines = text.lines().count();
        (lines > LINES_MAX)
            .then(|| format!("{name}: {lines} lines, at most {LINES_MAX}; split it by what it does"))
    };
    assert_none(&sources().iter().filter_map(long).collect::<Vec<_>>());
}

#[test]
fn one_file_alone_is_unsafe() {
    let expected = concat!("(unsafe", "_code");
    let lifted = sources().into_iter().filter(|(_, text)| text.contains(expected));
    assert_eq!(lifted.map(|(name, _)| name).collect::<Vec<_>>(), [UNSAFE]);
}

#[test]
fn nothing_is_left_for_later() {
    let marks =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("#[ig", "nore"), concat!("unimplemen", "ted!")];
    let mut faults = Vec::new();
    for (name, path) in files() {
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        let written = !name.contains("testdata/") && !name.ends_with(".lock");
        for (index, line) in text.lines().enumerate().filter(|_| written) {
            let mark = marks.iter().find(|mark| line.contains(*mark));
            faults.extend(mark.map(|mark| format!("{name}:{}: {mark}", index + 1)));
        }
    }
    assert_none(&faults);
}

#[test]
fn the_top_has_its_rooms_and_no_others() {
    let files = files();
    let folders = files.iter().filter_map(|(name, _)| name.split_once('/')).map(|(folder, _)| folder);
    let shown: BTreeSet<&str> = folders.filter(|folder| !folder.starts_with('.')).collect();
    assert_eq!(shown.into_iter().collect::<Vec<_>>(), ROOMS);
}

#[test]
fn our_crates_depend_in_one_direction() {
    let packages = packages();
    let ours: Vec<&Value> = packages.iter().filter(|package| package["source"].is_null()).collect();
    let names: BTreeSet<&str> = ours.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert_eq!(names, CRATES.iter().map(|(name, ..)| *name).collect());
    let mut faults = Vec::new();
    for package in ours {
        let name = package["name"].as_str().unwrap();
        let (_, folder, allowed) = CRATES.iter().find(|(known, ..)| *known == name).unwrap();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        assert_eq!(manifest, root().join(folder).join("Cargo.toml"), "{name}");
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            // Tests may look wherever they want.
            if names.contains(other) && dependency["kind"] != "dev" && !allowed.contains(&other) {
                faults.push(format!("{name} depends on {other}"));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn the_engine_stands_on_nothing_that_could_make_it_impure() {
    let tree =
        cargo(&["tree", "-p", "prorata-engine", "-e", "normal", "--prefix", "none", "--format", "{p}"]);
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("prorata-schemas"), "{tree}");
    let strange: Vec<&&str> = crates.iter().filter(|name| !ENGINE_STANDS_ON.contains(*name)).collect();
    assert!(strange.is_empty(), "the engine depends on {strange:?}");
}

#[test]
fn crates_that_exchange_types_stand_once_in_the_tree() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let [name, version] = ["name", "version"].map(|key| package[key].as_str().unwrap().to_owned());
        versions.entry(name).or_default().insert(version);
    }
    for name in SINGLE {
        assert_eq!(versions.get(*name).map(BTreeSet::len), Some(1), "{name}: {:?}", versions.get(*name));
    }
}

#[test]
fn every_licence_in_the_tree_is_allowed() {
    let deny = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let listed = deny.split_once("allow = [").unwrap().1.split_once(']').unwrap().0;
    let allowed: BTreeSet<&str> = listed.split('"').skip(1).step_by(2).collect();
    assert!(allowed.contains("Apache-2.0"));
    let excepted = |name: &str| deny.contains(&format!("crate = \"{name}\", allow = ["));
    let mut faults = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none stated");
        if !is_allowed(licence, &allowed) && !excepted(name) {
            faults.push(format!("{name}: {licence}"));
        }
    }
    assert_none(&faults);
}

/// Whether one may use code under this SPDX expression, or under its older form with slashes. Parentheses nest.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let expression = expression.trim();
    for (operator, all) in [(" OR ", false), ("/", false), (" AND ", true)] {
        let parts = split_outside_parentheses(expression, operator);
        if parts.len() > 1 {
            let mut judged = parts.into_iter().map(|part| is_allowed(part, allowed));
            return if all { judged.all(|ok| ok) } else { judged.any(|ok| ok) };
        }
    }
    match expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => is_allowed(inner, allowed),
        None => allowed.contains(expression),
    }
}

fn split_outside_parentheses<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 && index >= from && text[index..].starts_with(separator) {
            parts.push(&text[from..index]);
            from = index + separator.len();
        }
    }
    parts.push(&text[from..]);
    parts
}

#[test]
fn licence_expressions_are_judged_as_written() {
    let allowed = BTreeSet::from(["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"]);
    for good in
        ["MIT", "MIT/GPL-3.0", "GPL-3.0 OR MIT", "ISC AND (GPL-3.0 OR MIT)", "Apache-2.0 WITH LLVM-exception"]
    {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in
        ["GPL-3.0", "MIT AND GPL-3.0", "(MIT AND GPL-3.0) OR GPL-2.0", "MITX", "none stated", "Apache-2.0"]
    {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}
