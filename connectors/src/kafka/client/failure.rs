//! The meaning of the brokers' errors: whether to try again, and if not, a message that says what is wrong,
//! where, and how to fix it.

use prorata_worker::source::SourceError;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::settings::{Connection, KafkaSettings, wrong};

/// Explains an error of a client before any broker has answered. Credentials that fail now have never worked.
pub(crate) fn at_start(connection: &Connection, code: Code, reason: &str) -> SourceError {
    let brokers = &connection.brokers;
    match code {
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::IllegalSASLState => {
            let mechanism = connection.security.login.mechanism().unwrap_or("none");
            wrong(format!(
                "Kafka at {brokers} refuses the login with {mechanism}: {reason}; check \
                 kafka.sasl_mechanism, kafka.security_protocol, and the user name and password or the token"
            ))
        }
        Code::SSL => wrong(format!(
            "no encrypted connection to Kafka at {brokers}: {reason}; check kafka.security_protocol and \
             kafka.ssl_ca_file"
        )),
        _ => running(connection, code, reason),
    }
}

/// Explains an error of a client after a broker has answered.
pub(crate) fn running(connection: &Connection, code: Code, reason: &str) -> SourceError {
    let brokers = &connection.brokers;
    match code {
        Code::TopicAuthorizationFailed => wrong(format!(
            "Kafka at {brokers} does not let this user read a topic: {reason}; grant it READ and DESCRIBE on \
             every topic of kafka.topics"
        )),
        Code::GroupAuthorizationFailed => wrong(format!(
            "Kafka at {brokers} does not let this user join the consumer group: {reason}; grant it READ on \
             the group of kafka.group_id"
        )),
        Code::ClusterAuthorizationFailed => {
            wrong(format!("Kafka at {brokers} denies this user access: {reason}; grant it what it needs"))
        }
        Code::InconsistentGroupProtocol => wrong(format!(
            "the consumer group has members that are not workers of prorata: {reason}; set kafka.group_id to \
             a group that only prorata uses"
        )),
        Code::InvalidGroupId => wrong(format!("kafka.group_id is not a valid group: {reason}")),
        Code::InvalidSessionTimeout => wrong(format!(
            "kafka.session_timeout is outside what the brokers allow: {reason}; see \
             group.min.session.timeout.ms and group.max.session.timeout.ms there"
        )),
        _ => SourceError::Unavailable(format!("{brokers}: {reason}")),
    }
}

/// Explains an error from which a group member cannot recover.
pub(crate) fn fatal(settings: &KafkaSettings, code: Code, reason: &str) -> SourceError {
    match code {
        Code::FencedInstanceId => SourceError::Fenced(settings.instance.clone().unwrap_or_default()),
        _ => match running(&settings.connection, code, reason) {
            SourceError::Unavailable(reason) => wrong(format!("the Kafka client has given up: {reason}")),
            other => other,
        },
    }
}

/// Explains why the library refused a configuration. The message shows no value, because the value may be a
/// secret.
pub(crate) fn creation(error: &KafkaError) -> SourceError {
    match error {
        KafkaError::ClientConfig(_, what, key, _) => wrong(format!("Kafka: {key}: {what}")),
        other => wrong(format!("Kafka: {other}")),
    }
}
