//! One request, one answer, and its meaning.

use std::path::Path;
use std::time::Duration;

use prorata_schemas::avsc::{avsc, full_name};
use prorata_schemas::event::EventKind;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Certificate, Client, ClientBuilder, RequestBuilder, StatusCode, Url, redirect};
use serde_json::json;

use super::answer::{
    ANSWER_BYTES_MAX, Answer, RegisterAnswer, SchemaAnswer, configuration, shortened, shown,
};
use super::{RegistryFault, Settings};
use crate::Secret;
use crate::store::causes;

/// Maximum time to connect. It bounds the caller's wait if the network drops every packet, however long an
/// answer may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of redirects that one request follows.
const REDIRECTS_MAX: usize = 5;
/// Confluent's code for an id that does not exist. Other 404 answers are about the URL.
const SCHEMA_NOT_FOUND: u32 = 40403;

const ACCEPTED: &str = "application/vnd.schemaregistry.v1+json, application/json";
const SENT: &str = "application/vnd.schemaregistry.v1+json";

/// The registry's answer about an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The text of an Avro schema.
    Avro(String),
    /// A schema that cannot be one of ours, and the reason.
    Unusable(String),
    /// No schema.
    Missing,
}

/// A client of one registry.
#[derive(Clone, Debug)]
pub struct Registry {
    http: Client,
    base: Url,
    username: String,
    password: Secret,
    timeout: Duration,
    connect_timeout: Duration,
}

impl Registry {
    /// Makes a client with these settings, without sending a request.
    ///
    /// # Errors
    /// [`RegistryFault::Configuration`] if a setting is wrong or the file of certificates cannot be read.
    pub fn new(settings: &Settings) -> Result<Self, RegistryFault> {
        let base = base_url(&settings.url)?;
        if settings.username.is_empty() && !settings.password.is_empty() {
            return Err(configuration(
                "a password is set, but registry.username is not: set both or neither",
            ));
        }
        let connect_timeout = CONNECT_TIMEOUT.min(settings.timeout);
        let builder = Client::builder()
            .timeout(settings.timeout)
            .connect_timeout(connect_timeout)
            .redirect(redirect::Policy::limited(REDIRECTS_MAX))
            .user_agent(concat!("prorata/", env!("CARGO_PKG_VERSION")));
        let builder = match &settings.ca_file {
            Some(file) => trust(builder, file)?,
            None => builder,
        };
        let http = builder.build().map_err(|error| match &settings.ca_file {
            Some(file) => {
                configuration(format!("registry.ca_file '{}' is refused: {}", file.display(), causes(&error)))
            }
            None => configuration(format!("a client cannot be created: {}", causes(&error))),
        })?;
        Ok(Self {
            http,
            base,
            username: settings.username.clone(),
            password: settings.password.clone(),
            timeout: settings.timeout,
            connect_timeout,
        })
    }

    /// Looks up the schema with this id.
    ///
    /// # Errors
    /// See [`RegistryFault`]. A schema that is unknown or unusable is not an error.
    pub async fn schema(&self, id: u32) -> Result<Lookup, RegistryFault> {
        let url = self.url(&["schemas", "ids", &id.to_string()]);
        let answer = self.ask(self.http.get(url)).await?;
        if answer.status == StatusCode::NOT_FOUND && answer.error().error_code == Some(SCHEMA_NOT_FOUND) {
            return Ok(Lookup::Missing);
        }
        let answer = answer.succeeded()?;
        // A producer that registers schemas must not stop the readers: excess length is a property of the
        // schema.
        if answer.body.is_none() && answer.is_json {
            let message = format!("the registry's schema {id} has more than {ANSWER_BYTES_MAX} bytes");
            return Ok(Lookup::Unusable(message));
        }
        let found: SchemaAnswer = answer.parsed()?;
        Ok(match (found.schema_type.as_deref(), found.references.unwrap_or_default()) {
            (Some(other), _) if other != "AVRO" => Lookup::Unusable(format!(
                "the registry's schema {id} is of type {}; events are Avro records",
                shortened(other)
            )),
            (_, references) if !references.is_empty() => {
                let names: Vec<&str> = references.iter().map(|reference| reference.name.as_str()).collect();
                Lookup::Unusable(format!(
                    "the registry's schema {id} refers to other schemas ({}), which prorata does not follow; \
                     register it as a single schema",
                    shortened(&names.join(", "))
                ))
            }
            _ => Lookup::Avro(found.schema),
        })
    }

    /// Registers an Avro schema under a subject and returns the schema's id. Repeated calls return the same
    /// id.
    ///
    /// # Errors
    /// See [`RegistryFault`]. A schema that breaks the subject's compatibility is a configuration error.
    pub async fn register(&self, subject: &str, schema: &str) -> Result<u32, RegistryFault> {
        let url = self.url(&["subjects", subject, "versions"]);
        // Old registries, which know only Avro, refuse the field for the schema type. Avro is the default of
        // all registries.
        let body = json!({ "schema": schema }).to_string();
        let answer = self.ask(self.http.post(url).header(CONTENT_TYPE, SENT).body(body)).await?;
        if matches!(answer.status, StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY) {
            return Err(configuration(format!(
                "it refuses the schema of subject {subject} ({}){}",
                answer.status,
                answer.message()
            )));
        }
        let registered: RegisterAnswer = answer.succeeded()?.parsed()?;
        Ok(registered.id)
    }

    /// Registers our newest schema of a kind. Many records share a topic, so the subject is the record's
    /// name, as with Confluent's `RecordNameStrategy`.
    ///
    /// # Errors
    /// The errors of [`Self::register`].
    pub async fn register_event(&self, kind: EventKind) -> Result<u32, RegistryFault> {
        self.register(&full_name(kind), avsc(kind).trim_end()).await
    }

    /// Checks that the registry answers and accepts the credentials. Asks for the list of schema types, which
    /// every registry has.
    ///
    /// # Errors
    /// See [`RegistryFault`].
    pub async fn check(&self) -> Result<(), RegistryFault> {
        let answer = self.ask(self.http.get(self.url(&["schemas", "types"]))).await?;
        let _types: Vec<String> = answer.succeeded()?.parsed()?;
        Ok(())
    }

    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    async fn ask(&self, request: RequestBuilder) -> Result<Answer, RegistryFault> {
        let request = request.header(ACCEPT, ACCEPTED);
        let request = if self.username.is_empty() {
            request
        } else {
            request.basic_auth(&self.username, Some(self.password.reveal()))
        };
        let mut response = request.send().await.map_err(|error| self.fault(error))?;
        let header = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_json = header.is_some_and(|kind| kind.contains("json"));
        let mut answer =
            Answer { url: response.url().clone(), status: response.status(), is_json, body: None };
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.fault(error))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Ok(answer);
            }
            body.extend_from_slice(&chunk);
        }
        answer.body = Some(body);
        Ok(answer)
    }

    fn fault(&self, error: reqwest::Error) -> RegistryFault {
        let url = shown(error.url().unwrap_or(&self.base));
        if error.is_redirect() {
            return configuration(format!("{url} redirects endlessly; set registry.url to the final URL"));
        }
        if error.is_timeout() && error.is_connect() {
            let within = self.connect_timeout;
            return RegistryFault::Unavailable(format!("{url} cannot be connected to within {within:?}"));
        }
        if error.is_timeout() {
            return RegistryFault::Unavailable(format!("{url} does not answer within {:?}", self.timeout));
        }
        let cause = shortened(&causes(&error.without_url()));
        if cause.contains("invalid peer certificate") {
            return configuration(format!(
                "{url}: {cause}; set registry.ca_file to a file with the certificate of its authority"
            ));
        }
        RegistryFault::Unavailable(format!("{url}: {cause}"))
    }
}

fn base_url(text: &str) -> Result<Url, RegistryFault> {
    // A text that may hold a login or a token is not repeated. A text that is not a URL may hold anything.
    let shown = match Url::parse(text) {
        Ok(_) if !text.contains(['@', '?']) => format!("registry.url '{text}'"),
        _ => "registry.url".to_owned(),
    };
    let refused = |why: &str| configuration(format!("{shown} {why}, such as https://host:8081"));
    let url = Url::parse(text).map_err(|error| refused(&format!("is not a URL ({error}); name one")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(configuration(
            "registry.url holds a user name or password; set registry.username, and the password in the \
             environment or a file",
        ));
    }
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(refused("must begin with http:// or https://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refused("must end with its path"));
    }
    Ok(url)
}

/// Trusts only the certificates of this file.
fn trust(mut builder: ClientBuilder, file: &Path) -> Result<ClientBuilder, RegistryFault> {
    let named = |why: String| configuration(format!("registry.ca_file '{}' {why}", file.display()));
    let pem = std::fs::read(file).map_err(|error| named(format!("cannot be read: {error}")))?;
    let certificates = Certificate::from_pem_bundle(&pem)
        .map_err(|error| named(format!("is not PEM: {}", causes(&error))))?;
    if certificates.is_empty() {
        return Err(named("holds no certificate: it must be PEM (-----BEGIN CERTIFICATE-----)".into()));
    }
    for certificate in certificates {
        builder = builder.add_root_certificate(certificate);
    }
    Ok(builder.tls_built_in_root_certs(false))
}
