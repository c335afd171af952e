//! Checks that modules lie in their own crate: shared code is a module of a crate that both crates depend on.

use std::path::{Component, Path, PathBuf};

use super::{assert_none, root, sources};

/// Returns the package folder of a source file.
fn package(path: &Path) -> PathBuf {
    path.ancestors().find(|folder| root().join(folder).join("Cargo.toml").is_file()).unwrap().to_owned()
}

/// Resolves the path of an included file against the folder of the file that includes it.
fn included(path: &Path, include: &str) -> PathBuf {
    let mut resolved = path.parent().unwrap().to_owned();
    for part in Path::new(include).components() {
        if part == Component::ParentDir {
            resolved.pop();
        } else {
            resolved.push(part);
        }
    }
    resolved
}

#[test]
fn no_crate_includes_a_file_of_another() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let includes =
            text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
        for include in includes {
            let file = included(Path::new(&path), include);
            assert!(root().join(&file).is_file(), "{path} includes {}", file.display());
            if package(&file) != package(Path::new(&path)) {
                faults.push(format!("{path} includes {}", file.display()));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn an_included_file_is_found_from_the_file_that_includes_it() {
    let path = Path::new("connectors/tests/it/store.rs");
    assert_eq!(included(path, "../../../schemas/tests/it/body.rs"), Path::new("schemas/tests/it/body.rs"));
    assert_eq!(package(path), Path::new("connectors"));
}
