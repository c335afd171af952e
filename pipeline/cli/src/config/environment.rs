//! Provider of configuration values from environment variables `PRORATA_SECTION__KEY`.

use figment::providers::Serialized;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::Config;

/// Prefix of all variables.
pub const PREFIX: &str = "PRORATA_";

/// Variables with their values. If the default of a key is text, its value is read as text, even if it looks
/// like a number.
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// Creates a provider from variables. Variables that are not `PRORATA_SECTION__KEY` are ignored.
    pub const fn new(variables: Vec<(String, String)>) -> Self {
        Self(variables)
    }

    /// Takes the environment of this process.
    pub fn of_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        Self::new(variables.collect())
    }

    /// Returns keys such as `root.shards`, with the text of their values.
    pub fn keys(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().filter_map(|(variable, text)| {
            let name = variable.strip_prefix(PREFIX).filter(|name| name.contains("__"))?;
            Some((name.to_ascii_lowercase().replace("__", "."), text.as_str()))
        })
    }
}

/// Returns the variable that sets this key.
pub fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_ascii_uppercase().replace('.', "__"))
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named("environment")
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        let defaults = Value::serialize(Config::default())?;
        let mut figment = Figment::new();
        for (key, text) in self.keys() {
            let is_text = matches!(defaults.find_ref(&key), Some(Value::String(..)));
            let value = if is_text || key.starts_with("rules.currencies.") {
                Value::from(text)
            } else {
                text.parse().unwrap_or_else(|_| Value::from(text))
            };
            figment = figment.merge(Serialized::global(&key, value));
        }
        figment.data()
    }
}
