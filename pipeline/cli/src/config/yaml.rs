//! Provider of configuration values from the YAML file.
//!
//! Files are small and written by people, so limits are low: nesting, aliases and size cannot exhaust memory
//! or the stack. A duplicate key is an error, and a merge key (`<<`) is an unknown key.

use figment::value::{Dict, Map};
use figment::{Metadata, Profile, Provider};
use serde::de::DeserializeOwned;
use serde_saphyr::{Options, alias_limits, budget, options};

/// Maximum bytes of a file. The documented file has about 10 KiB.
const BYTES_MAX: usize = 1 << 20;
/// Deepest nesting of lists and sections. The configuration needs four levels.
const DEPTH_MAX: usize = 32;
/// Maximum number of values. A value counts as often as aliases repeat it.
const VALUES_MAX: usize = 100_000;

/// Error of a text that is not a single YAML mapping, or that exceeds a limit.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// The file has more bytes than a configuration needs.
    #[error("the file has {0} bytes, more than the {BYTES_MAX} that are allowed")]
    TooLarge(usize),
    /// The error has line and column but no snippet, because a line may hold a secret.
    #[error("{}", .0.without_snippet())]
    Syntax(serde_saphyr::Error),
}

/// Reads a value from a YAML text, under the limits of configuration files.
///
/// # Errors
/// See [`YamlError`].
pub fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    if text.len() > BYTES_MAX {
        return Err(YamlError::TooLarge(text.len()));
    }
    serde_saphyr::from_str_with_options(text, limits()).map_err(YamlError::Syntax)
}

/// A parsed YAML file.
pub struct Yaml(Dict);

impl Yaml {
    /// Parses the text of a file. An empty file has no values.
    ///
    /// # Errors
    /// See [`YamlError`].
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let parsed: Option<Dict> = from_text(text)?;
        Ok(Self(parsed.unwrap_or_default()))
    }
}

impl Provider for Yaml {
    fn metadata(&self) -> Metadata {
        Metadata::named("YAML file")
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Profile::Default.collect(self.0.clone()))
    }
}

/// Returns low limits and the core schema of YAML 1.2, in which `no` and `0755` are texts.
fn limits() -> Options {
    options! {
        budget: budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_nodes: VALUES_MAX,
            max_events: 2 * VALUES_MAX,
            max_documents: 1,
        },
        alias_limits: alias_limits! {
            max_total_replayed_events: VALUES_MAX,
            max_replay_stack_depth: DEPTH_MAX,
        },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
        merge_keys: serde_saphyr::options::MergeKeyPolicy::AsOrdinary,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Yaml::parse(text).err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn an_empty_file_has_no_values() {
        for text in ["", "# only a comment\n", "---\n", "{}"] {
            assert!(Yaml::parse(text).unwrap().0.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn duplicate_keys_are_errors_with_their_place() {
        let message = error("log:\n  level: warn\n  level: info\n");
        assert!(message.contains("duplicate") && message.contains("level"), "{message}");
        assert!(message.contains("line 3"), "{message}");
    }

    #[test]
    fn broken_yaml_is_an_error_with_its_place() {
        for text in ["log:\n  level: [warn\n", "log: {level: warn\n", "log: 'warn\n"] {
            let message = error(text);
            assert!(message.contains("line "), "{text:?}: {message}");
        }
        assert!(!error("- a\n- b\n").is_empty());
        assert!(!error("a: 1\n---\nb: 2\n").is_empty());
    }

    #[test]
    fn deep_nesting_is_an_error() {
        for deep in ["[".repeat(100_000), format!("a: {}", "{a: ".repeat(100_000)), "- ".repeat(100_000)] {
            let message = error(&deep);
            assert!(!message.is_empty() && message.len() < 300, "{message}");
        }
        let fits = format!("a: {}{}", "[".repeat(DEPTH_MAX - 1), "]".repeat(DEPTH_MAX - 1));
        assert_eq!(error(&fits), "");
    }

    #[test]
    fn aliases_work_and_an_alias_bomb_is_an_error() {
        let parsed = Yaml::parse("a: &a [x, y]\nb: *a\n").unwrap();
        assert_eq!(parsed.0.get("a"), parsed.0.get("b"));
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("a{level}: &a{level} [{aliases}]\n");
        }
        let message = error(&bomb);
        assert!(!message.is_empty() && message.len() < 300, "{message}");
    }

    #[test]
    fn a_file_without_end_is_an_error() {
        assert!(error(&"a".repeat(BYTES_MAX + 1)).contains("more than the 1048576 that are allowed"));
        assert!(!error(&"- a\n".repeat(VALUES_MAX + 1)).is_empty());
    }

    #[test]
    fn texts_stay_texts() {
        let parsed = Yaml::parse("a: no\nb: 0755\nc: 1_000\nd: on\ne: \"1\"\n").unwrap();
        assert!(parsed.0.values().all(|value| value.as_str().is_some()), "{:?}", parsed.0);
    }
}
