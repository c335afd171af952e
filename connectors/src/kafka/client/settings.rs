//! Settings of the connection to Kafka and of a source.

use std::path::PathBuf;
use std::time::Duration;

use prorata_schemas::Text;
use prorata_worker::source::SourceError;
use prorata_worker::stream::WorkerOptions;

use crate::Secret;

/// The login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Login {
    /// No login.
    #[default]
    None,
    /// SASL PLAIN, which sends the password without hashing it.
    Plain {
        /// User name.
        user: String,
        /// The user's password.
        password: Secret,
    },
    /// SASL SCRAM-SHA-256.
    ScramSha256 {
        /// User name.
        user: String,
        /// The user's password.
        password: Secret,
    },
    /// SASL SCRAM-SHA-512.
    ScramSha512 {
        /// User name.
        user: String,
        /// The user's password.
        password: Secret,
    },
    /// SASL OAUTHBEARER.
    Token {
        /// File with the token. It is read again before the token expires.
        file: PathBuf,
    },
}

impl Login {
    /// Returns the name of the SASL mechanism; `None` without a login.
    pub(crate) const fn mechanism(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Plain { .. } => Some("PLAIN"),
            Self::ScramSha256 { .. } => Some("SCRAM-SHA-256"),
            Self::ScramSha512 { .. } => Some("SCRAM-SHA-512"),
            Self::Token { .. } => Some("OAUTHBEARER"),
        }
    }

    /// Returns the user and the password; `None` if the login has none.
    pub(crate) const fn user_and_password(&self) -> Option<(&String, &Secret)> {
        match self {
            Self::None | Self::Token { .. } => None,
            Self::Plain { user, password }
            | Self::ScramSha256 { user, password }
            | Self::ScramSha512 { user, password } => Some((user, password)),
        }
    }
}

/// Encryption and authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Whether connections are encrypted (TLS).
    pub encrypted: bool,
    /// The login.
    pub login: Login,
    /// Certificates to trust (PEM). `None` if the system's certificates are trusted.
    pub ca_file: Option<PathBuf>,
    /// This client's own certificate (PEM).
    pub certificate_file: Option<PathBuf>,
    /// The key of that certificate (PEM).
    pub key_file: Option<PathBuf>,
}

/// The settings by which a client reaches Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Brokers as `host:port`, separated by commas.
    pub brokers: String,
    /// The client's name in the brokers' logs and quotas.
    pub client_id: String,
    /// Encryption and authentication.
    pub security: Security,
    /// The longest wait for an answer before Kafka counts as unavailable.
    pub timeout: Duration,
}

impl Connection {
    /// Returns the settings for brokers without encryption or login.
    pub fn plaintext(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            client_id: "prorata".into(),
            security: Security::default(),
            timeout: Duration::from_secs(10),
        }
    }
}

/// The settings of a source, which is a member of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSettings {
    /// The settings by which the source reaches Kafka.
    pub connection: Connection,
    /// Topics with events.
    pub topics: Vec<String>,
    /// Consumer group.
    pub group: String,
    /// Id of a static member; `None` for a dynamic member. A worker keeps the id after a restart, and no
    /// other worker uses the same id.
    pub instance: Option<String>,
    /// The time that the member may be silent before the group gives its shards to others.
    pub session_timeout: Duration,
    /// The time that the group waits for revoked shards to be released.
    pub revoke_timeout: Duration,
    /// Limit on the bytes of messages that wait to be polled. The client library holds about 8 MiB more.
    pub queue_bytes: u64,
    /// The interval at which the brokers are asked to confirm the end of an idle partition.
    pub end_every: Duration,
}

impl KafkaSettings {
    /// Returns settings with the defaults of the configuration.
    pub fn new(connection: Connection, topics: Vec<String>, group: impl Into<String>) -> Self {
        let worker = WorkerOptions::new(Text::default());
        Self {
            connection,
            topics,
            group: group.into(),
            instance: None,
            session_timeout: Duration::from_secs(45),
            revoke_timeout: worker.drain_timeout,
            queue_bytes: worker.queue_bytes,
            end_every: Duration::from_secs(3),
        }
    }
}

pub(crate) fn wrong(message: impl Into<String>) -> SourceError {
    SourceError::Configuration(message.into())
}
