//! Connections to Kafka, as configured.

use std::path::PathBuf;

use prorata_connectors::kafka::{Connection, Login, Security};
use prorata_worker::source::SourceError;

use crate::config::{self, KafkaConfig, SaslMechanism, SecurityProtocol};
use crate::failure::Failure;

/// Returns the connection to the configured brokers. Nothing is connected yet.
///
/// # Errors
/// If settings contradict each other, or a file that a setting names cannot be read.
pub fn connection(kafka: &KafkaConfig) -> Result<Connection, Failure> {
    if let Some(exposed) = config::exposed::kafka(kafka) {
        tracing::warn!("{exposed}");
    }
    let file = |path: &str| (!path.is_empty()).then(|| PathBuf::from(path));
    let security = Security {
        encrypted: matches!(kafka.security_protocol, SecurityProtocol::Ssl | SecurityProtocol::SaslSsl),
        login: login(kafka)?,
        ca_file: file(&kafka.ssl_ca_file),
        certificate_file: file(&kafka.ssl_certificate_file),
        key_file: file(&kafka.ssl_key_file),
    };
    Ok(Connection { security, ..Connection::plaintext(kafka.bootstrap_servers.as_str()) })
}

fn login(kafka: &KafkaConfig) -> Result<Login, Failure> {
    if matches!(kafka.security_protocol, SecurityProtocol::Plaintext | SecurityProtocol::Ssl) {
        if !kafka.sasl_username.is_empty() || !kafka.sasl_token_file.is_empty() {
            let message = "kafka.sasl_username or kafka.sasl_token_file is set, but kafka.security_protocol \
                           does not log in: set it to sasl_ssl, or to sasl_plaintext without encryption";
            return Err(Failure::usage(message));
        }
        return Ok(Login::None);
    }
    if kafka.sasl_mechanism == SaslMechanism::OauthBearer {
        if kafka.sasl_token_file.is_empty() {
            let message =
                "kafka.sasl_mechanism OAUTHBEARER needs kafka.sasl_token_file, a file with the token";
            return Err(Failure::usage(message));
        }
        return Ok(Login::Token { file: PathBuf::from(&kafka.sasl_token_file) });
    }
    let user = kafka.sasl_username.clone();
    let password = config::read_secret(&kafka.sasl_password, &kafka.sasl_password_file)?;
    Ok(match kafka.sasl_mechanism {
        SaslMechanism::ScramSha256 => Login::ScramSha256 { user, password },
        SaslMechanism::ScramSha512 => Login::ScramSha512 { user, password },
        SaslMechanism::Plain | SaslMechanism::OauthBearer => Login::Plain { user, password },
    })
}

/// Converts an error of Kafka to a failure with an exit code.
pub fn failure(error: SourceError) -> Failure {
    match error {
        SourceError::Unavailable(_) => Failure::storage(error),
        SourceError::Configuration(_) | SourceError::TooLarge(_) | SourceError::Fenced(_) => {
            Failure::usage(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use prorata_connectors::Secret;

    use super::*;

    fn with(protocol: SecurityProtocol, mechanism: SaslMechanism) -> KafkaConfig {
        KafkaConfig {
            bootstrap_servers: "one:9092,two:9092".into(),
            security_protocol: protocol,
            sasl_mechanism: mechanism,
            ..KafkaConfig::default()
        }
    }

    #[test]
    fn a_protocol_says_whether_to_encrypt_and_whether_to_log_in() {
        let plain = Login::Plain { user: "me".into(), password: Secret::new("s3cret") };
        for (protocol, encrypted, login) in [
            (SecurityProtocol::Plaintext, false, Login::None),
            (SecurityProtocol::Ssl, true, Login::None),
            (SecurityProtocol::SaslPlaintext, false, plain.clone()),
            (SecurityProtocol::SaslSsl, true, plain.clone()),
        ] {
            let mut kafka = with(protocol, SaslMechanism::Plain);
            if login != Login::None {
                kafka.sasl_username = "me".into();
                kafka.sasl_password = Secret::new("s3cret");
            }
            let connection = connection(&kafka).unwrap();
            assert_eq!(connection.brokers, "one:9092,two:9092");
            assert_eq!((connection.security.encrypted, connection.security.login), (encrypted, login));
        }
    }

    #[test]
    fn mechanisms_take_what_they_need() {
        let mut kafka = with(SecurityProtocol::SaslSsl, SaslMechanism::ScramSha512);
        kafka.sasl_password_file = "no/such/file".into();
        assert!(login(&kafka).unwrap_err().to_string().contains("'no/such/file' cannot be read"));
        kafka.sasl_password = Secret::new("s3cret");
        assert!(matches!(login(&kafka).unwrap(), Login::ScramSha512 { .. }));
        kafka.sasl_mechanism = SaslMechanism::ScramSha256;
        assert!(matches!(login(&kafka).unwrap(), Login::ScramSha256 { .. }));
        kafka.sasl_mechanism = SaslMechanism::OauthBearer;
        assert!(login(&kafka).unwrap_err().to_string().contains("needs kafka.sasl_token_file"));
        kafka.sasl_token_file = "token".into();
        assert_eq!(login(&kafka).unwrap(), Login::Token { file: "token".into() });
    }

    #[test]
    fn a_user_that_would_not_log_in_is_an_error() {
        let mut kafka = with(SecurityProtocol::Ssl, SaslMechanism::Plain);
        kafka.sasl_username = "me".into();
        assert!(login(&kafka).unwrap_err().to_string().contains("set it to sasl_ssl"));
    }
}
