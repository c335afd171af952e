//! Conformance of decoders with this registry, through a proxy that makes it fail.

use std::time::Duration;

use async_trait::async_trait;
use prorata_connectors::messages::{ConfluentMessages, Times};
use prorata_connectors::registry::{Registry, Settings};
use prorata_samples::arbitrary;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_testkit::conformance::Harness;
use prorata_testkit::conformance::messages::{
    Answering, MessagePlace, PlaceMessage, Written, message_decoder,
};
use prorata_tests::proxy::{Proxy, Weather};
use prorata_tests::registry::producer;
use prorata_worker::source::MessageDecoder;

use super::{registry, settings};

/// An id that nobody registers.
const UNKNOWN: u32 = i32::MAX as u32 - 7;

struct Real;

struct Proxied {
    /// The proxy between decoders and the registry; producers bypass it. It lives as long as the process,
    /// because the runtime of the proxy must not end within another runtime.
    proxy: &'static Proxy,
    producer: Registry,
}

#[async_trait(?Send)]
impl Harness for Real {
    type Place = dyn MessagePlace;

    async fn place(&self) -> Result<Box<dyn MessagePlace>, String> {
        let start = || Box::leak(Box::new(Proxy::before(&settings().url)));
        let proxy: &'static Proxy =
            tokio::task::spawn_blocking(start).await.map_err(|error| error.to_string())?;
        Ok(Box::new(Proxied { proxy, producer: registry() }))
    }
}

#[async_trait(?Send)]
impl MessagePlace for Proxied {
    fn decoder(&self) -> Result<Box<dyn MessageDecoder>, String> {
        let known = settings();
        let proxied = Settings { url: self.proxy.url(&known.url), timeout: Duration::from_secs(4), ..known };
        let registry = Registry::new(&proxied).map_err(|error| error.to_string())?;
        Ok(Box::new(ConfluentMessages::new(registry, Times::PATIENT)))
    }

    async fn message(&self, kind: EventKind, body: &[u8], written: Written) -> PlaceMessage {
        producer::message(&self.producer, UNKNOWN, kind, body, written).await.map(Some)
    }

    async fn answer(&self, how: Answering) -> Result<bool, String> {
        self.proxy.set(match how {
            Answering::Well => Weather::Clear,
            Answering::Failing => Weather::Refusing,
            Answering::Silent => Weather::Silent,
        });
        Ok(true)
    }

    fn strange(&self) -> Vec<Vec<u8>> {
        producer::strange()
    }

    fn events(&self) -> Vec<EventRecord> {
        arbitrary::records()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_keep_their_promises_with_this_registry() {
    let left_out = message_decoder(&Real).await.unwrap();
    assert_eq!(left_out, ["schemas that are registered later", "how often the registry is asked"]);
}
