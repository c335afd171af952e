//! Sections `kafka` and `registry` of the configuration.

use std::time::Duration;

use prorata_connectors::Secret;
use prorata_connectors::kafka::{Connection, KafkaSettings};
use prorata_connectors::registry::Settings;
use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::root::organizations::{AllowedOrganizations, TopicOrganizations};
use prorata_worker::stream::WorkerOptions;
use serde::{Deserialize, Serialize};

use super::duration;
use crate::failure::Failure;

/// Where the stream worker reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaConfig {
    /// Brokers as `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// Topics with events, all with the same number of partitions.
    pub topics: Vec<TopicConfig>,
    /// Topics that were read before and are not read any more.
    pub retired_topics: Vec<TopicConfig>,
    /// Topic for dead letters, in addition to their files. Empty: none.
    pub dead_letter_topic: String,
    /// Consumer group.
    pub group_id: String,
    /// Consumer (group@cluster) that has read for the root so far, when it moves. Empty: none.
    pub moved_from: String,
    /// Static membership. Empty: none.
    pub group_instance_id: String,
    /// How long a member may be silent before its shards go to others.
    #[serde(with = "duration")]
    pub session_timeout: Duration,
    /// Bytes of prefetched messages.
    pub queue_bytes: u64,
    /// What to do when Kafka no longer has an offset.
    pub offsets_lost: OffsetsLost,
    /// Batches of messages to pass over if they cannot be read.
    pub skip_batches: Vec<SkippedBatchConfig>,
    /// Encryption and authentication.
    pub security_protocol: SecurityProtocol,
    /// How to authenticate.
    pub sasl_mechanism: SaslMechanism,
    /// User name.
    pub sasl_username: String,
    /// Password; only from the environment.
    pub sasl_password: Secret,
    /// File with the password. Empty: none.
    pub sasl_password_file: String,
    /// File with the OAUTHBEARER token, which is read again before the token expires. Empty: none.
    pub sasl_token_file: String,
    /// File with the trusted certificates. Empty: those of the system.
    pub ssl_ca_file: String,
    /// File with this client's certificate. Empty: none.
    pub ssl_certificate_file: String,
    /// File with the key of the certificate. Empty: none.
    pub ssl_key_file: String,
}

/// What to do when Kafka no longer has an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OffsetsLost {
    /// Stop with an error.
    Stop,
    /// Continue with the earliest message that Kafka has.
    Earliest,
}

/// A topic: its name, or its name and the organizations that it may bring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "not the name of a topic, nor {name: .., organizations: [..]}")]
pub enum TopicConfig {
    /// Its name: it may bring any organization.
    Name(String),
    /// Its name, and the organizations.
    Bound(BoundTopic),
}

/// A topic that may bring some organizations alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundTopic {
    /// Its name.
    pub name: String,
    /// The organizations: names, and beginnings of names that end in `*`.
    pub organizations: Vec<String>,
}

impl TopicConfig {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) | Self::Bound(BoundTopic { name, .. }) => name,
        }
    }
}

/// Names of topics.
pub fn names(topics: &[TopicConfig]) -> Vec<String> {
    topics.iter().map(|topic| topic.name().to_owned()).collect()
}

impl KafkaConfig {
    /// The organizations that topics may bring, retired ones included.
    ///
    /// # Errors
    /// Which topic has a wrong list.
    pub fn organizations(&self) -> Result<TopicOrganizations, Failure> {
        let bound = self.topics.iter().chain(&self.retired_topics).filter_map(|topic| match topic {
            TopicConfig::Name(_) => None,
            TopicConfig::Bound(bound) => Some(bound),
        });
        let organizations = |bound: &BoundTopic| match AllowedOrganizations::new(&bound.organizations) {
            Ok(organizations) => Ok((bound.name.as_str().into(), organizations)),
            Err(why) => Err(Failure::usage(format!("organizations of topic {}: {why}", bound.name))),
        };
        bound.map(organizations).collect::<Result<_, _>>().map(TopicOrganizations)
    }
}

/// A batch of messages that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedBatchConfig {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: Shard,
    /// Its first offset.
    pub offset: i64,
    /// Its last offset. `None`: it has one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<i64>,
}

/// Encryption and authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecurityProtocol {
    /// Neither.
    Plaintext,
    /// Encryption.
    Ssl,
    /// Authentication.
    SaslPlaintext,
    /// Both.
    SaslSsl,
}

/// How to authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SaslMechanism {
    /// User name and password.
    #[serde(rename = "PLAIN")]
    Plain,
    /// User name and password, which is not sent as it is.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// The same with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
    /// A token.
    #[serde(rename = "OAUTHBEARER")]
    OauthBearer,
}

/// Where producers register their schemas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistryConfig {
    /// Base URL of the Confluent API. Empty: messages are in single-object encoding.
    pub url: String,
    /// User name. Empty: none.
    pub username: String,
    /// Password; only from the environment.
    pub password: Secret,
    /// File with the password. Empty: none.
    pub password_file: String,
    /// File with the trusted certificates. Empty: those of the system.
    pub ca_file: String,
    /// How long to wait for one response.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        let settings = KafkaSettings::new(Connection::plaintext(""), Vec::new(), "prorata");
        let skips_lost = WorkerOptions::new(Text::default()).go_on_without_lost;
        Self {
            bootstrap_servers: settings.connection.brokers,
            topics: Vec::new(),
            retired_topics: Vec::new(),
            dead_letter_topic: String::new(),
            group_id: settings.group,
            moved_from: String::new(),
            group_instance_id: settings.instance.unwrap_or_default(),
            session_timeout: settings.session_timeout,
            queue_bytes: settings.queue_bytes,
            skip_batches: Vec::new(),
            offsets_lost: if skips_lost { OffsetsLost::Earliest } else { OffsetsLost::Stop },
            security_protocol: SecurityProtocol::Plaintext,
            sasl_mechanism: SaslMechanism::Plain,
            sasl_username: String::new(),
            sasl_password: Secret::default(),
            sasl_password_file: String::new(),
            sasl_token_file: String::new(),
            ssl_ca_file: String::new(),
            ssl_certificate_file: String::new(),
            ssl_key_file: String::new(),
        }
    }
}

impl Default for RegistryConfig {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            url: settings.url,
            username: settings.username,
            password: settings.password,
            password_file: String::new(),
            ca_file: String::new(),
            timeout: settings.timeout,
        }
    }
}
