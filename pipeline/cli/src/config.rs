//! Configuration: defaults, then one YAML file, then `PRORATA_SECTION__KEY` from the environment.
//!
//! `deploy/prorata.yaml` documents every key. Unknown keys are errors, with the key that was probably meant.

use std::path::Path;
use std::time::Duration;

use figment::error::Kind;
use figment::providers::{Format, Serialized, Yaml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use prorata_schemas::rules::Rules;
use prorata_worker::root::SHARDS_DEFAULT;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::failure::Failure;

mod stream;

pub use stream::{Http, Kafka, OffsetsLost, Registry, SaslMechanism, Secret, SecurityProtocol, Work};

const PREFIX: &str = "PRORATA_";

/// Keys that are never written into the file.
const SECRETS: [&str; 2] = ["kafka.sasl_password", "registry.password"];

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What is fixed for a root.
    pub root: Root,
    /// The rules of account.
    pub rules: Rules,
    /// How a backfill runs.
    pub backfill: Backfill,
    /// Where the stream worker reads.
    pub kafka: Kafka,
    /// Where writers' schemas are registered.
    pub registry: Registry,
    /// How the stream worker runs.
    pub work: Work,
    /// Where the stream worker answers probes and people.
    pub http: Http,
    /// Logs.
    pub log: Log,
}

/// What is fixed for a root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Root {
    /// Folder or URL of the root; empty: none.
    pub url: String,
    /// Number of shards.
    pub shards: u16,
}

/// How a backfill runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Backfill {
    /// Threads for reading, folding and encoding; 0 takes all cores.
    pub threads: usize,
    /// Bytes of new events to gather before they are archived.
    pub buffer_bytes: u64,
    /// Bytes of memory that folding should stay within.
    pub memory_limit: u64,
    /// Rows of `cost_allocation` in memory at a time.
    pub rows_in_flight: u64,
    /// Least time between two checkpoints.
    pub checkpoint_every: Span,
    /// Most hours of one shard in one run.
    pub hours_max: i64,
}

/// Logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Least level.
    pub level: String,
    /// Form.
    pub format: LogFormat,
}

/// Form of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for Root {
    fn default() -> Self {
        Self { url: String::new(), shards: SHARDS_DEFAULT }
    }
}

impl Default for Backfill {
    fn default() -> Self {
        Self {
            threads: 0,
            buffer_bytes: 64 << 20,
            memory_limit: 1 << 30,
            rows_in_flight: 100_000,
            checkpoint_every: Span(Duration::from_secs(60)),
            hours_max: 100_000,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "warn".into(), format: LogFormat::Text }
    }
}

/// A duration such as `5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl Span {
    fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let (_, unit) = UNITS.into_iter().find(|(name, _)| text.strip_prefix(digits) == Some(*name))?;
        Some(Self(Duration::from_millis(digits.parse::<u64>().ok()?.checked_mul(unit)?)))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let milliseconds = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let whole = UNITS.into_iter().rev().find(|(_, unit)| milliseconds.is_multiple_of(*unit));
        let (name, unit) = whole.unwrap_or(("ms", 1));
        serializer.collect_str(&format_args!("{}{name}", milliseconds / unit))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("'{text}' is no duration such as 30s, 5m or 1h")))
    }
}

/// The configuration, and what of it was said rather than left to defaults.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// All values.
    pub config: Config,
    /// Whether the number of shards was said.
    pub shards_given: bool,
    /// Whether a rule was said in a file named by `--config`.
    pub rules_given: bool,
}

/// Reads the file, if any, and the environment.
///
/// # Errors
/// When the file cannot be read, or a key or value is wrong.
pub fn load(file: Option<&Path>) -> Result<Loaded, Failure> {
    let variables = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
    load_from(file, variables.collect())
}

fn load_from(file: Option<&Path>, variables: Vec<(String, String)>) -> Result<Loaded, Failure> {
    let mut said = Figment::new();
    if let Some(file) = file {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::usage(format!("--config '{}' cannot be read: {error}", file.display()))
        })?;
        said = said.merge(Yaml::string(&text));
        refuse_secrets(file, &said)?;
    }
    let rules_given = said.contains("rules");
    let environment = Environment { variables };
    let named: Vec<String> = environment.paths().map(|(path, _)| path).collect();
    said = said.merge(environment);
    let shards_given = said.contains("root.shards");
    let all = Figment::from(Serialized::defaults(Config::default())).merge(said);
    let config: Config = all.extract().map_err(|error| Failure::usage(sentence(file, &named, error)))?;
    let currency = &config.rules.currency;
    if currency.is_empty() {
        return Err(Failure::usage("rules.currency is empty; name an ISO 4217 code such as USD"));
    }
    Ok(Loaded { config, shards_given, rules_given })
}

/// Files are copied, mounted and read by many; what is secret comes from elsewhere.
fn refuse_secrets(file: &Path, said: &Figment) -> Result<(), Failure> {
    let written = |key: &&str| said.find_value(key).is_ok_and(|value| value.as_str() != Some(""));
    let Some(key) = SECRETS.into_iter().find(written) else { return Ok(()) };
    let variable = key.to_ascii_uppercase().replace('.', "__");
    Err(Failure::usage(format!(
        "{key} is written in '{}'; set {PREFIX}{variable} in the environment, or name a file that holds it as \
         {key}_file",
        file.display()
    )))
}

/// A secret: as it was set, else what its file holds but for one line end; none where neither is given.
///
/// # Errors
/// When the file cannot be read or holds nothing.
pub fn secret(secret: &Secret, file: &str) -> Result<Option<String>, Failure> {
    if !secret.0.is_empty() {
        return Ok(Some(secret.0.clone()));
    }
    if file.is_empty() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("the password file '{file}' cannot be read: {error}")))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(Failure::usage(format!("the password file '{file}' is empty")));
    }
    Ok(Some(line.to_owned()))
}

/// What is wrong, where, and how to mend it.
fn sentence(file: Option<&Path>, named: &[String], errors: figment::Error) -> String {
    let sentences = errors.into_iter().map(|error| {
        let mut keys = error.path.clone();
        if let Kind::UnknownField(name, _) = &error.kind
            && keys.last() != Some(name)
        {
            keys.push(name.clone());
        }
        let key = keys.join(".");
        let source = match file {
            Some(file) if !named.contains(&key) => format!("in '{}'", file.display()),
            _ => format!("in the environment ({PREFIX}SECTION__KEY)"),
        };
        if let Kind::UnknownField(name, known) = &error.kind {
            let nearest = known.iter().max_by(|one, other| {
                strsim::jaro_winkler(one, name).total_cmp(&strsim::jaro_winkler(other, name))
            });
            let meant = nearest.map_or(String::new(), |nearest| format!("; did you mean '{nearest}'?"));
            return format!("unknown key {key} {source}{meant}");
        }
        let place = if key.is_empty() { "the configuration" } else { key.as_str() };
        format!("{place} {source}: {}", error.kind)
    });
    sentences.collect::<Vec<_>>().join("; ")
}

/// `PRORATA_SECTION__KEY`. A value whose default is text is taken as text, whatever it looks like.
struct Environment {
    variables: Vec<(String, String)>,
}

impl Environment {
    /// Keys such as `root.shards`, with the text of their values.
    fn paths(&self) -> impl Iterator<Item = (String, &str)> {
        self.variables.iter().filter_map(|(key, text)| {
            let name = key.strip_prefix(PREFIX).filter(|name| name.contains("__"))?;
            Some((name.to_ascii_lowercase().replace("__", "."), text.as_str()))
        })
    }
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named("environment")
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        let defaults = Value::serialize(Config::default())?;
        let mut figment = Figment::new();
        for (path, text) in self.paths() {
            let is_text = matches!(defaults.find_ref(&path), Some(Value::String(..)));
            let value = if is_text || path.starts_with("rules.currencies.") {
                Value::from(text)
            } else {
                text.parse().unwrap_or_else(|_| Value::from(text))
            };
            figment = figment.merge(Serialized::global(&path, value));
        }
        figment.data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn with(yaml: &str, variables: &[(&str, &str)]) -> Result<Loaded, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prorata.yaml");
        std::fs::write(&file, yaml).unwrap();
        let variables =
            variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        load_from(Some(&file), variables).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_documented_file_is_the_defaults() {
        let file = repository().join("deploy/prorata.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let written: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
        let defaults = serde_yaml::to_value(Config::default()).unwrap();
        assert_eq!(written, defaults, "deploy/prorata.yaml names every key with its default");
        assert_eq!(load_from(Some(&file), vec![]).unwrap().config, Config::default());
    }

    #[test]
    fn an_unknown_key_is_an_error_with_the_one_that_was_meant() {
        let sentence = with("backfill:\n  bufer_bytes: 1\n", &[]).unwrap_err();
        assert!(sentence.contains("unknown key backfill.bufer_bytes in '"), "{sentence}");
        assert!(sentence.contains("did you mean 'buffer_bytes'?"), "{sentence}");
        let sentence = with("", &[("PRORATA_ROOT__SHARD", "4")]).unwrap_err();
        assert!(sentence.contains("unknown key root.shard in the environment"), "{sentence}");
        let sentence = with("rulez: {}\n", &[]).unwrap_err();
        assert!(sentence.contains("did you mean 'rules'?"), "{sentence}");
    }

    #[test]
    fn the_environment_overrides_the_file_and_text_stays_text() {
        let loaded = with(
            "root:\n  shards: 4\nrules:\n  version: \"7\"\n",
            &[
                ("PRORATA_ROOT__SHARDS", "8"),
                ("PRORATA_RULES__WEIGHTS__CPU", "0.5"),
                ("PRORATA_RULES__VERSION", "2"),
            ],
        )
        .unwrap();
        assert_eq!(loaded.config.root.shards, 8);
        assert_eq!(loaded.config.rules.weights.cpu.to_string(), "0.5");
        assert_eq!(&*loaded.config.rules.version, "2");
        assert!(loaded.shards_given && loaded.rules_given);
        let nothing = with("log:\n  level: info\n", &[]).unwrap();
        assert!(!nothing.shards_given && !nothing.rules_given);
    }

    #[test]
    fn a_password_in_the_file_is_refused_with_where_it_belongs() {
        for (key, variable) in [
            ("kafka:\n  sasl_password: s3cret\n", "PRORATA_KAFKA__SASL_PASSWORD"),
            ("registry:\n  password: 12345\n", "PRORATA_REGISTRY__PASSWORD"),
        ] {
            let sentence = with(key, &[]).unwrap_err();
            assert!(sentence.contains(&format!("set {variable} in the environment")), "{sentence}");
            assert!(sentence.contains("password_file"), "{sentence}");
            assert!(!sentence.contains("s3cret") && !sentence.contains("12345"), "{sentence}");
        }
        let loaded =
            with("registry:\n  password: \"\"\n", &[("PRORATA_REGISTRY__PASSWORD", "12345")]).unwrap();
        assert_eq!(loaded.config.registry.password.0, "12345");
        assert!(!format!("{loaded:?}").contains("12345"));
    }

    #[test]
    fn a_secret_comes_from_the_environment_or_its_file_without_the_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let file = path.to_str().unwrap();
        let none = Secret::default();
        assert_eq!(secret(&none, "").unwrap(), None);
        assert_eq!(secret(&Secret("set".into()), "no/such/file").unwrap().as_deref(), Some("set"));
        for (text, expected) in [("a b", "a b"), ("x\n", "x"), ("x\r\n", "x"), ("x\n\n", "x\n"), (" x", " x")]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(secret(&none, file).unwrap().as_deref(), Some(expected), "{text:?}");
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(secret(&none, file).unwrap_err().to_string().contains("is empty"));
        let sentence = secret(&none, "no/such/file").unwrap_err().to_string();
        assert!(sentence.contains("'no/such/file' cannot be read"), "{sentence}");
    }

    #[test]
    fn durations_are_written_as_people_write_them() {
        for (text, seconds) in [("30s", 30), ("5m", 300), ("1h", 3_600), ("2d", 172_800), ("0s", 0)] {
            assert_eq!(Span::parse(text), Some(Span(Duration::from_secs(seconds))), "{text}");
        }
        for text in ["", "5", "m", "-5m", "5 m", "5min", "1.5h"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
        let sentence = with("backfill:\n  checkpoint_every: soon\n", &[]).unwrap_err();
        assert!(sentence.contains("'soon' is no duration such as 30s, 5m or 1h"), "{sentence}");
    }
}
