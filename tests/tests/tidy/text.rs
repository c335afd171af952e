//! The form of source files: a purpose at the top, a bounded length, unsafe code in one file, nothing left
//! for later.

use super::{assert_none, files, root, sources};

/// Longest source file, in lines.
const LINES_MAX: usize = 500;

/// The one file that may be unsafe: it calls a C library.
const UNSAFE: &str = "connectors/src/kafka/client/batch.rs";

#[test]
fn every_source_file_opens_with_its_purpose() {
    let sources = sources();
    assert!(sources.len() > 20);
    let silent = sources.iter().filter(|(_, text)| !text.starts_with("//! "));
    assert_none(
        &silent.map(|(path, _)| format!("{path}: its first line is no `//!` sentence")).collect::<Vec<_>>(),
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
