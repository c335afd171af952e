//! Configuration: defaults, then one YAML file, then `PRORATA_SECTION__KEY` from the environment.
//!
//! `deploy/prorata.yaml` documents every key. Defaults come from the crates that use the values. An unknown
//! key is an error, and its message suggests the key that was probably meant.

mod collect;
mod environment;
pub mod exposed;
mod kafka;
mod messages;
mod secrets;
mod sections;
#[cfg(test)]
mod tests;
pub mod yaml;

use std::path::Path;

use figment::Figment;
use figment::providers::Serialized;
use prorata_schemas::rules::Rules;
use prorata_schemas::rules::division::check_divisions;
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::stream::WorkerOptions;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use environment::Environment;
use yaml::Yaml;

pub use collect::{CollectConfig, MeasuredBy};
pub use prorata_worker::ports::duration;

pub use kafka::{
    KafkaConfig, OffsetsLost, RegistryConfig, SaslMechanism, SecurityProtocol, SkippedBatchConfig,
    TopicConfig, names as topic_names,
};
pub use secrets::read as read_secret;
pub use sections::{HttpConfig, LogConfig, LogFormat, RootConfig};

/// The whole configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The root, and the settings that are fixed for it.
    pub root: RootConfig,
    /// The accounting rules.
    pub rules: Rules,
    /// Settings of a backfill.
    pub backfill: BackfillOptions,
    /// Settings of the stream worker's input.
    pub kafka: KafkaConfig,
    /// Settings of the registry in which producers register their schemas.
    pub registry: RegistryConfig,
    /// Settings of the stream worker.
    pub work: WorkerOptions,
    /// The cluster that the collector watches, and the events that it writes.
    pub collect: CollectConfig,
    /// Address at which the stream worker serves probes, metrics and status.
    pub http: HttpConfig,
    /// Logs.
    pub log: LogConfig,
}

/// The configuration, with flags for parts that were set rather than left at their defaults.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// All values.
    pub config: Config,
    /// Whether the number of shards was set.
    pub shards_given: bool,
    /// Whether a rule was set in the file.
    pub rules_given: bool,
}

/// Reads the file, if any, and the environment.
///
/// # Errors
/// If the file cannot be read, or a key or value is wrong.
pub fn load(file: Option<&Path>) -> Result<Loaded, Failure> {
    load_from(file, Environment::of_process())
}

fn load_from(file: Option<&Path>, environment: Environment) -> Result<Loaded, Failure> {
    let mut given = Figment::new();
    if let Some(file) = file {
        given = given.merge(read(file)?);
        secrets::refuse_in_file(file, &given)?;
    }
    let rules_given = given.contains("rules");
    let from_environment: Vec<String> = environment.keys().map(|(key, _)| key).collect();
    given = given.merge(environment);
    let shards_given = given.contains("root.shards");
    let all = Figment::from(Serialized::defaults(Config::default())).merge(given);
    let config: Config =
        all.extract().map_err(|errors| Failure::usage(messages::message(file, &from_environment, errors)))?;
    if config.rules.currency.is_empty() {
        return Err(Failure::usage("rules.currency is empty; name an ISO 4217 code such as USD"));
    }
    check_divisions(&config.rules.shared_charges).map_err(|fault| Failure::usage(fault.to_string()))?;
    Ok(Loaded { config, shards_given, rules_given })
}

fn read(file: &Path) -> Result<Yaml, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("--config '{}' cannot be read: {error}", file.display())))?;
    Yaml::parse(&text)
        .map_err(|error| Failure::usage(format!("--config '{}' is not valid YAML: {error}", file.display())))
}
