//! Tests that pages list every command, and name only commands and options that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process;

use clap::CommandFactory;

use super::Arguments;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the program's arguments, including the arguments that clap adds.
fn arguments() -> clap::Command {
    let mut arguments = Arguments::command();
    arguments.build();
    arguments
}

/// Returns the names in the first column of the table with the header `command`, without backticks or links.
fn listed(page: &str) -> BTreeSet<&str> {
    let lines = page.lines().skip_while(|line| !line.starts_with("| command |")).skip(2);
    let cells = lines.map_while(|line| line.strip_prefix('|')?.split('|').next());
    cells.filter_map(|cell| cell.split('`').nth(1)).collect()
}

/// Returns all pages of the repository, each with its path.
fn pages() -> Vec<(String, String)> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"];
    let output = process::Command::new("git").args(listing).current_dir(repository()).output().unwrap();
    let paths = String::from_utf8(output.stdout).unwrap();
    let there = paths.split('\0').filter(|path| repository().join(path).is_file());
    there.map(|path| (path.to_owned(), std::fs::read_to_string(repository().join(path)).unwrap())).collect()
}

/// Page that must have a table of commands. Other pages are checked if they have such a table.
const PAGE: &str = "pipeline/cli/README.md";

#[test]
fn a_table_of_commands_has_every_command() {
    let arguments = arguments();
    let names = arguments.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help");
    let commands: BTreeSet<&str> = names.collect();
    let pages = pages();
    let tables = pages.iter().map(|(path, page)| (path.as_str(), listed(page)));
    let tables: BTreeMap<&str, BTreeSet<&str>> = tables.filter(|(_, listed)| !listed.is_empty()).collect();
    assert!(tables.contains_key(PAGE), "{PAGE} has no table headed `command`");
    for (page, listed) in tables {
        assert_eq!(listed, commands, "the table of commands in {page}, and the program");
    }
}

/// Returns the command lines of the program in the code of a page: the words after `prorata`, up to the end
/// of the command.
fn command_lines(page: &str) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for (index, part) in page.replace("\\\n", " ").split("```").enumerate() {
        if index % 2 == 1 {
            lines.extend(part.lines().map(str::to_owned));
        } else {
            let spans = part.split('`').skip(1).step_by(2);
            lines.extend(spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    }
    let is_end = |word: &&str| !matches!(*word, "|" | "||" | "&&" | ";" | "#" | ">");
    let words = |line: String| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "prorata").skip(1);
        let words: Vec<String> = words.by_ref().take_while(is_end).map(str::to_owned).collect();
        // `helm install prorata CHART` and `-p prorata -- work` do not name a command.
        let is_name = |word: &String| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        words.first().is_some_and(|first| is_name(first) && !first.starts_with('-')).then_some(words)
    };
    lines.into_iter().filter_map(words).collect()
}

/// First words after `prorata` that are not commands. For example, `prorata rows 1` is the first line of a
/// digest.
const NO_COMMANDS: &[&str] = &["rows"];

/// Returns a message about an unknown command or option in a command line; `None` if all of them exist.
fn fault(arguments: &clap::Command, words: &[String]) -> Option<String> {
    let mut command = arguments;
    for (index, word) in words.iter().enumerate() {
        if let Some(inner) = command.get_subcommands().find(|inner| inner.get_name() == word) {
            command = inner;
        } else if index == 0 && !NO_COMMANDS.contains(&word.as_str()) {
            return Some(format!("there is no command {word}"));
        }
        let Some(option) = word.strip_prefix("--") else { continue };
        let option = option.split(['=', '|', '`']).next().unwrap_or_default();
        let option = option.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let known = |argument: &clap::Arg| argument.get_long() == Some(option);
        if !command.get_arguments().any(known) {
            return Some(format!("{} has no --{option}", command.get_name()));
        }
    }
    None
}

#[test]
fn pages_name_only_commands_and_options_that_exist() {
    let arguments = arguments();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for (page, text) in pages() {
        for words in command_lines(&text) {
            seen += 1;
            let fault = fault(&arguments, &words);
            faults.extend(fault.map(|fault| format!("{page}: prorata {}: {fault}", words.join(" "))));
        }
    }
    assert!(seen > 20, "{seen} command lines");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn wrong_command_lines_are_found() {
    let arguments = arguments();
    let page = "`prorata work --config\na.yaml`\n```\nhelm install prorata ./chart\nprorata wrk # a\n\
                prorata prices import aws \\\n  --too b | prorata diff --lake a\n```\n";
    let faults: Vec<_> = command_lines(page).iter().map(|words| fault(&arguments, words)).collect();
    assert_eq!(
        faults,
        [None, Some("there is no command wrk".to_owned()), Some("import has no --too".to_owned())]
    );
}
