//! Messages about errors of the configuration: what is wrong, where, and how to fix it.

use std::path::Path;

use figment::error::Kind;

use super::environment::PREFIX;

/// Returns one message for all errors. `from_environment` holds the keys that the environment sets.
pub fn message(file: Option<&Path>, from_environment: &[String], errors: figment::Error) -> String {
    let messages = errors.into_iter().map(|error| one(file, from_environment, &error));
    messages.collect::<Vec<_>>().join("; ")
}

fn one(file: Option<&Path>, from_environment: &[String], error: &figment::Error) -> String {
    let mut keys = error.path.clone();
    if let Kind::UnknownField(name, _) = &error.kind
        && keys.last() != Some(name)
    {
        keys.push(name.clone());
    }
    let key = keys.join(".");
    let source = match file {
        Some(file) if !from_environment.contains(&key) => format!("in '{}'", file.display()),
        _ => format!("in the environment ({PREFIX}SECTION__KEY)"),
    };
    if let Kind::UnknownField(name, known) = &error.kind {
        let suggestion = suggestion(name, known);
        return format!("unknown key {key} {source}{suggestion}");
    }
    let place = if key.is_empty() { "the configuration" } else { key.as_str() };
    format!("{place} {source}: {}", error.kind)
}

/// Suggests the known key that is most like `name`.
fn suggestion(name: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .max_by(|one, other| strsim::jaro_winkler(one, name).total_cmp(&strsim::jaro_winkler(other, name)));
    nearest.map_or(String::new(), |nearest| format!("; did you mean '{nearest}'?"))
}
