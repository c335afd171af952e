//! Tests with Apicurio, a schema registry from another project. Decoders read the schemas that the program
//! registers there, and unknown schemas are reported.
//!
//! `tests/python/servers.py --registry` starts the server, so these tests need the feature `servers`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod contract;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use prorata_connectors::Secret;
use prorata_connectors::avro::fingerprint;
use prorata_connectors::messages::{ConfluentMessages, MessageEncoder, Times};
use prorata_connectors::registry::{Lookup, Registry, RegistryFault, Settings};
use prorata_schemas::avsc;
use prorata_schemas::body::{EventRecordRef, encode};
use prorata_schemas::event::{Event, EventKind, NodeStopped, Payload};
use prorata_schemas::reject::Reason;
use prorata_schemas::time::Timestamp;
use prorata_testkit::wait::eventually_async;
use prorata_worker::source::{DecodeFailure, MessageDecoder};
use serde_json::json;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run tests/python/servers.py --registry --registry-auth cargo test ..")
    })
}

fn settings() -> Settings {
    Settings {
        url: variable("PRORATA_TEST_REGISTRY"),
        username: std::env::var("PRORATA_TEST_REGISTRY_USER").unwrap_or_default(),
        password: Secret::new(std::env::var("PRORATA_TEST_REGISTRY_PASSWORD").unwrap_or_default()),
        timeout: Duration::from_secs(30),
        ..Settings::default()
    }
}

fn registry() -> Registry {
    Registry::new(&settings()).unwrap()
}

/// Returns the answer to a request, and repeats a request without an answer: a busy machine may take longer
/// than the client waits.
async fn answered<T>(mut request: impl AsyncFnMut() -> Result<T, RegistryFault>) -> Result<T, RegistryFault> {
    let answer = eventually_async("an answer", async || match request().await {
        Err(RegistryFault::Unavailable(message)) => Err(message),
        answered => Ok(answered),
    });
    answer.await
}

/// A subject that no other test uses.
fn subject() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("tests.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn event() -> Event {
    Event::new(
        "acme".into(),
        Timestamp(1_793_491_200_000_000),
        Payload::NodeStopped(NodeStopped { cluster_id: "c".into(), node_id: "n".into() }),
    )
}

/// Decodes a value as the worker does. If the decoder needs a schema, fetches it and decodes again.
async fn decoded<'a>(
    messages: &ConfluentMessages,
    value: &'a [u8],
) -> Result<EventRecordRef<'a>, DecodeFailure> {
    match messages.decode(value) {
        Err(DecodeFailure::NeedsSchema(id)) => {
            messages.fetch(id).await.unwrap();
            messages.decode(value)
        }
        other => other,
    }
}

fn message(id: u32, body: &[u8]) -> Vec<u8> {
    [&[0][..], &id.to_be_bytes(), body].concat()
}

#[tokio::test]
async fn it_is_there_and_takes_the_credentials() {
    assert_eq!(answered(async || registry().check().await).await, Ok(()));
}

#[tokio::test]
async fn every_schema_is_registered_once_and_read_back_as_it_was() {
    let registry = registry();
    let mut ids = Vec::new();
    for kind in EventKind::ALL {
        let id = registry.register_event(kind).await.unwrap();
        assert_eq!(registry.register_event(kind).await, Ok(id), "{kind:?} again");
        let Lookup::Avro(text) = registry.schema(id).await.unwrap() else { panic!("{kind:?} is not there") };
        // The registry writes namespaces apart from names, which is the same schema.
        assert_eq!(fingerprint(&text).unwrap(), fingerprint(avsc(kind)).unwrap(), "{kind:?}");
        ids.push(id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), EventKind::ALL.len());
}

#[tokio::test]
async fn messages_of_a_registered_schema_are_decoded() {
    let encoder = MessageEncoder::registered(&registry()).await.unwrap();
    let messages = ConfluentMessages::new(registry(), Times::AT_ONCE);
    let value = encoder.encode(EventKind::NodeStopped, &encode(&event()));
    assert_eq!(decoded(&messages, &value).await.unwrap().event.into_owned(), event());
}

#[tokio::test]
async fn an_unknown_id_is_unknown() {
    let messages = ConfluentMessages::new(registry(), Times::AT_ONCE);
    for id in [0, 999_999, i32::MAX as u32, u32::MAX] {
        let Err(DecodeFailure::Reject(reject)) = decoded(&messages, &message(id, &encode(&event()))).await
        else {
            panic!("{id} was decoded")
        };
        assert_eq!(reject.reason, Reason::UnknownSchema, "{id}: {reject}");
    }
}

#[tokio::test]
async fn messages_with_a_foreign_schema_are_rejected() {
    let registry = registry();
    let other =
        json!({ "type": "record", "name": "tests.Other", "fields": [{ "name": "x", "type": "string" }] });
    let id = registry.register(&subject(), &other.to_string()).await.unwrap();
    let messages = ConfluentMessages::new(registry, Times::AT_ONCE);
    let Err(DecodeFailure::Reject(reject)) = decoded(&messages, &message(id, &[2, b'x'])).await else {
        panic!("it was decoded")
    };
    assert_eq!(reject.reason, Reason::UnknownEvent);
    assert!(reject.message.contains("record tests.Other is not one of the records of"), "{reject}");
}

#[tokio::test]
async fn an_invalid_schema_is_refused() {
    let refused = registry().register(&subject(), "{\"type\": \"nonsense\"}").await;
    let Err(RegistryFault::Configuration(message)) = refused else { panic!("{refused:?}") };
    assert!(message.contains("refuses the schema of subject tests."), "{message}");
}

#[tokio::test]
async fn a_wrong_path_does_not_count_as_an_unknown_schema() {
    let wrong = Settings { url: format!("{}/nowhere", settings().url), ..settings() };
    let registry = Registry::new(&wrong).unwrap();
    let found = answered(async || registry.schema(1).await).await;
    let Err(RegistryFault::Configuration(message)) = found else { panic!("{found:?}") };
    assert!(message.contains("registry.url must be the base URL"), "{message}");
}

#[tokio::test]
async fn wrong_credentials_are_reported() {
    let user = variable("PRORATA_TEST_REGISTRY_USER");
    for (username, password) in [(user.as_str(), "wrong"), ("nobody", "wrong"), ("", "")] {
        let wrong = Settings { username: username.into(), password: Secret::new(password), ..settings() };
        let registry = Registry::new(&wrong).unwrap();
        let outcomes = [
            answered(async || registry.check().await).await,
            answered(async || registry.schema(1).await.map(drop)).await,
            answered(async || registry.register_event(EventKind::PodUsage).await.map(drop)).await,
        ];
        for outcome in outcomes {
            let Err(RegistryFault::Permission(message)) = outcome else {
                panic!("{username:?}: {outcome:?}")
            };
            assert!(message.contains("check registry.username"), "{message}");
        }
    }
}

#[tokio::test]
async fn encryption_is_by_the_authority_that_is_named() {
    let url = variable("PRORATA_TEST_REGISTRY_TLS");
    let ca_file = Some(PathBuf::from(variable("PRORATA_TEST_REGISTRY_CA")));
    let trusting = Registry::new(&Settings { url: url.clone(), ca_file, ..settings() }).unwrap();
    assert_eq!(answered(async || trusting.check().await).await, Ok(()));
    let strange = Registry::new(&Settings { url, ..settings() }).unwrap();
    let strange = answered(async || strange.check().await).await;
    let Err(RegistryFault::Configuration(message)) = strange else { panic!("{strange:?}") };
    assert!(
        message.contains("set registry.ca_file to a file with the certificate of its authority"),
        "{message}"
    );
}
