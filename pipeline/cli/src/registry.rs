//! The schema registry as the configuration names it.

use std::path::PathBuf;

use prorata_connectors::registry::{Password, Registry, RegistryFault, Settings};

use crate::config;
use crate::failure::Failure;

/// A client of the configured registry; nothing is asked yet. Without a URL there is none, and messages are in
/// single-object encoding.
///
/// # Errors
/// When a setting is wrong, or a file that it names cannot be read.
pub fn open(registry: &config::Registry) -> Result<Option<Registry>, Failure> {
    if registry.url.is_empty() {
        return Ok(None);
    }
    let password = config::secret(&registry.password, &registry.password_file)?;
    let settings = Settings {
        url: registry.url.clone(),
        username: registry.username.clone(),
        password: Password::new(password.unwrap_or_default()),
        ca_file: (!registry.ca_file.is_empty()).then(|| PathBuf::from(&registry.ca_file)),
        timeout: registry.timeout.0,
    };
    Registry::new(&settings).map(Some).map_err(failure)
}

/// Its sentence with its exit code.
pub fn failure(fault: RegistryFault) -> Failure {
    match fault {
        RegistryFault::Unavailable(_) => Failure::storage(fault),
        RegistryFault::Configuration(_) => Failure::usage(fault),
    }
}
