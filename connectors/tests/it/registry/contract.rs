//! Conformance of the decoders of both formats: with a registry that misbehaves on demand, and without a
//! registry.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use prorata_connectors::messages::{ConfluentMessages, MessageEncoder, SingleObjectMessages, Times};
use prorata_connectors::registry::{Registry, Settings};
use prorata_samples::arbitrary;
use prorata_schemas::avsc;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_testkit::conformance::Harness;
use prorata_testkit::conformance::messages::{
    Answering, MessagePlace, PlaceMessage, Written, message_decoder,
};
use prorata_tests::registry::fake::{Fake, Reply, Request, registry};
use prorata_tests::registry::producer;
use prorata_worker::source::MessageDecoder;
use serde_json::json;

use super::{client, settings};

/// An id that is not registered at first.
const UNKNOWN: u32 = 9_999;

/// The time to wait for a registry that does not answer.
const TIMEOUT: Duration = Duration::from_secs(3);

struct Confluent;

struct WithRegistry {
    fake: Fake,
    /// The client of the producers.
    producer: Registry,
    state: Arc<Mutex<State>>,
}

struct State {
    answering: Answering,
    /// Whether the unknown schema is registered.
    registered: bool,
}

fn answer(state: &State, request: &Request, registry: &impl Fn(&Request) -> Reply) -> Reply {
    let schema = || Reply::json(200, json!({ "schema": avsc(EventKind::NodeStopped) }));
    match state.answering {
        Answering::Failing => Reply::error(503, 50001, "Error in the backend data store"),
        Answering::Silent => Reply { delay: 10 * TIMEOUT, ..schema() },
        Answering::Well if state.registered && is_fetch(request, UNKNOWN) => schema(),
        Answering::Well => registry(request),
    }
}

fn is_fetch(request: &Request, id: u32) -> bool {
    request.method == "GET" && request.path.ends_with(&format!("/schemas/ids/{id}"))
}

#[async_trait(?Send)]
impl Harness for Confluent {
    type Place = dyn MessagePlace;

    async fn place(&self) -> Result<Box<dyn MessagePlace>, String> {
        let state = Arc::new(Mutex::new(State { answering: Answering::Well, registered: false }));
        let (shared, registry) = (Arc::clone(&state), registry());
        let fake = Fake::answering(move |request| answer(&shared.lock().unwrap(), request, &registry));
        let producer = client(&fake.url());
        Ok(Box::new(WithRegistry { fake, producer, state }))
    }
}

#[async_trait(?Send)]
impl MessagePlace for WithRegistry {
    fn decoder(&self) -> Result<Box<dyn MessageDecoder>, String> {
        let impatient = Settings { timeout: TIMEOUT, ..settings(&self.fake.url()) };
        let registry = Registry::new(&impatient).map_err(|error| error.to_string())?;
        // The worker's times, but shorter.
        let times = Times { settle: Duration::from_millis(300), ..Times::PATIENT };
        Ok(Box::new(ConfluentMessages::new(registry, times)))
    }

    async fn message(&self, kind: EventKind, body: &[u8], written: Written) -> PlaceMessage {
        producer::message(&self.producer, UNKNOWN, kind, body, written).await.map(Some)
    }

    async fn register_unknown(&self) -> Result<bool, String> {
        self.state.lock().unwrap().registered = true;
        Ok(true)
    }

    async fn answer(&self, how: Answering) -> Result<bool, String> {
        self.state.lock().unwrap().answering = how;
        Ok(true)
    }

    fn asked(&self) -> Option<u64> {
        Some(self.fake.asked().iter().filter(|request| request.method == "GET").count() as u64)
    }

    fn strange(&self) -> Vec<Vec<u8>> {
        producer::strange()
    }

    fn events(&self) -> Vec<EventRecord> {
        arbitrary::records()
    }
}

struct SingleObject;

#[async_trait(?Send)]
impl Harness for SingleObject {
    type Place = dyn MessagePlace;

    async fn place(&self) -> Result<Box<dyn MessagePlace>, String> {
        Ok(Box::new(Self))
    }
}

#[async_trait(?Send)]
impl MessagePlace for SingleObject {
    fn decoder(&self) -> Result<Box<dyn MessageDecoder>, String> {
        Ok(Box::new(SingleObjectMessages::new().map_err(|error| error.to_string())?))
    }

    fn has_registry(&self) -> bool {
        false
    }

    async fn message(&self, kind: EventKind, body: &[u8], written: Written) -> PlaceMessage {
        Ok(match written {
            Written::Newest => Some(MessageEncoder::single_object().encode(kind, body)),
            Written::Unknown => Some([&[0xc3, 1][..], &[9; 8], body].concat()),
            // Only our schemas have a known fingerprint.
            Written::Evolved | Written::Foreign => None,
        })
    }

    fn strange(&self) -> Vec<Vec<u8>> {
        vec![
            vec![0],
            vec![0xc3],
            vec![0xc3, 1, 2],
            b"{\"json\": true}".to_vec(),
            producer::framed(1, b"body"),
        ]
    }

    fn events(&self) -> Vec<EventRecord> {
        arbitrary::records()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn confluents_wire_format_keeps_the_promises_of_messages() {
    assert_eq!(message_decoder(&Confluent).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn single_object_encoding_keeps_the_promises_of_messages() {
    let left_out = [
        "schemas of other versions",
        "schemas that are none of ours",
        "schemas that are registered later",
        "registries",
        "registries that fail",
        "registries that never answer",
    ];
    assert_eq!(message_decoder(&SingleObject).await.unwrap(), left_out);
}
