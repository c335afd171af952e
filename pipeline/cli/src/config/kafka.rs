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

/// Settings of the stream worker's input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaConfig {
    /// Brokers as `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// Topics with events, all with the same number of partitions.
    pub topics: Vec<TopicConfig>,
    /// Topics that were read before and are not read now.
    pub retired_topics: Vec<TopicConfig>,
    /// Topic for dead letters, in addition to their files. If empty, there is none.
    pub dead_letter_topic: String,
    /// Topic for messages about exceeded budgets. If empty, there is none.
    pub budget_topic: String,
    /// Consumer group.
    pub group_id: String,
    /// Consumer (group@cluster) that has read for the root so far, if reading moves to another consumer. If
    /// empty, reading does not move.
    pub moved_from: String,
    /// Id of static membership. If empty, membership is dynamic.
    pub group_instance_id: String,
    /// Maximum silence of a member before its shards are assigned to other members.
    #[serde(with = "duration")]
    pub session_timeout: Duration,
    /// Maximum bytes of prefetched messages.
    pub queue_bytes: u64,
    /// Behaviour if Kafka no longer has the offset to continue from.
    pub offsets_lost: OffsetsLost,
    /// Batches of messages to skip if they cannot be read.
    pub skip_batches: Vec<SkippedBatchConfig>,
    /// Encryption and authentication.
    pub security_protocol: SecurityProtocol,
    /// Method of authentication.
    pub sasl_mechanism: SaslMechanism,
    /// User name.
    pub sasl_username: String,
    /// Password, which is read only from the environment.
    pub sasl_password: Secret,
    /// File with the password. If empty, there is none.
    pub sasl_password_file: String,
    /// File with the OAUTHBEARER token. It is read again before the token expires. If empty, there is none.
    pub sasl_token_file: String,
    /// File with the trusted certificates. If empty, the system's certificates are trusted.
    pub ssl_ca_file: String,
    /// File with this client's certificate. If empty, there is none.
    pub ssl_certificate_file: String,
    /// File with the key of the certificate. If empty, there is none.
    pub ssl_key_file: String,
}

/// Behaviour if Kafka no longer has the offset to continue from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OffsetsLost {
    /// Stop with an error.
    Stop,
    /// Continue with the earliest message that Kafka has.
    Earliest,
}

/// A topic: only a name, or a name and the organizations whose events the topic may bring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "not the name of a topic, nor {name: .., organizations: [..]}")]
pub enum TopicConfig {
    /// Only the name. The topic may bring events of any organization.
    Name(String),
    /// The name and the organizations.
    Bound(BoundTopic),
}

/// A topic that may bring events of some organizations only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundTopic {
    /// Name of the topic.
    pub name: String,
    /// Names of organizations, and beginnings of names that end in `*`.
    pub organizations: Vec<String>,
}

impl TopicConfig {
    /// Returns the name of the topic.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) | Self::Bound(BoundTopic { name, .. }) => name,
        }
    }
}

/// Returns the names of topics.
pub fn names(topics: &[TopicConfig]) -> Vec<String> {
    topics.iter().map(|topic| topic.name().to_owned()).collect()
}

impl KafkaConfig {
    /// Returns the organizations whose events each topic may bring, including retired topics.
    ///
    /// # Errors
    /// If a topic has an invalid list. The message names the topic.
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
    /// Topic of the batch.
    pub topic: String,
    /// Partition of the batch.
    pub partition: Shard,
    /// First offset of the batch.
    pub offset: i64,
    /// Last offset of the batch. `None` if the batch has one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<i64>,
}

/// Encryption and authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecurityProtocol {
    /// Neither encryption nor authentication.
    Plaintext,
    /// Encryption only.
    Ssl,
    /// Authentication only.
    SaslPlaintext,
    /// Both encryption and authentication.
    SaslSsl,
}

/// Method of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SaslMechanism {
    /// User name and password.
    #[serde(rename = "PLAIN")]
    Plain,
    /// User name and password, with SHA-256. The password itself is not sent.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// The same with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
    /// A token.
    #[serde(rename = "OAUTHBEARER")]
    OauthBearer,
}

/// Settings of the registry in which producers register their schemas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistryConfig {
    /// Base URL of the Confluent API. If empty, messages are in single-object encoding.
    pub url: String,
    /// User name. If empty, there is none.
    pub username: String,
    /// Password, which is read only from the environment.
    pub password: Secret,
    /// File with the password. If empty, there is none.
    pub password_file: String,
    /// File with the trusted certificates. If empty, the system's certificates are trusted.
    pub ca_file: String,
    /// Maximum time to wait for one response.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        let settings = KafkaSettings::new(Connection::plaintext(""), Vec::new(), "prorata");
        let skips_lost = WorkerOptions::new(Text::default()).continue_without_lost;
        Self {
            bootstrap_servers: settings.connection.brokers,
            topics: Vec::new(),
            retired_topics: Vec::new(),
            dead_letter_topic: String::new(),
            budget_topic: String::new(),
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
