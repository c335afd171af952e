//! The answers of registries, and their meaning.

use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::RegistryFault;
use crate::avro::SCHEMA_BYTES_MAX;

/// Maximum length of an answer, in bytes: a schema's text within JSON, with every quote in it escaped.
pub(super) const ANSWER_BYTES_MAX: usize = 2 * SCHEMA_BYTES_MAX;
/// Maximum length of a registry's text in an error message, in characters. The registry's own messages may
/// have any length.
const TEXT_CHARS_MAX: usize = 300;

/// An answer that was read to its end.
pub(super) struct Answer {
    pub(super) url: Url,
    pub(super) status: StatusCode,
    pub(super) is_json: bool,
    /// The body; `None` if it exceeded [`ANSWER_BYTES_MAX`].
    pub(super) body: Option<Vec<u8>>,
}

/// The registry's answer about an id.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SchemaAnswer {
    pub(super) schema: String,
    pub(super) schema_type: Option<String>,
    pub(super) references: Option<Vec<Reference>>,
}

#[derive(Deserialize)]
pub(super) struct Reference {
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct RegisterAnswer {
    pub(super) id: u32,
}

#[derive(Default, Deserialize)]
pub(super) struct ErrorAnswer {
    pub(super) error_code: Option<u32>,
    pub(super) message: Option<String>,
}

impl Answer {
    /// Returns the answer if its status is a success, or else the fault.
    pub(super) fn succeeded(self) -> Result<Self, RegistryFault> {
        let (url, status) = (shown(&self.url), self.status);
        match status.as_u16() {
            200..=299 => Ok(self),
            401 | 403 => Err(RegistryFault::Permission(format!(
                "{url} answers {status}{}; check registry.username and registry.password",
                self.message()
            ))),
            408 | 429 | 500..=599 => {
                Err(RegistryFault::Unavailable(format!("{url} answers {status}{}", self.message())))
            }
            _ => Err(configuration(format!(
                "{url} answers {status}{}; registry.url must be the base URL of Confluent's API",
                self.message()
            ))),
        }
    }

    pub(super) fn parsed<T: DeserializeOwned>(&self) -> Result<T, RegistryFault> {
        let body = self.body.as_deref().unwrap_or_default();
        serde_json::from_slice(body).map_err(|error| {
            configuration(format!(
                "{} answers {}, but not as Confluent's API does ({}); registry.url must be its base URL",
                shown(&self.url),
                self.status,
                shortened(&error.to_string())
            ))
        })
    }

    pub(super) fn error(&self) -> ErrorAnswer {
        serde_json::from_slice(self.body.as_deref().unwrap_or_default()).unwrap_or_default()
    }

    /// Returns the registry's reason for a refusal, after a colon; empty if there is none.
    pub(super) fn message(&self) -> String {
        match self.error().message {
            Some(message) if !message.trim().is_empty() => format!(": {}", shortened(&message)),
            _ => String::new(),
        }
    }
}

pub(super) fn configuration(message: impl Into<String>) -> RegistryFault {
    RegistryFault::Configuration(message.into())
}

/// Returns a URL without parts that may be secret. A redirect may lead to a URL with a query or a login.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    // A URL that cannot have a login does not change.
    let _none_to_remove = url.set_username("").and_then(|()| url.set_password(None));
    url.to_string()
}

/// Returns the text as one line of limited length.
pub(super) fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    crate::text::shortened(line, TEXT_CHARS_MAX)
}
