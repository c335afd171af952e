//! The rooms of the workspace, which crate may depend on which, and the engine's purity. Licences, sources
//! and doubled crates are `deny.toml`'s business, and `cargo deny` checks them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{assert_none, cargo, files, root};

/// The folders at the top, and nothing else.
const ROOMS: &[&str] = &["connectors", "deploy", "pipeline", "schemas", "testdata", "tests"];

/// Our crates, their folders, and which of ours they may depend on.
const CRATES: &[(&str, &str, &[&str])] = &[
    ("prorata-schemas", "schemas", &[]),
    ("prorata-samples", "schemas/samples", &["prorata-schemas"]),
    ("prorata-engine", "pipeline/engine", &["prorata-schemas"]),
    ("prorata-tables", "pipeline/tables", &["prorata-schemas"]),
    ("prorata-worker", "pipeline/worker", &["prorata-schemas", "prorata-engine"]),
    (
        "prorata-testkit",
        "pipeline/testkit",
        &["prorata-schemas", "prorata-samples", "prorata-engine", "prorata-worker"],
    ),
    (
        "prorata-connectors",
        "connectors",
        &["prorata-schemas", "prorata-tables", "prorata-worker", "prorata-collector"],
    ),
    ("prorata-generate", "pipeline/generate", &["prorata-schemas"]),
    ("prorata-collector", "pipeline/collector", &["prorata-schemas"]),
    (
        "prorata-inspect",
        "pipeline/inspect",
        &["prorata-engine", "prorata-schemas", "prorata-tables", "prorata-worker"],
    ),
    (
        "prorata",
        "pipeline/cli",
        &[
            "prorata-schemas",
            "prorata-engine",
            "prorata-tables",
            "prorata-worker",
            "prorata-connectors",
            "prorata-generate",
            "prorata-collector",
            "prorata-inspect",
        ],
    ),
    ("prorata-reference", "tests/reference", &["prorata-schemas"]),
    (
        "prorata-tests",
        "tests",
        &["prorata-schemas", "prorata-testkit", "prorata-worker", "prorata-connectors"],
    ),
];

/// What the engine stands on: types, their serialization, integers of any size, and the same work on all
/// cores. No clock, no I/O, no randomness.
const ENGINE_STANDS_ON: &[&str] = &[
    "arrayvec",
    "cfg-if",
    "crossbeam-deque",
    "crossbeam-epoch",
    "crossbeam-utils",
    "dashu-base",
    "dashu-int",
    "dashu-ratio",
    "either",
    "itoa",
    "litemap",
    "num-modular",
    "num-order",
    "num-traits",
    "proc-macro2",
    "prorata-engine",
    "prorata-schemas",
    "quote",
    "rayon",
    "rayon-core",
    "rust_decimal",
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

#[test]
fn the_top_has_its_rooms_and_no_others() {
    let files = files();
    let folders = files.iter().filter_map(|path| path.split_once('/')).map(|(folder, _)| folder);
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

/// Crates that only tests use, and each other.
const TEST_CRATES: &[&str] = &["prorata-samples", "prorata-testkit", "prorata-tests"];

#[test]
fn only_tests_depend_on_test_crates() {
    let mut faults = Vec::new();
    for package in packages().iter().filter(|package| package["source"].is_null()) {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            if TEST_CRATES.contains(&other) && dependency["kind"] != "dev" && !TEST_CRATES.contains(&name) {
                faults.push(format!("{name} depends on {other} outside of its tests"));
            }
        }
    }
    assert_none(&faults);
}
