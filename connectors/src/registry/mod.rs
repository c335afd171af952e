//! Schemas of writers, in a registry with Confluent's API: Confluent's own, Apicurio (its base URL ends in
//! `/apis/ccompat/v7`), Karapace, Redpanda.
//!
//! [`Registry`] asks once and reports the result; the caller decides whether to wait and ask again.
//! Everything that a registry sends is bounded: the time of an answer, its bytes, and its redirects.

mod answer;
mod client;

use std::path::PathBuf;
use std::time::Duration;

use prorata_worker::ports::ErrorKind;

use crate::Secret;
pub use client::{Lookup, Registry};

/// The settings by which a client reaches a registry. Messages name the keys of the configuration's section
/// `registry`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Base URL of Confluent's API, with or without a trailing slash.
    pub url: String,
    /// User name of basic authentication; empty for none.
    pub username: String,
    /// The user's password.
    pub password: Secret,
    /// File with the certificates to trust (PEM); `None` for the system's certificates.
    pub ca_file: Option<PathBuf>,
    /// Maximum time of one answer, from connecting to its last byte.
    pub timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            url: String::new(),
            username: String::new(),
            password: Secret::default(),
            ca_file: None,
            timeout: Duration::from_secs(5),
        }
    }
}

/// The reason why a request to a registry failed. The variants differ in the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryFault {
    /// The registry is down, slow or overloaded: ask again later.
    #[error("the schema registry is unavailable: {0}")]
    Unavailable(String),
    /// The registry refuses the credentials.
    #[error("the schema registry cannot be used: {0}")]
    Permission(String),
    /// The registry answers, and asking again changes nothing. The message says what to change.
    #[error("the schema registry cannot be used: {0}")]
    Configuration(String),
}

impl RegistryFault {
    /// Returns the message, without the name of the registry.
    pub fn message(&self) -> &str {
        match self {
            Self::Unavailable(message) | Self::Permission(message) | Self::Configuration(message) => message,
        }
    }

    /// Returns the worker's [`ErrorKind`] for this fault.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unavailable(_) => ErrorKind::Transient,
            Self::Permission(_) => ErrorKind::Permission,
            Self::Configuration(_) => ErrorKind::Invalid,
        }
    }
}
