//! Checks the top folders of the workspace, the dependencies between crates, and the engine's purity.
//! Licences, sources and duplicate crates are in `deny.toml`, and `cargo deny` checks them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use super::documents::{code_spans, table};
use super::{assert_none, cargo, files, root};

/// The complete list of top folders.
const ROOMS: &[&str] = &["connectors", "deploy", "pipeline", "schemas", "testdata", "tests"];

/// A crate of the workspace.
pub struct Crate {
    /// The crate's name.
    pub name: String,
    /// The crate's folder under the root.
    pub folder: String,
    /// Crates of the workspace that the crate imports outside of its tests.
    pub imports: BTreeSet<String>,
}

/// Returns all crates of the workspace, from their manifests. Cargo runs once.
pub fn crates() -> &'static [Crate] {
    static CRATES: OnceLock<Vec<Crate>> = OnceLock::new();
    CRATES.get_or_init(|| {
        let printed = cargo(&["metadata", "--format-version", "1", "--no-deps"]);
        let metadata: Value = serde_json::from_str(&printed).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
        let names: BTreeSet<String> = packages.iter().map(name).collect();
        let is_import =
            |dependency: &&Value| dependency["kind"] != "dev" && names.contains(&name(dependency));
        let of = |package: &Value| {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap();
            let dependencies = package["dependencies"].as_array().unwrap();
            Crate {
                name: name(package),
                folder: folder.to_str().unwrap().to_owned(),
                imports: dependencies.iter().filter(is_import).map(name).collect(),
            }
        };
        packages.iter().map(of).collect()
    })
}

/// The page with the floors of the crates.
const FLOORS: &str = "pipeline/README.md";

/// A crate's place in the table of floors.
#[derive(Clone, Copy)]
struct Floor {
    number: u32,
    tests_only: bool,
}

/// Returns the floor of each crate. A row has a number, crates of the program, and crates that only tests
/// import.
fn floors() -> BTreeMap<String, Floor> {
    let page = std::fs::read_to_string(root().join(FLOORS)).unwrap();
    let mut floors = BTreeMap::new();
    for row in table(&page, "floor") {
        let number = row[0].parse().unwrap();
        for (cell, tests_only) in [(row[1], false), (row[2], true)] {
            for name in code_spans(cell) {
                let before = floors.insert(name.to_owned(), Floor { number, tests_only });
                assert!(before.is_none(), "{FLOORS}: {name} is on two floors");
            }
        }
    }
    floors
}

/// Crates that the engine may depend on: types, their serialization, integers of any size, and parallel work
/// on all cores. None has a clock, I/O or randomness.
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

#[test]
fn the_top_has_its_rooms_and_no_others() {
    let files = files();
    let folders = files.iter().filter_map(|path| path.split_once('/')).map(|(folder, _)| folder);
    let shown: BTreeSet<&str> = folders.filter(|folder| !folder.starts_with('.')).collect();
    assert_eq!(shown.into_iter().collect::<Vec<_>>(), ROOMS);
}

#[test]
fn crates_import_only_from_lower_floors() {
    let floors = floors();
    let listed: BTreeSet<&str> = floors.keys().map(String::as_str).collect();
    let names: BTreeSet<&str> = crates().iter().map(|one| one.name.as_str()).collect();
    assert_eq!(listed, names, "the floors in {FLOORS}, and the workspace");
    let mut faults = Vec::new();
    for Crate { name, imports, .. } in crates() {
        for import in imports {
            let (above, below) = (floors[name], floors[import]);
            if below.number >= above.number {
                faults.push(format!("{name} imports {import}, which is not on a lower floor"));
            }
            if below.tests_only && !above.tests_only {
                faults.push(format!("{name} imports {import} outside of its tests"));
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
