//! Conformance of [`MessageDecoder`]. Each promise is a check that both the fake and the real implementation
//! pass.
//!
//! A format without a registry has no schema ids. Its decoder never asks for a schema, and the suite leaves
//! out the checks of registries.

mod damage;
mod registry;

use std::future::ready;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use prorata_schemas::event::{
    Event, EventKind, EventRecord, NodeStopped, Payload, QuotaDeleted, QuotaKind, QuotaSet,
};
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::time::Timestamp;
use prorata_worker::source::{DecodeFailure, MessageDecoder};

use super::{Check, Checked, Harness, Suite, equal};
use crate::wait::PATIENCE;

/// The schema with which a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Prorata's newest schema.
    Newest,
    /// A compatible schema of another version, which has all fields of prorata and some fields of its own.
    Evolved,
    /// A schema that is not prorata's.
    Foreign,
    /// An unavailable schema, which is not registered or not among the known schemas.
    Unknown,
}

/// The way in which a registry responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    /// The registry responds as it should.
    Well,
    /// The registry responds with an error, or refuses connections.
    Failing,
    /// The registry never responds, but takes connections and requests.
    Silent,
}

/// The bytes of a message; `None` if the format has no message that is written in this way.
pub type PlaceMessage = Result<Option<Vec<u8>>, String>;

/// A registry, and the messages that producers send with it.
#[async_trait(?Send)]
pub trait MessagePlace {
    /// Returns the decoder of a new process, which has not asked for any schema yet.
    fn decoder(&self) -> Result<Box<dyn MessageDecoder>, String>;

    /// Returns whether messages name schemas of a registry.
    fn has_registry(&self) -> bool {
        true
    }

    /// Returns the message of this body in the newest schema of prorata.
    async fn message(&self, kind: EventKind, body: &[u8], written: Written) -> PlaceMessage;

    /// Registers the schema of [`Written::Unknown`]. Returns `false` if the place cannot register it.
    async fn register_unknown(&self) -> Result<bool, String> {
        Ok(false)
    }

    /// Sets how the registry responds from now on. Returns `false` if the place cannot set it.
    async fn answer(&self, _how: Answering) -> Result<bool, String> {
        Ok(false)
    }

    /// Returns the number of schema requests to the registry; `None` if the number is unknown.
    fn asked(&self) -> Option<u64> {
        None
    }

    /// Returns bytes that are not a message of this format, such as messages of another format.
    fn strange(&self) -> Vec<Vec<u8>>;

    /// Returns the maximum time until it is certain that the registry does not know a schema.
    fn settles_within(&self) -> Duration {
        PATIENCE
    }

    /// Returns events to send in addition to the suite's own events. The decoder must decode their messages
    /// in the same way as another reader, such as an archive.
    fn events(&self) -> Vec<EventRecord>;
}

type MessageStage = super::Stage<dyn MessagePlace>;

/// Runs the suite, and returns what the harness could not do.
///
/// # Errors
/// Returns the first broken promise.
pub async fn message_decoder(
    harness: &impl Harness<Place = dyn MessagePlace>,
) -> Result<Vec<&'static str>, String> {
    let promises: Vec<(&'static str, Check<dyn MessagePlace>)> = vec![
        ("every event is read as it was sent", |stage| stage.events().boxed_local()),
        ("an event is the same whichever compatible schema it was written with", |stage| {
            stage.evolved().boxed_local()
        }),
        ("the body of an event is the canonical one, however it was written", |stage| {
            stage.canonical().boxed_local()
        }),
        ("a message that is cut is malformed", |stage| damage::cut(stage).boxed_local()),
        ("a message that continues after its end is malformed", |stage| damage::longer(stage).boxed_local()),
        ("bytes that are not a message are malformed, and nobody is asked", |stage| {
            ready(damage::strange(stage)).boxed_local()
        }),
        ("for any bytes, an event is whole, and a reject says why", |stage| {
            damage::bent(stage).boxed_local()
        }),
        ("what cannot be an event is rejected with its reason", |stage| stage.refused().boxed_local()),
        ("a schema that nobody knows rejects its messages until it is registered", |stage| {
            registry::unknown(stage).boxed_local()
        }),
        ("a schema is asked for when it is fetched, and once", |stage| registry::asking(stage).boxed_local()),
        ("a registry that is unavailable is no verdict on a message", |stage| {
            registry::unavailable(stage).boxed_local()
        }),
    ];
    Suite(promises).run(harness).await
}

/// A name that occurs once in a body.
const NAMESPACE: &str = "namespace-of-a-block";

fn event(payload: Payload) -> Event {
    Event::new("acme".into(), Timestamp(1_793_491_200_000_000), payload)
}

fn node_stopped(node_id: &str) -> Event {
    event(Payload::NodeStopped(NodeStopped { cluster_id: "c".into(), node_id: node_id.into() }))
}

/// Returns an event with another schema.
fn quota_deleted() -> Event {
    event(Payload::QuotaDeleted(QuotaDeleted { cluster_id: "c".into(), quota_id: "q".into() }))
}

fn own_events() -> Vec<EventRecord> {
    let quota_set = QuotaSet {
        cluster_id: "c".into(),
        quota_id: "q".into(),
        kind: QuotaKind::CompositeElasticQuota,
        namespaces: vec![NAMESPACE.into()],
        min: [].into(),
        max: None,
    };
    [node_stopped("n"), event(Payload::QuotaSet(Box::new(quota_set))), quota_deleted()]
        .map(EventRecord::new)
        .into()
}

/// An event, or the reason why the message is rejected.
type Judged = Result<EventRecord, Reject>;

/// Decodes a value as the worker does, and fetches a missing schema once.
async fn decoded(decoder: &dyn MessageDecoder, value: &[u8]) -> Result<Judged, String> {
    let outcome = match decoder.decode(value) {
        Err(DecodeFailure::NeedsSchema(id)) => {
            decoder.fetch(id).await.map_err(|error| error.to_string())?;
            decoder.decode(value)
        }
        outcome => outcome,
    };
    match outcome {
        Ok(record) => Ok(Ok(record.into_owned())),
        Err(DecodeFailure::Reject(reject)) => Ok(Err(reject)),
        Err(DecodeFailure::NeedsSchema(id)) => {
            Err(format!("schema {id} is still needed after it was fetched"))
        }
    }
}

/// Checks that the message is rejected for this reason, and that the rejection has a message.
fn rejected(what: &str, found: Judged, reason: Reason) -> Checked {
    match found {
        Ok(record) => Err(format!("{what} became {:?}", record.event)),
        Err(reject) if reject.message.trim().is_empty() => {
            Err(format!("{what} is rejected without a message"))
        }
        Err(reject) if reject.reason == reason => Ok(()),
        Err(reject) => Err(format!("{what} is rejected as {reject}, expected {reason}")),
    }
}

impl MessageStage {
    /// Returns all events to send.
    fn all_events(&self) -> Vec<EventRecord> {
        own_events().into_iter().chain(self.place.events()).collect()
    }

    /// Returns the message of an event. Every format has one in the newest schema of prorata.
    async fn newest(&self, record: &EventRecord) -> Result<Vec<u8>, String> {
        let message = self.message(record, Written::Newest).await?;
        message.ok_or_else(|| "the format has no messages".into())
    }

    async fn message(&self, record: &EventRecord, written: Written) -> Result<Option<Vec<u8>>, String> {
        self.place.message(record.event.payload.kind(), &record.body, written).await
    }

    /// Checks that every message becomes its event each time it is decoded.
    async fn all_become(&self, messages: &[(Vec<u8>, &EventRecord)]) -> Checked {
        let decoder = self.place.decoder()?;
        for round in ["first", "second"] {
            for (message, record) in messages {
                let kind = record.event.payload.kind();
                let found = decoded(&*decoder, message).await?;
                equal(&format!("{kind:?}, the {round} time"), found.as_ref(), Ok(*record))?;
            }
        }
        Ok(())
    }

    async fn events(&self) -> Checked {
        let (events, mut messages) = (self.all_events(), Vec::new());
        for record in &events {
            messages.push((self.newest(record).await?, record));
        }
        self.all_become(&messages).await
    }

    async fn evolved(&mut self) -> Checked {
        let (events, mut messages) = (self.all_events(), Vec::new());
        for record in &events {
            if let Some(message) = self.message(record, Written::Evolved).await? {
                messages.push((message, record));
            }
        }
        self.all_become(&messages).await?;
        if messages.is_empty() {
            self.left_out.push("schemas of other versions");
        }
        Ok(())
    }

    /// Checks arrays with their size in bytes before the items. Avro allows this size, and the canonical form
    /// omits it.
    async fn canonical(&self) -> Checked {
        let item = [&[zigzag(NAMESPACE.len())?], NAMESPACE.as_bytes()].concat();
        let (canonical, sized) =
            ([&[2][..], &item].concat(), [&[1, zigzag(item.len())?][..], &item].concat());
        for record in &self.all_events() {
            let Some(at) = record.body.windows(canonical.len()).position(|bytes| bytes == canonical) else {
                continue;
            };
            let (before, after) = record.body.split_at(at);
            let after = after.strip_prefix(&canonical[..]).unwrap_or_default();
            let body = [before, &sized, after].concat();
            let kind = record.event.payload.kind();
            let message = self.place.message(kind, &body, Written::Newest).await?.unwrap_or_default();
            return self.all_become(&[(message, record)]).await;
        }
        Err("no event has the namespace".into())
    }

    async fn refused(&mut self) -> Checked {
        let decoder = self.place.decoder()?;
        let invalid = self.newest(&EventRecord::new(node_stopped(""))).await?;
        rejected("an empty node_id", decoded(&*decoder, &invalid).await?, Reason::InvalidField)?;
        let record = EventRecord::new(node_stopped("n"));
        match self.message(&record, Written::Foreign).await? {
            Some(foreign) => rejected(
                "a schema that is none of ours",
                decoded(&*decoder, &foreign).await?,
                Reason::UnknownEvent,
            ),
            None => {
                self.left_out.push("schemas that are none of ours");
                Ok(())
            }
        }
    }
}

/// Encodes a small number as Avro does, in one byte.
fn zigzag(number: usize) -> Result<u8, String> {
    u8::try_from(number * 2).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
