//! Checks that the recipes of `pipeline/README.md` are complete. Each recipe names an example of the thing to
//! add. It must name every file that contains the example, by the path of the file or of a folder.

use super::documents::code_spans;
use super::text::find_word;
use super::{assert_none, files, root};

/// The page with the recipes.
const PAGE: &str = "pipeline/README.md";

/// Files that a recipe need not name: the page itself, test data, copies of released schemas, generated
/// files, and the changelog.
const NOT_WRITTEN_BY_RECIPE: &[&str] = &[
    PAGE,
    "CHANGELOG",
    "Cargo.lock",
    "connectors/tests/released/",
    "deploy/helm/prorata/README.md",
    "schemas/released/",
    "testdata/",
];

/// One recipe: a section "Add ..".
struct Recipe<'a> {
    heading: &'a str,
    /// Identifiers of an existing thing that was added as the recipe says.
    examples: Vec<&'a str>,
    /// Files and folders that the recipe names.
    paths: Vec<&'a str>,
}

fn recipes(page: &str) -> Vec<Recipe<'_>> {
    let sections = page.split("\n## ").filter(|section| section.starts_with("Add "));
    let recipe = |section| {
        let (heading, text): (&str, &str) = str::split_once(section, '\n').unwrap();
        let (before, after) = text.split_once("\nExample: ").unwrap_or((text, ""));
        let (example, rest) = after.split_once("\n\n").unwrap_or((after, ""));
        let path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        let named = [before, rest].into_iter().flat_map(code_spans);
        let paths = named
            .filter(|span| span.chars().all(path) && !span.starts_with('/'))
            .map(|span| span.trim_end_matches('/'));
        Recipe { heading, examples: code_spans(example), paths: paths.collect() }
    };
    sections.map(recipe).collect()
}

#[test]
fn recipes_name_every_file_that_their_example_touched() {
    let page = std::fs::read_to_string(root().join(PAGE)).unwrap();
    let all = files();
    let is_written = |path: &&String| !NOT_WRITTEN_BY_RECIPE.iter().any(|part| path.starts_with(part));
    let read = |path: &String| Some((std::fs::read_to_string(root().join(path)).ok()?, path.clone()));
    let texts: Vec<(String, String)> = all.iter().filter(is_written).filter_map(read).collect();
    let mut faults = Vec::new();
    let recipes = recipes(&page);
    for Recipe { heading, examples, paths } in &recipes {
        if examples.is_empty() {
            faults.push(format!("{PAGE}, {heading:?}: no line `Example: ..`"));
        }
        let holds =
            |file: &str, path: &str| file.strip_prefix(path).is_some_and(|rest| rest.starts_with(['/']));
        let is_there = |path: &str| all.iter().any(|file| file == path || holds(file, path));
        let strange = paths.iter().filter(|path| path.contains('/') && !is_there(path));
        faults.extend(strange.map(|path| format!("{PAGE}, {heading:?}: {path} is not there")));
        for example in examples {
            let with: Vec<&String> = texts
                .iter()
                .filter(|(text, _)| find_word(text, example).is_some())
                .map(|(_, file)| file)
                .collect();
            if with.is_empty() {
                faults.push(format!("{PAGE}, {heading:?}: no file contains its example {example}"));
            }
            let is_named = |file: &str| paths.iter().any(|path| file == *path || holds(file, path));
            let unnamed = with.into_iter().filter(|file| !is_named(file));
            faults.extend(unnamed.map(|file| format!("{PAGE}, {heading:?}: {file} contains {example}")));
        }
    }
    assert!(recipes.len() > 5, "{PAGE} has {} recipes", recipes.len());
    assert_none(&faults);
}

#[test]
fn a_recipe_s_example_and_paths_are_read() {
    let page = "# P\n\n## X\n\n`x/y`\n\n## Add a row\n\nExample: `Row`,\n`row`.\n\n`a/b.rs`: `fold`, `c/`.\n";
    let recipes = recipes(page);
    assert_eq!(recipes.len(), 1);
    assert_eq!((recipes[0].heading, &*recipes[0].examples), ("Add a row", &["Row", "row"][..]));
    assert_eq!(recipes[0].paths, ["a/b.rs", "fold", "c"]);
}
