//! The client library's configuration for our settings, with a check for settings that can never work.

use std::path::Path;
use std::time::Duration;

use prorata_worker::source::SourceError;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use super::settings::{Connection, KafkaSettings, Login, Security, wrong};

/// Whether this build has TLS, and with it SCRAM and OAUTHBEARER.
const HAS_TLS: bool = cfg!(any(feature = "tls", feature = "tls-vendored"));

/// Number of KiB that the client library prefetches over all partitions. Its default is 64 MiB, which it
/// exceeds with many partitions (librdkafka issue 5140: 512 MB with nine partitions).
const FETCHED_KIB: u32 = 8 * 1024;

/// Maximum size of one answer of a broker, in bytes. A compressed answer takes several times as much memory
/// once it is unpacked. The limit is at least the prefetch limit, so that one answer can reach that limit.
const FETCH_BYTES: u32 = 8 << 20;

/// The time that fetching pauses after the prefetch limit is reached, in milliseconds. With the library's
/// default of 1,000 ms, a consumer read 190,000 to 470,000 messages a second; with 5 ms, 1.2 to 1.5 million.
const FETCH_BACKOFF_MILLIS: &str = "5";

/// The time that a broker may wait for new messages before it answers, in milliseconds. A newly assigned
/// partition is fetched only after that answer. With the library's default of 500 ms, a restarted worker
/// waited half a second for all shards but its first.
const FETCH_WAIT_MILLIS: &str = "100";

/// Minimum time that a member has to release its partitions before the group continues without it. This is
/// the library's own default. With less time, the group would remove members whose machine was paused.
const REBALANCE_MIN: Duration = Duration::from_secs(300);

impl Connection {
    /// Returns the configuration that every client starts from.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if it can never work.
    pub(crate) fn client(&self) -> Result<ClientConfig, SourceError> {
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
        self.secure(&mut config, HAS_TLS)?;
        Ok(config)
    }

    fn secure(&self, config: &mut ClientConfig, has_tls: bool) -> Result<(), SourceError> {
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
        if let Some(needs) = needs.filter(|_| !has_tls) {
            return Err(wrong(format!(
                "{needs} needs TLS, and this build lacks it: use the container image, or build with the \
                 feature tls (the system's OpenSSL) or tls-vendored (its own OpenSSL)"
            )));
        }
        config.set("security.protocol", protocol);
        if let Some(mechanism) = mechanism {
            config.set("sasl.mechanism", mechanism);
        }
        if let Some((user, password)) = security.login.user_and_password() {
            if user.is_empty() || password.is_empty() {
                let empty = if user.is_empty() { "kafka.sasl_username" } else { "kafka.sasl_password" };
                return Err(wrong(format!(
                    "{empty} is empty, but kafka.security_protocol {protocol} needs it"
                )));
            }
            config.set("sasl.username", user).set("sasl.password", password.reveal());
        }
        if let Login::Token { file } = &security.login {
            super::token::read(file).map_err(|error| wrong(error.to_string()))?;
        }
        if security.encrypted {
            self.certificates(config)?;
        }
        Ok(())
    }

    fn certificates(&self, config: &mut ClientConfig) -> Result<(), SourceError> {
        let Security { ca_file, certificate_file, key_file, .. } = &self.security;
        // A vendored OpenSSL finds the system's certificates only by probing the usual places.
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

impl KafkaSettings {
    /// Returns the group member's configuration.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if it can never work.
    pub(crate) fn member(&self) -> Result<ClientConfig, SourceError> {
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
            ("isolation.level", "read_committed"),
            ("session.timeout.ms", &self.session_timeout.as_millis().to_string()),
            ("heartbeat.interval.ms", &heartbeat.as_millis().to_string()),
            ("max.poll.interval.ms", &rebalance.as_millis().to_string()),
        ] {
            config.set(key, value);
        }
        for (key, value) in fetch_settings() {
            config.set(key, value);
        }
        Ok(config)
    }
}

/// Returns the client library's settings that control how a source fetches. Another consumer needs them for a
/// fair comparison.
pub fn fetch_settings() -> [(&'static str, String); 5] {
    [
        ("check.crcs", "true".to_owned()),
        ("fetch.wait.max.ms", FETCH_WAIT_MILLIS.to_owned()),
        ("fetch.queue.backoff.ms", FETCH_BACKOFF_MILLIS.to_owned()),
        ("queued.max.messages.kbytes", FETCHED_KIB.to_string()),
        ("fetch.max.bytes", FETCH_BYTES.to_string()),
    ]
}

/// Checks that a file can be read, and returns its path.
///
/// # Errors
/// [`SourceError::Configuration`] if the file cannot be read or its path is not UTF-8.
fn readable(setting: &str, file: &Path) -> Result<String, SourceError> {
    let shown = file.display();
    match std::fs::read(file) {
        Ok(_) => file.to_str().map(str::to_owned).ok_or_else(|| {
            wrong(format!("kafka.{setting}: the path '{shown}' is not UTF-8: rename the file"))
        }),
        Err(error) => Err(wrong(format!("kafka.{setting}: the file '{shown}' cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    fn user(login: impl FnOnce(String, Secret) -> Login) -> Connection {
        let security = Security { login: login("me".into(), Secret::new("s3cret")), ..Security::default() };
        Connection { security, ..Connection::plaintext("localhost:9092") }
    }

    fn plain(user: String, password: Secret) -> Login {
        Login::Plain { user, password }
    }

    fn scram(user: String, password: Secret) -> Login {
        Login::ScramSha512 { user, password }
    }

    fn message<T>(result: Result<T, SourceError>) -> String {
        match result {
            Err(SourceError::Configuration(message)) => message,
            Err(other) => other.to_string(),
            Ok(_) => "it works".into(),
        }
    }

    fn member(change: impl FnOnce(&mut KafkaSettings)) -> Result<ClientConfig, SourceError> {
        let mut settings =
            KafkaSettings::new(Connection::plaintext("localhost:9092"), vec!["a".into()], "group");
        change(&mut settings);
        settings.member()
    }

    #[test]
    fn a_build_without_tls_says_which_has_it() {
        let mut encrypted = Connection::plaintext("localhost:9092");
        encrypted.security.encrypted = true;
        for (connection, needs) in [
            (encrypted, "kafka.security_protocol ssl needs TLS"),
            (user(scram), "kafka.sasl_mechanism SCRAM-SHA-512 needs TLS"),
            (
                user(|_, _| Login::Token { file: "token".into() }),
                "kafka.sasl_mechanism OAUTHBEARER needs TLS",
            ),
        ] {
            let message = message(connection.secure(&mut ClientConfig::new(), false));
            assert!(message.starts_with(needs) && message.contains("tls-vendored"), "{message}");
        }
        for connection in [user(plain), Connection::plaintext("localhost:9092")] {
            assert_eq!(connection.secure(&mut ClientConfig::new(), false), Ok(()));
        }
    }

    #[test]
    fn a_password_reaches_the_library_and_nothing_else() {
        let connection = user(scram);
        let config = connection.client().unwrap();
        assert_eq!(config.get("sasl.password"), Some("s3cret"));
        assert_eq!(config.get("security.protocol"), Some("sasl_plaintext"));
        assert!(!format!("{connection:?}").contains("s3cret") && !format!("{config:?}").contains("s3cret"));
    }

    #[test]
    fn an_error_names_the_missing_setting() {
        assert!(message(Connection::plaintext(" ").client()).contains("kafka.bootstrap_servers"));
        assert!(
            message(user(|_, _| plain("me".into(), Secret::new(""))).client())
                .contains("kafka.sasl_password")
        );
        assert!(
            message(user(|_, _| plain(String::new(), Secret::new("x"))).client())
                .contains("kafka.sasl_username")
        );
        assert!(message(member(|settings| settings.topics.clear())).contains("kafka.topics is empty"));
        assert!(
            message(member(|settings| settings.topics.push("a".into())))
                .contains("kafka.topics names a twice")
        );
        assert!(message(member(|settings| settings.group.clear())).contains("kafka.group_id is empty"));
        let mut half = Connection::plaintext("localhost:9092");
        half.security =
            Security { encrypted: true, key_file: Some("Cargo.toml".into()), ..Security::default() };
        assert!(message(half.client()).contains("needs kafka.ssl_certificate_file"));
    }

    #[test]
    fn a_member_beats_within_its_session_and_has_time_to_release() {
        for (session, revoke) in [(1, 1), (6, 20), (45, 30), (1_800, 30), (45, 3_600)] {
            let config = member(|settings| {
                settings.session_timeout = Duration::from_secs(session);
                settings.revoke_timeout = Duration::from_secs(revoke);
            });
            let config = config.unwrap();
            let millis = |key: &str| config.get(key).unwrap().parse::<u64>().unwrap();
            assert!(millis("heartbeat.interval.ms") * 3 < millis("session.timeout.ms"));
            assert!(millis("max.poll.interval.ms") >= millis("session.timeout.ms"));
            assert!(millis("max.poll.interval.ms") > revoke * 1_000);
        }
    }

    #[test]
    fn members_are_static_only_when_they_are_named() {
        assert_eq!(member(|_| ()).unwrap().get("group.instance.id"), None);
        assert_eq!(
            member(|settings| settings.instance = Some(String::new())).unwrap().get("group.instance.id"),
            None
        );
        let config = member(|settings| settings.instance = Some("worker-0".into())).unwrap();
        assert_eq!(config.get("group.instance.id"), Some("worker-0"));
    }
}
