//! How to reach Kafka, and what a source reads: plain settings, and the client library's configuration made of them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prorata_worker::source::SourceError;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

/// Whether this build has TLS, and with it SCRAM and OAUTHBEARER.
const HAS_TLS: bool = cfg!(any(feature = "tls", feature = "tls-vendored"));

/// KiB that the client library fetches ahead of what is taken from it, over all partitions.
const FETCHED_KIB: u32 = 8 * 1024;

/// Bytes of one answer of a broker. Compressed ones take several times that.
const FETCH_BYTES: u32 = 8 << 20;

/// Least time that a member may take to let go of its partitions before the group goes on without it.
const REBALANCE_MIN: Duration = Duration::from_secs(300);

/// A secret: it never prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Hides a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

/// Who logs in, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Login {
    /// Nobody.
    #[default]
    None,
    /// SASL PLAIN: the password is sent as it is.
    Plain {
        /// User name.
        user: String,
        /// Its password.
        password: Password,
    },
    /// SASL SCRAM-SHA-256.
    ScramSha256 {
        /// User name.
        user: String,
        /// Its password.
        password: Password,
    },
    /// SASL SCRAM-SHA-512.
    ScramSha512 {
        /// User name.
        user: String,
        /// Its password.
        password: Password,
    },
    /// SASL OAUTHBEARER.
    Token {
        /// File with the token, read again before it ends.
        file: PathBuf,
    },
}

impl Login {
    /// The mechanism's name.
    pub(super) const fn mechanism(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Plain { .. } => Some("PLAIN"),
            Self::ScramSha256 { .. } => Some("SCRAM-SHA-256"),
            Self::ScramSha512 { .. } => Some("SCRAM-SHA-512"),
            Self::Token { .. } => Some("OAUTHBEARER"),
        }
    }

    const fn user_and_password(&self) -> Option<(&String, &Password)> {
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
    /// Who logs in.
    pub login: Login,
    /// Certificates to trust (PEM); none: the system's.
    pub ca_file: Option<PathBuf>,
    /// This client's own certificate (PEM).
    pub certificate_file: Option<PathBuf>,
    /// Its key (PEM).
    pub key_file: Option<PathBuf>,
}

/// How to reach Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Brokers as `host:port`, separated by commas.
    pub brokers: String,
    /// What this client calls itself in the brokers' logs and quotas.
    pub client_id: String,
    /// Encryption and authentication.
    pub security: Security,
    /// How long to wait for an answer before Kafka is called unavailable.
    pub timeout: Duration,
}

impl Connection {
    /// Brokers without encryption or login.
    pub fn plaintext(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            client_id: "prorata".into(),
            security: Security::default(),
            timeout: Duration::from_secs(10),
        }
    }

    /// What every client needs.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] when it can never work.
    pub(super) fn client(&self) -> Result<ClientConfig, SourceError> {
        if self.brokers.trim().is_empty() {
            return Err(wrong("kafka.bootstrap_servers is empty: name at least one broker as host:port"));
        }
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Info);
        for (key, value) in [
            ("bootstrap.servers", self.brokers.trim()),
            ("client.id", &self.client_id),
            ("socket.keepalive.enable", "true"),
            ("log.connection.close", "false"),
            ("reconnect.backoff.ms", "100"),
            ("reconnect.backoff.max.ms", "5000"),
            ("allow.auto.create.topics", "false"),
        ] {
            config.set(key, value);
        }
        self.secure(&mut config)?;
        Ok(config)
    }

    fn secure(&self, config: &mut ClientConfig) -> Result<(), SourceError> {
        let security = &self.security;
        let mechanism = security.login.mechanism();
        let protocol = match (security.encrypted, mechanism) {
            (false, None) => "plaintext",
            (true, None) => "ssl",
            (false, Some(_)) => "sasl_plaintext",
            (true, Some(_)) => "sasl_ssl",
        };
        let needs = match mechanism {
            _ if security.encrypted => Some(format!("kafka.security_protocol {protocol}")),
            Some(mechanism) if mechanism != "PLAIN" => Some(format!("kafka.sasl_mechanism {mechanism}")),
            _ => None,
        };
        if let Some(needs) = needs.filter(|_| !HAS_TLS) {
            return Err(wrong(format!(
                "{needs} needs TLS, and this build has none: use the container image, or build with the feature tls (the \
                 system's OpenSSL) or tls-vendored (one of its own)"
            )));
        }
        config.set("security.protocol", protocol);
        if let Some(mechanism) = mechanism {
            config.set("sasl.mechanism", mechanism);
        }
        if let Some((user, password)) = security.login.user_and_password() {
            if user.is_empty() || password.0.is_empty() {
                let empty = if user.is_empty() { "kafka.sasl_username" } else { "kafka.sasl_password" };
                return Err(wrong(format!(
                    "{empty} is empty, and kafka.security_protocol {protocol} needs it"
                )));
            }
            config.set("sasl.username", user).set("sasl.password", &password.0);
        }
        if let Login::Token { file } = &security.login {
            super::token::read(file).map_err(wrong)?;
        }
        if security.encrypted {
            self.certificates(config)?;
        }
        Ok(())
    }

    fn certificates(&self, config: &mut ClientConfig) -> Result<(), SourceError> {
        let Security { ca_file, certificate_file, key_file, .. } = &self.security;
        // With an OpenSSL of our own, the system's certificates are found by looking where systems keep them.
        config.set("ssl.ca.location", "probe");
        for (key, setting, file) in [
            ("ssl.ca.location", "ssl_ca_file", ca_file),
            ("ssl.certificate.location", "ssl_certificate_file", certificate_file),
            ("ssl.key.location", "ssl_key_file", key_file),
        ] {
            if let Some(file) = file {
                config.set(key, readable(setting, file)?);
            }
        }
        match (certificate_file, key_file) {
            (Some(_), None) => Err(wrong("kafka.ssl_certificate_file needs kafka.ssl_key_file")),
            (None, Some(_)) => Err(wrong("kafka.ssl_key_file needs kafka.ssl_certificate_file")),
            _ => Ok(()),
        }
    }
}

/// The file's path, if it can be read.
fn readable(setting: &str, file: &Path) -> Result<String, SourceError> {
    let shown = file.display();
    match std::fs::read(file) {
        Ok(_) => file.to_str().map(str::to_owned).ok_or_else(|| {
            wrong(format!("kafka.{setting}: the path '{shown}' is not UTF-8: give the file another name"))
        }),
        Err(error) => Err(wrong(format!("kafka.{setting}: the file '{shown}' cannot be read: {error}"))),
    }
}

pub(super) fn wrong(sentence: impl Into<String>) -> SourceError {
    SourceError::Configuration(sentence.into())
}

/// What a source reads, as member of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSettings {
    /// How to reach Kafka.
    pub connection: Connection,
    /// Topics with events.
    pub topics: Vec<String>,
    /// Consumer group.
    pub group: String,
    /// Static membership: the same for the same worker after a restart, and no other's.
    pub instance: Option<String>,
    /// How long the member may be silent before its shards go to others.
    pub session_timeout: Duration,
    /// How long the group waits for revoked shards to be released.
    pub revoke_timeout: Duration,
    /// Bytes of messages that wait to be polled. The client library holds some MiB beside them.
    pub queue_bytes: u64,
    /// How often the end of a quiet partition is confirmed.
    pub end_every: Duration,
}

impl KafkaSettings {
    /// Settings with the defaults of the configuration.
    pub fn new(connection: Connection, topics: Vec<String>, group: impl Into<String>) -> Self {
        Self {
            connection,
            topics,
            group: group.into(),
            instance: None,
            session_timeout: Duration::from_secs(45),
            revoke_timeout: Duration::from_secs(30),
            queue_bytes: 64 << 20,
            end_every: Duration::from_secs(3),
        }
    }

    /// The group member's configuration.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] when it can never work.
    pub(super) fn member(&self) -> Result<ClientConfig, SourceError> {
        let mut config = self.connection.client()?;
        if self.topics.is_empty() {
            return Err(wrong("kafka.topics is empty: name at least one topic with events"));
        }
        if let Some(twice) = (1..self.topics.len()).find(|&at| {
            let (before, from) = self.topics.split_at(at);
            from.first().is_some_and(|topic| before.contains(topic))
        }) {
            let topic = self.topics.get(twice).map_or("", String::as_str);
            return Err(wrong(format!("kafka.topics names {topic} twice")));
        }
        if self.group.is_empty() {
            return Err(wrong("kafka.group_id is empty: name a consumer group"));
        }
        if let Some(instance) = self.instance.as_deref().filter(|instance| !instance.is_empty()) {
            config.set("group.instance.id", instance);
        }
        let heartbeat = (self.session_timeout / 15).clamp(Duration::from_millis(100), Duration::from_secs(3));
        let rebalance = REBALANCE_MIN.max(self.session_timeout).max(self.revoke_timeout * 2);
        for (key, value) in [
            ("group.id", self.group.as_str()),
            ("group.protocol", "classic"),
            ("partition.assignment.strategy", "range"),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "error"),
            ("enable.partition.eof", "true"),
            ("check.crcs", "true"),
            ("isolation.level", "read_committed"),
            // The default of one second stalls reading each time the queue has been full.
            ("fetch.queue.backoff.ms", "5"),
            ("queued.max.messages.kbytes", &FETCHED_KIB.to_string()),
            ("fetch.max.bytes", &FETCH_BYTES.to_string()),
            ("session.timeout.ms", &self.session_timeout.as_millis().to_string()),
            ("heartbeat.interval.ms", &heartbeat.as_millis().to_string()),
            ("max.poll.interval.ms", &rebalance.as_millis().to_string()),
        ] {
            config.set(key, value);
        }
        Ok(config)
    }
}
