//! Checks that modules form layers: among the child modules of one module, imports form no circle.
//!
//! An arrow goes from a module to its sibling if a file of the module names a path in the sibling. The path
//! begins with `crate::`, `super::` or `self::`. A name that the parent re-exports counts as a name of the
//! child that defines it. A child may use the items of its parent, and a parent the items of its children:
//! neither is an arrow. Modules that are compiled for tests only do not count. All modules of a tree lie
//! below the folder of its `lib.rs` or `main.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::crates::crates;
use super::{assert_none, sources};

/// Names from the root of a module tree, or from one of its modules.
type Path = Vec<String>;

/// The modules of one tree.
#[derive(Default)]
struct Tree {
    /// The code of each module.
    code: BTreeMap<Path, String>,
    /// The origin of each name that a module re-exports.
    exports: BTreeMap<Path, Path>,
}

/// The arrows between the children of one module: from each child to siblings, each with a name that it uses.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the code of a file without comments, and without the module of tests at its end.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    let tests = code.match_indices("\n#[cfg(test)]\n").find(|(at, _)| {
        let after = code[*at..].lines().skip(2).find(|line| !line.starts_with("#["));
        after.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    });
    match tests {
        Some((at, _)) => code[..at].to_owned(),
        None => code,
    }
}

/// Returns the names of the child modules that are compiled for tests only.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[cfg(test)]\n").skip(1).filter_map(|after| {
        let line = after.lines().find(|line| !line.starts_with("#["))?;
        line.strip_prefix("mod ")?.strip_suffix(';')
    })
}

/// Reads a path or a tree of paths such as `a::{b, c::d}` at the start of a text. Returns the text after it.
fn read_paths<'a>(mut text: &'a str, mut path: Path, found: &mut Vec<Path>) -> &'a str {
    loop {
        text = text.trim_start();
        if let Some(list) = text.strip_prefix('{') {
            text = list;
            loop {
                text = text.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
                match text.strip_prefix('}') {
                    Some(after) => return after,
                    None if text.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '*') => {
                        text = read_paths(text, path.clone(), found).trim_start_matches('*');
                    }
                    None => return text,
                }
            }
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, after) = text.split_at(end);
        path.extend((!name.is_empty() && name != "self" || path.is_empty()).then(|| name.to_owned()));
        match after.strip_prefix("::") {
            Some(more) => text = more,
            None => {
                found.push(path);
                return after.strip_prefix(" as ").map_or(after, |after| after.trim_start_matches(is_name));
            }
        }
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Converts a path that `module` uses, which may be relative to the module, into a path from the root of the
/// tree.
fn from_root(module: &Path, path: &[String]) -> Path {
    let supers = path.iter().take_while(|name| *name == "super").count();
    match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        Some("super") => [&module[..module.len().saturating_sub(supers)], &path[supers..]].concat(),
        Some("self") => [module, &path[1..]].concat(),
        _ => [module, path].concat(),
    }
}

impl Tree {
    fn new(code: BTreeMap<Path, String>) -> Self {
        let mut tree = Self { code, exports: BTreeMap::new() };
        for (module, code) in &tree.code {
            let statements = code.split("\npub").skip(1).filter_map(|after| {
                let after = after.trim_start_matches("(crate)").trim_start_matches("(super)");
                after.strip_prefix(" use ")
            });
            for statement in statements {
                let mut origins = Vec::new();
                read_paths(statement, Path::new(), &mut origins);
                for origin in origins {
                    let exported = [module.as_slice(), &origin[origin.len() - 1..]].concat();
                    tree.exports.insert(exported, from_root(module, &origin));
                }
            }
        }
        tree
    }

    /// Returns the module that contains the item at a path.
    fn module_of(&self, path: &Path) -> Path {
        let mut path = path.clone();
        // A name may be re-exported several times.
        for _ in 0..8 {
            let outer = (1..=path.len()).find(|length| !self.code.contains_key(&path[..*length]));
            let Some(length) = outer else { return path };
            match self.exports.get(&path[..length]) {
                Some(origin) if *origin != path[..length] => path = [origin, &path[length..]].concat(),
                _ => return path[..length - 1].to_vec(),
            }
        }
        path
    }

    /// Returns the arrows between the children of each module.
    fn arrows(&self) -> BTreeMap<Path, Arrows> {
        let mut arrows: BTreeMap<Path, Arrows> = BTreeMap::new();
        for (module, code) in &self.code {
            let mut named = Vec::new();
            for start in ["crate::", "super::", "self::"] {
                let starts = code.match_indices(start).map(|(at, _)| at);
                let outer = starts.filter(|at| !code[..*at].ends_with(|c| is_name(c) || c == ':'));
                for at in outer {
                    read_paths(&code[at..], Path::new(), &mut named);
                }
            }
            for path in named {
                let used = self.module_of(&from_root(module, &path));
                let shared = module.iter().zip(&used).take_while(|(ours, theirs)| ours == theirs).count();
                if let (Some(from), Some(to)) = (module.get(shared), used.get(shared)) {
                    let of = arrows.entry(module[..shared].to_vec()).or_default();
                    let example = format!("{} names {}", module.join("::"), path.join("::"));
                    of.entry(from.clone()).or_default().insert(to.clone(), example);
                }
            }
        }
        arrows
    }
}

/// Returns the modules to which arrows lead from a module, directly or through any number of other modules.
fn reached<'a>(arrows: &'a Arrows, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = vec![from];
    while let Some(at) = next.pop() {
        let to = arrows.get(at).into_iter().flat_map(BTreeMap::keys);
        next.extend(to.filter(|to| reached.insert(to.as_str())).map(String::as_str));
    }
    reached
}

/// Returns the circles among some arrows, each with examples of its arrows.
fn circles(arrows: &Arrows) -> BTreeMap<String, Vec<&str>> {
    let in_circle = |name| -> Vec<&str> {
        let reached = reached(arrows, name);
        let mutual = reached.into_iter().filter(|other| self::reached(arrows, other).contains(name));
        mutual.collect()
    };
    let mut circles = BTreeMap::new();
    for name in arrows.keys() {
        let members = in_circle(name);
        if !members.is_empty() {
            let of_members = arrows.iter().filter(|(from, _)| members.contains(&from.as_str()));
            let inside = of_members.flat_map(|(_, to)| to).filter(|(to, _)| members.contains(&to.as_str()));
            let examples = inside.map(|(_, example)| example.as_str()).collect();
            circles.insert(members.join(", "), examples);
        }
    }
    circles
}

/// Returns the module trees of the repository by folder. A file belongs to the tree of the nearest `lib.rs`
/// or `main.rs` above it.
fn trees() -> BTreeMap<String, Tree> {
    let sources = sources();
    let root = |path: &str| {
        let (folder, name) = path.rsplit_once('/')?;
        matches!(name, "lib.rs" | "main.rs").then(|| format!("{folder}/"))
    };
    let roots: BTreeSet<String> = sources.iter().filter_map(|(path, _)| root(path)).collect();
    let mut trees: BTreeMap<String, BTreeMap<Path, String>> = BTreeMap::new();
    let mut tests: Vec<(String, Path)> = Vec::new();
    for (path, text) in &sources {
        let above = roots.iter().filter(|root| path.starts_with(root.as_str()));
        let Some(root) = above.max_by_key(|root| root.len()) else { continue };
        let inner = path[root.len()..].trim_end_matches(".rs");
        let inner = inner.strip_suffix("/mod").unwrap_or(inner);
        let is_root = matches!(inner, "lib" | "main" | "mod");
        let module = if is_root { Path::new() } else { inner.split('/').map(str::to_owned).collect() };
        let folder = root.trim_end_matches('/').to_owned();
        let of_tests = test_modules(text).map(|name| [module.as_slice(), &[name.to_owned()]].concat());
        tests.extend(of_tests.map(|module| (folder.clone(), module)));
        trees.entry(folder).or_default().entry(module).or_default().push_str(&code(text));
    }
    for (folder, of_tests) in &tests {
        let tree = trees.entry(folder.clone()).or_default();
        tree.retain(|module, _| !module.starts_with(of_tests));
    }
    trees.into_iter().map(|(folder, code)| (folder, Tree::new(code))).collect()
}

#[test]
fn sibling_modules_do_not_import_each_other_in_circles() {
    let trees = trees();
    for one in crates() {
        assert!(trees.keys().any(|root| root.starts_with(&one.folder)), "{} has no module tree", one.name);
    }
    let mut faults = Vec::new();
    for (folder, tree) in &trees {
        for (parent, arrows) in tree.arrows() {
            for (members, examples) in circles(&arrows) {
                let place = [std::slice::from_ref(folder), parent.as_slice()].concat().join("/");
                let circle = format!("{place}: {members}");
                faults.push(format!("a circle in {circle}\n  {}", examples.join("\n  ")));
            }
        }
    }
    assert_none(&faults);
}

/// Returns the circles of a tree whose modules have this code.
fn circles_of(modules: &[(&str, &str)]) -> Vec<String> {
    let path = |name: &str| name.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let code = modules.iter().map(|(name, text)| (path(name), code(text))).collect();
    let arrows = Tree::new(code).arrows();
    arrows.values().flat_map(|arrows| circles(arrows).into_keys()).collect()
}

#[test]
fn a_circle_is_seen_however_its_paths_are_written() {
    let circle = ["a, b"];
    assert_eq!(
        circles_of(&[("", ""), ("a", "use crate::b::B;"), ("b", "use super::{c, a::{X, Y}};")]),
        circle
    );
    assert_eq!(
        circles_of(&[
            ("", ""),
            ("a", "fn f() { crate::b::f(); }"),
            ("b", ""),
            ("b::c", "use super::super::a;")
        ]),
        circle
    );
    let exported = [("", "\npub use b::{self, B};"), ("a", "use crate::B;"), ("b", "use crate::a::A;")];
    assert_eq!(circles_of(&exported), circle);
    let nested = [("", ""), ("p", ""), ("p::a", "use crate::p::b::B;"), ("p::b", "use super::a::A;")];
    assert_eq!(circles_of(&nested), circle);
}

#[test]
fn parents_children_comments_and_tests_make_no_circle() {
    let parent = [("", "use a::A;"), ("a", "use crate::Root;"), ("b", "use super::Root; use crate::a::A;")];
    assert_eq!(circles_of(&parent), [""; 0]);
    let aside = [
        ("a", "use crate::b::B;"),
        ("b", "//! [`crate::a`]\n\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}"),
    ];
    assert_eq!(circles_of(&aside), [""; 0]);
}
