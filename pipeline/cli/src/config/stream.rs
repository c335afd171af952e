//! Configuration of the stream worker: Kafka, registry, limits, probes.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Span;

/// A secret: it is never written to logs or messages.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "hidden" })
    }
}

/// Where the stream worker reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kafka {
    /// Brokers as `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// Topics with events, all with the same number of partitions.
    pub topics: Vec<String>,
    /// Topic that dead letters go to beside the files; empty: none.
    pub dead_letter_topic: String,
    /// Consumer group.
    pub group_id: String,
    /// Static membership; empty: none.
    pub group_instance_id: String,
    /// How long a member may be silent before its shards go to others.
    pub session_timeout: Span,
    /// Bytes of messages fetched ahead.
    pub queue_bytes: u64,
    /// What to do when Kafka no longer has an offset.
    pub offsets_lost: OffsetsLost,
    /// Encryption and authentication.
    pub security_protocol: SecurityProtocol,
    /// How to authenticate.
    pub sasl_mechanism: SaslMechanism,
    /// User name.
    pub sasl_username: String,
    /// Password; only from the environment.
    pub sasl_password: Secret,
    /// File with the password; empty: none.
    pub sasl_password_file: String,
    /// File with the token of OAUTHBEARER, read again before it ends; empty: none.
    pub sasl_token_file: String,
    /// File with the certificates to trust; empty: the system's.
    pub ssl_ca_file: String,
    /// File with this client's certificate; empty: none.
    pub ssl_certificate_file: String,
    /// File with its key; empty: none.
    pub ssl_key_file: String,
}

/// What to do when Kafka no longer has an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OffsetsLost {
    /// Stop, and say so.
    Stop,
    /// Go on from the earliest message that Kafka has.
    Earliest,
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
    /// The same, not sent in the clear.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// The same.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
    /// A token.
    #[serde(rename = "OAUTHBEARER")]
    OauthBearer,
}

/// Where writers' schemas are registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Registry {
    /// Base URL of the Confluent API; empty: messages are in single-object encoding.
    pub url: String,
    /// User name; empty: none.
    pub username: String,
    /// Password; only from the environment.
    pub password: Secret,
    /// File with the password; empty: none.
    pub password_file: String,
    /// File with the certificates to trust; empty: the system's.
    pub ca_file: String,
    /// How long to wait for one answer.
    pub timeout: Span,
}

/// How the stream worker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Work {
    /// How far events of one topic partition may be out of order before an hour closes.
    pub out_of_orderness: Span,
    /// How long a topic partition at its end may bring nothing newer before it no longer holds the watermark.
    pub idle_after: Span,
    /// How far a topic partition at its end may hold the watermark behind the wall clock.
    pub max_hold: Span,
    /// How far an event may lie in the future.
    pub max_clock_skew: Span,
    /// How many hours before the wall clock a shard that has closed none may begin.
    pub hours_max: i64,
    /// Most time between two checkpoints of a shard.
    pub checkpoint_every: Span,
    /// Bytes of new events of a shard that make a checkpoint due.
    pub checkpoint_bytes: u64,
    /// Bytes of memory that the worker should stay within.
    pub memory_limit: u64,
    /// Rows of `cost_allocation` in memory at a time, as far as hours can be divided.
    pub rows_in_flight: u64,
    /// How long a clean stop or a revoked shard may take for its last checkpoint.
    pub drain_timeout: Span,
    /// Threads for folding and encoding; 0 takes all cores.
    pub threads: usize,
}

/// Where the stream worker answers probes and people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Address and port; empty: none.
    pub listen: String,
}

const fn seconds(seconds: u64) -> Span {
    Span(Duration::from_secs(seconds))
}

impl Default for Kafka {
    fn default() -> Self {
        Self {
            bootstrap_servers: String::new(),
            topics: Vec::new(),
            dead_letter_topic: String::new(),
            group_id: "prorata".into(),
            group_instance_id: String::new(),
            session_timeout: seconds(45),
            queue_bytes: 64 << 20,
            offsets_lost: OffsetsLost::Stop,
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

impl Default for Registry {
    fn default() -> Self {
        Self {
            url: String::new(),
            username: String::new(),
            password: Secret::default(),
            password_file: String::new(),
            ca_file: String::new(),
            timeout: seconds(5),
        }
    }
}

impl Default for Work {
    fn default() -> Self {
        Self {
            out_of_orderness: seconds(300),
            idle_after: seconds(300),
            max_hold: seconds(3_600),
            max_clock_skew: seconds(600),
            hours_max: 100_000,
            checkpoint_every: seconds(60),
            checkpoint_bytes: 64 << 20,
            memory_limit: 1 << 30,
            rows_in_flight: 100_000,
            drain_timeout: seconds(30),
            threads: 0,
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self { listen: "127.0.0.1:8080".into() }
    }
}
