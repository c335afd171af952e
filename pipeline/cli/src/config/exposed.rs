//! Warnings about configuration that lets others on the network read secrets or change messages. Such
//! configuration may be intended, so it is not an error.

use prorata_connectors::store::unverified_certificates;

use super::{KafkaConfig, RegistryConfig, SaslMechanism, SecurityProtocol};

/// Returns a warning if the connection to Kafka exposes a password or token, and otherwise `None`.
pub fn kafka(kafka: &KafkaConfig) -> Option<&'static str> {
    let is_plain = kafka.security_protocol == SecurityProtocol::SaslPlaintext
        && matches!(kafka.sasl_mechanism, SaslMechanism::Plain | SaslMechanism::OauthBearer);
    is_plain.then_some(
        "the password or token for Kafka is sent without encryption; set kafka.security_protocol to sasl_ssl",
    )
}

/// Returns a warning if the connection to the schema registry exposes a password, and otherwise `None`.
pub fn registry(registry: &RegistryConfig) -> Option<&'static str> {
    let is_plain = registry.url.to_ascii_lowercase().starts_with("http://") && !registry.username.is_empty();
    is_plain
        .then_some("the password for the schema registry is sent without encryption; name an https:// URL")
}

/// Returns a warning if connections to object stores do not verify certificates, and otherwise `None`.
pub fn store() -> Option<String> {
    let variable = unverified_certificates()?;
    Some(format!(
        "{variable} is on: the certificate of the object store is not verified, so anybody between can read \
         and change the lake; trust its authority instead"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_without_encryption_are_reported() {
        let with = |security_protocol, sasl_mechanism| {
            kafka(&KafkaConfig { security_protocol, sasl_mechanism, ..KafkaConfig::default() })
        };
        let warning = with(SecurityProtocol::SaslPlaintext, SaslMechanism::Plain);
        assert!(warning.is_some_and(|text| text.contains("set kafka.security_protocol to sasl_ssl")));
        assert!(with(SecurityProtocol::SaslPlaintext, SaslMechanism::OauthBearer).is_some());
        // SCRAM does not send the password.
        assert_eq!(with(SecurityProtocol::SaslPlaintext, SaslMechanism::ScramSha512), None);
        assert_eq!(with(SecurityProtocol::SaslSsl, SaslMechanism::Plain), None);
        assert_eq!(with(SecurityProtocol::Plaintext, SaslMechanism::Plain), None);
        let with = |url: &str, username: &str| {
            registry(&RegistryConfig {
                url: url.into(),
                username: username.into(),
                ..RegistryConfig::default()
            })
        };
        assert!(with("HTTP://registry:8081", "me").is_some_and(|text| text.contains("https://")));
        assert_eq!(with("https://registry", "me"), None);
        assert_eq!(with("http://registry", ""), None);
        assert_eq!(with("", "me"), None);
    }
}
