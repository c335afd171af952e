//! Schemas of writers, in a registry that speaks Confluent's API: Confluent's own, Apicurio (its base URL
//! ends in `/apis/ccompat/v7`), Karapace, Redpanda.
//!
//! [`Registry`] asks once and says what it learned; waiting and asking again is the caller's. Whatever a
//! registry sends is bounded: the time it may take, the bytes it may send, the redirects it may ask for.

mod answer;
mod client;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use client::{Lookup, Registry};

/// How to reach a registry. Names in sentences are those of the configuration's section `registry`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Base URL of Confluent's API, with or without a slash at its end.
    pub url: String,
    /// User name of basic authentication; empty: none.
    pub username: String,
    /// Its password.
    pub password: Password,
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
            password: Password::default(),
            ca_file: None,
            timeout: Duration::from_secs(5),
        }
    }
}

/// A password. It cannot be printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Wraps a password.
    pub fn new(password: impl Into<String>) -> Self {
        Self(password.into())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "hidden" })
    }
}

/// Why a registry did not do what was asked; variants by what helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryFault {
    /// It is down, slow or overloaded: ask again later.
    #[error("the schema registry is unavailable: {0}")]
    Unavailable(String),
    /// It answers, and asking again changes nothing. The sentence says what to change.
    #[error("the schema registry cannot be used: {0}")]
    Configuration(String),
}

impl RegistryFault {
    /// What happened, without the words that say of whom.
    pub fn sentence(&self) -> &str {
        match self {
            Self::Unavailable(sentence) | Self::Configuration(sentence) => sentence,
        }
    }
}
