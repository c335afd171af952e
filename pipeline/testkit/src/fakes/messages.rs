//! Messages without Avro, their schema registry, and the topic of dead letters.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use prorata_schemas::body::{self, EventRecordRef};
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::reject::{Reason, Reject};
use prorata_worker::source::{DecodeFailure, MessageDecoder, RegistryError};

/// A schema registry in memory. Clones share the registry.
#[derive(Clone, Debug, Default)]
pub struct FakeRegistry(Arc<Mutex<Registry>>);

#[derive(Debug, Default)]
struct Registry {
    known: BTreeSet<u32>,
    odd: BTreeSet<u32>,
    down: bool,
    fetches: u64,
    /// Number of open requests, and the maximum number of requests that were open at one time.
    asked: (usize, usize),
}

impl FakeRegistry {
    /// Creates a registry with these schemas.
    pub fn with(schema_ids: impl IntoIterator<Item = u32>) -> Self {
        let registry = Self::default();
        registry.lock().known.extend(schema_ids);
        registry
    }

    /// Adds a schema.
    pub fn register(&self, schema_id: u32) {
        self.lock().known.insert(schema_id);
    }

    /// Stops or restarts the registry's responses.
    pub fn set_down(&self, down: bool) {
        self.lock().down = down;
    }

    /// Sets whether the registry refuses the schema with this id while it returns other schemas.
    pub fn set_odd(&self, schema_id: u32, odd: bool) {
        let mut registry = self.lock();
        if odd {
            registry.odd.insert(schema_id);
        } else {
            registry.odd.remove(&schema_id);
        }
    }

    /// Returns the number of requests to the registry, whether they succeeded or not.
    pub fn fetches(&self) -> u64 {
        self.lock().fetches
    }

    /// Returns the maximum number of requests that were open at one time.
    pub fn most_at_once(&self) -> usize {
        self.lock().asked.1
    }

    /// Returns the decoder of a new process, which has not asked for any schema yet.
    pub fn decoder(&self) -> FakeMessages {
        FakeMessages { registry: self.clone(), fetched: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Messages that consist of a schema id, a kind and a body.
#[derive(Debug)]
pub struct FakeMessages {
    registry: FakeRegistry,
    /// Requested schemas, and whether the registry knew them.
    fetched: Mutex<BTreeMap<u32, bool>>,
}

impl FakeMessages {
    /// Returns the value of a message.
    pub fn encode(schema_id: u32, event: &EventRecord) -> Vec<u8> {
        let kind = EventKind::ALL.iter().position(|kind| *kind == event.event.payload.kind());
        let kind = kind.and_then(|kind| u8::try_from(kind).ok()).unwrap_or(u8::MAX);
        [&schema_id.to_be_bytes()[..], &[kind], &event.body].concat()
    }

    fn fetched(&self) -> MutexGuard<'_, BTreeMap<u32, bool>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl MessageDecoder for FakeMessages {
    fn decode<'a>(&self, value: &'a [u8]) -> Result<EventRecordRef<'a>, DecodeFailure> {
        let reject = |reason, message: String| Err(DecodeFailure::Reject(Reject::new(reason, message)));
        let Some((id, rest)) = value.split_first_chunk::<4>() else {
            return reject(Reason::Malformed, format!("{} bytes are not a message", value.len()));
        };
        let id = u32::from_be_bytes(*id);
        match self.fetched().get(&id) {
            None => return Err(DecodeFailure::NeedsSchema(id)),
            Some(false) => {
                return reject(Reason::UnknownSchema, format!("the schema registry has no schema {id}"));
            }
            Some(true) => {}
        }
        let Some((kind, body)) = rest.split_first() else {
            return reject(Reason::Malformed, "the message ends after its schema id".into());
        };
        let Some(kind) = EventKind::ALL.get(usize::from(*kind)) else {
            return reject(Reason::UnknownEvent, format!("there is no event type {kind}"));
        };
        body::decode_ref(*kind, body).map(EventRecordRef::new).map_err(DecodeFailure::Reject)
    }

    async fn fetch(&self, schema_id: u32) -> Result<(), RegistryError> {
        {
            let mut registry = self.registry.lock();
            registry.fetches += 1;
            let asked = registry.asked.0 + 1;
            registry.asked = (asked, asked.max(registry.asked.1));
        }
        // The call yields once, so that a caller that sends several requests at once can do so.
        let mut waited = false;
        poll_fn(|context| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        let mut registry = self.registry.lock();
        registry.asked.0 -= 1;
        if registry.down {
            return Err(RegistryError::transient("it does not answer"));
        }
        if registry.odd.contains(&schema_id) {
            return Err(RegistryError::of_schema(format!("it does not give schema {schema_id} yet")));
        }
        self.fetched().insert(schema_id, registry.known.contains(&schema_id));
        Ok(())
    }
}
