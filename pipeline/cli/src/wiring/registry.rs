//! Clients of the schema registry, as configured.

use std::path::PathBuf;

use prorata_connectors::messages::{ConfluentMessages, SingleObjectMessages, Times};
use prorata_connectors::registry::{Registry, RegistryFault, Settings};
use prorata_worker::backoff::REGISTER;
use prorata_worker::source::MessageDecoder;

use crate::config::{self, RegistryConfig};
use crate::failure::Failure;

/// Creates a client of the configured registry. Nothing is sent yet. Returns `None` if there is no URL:
/// messages are then in single-object encoding.
///
/// # Errors
/// If a setting is wrong, or a file that a setting names cannot be read.
pub fn open(registry: &RegistryConfig) -> Result<Option<Registry>, Failure> {
    if registry.url.is_empty() {
        return Ok(None);
    }
    if let Some(exposed) = config::exposed::registry(registry) {
        tracing::warn!("{exposed}");
    }
    let settings = Settings {
        url: registry.url.clone(),
        username: registry.username.clone(),
        password: config::read_secret(&registry.password, &registry.password_file)?,
        ca_file: (!registry.ca_file.is_empty()).then(|| PathBuf::from(&registry.ca_file)),
        timeout: registry.timeout,
    };
    Registry::new(&settings).map(Some).map_err(failure)
}

/// Creates the decoder of messages in the format that the configuration implies.
///
/// # Errors
/// See [`open`].
pub fn decoder(registry: &RegistryConfig, times: Times) -> anyhow::Result<Box<dyn MessageDecoder>> {
    Ok(match open(registry)? {
        Some(registry) => Box::new(ConfluentMessages::new(registry, times)),
        None => Box::new(SingleObjectMessages::new()?),
    })
}

/// Sends a request that a producer needs at its start. While the registry is unavailable, repeats the request
/// as [`REGISTER`] says.
///
/// # Errors
/// Returns the last error, with its exit code.
pub async fn ask<T>(question: impl AsyncFn() -> Result<T, RegistryFault>) -> Result<T, Failure> {
    let mut failures = 0;
    loop {
        match question().await {
            Ok(answer) => return Ok(answer),
            Err(fault @ RegistryFault::Unavailable(_)) if REGISTER.attempts().contains(&(failures + 1)) => {
                failures += 1;
                let wait = REGISTER.delay(failures);
                tracing::warn!(%fault, "schema registry unavailable; asking again in {wait:?}");
                tokio::time::sleep(wait).await;
            }
            Err(fault) => return Err(failure(fault)),
        }
    }
}

/// Converts an error of the registry to a failure with an exit code.
pub fn failure(fault: RegistryFault) -> Failure {
    match fault {
        RegistryFault::Unavailable(_) => Failure::storage(fault),
        RegistryFault::Permission(_) | RegistryFault::Configuration(_) => Failure::usage(fault),
    }
}
