//! Schemas of writers, in a registry that speaks Confluent's API: Confluent's own, Apicurio (its base URL
//! ends in `/apis/ccompat/v7`), Karapace, Redpanda.
//!
//! [`Registry`] asks once and says what it learned; waiting and asking again is up to the caller. Whatever a
//! registry sends is bounded: the time it may take, the bytes it may send, the redirects it may ask for.

mod answer;
mod client;

use std::path::PathBuf;
use std::time::Duration;

use prorata_worker::ports::ErrorKind;

use crate::Secret;
pub use client::{Lookup, Registry};

/// How to reach a registry. Messages name the keys of the configuration's section `registry`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Base URL of Confluent's API, with or without a slash at its end.
    pub url: String,
    /// User name of basic authentication; empty: none.
    pub username: String,
    /// Its password.
    pub password: Secret,
    /// File with the certificates to trust (PEM); none: the system's.
    pub ca_file: Option<PathBuf>,
    /// How long one answer may take, from connecting to its last byte.
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

/// Why a registry did not do what was asked; variants by what helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryFault {
    /// It is down, slow or overloaded: ask again later.
    #[error("the schema registry is unavailable: {0}")]
    Unavailable(String),
    /// It refuses the credentials.
    #[error("the schema registry cannot be used: {0}")]
    Permission(String),
    /// It answers, and asking again changes nothing. The message says what to change.
    #[error("the schema registry cannot be used: {0}")]
    Configuration(String),
}

impl RegistryFault {
    /// What happened, without naming the registry.
    pub fn message(&self) -> &str {
        match self {
            Self::Unavailable(message) | Self::Permission(message) | Self::Configuration(message) => message,
        }
    }

    /// The kind of the error at the worker's port.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unavailable(_) => ErrorKind::Transient,
            Self::Permission(_) => ErrorKind::Permission,
            Self::Configuration(_) => ErrorKind::Invalid,
        }
    }
}
