//! Tests with ids for which the registry returns something other than a schema, while it returns other
//! schemas.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prorata_connectors::messages::{ConfluentMessages, Times};
use prorata_connectors::registry::{Registry, Settings};
use prorata_schemas::avsc;
use prorata_schemas::event::EventKind;
use prorata_schemas::reject::{Reason, Reject};
use prorata_testkit::wait::{PATIENCE, eventually_async};
use prorata_tests::registry::fake::{Fake, Reply, Request};
use prorata_worker::source::{DecodeFailure, MessageDecoder};
use serde_json::json;

use super::{client, settings};

/// An id with a normal answer.
const GOOD: u32 = 1;

/// Returns the answers that a registry may give about an id instead of a schema, each with a text that the
/// report must contain.
fn odd() -> [(Reply, &'static str); 9] {
    [
        (Reply::error(403, 40301, "User is denied Read"), "403 Forbidden: User is denied Read"),
        (Reply::error(401, 401, "Unauthorized"), "answers 401"),
        (Reply::error(422, 42201, "Invalid schema"), "answers 422"),
        (Reply::error(404, 404, "HTTP 404 Not Found"), "answers 404"),
        (Reply::error(500, 50001, "Error in the backend data store"), "Error in the backend data store"),
        (Reply::json(200, json!({ "schema": 7 })), "not as Confluent's API does"),
        (Reply::json(200, "[]"), "not as Confluent's API does"),
        (Reply::typed(200, "text/html", "<html>log in</html>"), "not as Confluent's API does"),
        (
            Reply { cut: Some(5), ..Reply::json(200, json!({ "schema": "x" })) },
            "end of file before message length",
        ),
    ]
}

/// Returns a registry that gives this answer about every id, except about id 1 if `knows_good`.
fn registry(reply: Reply, knows_good: bool) -> Fake {
    Fake::answering(move |request: &Request| match request.path.as_str() {
        "/schemas/types" => Reply::json(200, json!(["AVRO"])),
        "/schemas/ids/1" if knows_good => Reply::json(200, json!({ "schema": avsc(EventKind::NodeStopped) })),
        _ => reply.clone(),
    })
}

fn message(id: u32) -> Vec<u8> {
    [&[0][..], &id.to_be_bytes(), b"body"].concat()
}

fn reject(messages: &ConfluentMessages, id: u32) -> Reject {
    match messages.decode(&message(id)) {
        Err(DecodeFailure::Reject(reject)) => reject,
        other => panic!("expected a reject, got {other:?}"),
    }
}

#[tokio::test]
async fn an_odd_answer_about_an_id_is_the_fault_of_that_id() {
    for (reply, expected) in odd() {
        let fake = registry(reply, true);
        let times = Times { settle: Duration::from_millis(50), ..Times::PATIENT };
        let messages = ConfluentMessages::new(client(&fake.url()), times);
        messages.fetch(GOOD).await.unwrap();
        let error = messages.fetch(7).await.unwrap_err();
        assert!(error.is_of_schema, "{expected}: {error}");
        assert!(error.to_string().contains("does not give schema 7 yet"), "{error}");
        assert_eq!(messages.decode(&message(7)), Err(DecodeFailure::NeedsSchema(7)), "not settled yet");
        eventually_async("7 is asked for in vain", async || messages.fetch(7).await).await;
        let reject = reject(&messages, 7);
        assert_eq!(reject.reason, Reason::UnknownSchema);
        assert!(reject.message.contains(expected), "{expected}: {reject}");
        assert_eq!(messages.fetch(8).await, Ok(()), "none is waited for right after");
    }
}

#[tokio::test]
async fn a_command_does_not_wait_for_an_id_that_is_answered_oddly() {
    let fake = registry(Reply::error(403, 40301, "denied"), true);
    let messages = ConfluentMessages::new(client(&fake.url()), Times::AT_ONCE);
    messages.fetch(7).await.unwrap();
    assert_eq!(reject(&messages, 7).reason, Reason::UnknownSchema);
}

#[tokio::test]
async fn an_answer_that_never_ends_is_the_fault_of_its_id() {
    let fake = registry(Reply { delay: PATIENCE, ..Reply::json(200, "{}") }, true);
    let slow = Settings { timeout: Duration::from_millis(200), ..settings(&fake.url()) };
    let messages = ConfluentMessages::new(Registry::new(&slow).unwrap(), Times::AT_ONCE);
    eventually_async("the good one is known", async || messages.fetch(GOOD).await).await;
    eventually_async("7 is given up", async || messages.fetch(7).await).await;
    assert!(reject(&messages, 7).message.contains("does not answer within"));
}

/// A registry whose storage is down still returns its list of schema types. So that answer alone does not
/// show that a missing schema is the fault of its id.
#[tokio::test]
async fn a_registry_that_gives_no_schema_at_all_is_asked_for_longer() {
    let fake = registry(Reply::error(500, 50001, "Error in the backend data store"), false);
    let times = Times { settle: Duration::from_secs(3_600), ..Times::PATIENT };
    let messages = ConfluentMessages::new(client(&fake.url()), times);
    assert!(messages.fetch(7).await.unwrap_err().is_of_schema);
    assert_eq!(messages.decode(&message(7)), Err(DecodeFailure::NeedsSchema(7)));
    let soon = Times { settle: Duration::from_millis(5), ..Times::PATIENT };
    let messages = ConfluentMessages::new(client(&fake.url()), soon);
    eventually_async("7 is given up at last", async || messages.fetch(7).await).await;
    assert_eq!(reject(&messages, 7).reason, Reason::UnknownSchema);
}

#[tokio::test]
async fn a_registry_that_stops_answering_does_not_reject_an_id() {
    let down = Arc::new(AtomicBool::new(false));
    let fake = Fake::answering({
        let down = Arc::clone(&down);
        move |request| match (down.load(Ordering::SeqCst), request.path.as_str()) {
            (false, "/schemas/ids/1") => Reply::json(200, json!({ "schema": avsc(EventKind::NodeStopped) })),
            (false, _) => Reply::error(404, 40403, "Schema not found"),
            (true, _) => Reply::error(403, 403, "denied"),
        }
    });
    let messages = ConfluentMessages::new(client(&fake.url()), Times::AT_ONCE);
    messages.fetch(GOOD).await.unwrap();
    down.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let error = messages.fetch(7).await.unwrap_err();
        assert!(!error.is_of_schema && error.to_string().contains("answers 403"), "{error}");
        assert_eq!(messages.decode(&message(7)), Err(DecodeFailure::NeedsSchema(7)));
    }
}
