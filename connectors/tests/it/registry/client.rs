//! The client's requests, and its reaction to every kind of answer.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use prorata_connectors::Secret;
use prorata_connectors::avro::SCHEMA_BYTES_MAX;
use prorata_connectors::registry::{Lookup, Registry, Settings};
use prorata_schemas::avsc;
use prorata_schemas::event::EventKind;
use prorata_testkit::wait::PATIENCE;
use prorata_tests::registry::fake::{Fake, Reply};
use serde_json::{Value, json};

use super::{client, misconfigured, refused, settings, unavailable};

/// Returns a registry that gives this answer to every request.
fn always(reply: Reply) -> Fake {
    Fake::answering(move |_| reply.clone())
}

fn schema(text: &str) -> Reply {
    Reply::json(200, json!({ "schema": text }))
}

#[tokio::test]
async fn a_schema_is_asked_for_by_id_under_the_base_path() {
    let fake = always(schema("\"string\""));
    for base in ["", "/", "/apis/ccompat/v7", "/apis/ccompat/v7/"] {
        let found = client(&format!("{}{base}", fake.url())).schema(7).await;
        assert_eq!(found, Ok(Lookup::Avro("\"string\"".into())), "{base}");
    }
    let asked = fake.asked();
    let paths: Vec<&str> = asked.iter().map(|request| request.path.as_str()).collect();
    let (short, long) = ("/schemas/ids/7", "/apis/ccompat/v7/schemas/ids/7");
    assert_eq!(paths, [short, short, long, long]);
    assert!(asked.iter().all(|request| request.method == "GET"));
    assert!(asked[0].headers["accept"].contains("application/vnd.schemaregistry.v1+json"));
    assert!(!asked[0].headers.contains_key("authorization"), "{:?}", asked[0]);
}

#[tokio::test]
async fn credentials_are_sent_with_every_request_and_never_printed() {
    let fake = always(Reply::json(200, json!({ "id": 3, "schema": "\"string\"" })));
    let credentials =
        Settings { username: "prorata".into(), password: Secret::new("s3cret"), ..settings(&fake.url()) };
    let registry = Registry::new(&credentials).unwrap();
    registry.schema(3).await.unwrap();
    registry.register("subject", "\"string\"").await.unwrap();
    for request in fake.asked() {
        assert_eq!(request.headers["authorization"], "Basic cHJvcmF0YTpzM2NyZXQ=");
    }
    let printed = format!("{credentials:?} {registry:?}");
    assert!(printed.contains("[redacted]") && !printed.contains("s3cret"), "{printed}");
}

#[tokio::test]
async fn a_schema_is_registered_under_its_record_name() {
    let fake = Fake::registry();
    let registry = client(&fake.url());
    let first = registry.register_event(EventKind::PodUsage).await.unwrap();
    let other = registry.register_event(EventKind::PoolSet).await.unwrap();
    assert_eq!((first, other), (1, 2));
    assert_eq!(registry.register_event(EventKind::PodUsage).await, Ok(1), "a second time");
    let request = &fake.asked()[0];
    assert_eq!(request.method, "POST");
    assert_eq!(request.path, "/subjects/prorata.events.PodUsage/versions");
    assert_eq!(request.headers["content-type"], "application/vnd.schemaregistry.v1+json");
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(body, json!({ "schema": avsc(EventKind::PodUsage).trim_end() }));
    assert_eq!(registry.schema(1).await, Ok(Lookup::Avro(avsc(EventKind::PodUsage).trim_end().into())));
}

#[tokio::test]
async fn a_subject_is_one_segment_of_the_path_whatever_it_holds() {
    let fake = Fake::registry();
    client(&fake.url()).register("a/b c?d", "\"string\"").await.unwrap();
    assert_eq!(fake.asked()[0].path, "/subjects/a%2Fb%20c%3Fd/versions");
}

#[tokio::test]
async fn only_the_registrys_own_404_says_that_an_id_is_unknown() {
    let fake = always(Reply::error(404, 40403, "Schema not found"));
    assert_eq!(client(&fake.url()).schema(9).await, Ok(Lookup::Missing));
    for elsewhere in [
        Reply::error(404, 404, "HTTP 404 Not Found"),
        Reply::typed(404, "text/html", "<html>no such page</html>"),
        Reply::json(404, "[]"),
    ] {
        let fake = always(elsewhere);
        let message = misconfigured(client(&fake.url()).schema(9).await);
        assert!(message.contains("/schemas/ids/9 answers 404"), "{message}");
        assert!(message.contains("registry.url must be the base URL of Confluent's API"), "{message}");
    }
}

#[tokio::test]
async fn refused_credentials_name_the_settings() {
    for status in [401, 403] {
        let fake = always(Reply::error(status, u32::from(status), "Unauthorized"));
        let registry = client(&fake.url());
        for message in [
            refused(registry.schema(1).await),
            refused(registry.register_event(EventKind::PodStarted).await),
            refused(registry.check().await),
        ] {
            assert!(message.contains(&format!("answers {status}")), "{message}");
            assert!(message.contains("check registry.username and registry.password"), "{message}");
        }
    }
}

#[tokio::test]
async fn trouble_on_the_registrys_side_is_unavailable() {
    for status in [408, 429, 500, 502, 503, 504] {
        let fake = always(Reply::error(status, 50003, "Error while\nforwarding"));
        let message = unavailable(client(&fake.url()).schema(1).await);
        assert!(message.contains(&format!("answers {status}")), "{message}");
        assert!(message.contains(": Error while forwarding"), "{message}");
    }
}

#[tokio::test]
async fn a_registry_that_is_down_is_unavailable() {
    let url = Fake::registry().url();
    let message = unavailable(client(&url).schema(1).await);
    assert!(message.starts_with(&format!("{url}/schemas/ids/1: ")), "{message}");
    assert!(message.contains("refused"), "{message}");
}

/// A listener accepts no connection beyond its backlog: the kernel drops the packets.
#[tokio::test]
async fn connecting_into_nothing_ends_long_before_an_answer_must_be_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok());
    let waiting: Vec<TcpStream> = waiting.take(10_000).collect();
    let patient = Settings { timeout: PATIENCE * 2, ..settings(&format!("http://{address}")) };
    let message = unavailable(Registry::new(&patient).unwrap().schema(1).await);
    assert!(message.contains("cannot be connected to within 2s"), "{message}");
    drop(waiting);
}

#[tokio::test]
async fn a_slow_registry_is_given_up_after_the_timeout() {
    let fake = always(Reply { delay: PATIENCE, ..schema("\"string\"") });
    let slow = Settings { timeout: Duration::from_millis(200), ..settings(&fake.url()) };
    let message = unavailable(Registry::new(&slow).unwrap().schema(1).await);
    assert!(message.contains("does not answer within 200ms"), "{message}");
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_unavailable() {
    let fake = always(Reply { cut: Some(5), ..schema("\"string\"") });
    unavailable(client(&fake.url()).schema(1).await);
}

#[tokio::test]
async fn a_huge_schema_is_unusable_and_a_huge_page_is_a_wrong_url() {
    let text = "x".repeat(2 * SCHEMA_BYTES_MAX);
    let fake = always(schema(&text));
    let Ok(Lookup::Unusable(message)) = client(&fake.url()).schema(1).await else {
        panic!("a huge schema was taken")
    };
    let bound = format!("schema 1 has more than {} bytes", 2 * SCHEMA_BYTES_MAX);
    assert!(message.contains(&bound), "{message}");
    let fake = always(Reply::typed(200, "text/html", text));
    misconfigured(client(&fake.url()).schema(1).await);
}

#[tokio::test]
async fn redirects_are_followed_within_bounds() {
    let target = Fake::registry();
    client(&target.url()).register_event(EventKind::PodStarted).await.unwrap();
    let to = target.url();
    let fake = Fake::answering(move |request| Reply::redirect(307, &format!("{to}{}", request.path)));
    let registry = client(&fake.url());
    assert_eq!(registry.register_event(EventKind::PodStarted).await, Ok(1), "also where it is sent");
    assert!(matches!(registry.schema(1).await, Ok(Lookup::Avro(_))));

    let endless = Fake::answering(|request| Reply::redirect(302, &format!("{}0", request.path)));
    let message = misconfigured(client(&endless.url()).schema(1).await);
    assert!(message.contains("redirects endlessly"), "{message}");
    assert!(endless.asked().len() <= 6, "{} requests", endless.asked().len());
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_server() {
    let target = Fake::registry();
    let to = target.url();
    let fake = Fake::answering(move |request| Reply::redirect(307, &format!("{to}{}", request.path)));
    let credentials =
        Settings { username: "prorata".into(), password: Secret::new("s3cret"), ..settings(&fake.url()) };
    Registry::new(&credentials).unwrap().schema(1).await.unwrap();
    assert!(fake.asked()[0].headers.contains_key("authorization"));
    assert!(!target.asked()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn errors_do_not_repeat_the_content_of_redirects_and_answers() {
    let target = always(Reply::json(200, json!({ "schema": { "a": "b" }, "x": "y".repeat(10_000) })));
    let to = target.url().replace("http://", "http://me:s3cret@");
    let fake = always(Reply::redirect(307, &format!("{to}/?token=s3cret")));
    let message = misconfigured(client(&fake.url()).schema(1).await);
    assert!(message.contains("not as Confluent's API does") && !message.contains("s3cret"), "{message}");
    let long = always(Reply::json(200, json!({ "id": "y".repeat(10_000) })));
    let message = misconfigured(client(&long.url()).register("subject", "\"string\"").await);
    assert!(message.len() < 700, "{} bytes", message.len());
}

#[tokio::test]
async fn other_types_and_references_are_unusable() {
    let other = json!({ "schema": "syntax = \"proto3\";", "schemaType": "PROTOBUF" });
    let fake = always(Reply::json(200, other));
    let Ok(Lookup::Unusable(message)) = client(&fake.url()).schema(4).await else { panic!("taken") };
    assert!(message.contains("schema 4 is of type PROTOBUF"), "{message}");

    let reference = json!({ "name": "com.other.Thing", "subject": "thing", "version": 1 });
    let referring = json!({ "schema": "\"string\"", "schemaType": "AVRO", "references": [reference] });
    let fake = always(Reply::json(200, referring));
    let Ok(Lookup::Unusable(message)) = client(&fake.url()).schema(4).await else { panic!("taken") };
    assert!(message.contains("refers to other schemas (com.other.Thing)"), "{message}");

    let plain = json!({ "schema": "\"string\"", "schemaType": "AVRO", "references": [], "maxId": 9 });
    let fake = always(Reply::json(200, plain));
    assert_eq!(client(&fake.url()).schema(4).await, Ok(Lookup::Avro("\"string\"".into())));
}

#[tokio::test]
async fn a_server_that_is_not_a_registry_is_recognized_by_its_answer() {
    for answer in [
        Reply::typed(200, "text/html", "<html>log in</html>"),
        Reply::json(200, "{}"),
        Reply::json(200, "[]"),
        Reply::json(200, "null"),
        Reply::json(204, ""),
    ] {
        let fake = always(answer.clone());
        let registry = client(&fake.url());
        let message = misconfigured(registry.schema(1).await);
        assert!(message.contains("not as Confluent's API does"), "{answer:?}: {message}");
        misconfigured(registry.register_event(EventKind::PodStarted).await);
    }
}

#[tokio::test]
async fn a_schema_that_is_refused_says_why_at_bounded_length() {
    for (status, code) in [(409, 409), (422, 42201)] {
        let reason = format!("incompatible with an earlier schema {}", "x".repeat(10_000));
        let fake = always(Reply::error(status, code, &reason));
        let message = misconfigured(client(&fake.url()).register_event(EventKind::PodStarted).await);
        assert!(message.contains("refuses the schema of subject prorata.events.PodStarted"), "{message}");
        assert!(message.contains(": incompatible with an earlier schema"), "{message}");
        assert!(message.len() < 600, "{} bytes", message.len());
    }
}

#[tokio::test]
async fn a_registry_that_is_there_passes_the_check() {
    let fake = always(Reply::json(200, json!(["JSON", "PROTOBUF", "AVRO"])));
    assert_eq!(client(&fake.url()).check().await, Ok(()));
    assert_eq!(fake.asked()[0].path, "/schemas/types");
}

#[test]
fn errors_do_not_repeat_secrets_of_a_wrong_url() {
    for url in [
        "https://me:s3cret@host",
        "https://me:s3cret@host:port",
        "https://me:s3cret@",
        "https://me:s3cret",
        "//me:s3cret@host",
        "me:s3cret@host",
        "ftp://me:s3cret@host",
        "https://me:8081#s3cret@host",
        "https://host/?token=s3cret",
    ] {
        let message = misconfigured(Registry::new(&settings(url)));
        assert!(message.starts_with("registry.url ") && !message.contains("s3cret"), "{url}: {message}");
    }
}

#[test]
fn wrong_settings_say_which_and_what_they_should_be() {
    let wrong = |settings: Settings| misconfigured(Registry::new(&settings));
    for url in ["", "registry:8081", "host", "ftp://host", "https://host/?a=b", "https://host/#a", "http://"]
    {
        let message = wrong(settings(url));
        assert!(message.contains("registry.url") && message.contains("https://"), "{url}: {message}");
    }
    assert!(wrong(settings("registry:8081")).contains("'registry:8081'"));
    let message = wrong(settings("https://me:s3cret@host"));
    assert!(message.contains("set registry.username"), "{message}");
    let lonely = Settings { password: Secret::new("s3cret"), ..settings("https://host") };
    assert!(wrong(lonely).contains("registry.username is not"));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let trusting = || Settings { ca_file: Some(file.clone()), ..settings("https://host") };
    assert!(wrong(trusting()).contains("cannot be read"));
    for text in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        std::fs::write(&file, text).unwrap();
        assert!(wrong(trusting()).contains("ca.pem"), "{text}");
    }
}
