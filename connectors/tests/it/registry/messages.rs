//! Tests of decoding values into events: both wire formats, every kind of damage, and the number of requests
//! to the registry.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use prorata_connectors::messages::{ConfluentMessages, MessageEncoder, SingleObjectMessages, Times};
use prorata_schemas::avsc;
use prorata_schemas::body::{EventRecordRef, encode};
use prorata_schemas::event::{Event, EventKind, NodeStopped, Payload};
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::time::Timestamp;
use prorata_testkit::wait::{eventually, eventually_async};
use prorata_tests::registry::fake::{Fake, Reply};
use prorata_worker::ports::ErrorKind;
use prorata_worker::source::{DecodeFailure, MessageDecoder};
use serde_json::json;

use super::client;

fn event() -> Event {
    Event::new(
        "acme".into(),
        Timestamp(1_793_491_200_000_000),
        Payload::NodeStopped(NodeStopped { cluster_id: "c".into(), node_id: "n".into() }),
    )
}

/// Returns a message of [`event`] in Confluent's wire format.
fn message(id: u32) -> Vec<u8> {
    [&[0][..], &id.to_be_bytes(), &encode(&event())].concat()
}

fn reject(outcome: Result<EventRecordRef<'_>, DecodeFailure>) -> Reject {
    match outcome {
        Err(DecodeFailure::Reject(reject)) => reject,
        other => panic!("expected a reject, got {other:?}"),
    }
}

/// Decodes like the worker, and fetches a missing schema once.
async fn decoded<'a>(
    messages: &dyn MessageDecoder,
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

#[tokio::test]
async fn the_decoder_reads_messages_of_the_encoder_in_both_formats() {
    let fake = Fake::registry();
    let registered = MessageEncoder::registered(&client(&fake.url())).await.unwrap();
    let confluent = ConfluentMessages::new(client(&fake.url()), Times::AT_ONCE);
    let value = registered.encode(EventKind::NodeStopped, &encode(&event()));
    assert_eq!(value[..5], [0, 0, 0, 0, 2], "the second of all kinds");
    assert_eq!(decoded(&confluent, &value).await.unwrap().event.into_owned(), event());

    let single = SingleObjectMessages::new().unwrap();
    let value = MessageEncoder::single_object().encode(EventKind::NodeStopped, &encode(&event()));
    assert_eq!(single.decode(&value).unwrap().event.into_owned(), event());
    assert_eq!(single.fetch(1).await, Ok(()));
}

#[tokio::test]
async fn a_schema_is_fetched_once() {
    let fake = Fake::registry();
    client(&fake.url()).register_event(EventKind::NodeStopped).await.unwrap();
    let messages = ConfluentMessages::new(client(&fake.url()), Times::AT_ONCE);
    assert_eq!(messages.decode(&message(1)), Err(DecodeFailure::NeedsSchema(1)));
    for _ in 0..100 {
        decoded(&messages, &message(1)).await.unwrap();
    }
    messages.fetch(1).await.unwrap();
    assert_eq!(fake.asked().len(), 2, "one to register, one to fetch");
}

#[tokio::test]
async fn an_unknown_id_is_asked_for_again_after_a_while() {
    let fake = Fake::registry();
    let decoder =
        |unknown: Duration| ConfluentMessages::new(client(&fake.url()), Times { unknown, ..Times::AT_ONCE });
    let messages = decoder(Duration::from_secs(3_600));
    for _ in 0..3 {
        let reject = reject(decoded(&messages, &message(1)).await);
        assert_eq!(reject.reason, Reason::UnknownSchema);
        assert!(reject.message.contains("has no schema 1"), "{reject}");
    }
    assert_eq!(fake.asked().len(), 1, "asked once for three messages");
    let messages = decoder(Duration::from_millis(300));
    messages.fetch(1).await.unwrap();
    client(&fake.url()).register_event(EventKind::NodeStopped).await.unwrap();
    eventually("the schema is needed again", || {
        messages.decode(&message(1)) == Err(DecodeFailure::NeedsSchema(1))
    });
    decoded(&messages, &message(1)).await.unwrap();
    assert_eq!(fake.asked().len(), 4, "one more before the registration, and one after it");
}

/// Returns a registry that knows [`event`]'s schema under this id once `known` is set.
fn late(id: u32, known: &Arc<AtomicBool>) -> Fake {
    let known = Arc::clone(known);
    Fake::answering(move |request| {
        match known.load(Ordering::SeqCst) && request.path == format!("/schemas/ids/{id}") {
            true => Reply::json(200, json!({ "schema": avsc(EventKind::NodeStopped) })),
            false => Reply::error(404, 40403, "Schema not found"),
        }
    })
}

#[tokio::test]
async fn messages_wait_until_all_registry_nodes_know_their_schema() {
    let known = Arc::new(AtomicBool::new(false));
    let fake = late(7, &known);
    let messages = ConfluentMessages::new(client(&fake.url()), Times::PATIENT);
    for _ in 0..2 {
        let error = messages.fetch(7).await.unwrap_err().to_string();
        assert!(error.contains("does not have schema 7 yet; asking again"), "{error}");
        assert_eq!(messages.decode(&message(7)), Err(DecodeFailure::NeedsSchema(7)));
    }
    known.store(true, Ordering::SeqCst);
    assert_eq!(decoded(&messages, &message(7)).await.unwrap().event.into_owned(), event());
    assert_eq!(fake.asked().len(), 3, "asked each time");
}

#[tokio::test]
async fn an_id_awaited_in_vain_is_unknown_and_rarely_delays_others() {
    let known = Arc::new(AtomicBool::new(false));
    let fake = late(9, &known);
    let millis = Duration::from_millis;
    let times = Times { settle: millis(300), unknown: Duration::ZERO, hurry: Duration::from_secs(600) };
    let messages = ConfluentMessages::new(client(&fake.url()), times);
    messages.fetch(7).await.unwrap_err();
    eventually_async("7 is waited for in vain", async || messages.fetch(7).await).await;
    for id in [8, 9] {
        assert_eq!(messages.fetch(id).await, Ok(()), "{id} is not waited for");
    }
    known.store(true, Ordering::SeqCst);
    assert_eq!(decoded(&messages, &message(9)).await.unwrap().event.into_owned(), event());

    let rested = Times { unknown: Duration::from_secs(30), hurry: Duration::ZERO, ..times };
    let messages = ConfluentMessages::new(client(&fake.url()), rested);
    messages.fetch(7).await.unwrap_err();
    eventually_async("7 is waited for in vain", async || messages.fetch(7).await).await;
    assert_eq!(reject(decoded(&messages, &message(7)).await).reason, Reason::UnknownSchema);
    messages.fetch(8).await.unwrap_err();
}

#[tokio::test]
async fn an_id_that_no_registry_gives_is_not_asked_for() {
    let fake = Fake::registry();
    let messages = ConfluentMessages::new(client(&fake.url()), Times::AT_ONCE);
    for id in [1 << 31, u32::MAX] {
        assert_eq!(reject(messages.decode(&message(id))).reason, Reason::UnknownSchema);
        messages.fetch(id).await.unwrap();
    }
    assert_eq!(fake.asked().len(), 0);
}

#[tokio::test]
async fn an_outage_of_the_registry_does_not_reject_the_message() {
    let status = Arc::new(AtomicU16::new(503));
    let fake = Fake::answering({
        let status = Arc::clone(&status);
        move |_| match status.load(Ordering::SeqCst) {
            200 => Reply::json(200, json!({ "schema": avsc(EventKind::NodeStopped) })),
            status => Reply::error(status, 50001, "Error in the backend data store"),
        }
    });
    let messages = ConfluentMessages::new(client(&fake.url()), Times::AT_ONCE);
    for failing in [503, 401, 404] {
        status.store(failing, Ordering::SeqCst);
        let error = messages.fetch(5).await.unwrap_err();
        let kind = match failing {
            503 => ErrorKind::Transient,
            401 => ErrorKind::Permission,
            _ => ErrorKind::Invalid,
        };
        assert_eq!(error.kind, kind, "{error}");
        let error = error.to_string();
        assert!(error.contains(&format!("answers {failing}")), "{error}");
        assert_eq!(messages.decode(&message(5)), Err(DecodeFailure::NeedsSchema(5)));
    }
    status.store(200, Ordering::SeqCst);
    decoded(&messages, &message(5)).await.unwrap();
}

#[tokio::test]
async fn messages_with_a_foreign_schema_are_rejected() {
    let answers = [
        (json!({ "schema": "{}", "schemaType": "JSON" }), "is of type JSON"),
        (json!({ "schema": "not a schema" }), "is not an Avro schema"),
        (json!({ "schema": "\"null\"" }), "is not a record"),
        (json!({ "schema": "\"x.Y\"", "references": [{ "name": "x.Y" }] }), "refers to other schemas (x.Y)"),
        (
            json!({ "schema": "{\"type\":\"record\",\"name\":\"a.B\",\"fields\":[]}" }),
            "a.B is not one of the records of",
        ),
        (json!({ "schema": " ".repeat(3 << 20) }), "has more than"),
    ];
    for (answer, expected) in answers {
        let fake = Fake::answering(move |_| Reply::json(200, answer.clone()));
        let messages = ConfluentMessages::new(client(&fake.url()), Times::AT_ONCE);
        for _ in 0..2 {
            let reject = reject(decoded(&messages, &message(3)[..5]).await);
            assert_eq!(reject.reason, Reason::UnknownEvent, "{expected}: {reject}");
            assert!(reject.message.contains(expected), "{reject}");
        }
        assert_eq!(fake.asked().len(), 1, "{expected}: kept");
    }
}

#[tokio::test]
async fn more_schemas_than_are_kept_still_decode() {
    let calls = Arc::new(Mutex::new(0));
    let fake = Fake::answering({
        let calls = Arc::clone(&calls);
        move |_| {
            *calls.lock().unwrap() += 1;
            Reply::json(200, json!({ "schema": avsc(EventKind::NodeStopped) }))
        }
    });
    let messages = ConfluentMessages::new(client(&fake.url()), Times::AT_ONCE);
    for id in 1..=1_100 {
        decoded(&messages, &message(id)).await.unwrap();
    }
    assert_eq!(*calls.lock().unwrap(), 1_100);
    decoded(&messages, &message(1_100)).await.unwrap();
    assert_eq!(
        messages.decode(&message(1)),
        Err(DecodeFailure::NeedsSchema(1)),
        "dropped with the first 1024"
    );
}

#[tokio::test]
async fn kinds_of_damage_are_distinguished() {
    let fake = Fake::registry();
    client(&fake.url()).register_event(EventKind::NodeStopped).await.unwrap();
    let messages = ConfluentMessages::new(client(&fake.url()), Times::AT_ONCE);
    let whole = message(1);
    decoded(&messages, &whole).await.unwrap();
    let single = MessageEncoder::single_object().encode(EventKind::NodeStopped, &encode(&event()));
    let damaged: [(&[u8], &str); 7] = [
        (b"", "empty: neither magic byte nor schema id"),
        (&whole[..1], "1 bytes: the magic byte and the schema id"),
        (&whole[..4], "4 bytes: the magic byte and the schema id"),
        (&whole[..whole.len() - 1], "NodeStopped"),
        (&[&whole[..], b"x"].concat(), "1 bytes follow the end of the record"),
        (b"{\"json\": true}", "the first byte is 7B, not the magic byte 00"),
        (&single, "single-object encoding (C3 01), but registry.url is set"),
    ];
    for (value, expected) in damaged {
        let reject = reject(messages.decode(value));
        assert_eq!(reject.reason, Reason::Malformed, "{reject}");
        assert!(reject.message.contains(expected), "{expected}: {reject}");
    }
}

#[test]
fn without_a_registry_the_other_format_is_named() {
    let messages = SingleObjectMessages::new().unwrap();
    let message = reject(messages.decode(&message(12))).message;
    assert!(message.contains("Confluent's wire format (00, schema id 12)"), "{message}");
    assert!(message.contains("registry.url is empty"), "{message}");
    for short in [&b""[..], &[0], &[0, 0, 0, 1], b"{}", &[0xc3], &[0xc3, 1, 2]] {
        let reject = reject(messages.decode(short));
        assert_eq!(reject.reason, Reason::Malformed);
        assert!(reject.message.contains("no single-object header"), "{reject}");
    }
    let unknown = [&[0xc3, 1][..], &[9; 8]].concat();
    assert_eq!(reject(messages.decode(&unknown)).reason, Reason::UnknownSchema);
}
