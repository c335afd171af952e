//! Logins and encryption.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prorata_connectors::Secret;
use prorata_connectors::kafka::{Connection, KafkaDeadLetters, KafkaSettings, KafkaSource, Login, Security};
use prorata_worker::source::{Source, SourceError};

use crate::{joined, settings, topics, variable};

fn login(login: Login) -> Connection {
    let security = Security { login, ..Security::default() };
    Connection { security, ..Connection::plaintext(variable("PRORATA_TEST_KAFKA_SASL")) }
}

fn logins(password: &str) -> [Login; 3] {
    let user = variable("PRORATA_TEST_KAFKA_USER");
    let password = Secret::new(password);
    [
        Login::Plain { user: user.clone(), password: password.clone() },
        Login::ScramSha256 { user: user.clone(), password: password.clone() },
        Login::ScramSha512 { user, password },
    ]
}

/// Connects, which must fail. Returns the error.
async fn refusal(connection: Connection) -> SourceError {
    let connection = Connection { timeout: Duration::from_secs(4), ..connection };
    KafkaSource::connect(KafkaSettings { connection, ..settings(&["guarded"]) }).await.err().unwrap()
}

fn message(error: &SourceError) -> &str {
    let SourceError::Configuration(message) = error else { panic!("{error:?}") };
    message
}

#[tokio::test]
async fn logins_work_and_wrong_logins_are_reported() {
    topics(&["guarded"], 1).await;
    for by in logins(&variable("PRORATA_TEST_KAFKA_PASSWORD")) {
        let mut source = joined(KafkaSettings { connection: login(by), ..settings(&["guarded"]) }).await;
        source.close().await;
    }
    for by in logins("not-this-one") {
        let error = refusal(login(by.clone())).await;
        assert!(message(&error).contains("refuses the login"), "{error}");
        assert!(
            !message(&error).contains("not-this-one") && !format!("{by:?}").contains("not-this-one"),
            "{error}"
        );
        let dead = KafkaDeadLetters::connect(login(by), "guarded").await.err().unwrap();
        assert_eq!(message(&dead).split(':').next(), message(&error).split(':').next());
    }
}

#[tokio::test]
async fn a_token_is_read_from_its_file() {
    topics(&["tokens"], 1).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    // An unsecured web token without a signature, which these brokers accept.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = format!("{{\"sub\":\"worker\",\"iat\":{now},\"exp\":{}}}", now + 3_600);
    std::fs::write(&file, format!("{}.{}.\n", base64("{\"alg\":\"none\"}"), base64(&claims))).unwrap();
    let token = login(Login::Token { file: file.clone() });
    let mut source = joined(KafkaSettings { connection: token.clone(), ..settings(&["tokens"]) }).await;
    source.close().await;
    std::fs::write(&file, "no-token-of-theirs").unwrap();
    assert!(message(&refusal(token.clone()).await).contains("OAUTHBEARER"));
    std::fs::remove_file(&file).unwrap();
    assert!(message(&refusal(token).await).contains("kafka.sasl_token_file"));
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let sextets = text.as_bytes().chunks(3).flat_map(|chunk| {
        let word =
            chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        (0..=chunk.len()).map(move |index| (word >> (18 - 6 * index)) as usize & 63)
    });
    sextets.map(|sextet| char::from(LETTERS[sextet])).collect()
}

#[tokio::test]
async fn encrypted_connections_trust_the_authority_that_is_named() {
    topics(&["encrypted"], 1).await;
    let tls = |ca_file: Option<&str>| Connection {
        security: Security { encrypted: true, ca_file: ca_file.map(Into::into), ..Security::default() },
        ..Connection::plaintext(variable("PRORATA_TEST_KAFKA_TLS"))
    };
    let authority = variable("PRORATA_TEST_KAFKA_CA");
    let mut source =
        joined(KafkaSettings { connection: tls(Some(&authority)), ..settings(&["encrypted"]) }).await;
    source.close().await;
    let untrusted = refusal(tls(None)).await;
    assert!(message(&untrusted).contains("kafka.ssl_ca_file"), "{untrusted}");
    let missing = refusal(tls(Some("no/such/file"))).await;
    assert!(
        message(&missing).starts_with("kafka.ssl_ca_file: the file 'no/such/file' cannot be read"),
        "{missing}"
    );
}

#[tokio::test]
async fn the_wrong_protocol_is_reported() {
    let to = |name: &str, encrypted: bool, login: Login| Connection {
        security: Security { encrypted, login, ..Security::default() },
        ..Connection::plaintext(variable(name))
    };
    let [plain, ..] = logins("x");
    for connection in [
        to("PRORATA_TEST_KAFKA", true, Login::None),
        to("PRORATA_TEST_KAFKA", false, plain),
        to("PRORATA_TEST_KAFKA_TLS", false, Login::None),
        to("PRORATA_TEST_KAFKA_SASL", false, Login::None),
    ] {
        let shown = format!("{connection:?}");
        let error = refusal(connection).await;
        println!("{shown}:\n    {error}");
        assert!(error.to_string().contains("kafka.security_protocol"), "{shown}: {error}");
    }
}
