//! Checks that each name means one thing and that folders stay small. No type name occurs twice in a crate,
//! and no public type name occurs twice in crates that import each other. A folder has at most twelve
//! modules.

use std::collections::{BTreeMap, BTreeSet};

use super::crates::{Crate, crates};
use super::{assert_none, sources};

/// Maximum number of modules in one source folder.
const SIBLINGS_MAX: usize = 12;

/// Parses the declaration of a type at the top of a module. Returns the name, and whether other crates may
/// see the type; `None` for other lines.
fn declared(line: &str) -> Option<(&str, bool)> {
    let (public, rest) = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (false, rest.split_once(") ")?.1),
        Some(rest) => (true, rest.strip_prefix(' ')?),
        None => (false, line),
    };
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let name =
        ["struct ", "enum ", "union ", "trait ", "type "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some((&name[..end], public))
}

#[test]
fn declarations_are_told_from_other_lines() {
    assert_eq!(declared("pub struct Owner {"), Some(("Owner", true)));
    assert_eq!(declared("pub(crate) enum Due<'a> {"), Some(("Due", false)));
    assert_eq!(declared("type Body = (EventKind, Box<[u8]>);"), Some(("Body", false)));
    assert_eq!(declared("    struct Inner;"), None);
    assert_eq!(declared("pub fn structure() {}"), None);
}

/// Returns the type names of a crate with the files that declare them, without tests.
fn types(folder: &str, sources: &[(String, String)]) -> BTreeMap<String, Vec<(String, bool)>> {
    let mut types: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
    let own = sources.iter().filter(|(path, _)| path.starts_with(folder) && !path.ends_with("tests.rs"));
    for (path, text) in own {
        for (name, public) in text.lines().filter_map(declared) {
            types.entry(name.to_owned()).or_default().push((path.clone(), public));
        }
    }
    types
}

#[test]
fn no_type_name_stands_for_two_things() {
    let sources = sources();
    let source = |one: &Crate| format!("{}/src/", one.folder);
    let declared: BTreeMap<&str, _> =
        crates().iter().map(|one| (one.name.as_str(), types(&source(one), &sources))).collect();
    let mut faults = Vec::new();
    for Crate { name, imports, .. } in crates() {
        for (name, places) in &declared[name.as_str()] {
            let within: BTreeSet<&str> = places.iter().map(|(path, _)| path.as_str()).collect();
            if within.len() > 1 {
                faults.push(format!(
                    "{name} is declared in {}",
                    within.into_iter().collect::<Vec<_>>().join(", ")
                ));
            }
            let is_public = |places: &Vec<(String, bool)>| places.iter().any(|(_, public)| *public);
            for import in imports.iter().filter(|_| is_public(places)) {
                for (path, _) in
                    declared[import.as_str()].get(name).into_iter().flatten().filter(|(_, public)| *public)
                {
                    faults.push(format!("{name} is declared in {} and in {path}", places[0].0));
                }
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn no_folder_of_source_holds_more_than_one_can_survey() {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, _) in sources() {
        let mut parts: Vec<&str> = path.split('/').collect();
        let file = parts.pop().unwrap().trim_end_matches(".rs");
        if !matches!(file, "mod" | "lib" | "main") {
            modules.entry(parts.join("/")).or_default().insert(file.to_owned());
        }
        if let Some(folder) = parts.pop() {
            modules.entry(parts.join("/")).or_default().insert(folder.to_owned());
        }
    }
    let mut faults = Vec::new();
    for (folder, modules) in modules.iter().filter(|(folder, _)| !folder.is_empty()) {
        if modules.len() > SIBLINGS_MAX {
            faults.push(format!(
                "{folder}: {} modules, at most {SIBLINGS_MAX}; give them shelves",
                modules.len()
            ));
        }
    }
    assert_none(&faults);
}
