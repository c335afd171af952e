//! Tables of objects and their events, price documents, agreements, usage, random histories against a second
//! implementation, and the stored form of the state. `testdata/collector/README.md` explains the tables.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod agreements;
mod histories;
mod imports;
mod objects;
mod prices;
mod requests;
mod rig;
mod shown;
mod tables;
mod usage;

use std::fs;
use std::path::Path;

/// Returns the tables in a folder of `testdata/collector`, by file name.
fn tables_in(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/collector").join(folder);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let read = |path: &std::path::PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap())
    };
    files.iter().map(read).collect()
}

/// Returns the words of a line up to a remark, which begins with `--`.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().take_while(|word| !word.starts_with("--")).collect()
}
