//! Confluent's wire format, with schemas that are fetched from a registry once and kept.
//!
//! Messages with an id that the registry does not know are rejected. But a registry has several nodes, and a
//! schema may reach one later than another. So a worker lets such messages wait until it has asked for some
//! seconds ([`Times::settle`]). The rest of their topic partition waits with them, so the worker waits only
//! once in a while. A producer that sends one unknown id after another does not stop the rest.
//!
//! The same holds for an id if its request fails while requests for other ids succeed. The fault then lies
//! with the id: this client may not read the schema, or the schema breaks the API's promises.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::reject::{Reason, Reject};
use prorata_worker::source::{DecodeFailure, MessageDecoder, RegistryError};

use super::{MAGIC, SINGLE_OBJECT};
use crate::avro::Decoder;
use crate::registry::{Lookup, Registry};

/// Maximum number of schemas to keep. Before one more is added, all are dropped, and fetched again when
/// messages need them.
const KEPT_MAX: usize = 1024;
/// Maximum total size of the kept schemas' texts, in bytes. Before it is exceeded, all schemas are dropped
/// too.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Maximum number of unknown ids to keep.
const MISSING_MAX: usize = 16 * 1024;
/// Maximum age of a wait for an unknown id; a later request begins a new wait. This time is a few times the
/// longest pause.
const SETTLING_FOR: Duration = Duration::from_secs(120);
/// Maximum number of ids to remember for which the registry is being asked again.
const SETTLING_MAX: usize = 1024;
/// The factor by which [`Times::settle`] grows if the registry returns its list of types but no other schema.
/// The registry may be unable to return any schema for a while.
const UNSURE_FACTOR: u32 = 12;
/// The largest id: registries use signed numbers.
const ID_MAX: u32 = i32::MAX as u32;

/// The times that control requests for an id that the registry does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The time for which the registry is asked again before an id counts as unknown; zero to give up at
    /// once.
    pub settle: Duration,
    /// The time for which an id then counts as unknown before the registry is asked again. A producer may
    /// have registered the schema in the meantime.
    pub unknown: Duration,
    /// The time for which other ids count as unknown at once, after the worker has waited for one id in vain.
    pub hurry: Duration,
}

impl Times {
    /// The times of a worker.
    pub const PATIENT: Self = Self { settle: Duration::from_secs(5), ..Self::AT_ONCE };

    /// The times of a command that a person waits for.
    pub const AT_ONCE: Self =
        Self { settle: Duration::ZERO, unknown: Duration::from_secs(30), hurry: Duration::from_secs(300) };
}

/// A decoder of messages by the schema ids in them.
#[derive(Debug)]
pub struct ConfluentMessages {
    registry: Registry,
    times: Times,
    cache: RwLock<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    kept: HashMap<u32, KnownSchema>,
    /// Number of bytes of the texts in `kept`.
    bytes: usize,
    /// Ids that count as unknown.
    missing: HashMap<u32, Missing>,
    /// The time of the first request for each id that the registry does not know yet.
    settling: HashMap<u32, Instant>,
    /// The time until which no id is waited for; `None` if there was no wait in vain yet.
    hurried_until: Option<Instant>,
}

/// An id that counts as unknown.
#[derive(Debug)]
struct Missing {
    until: Instant,
    /// The error of the registry; `None` if it does not have the schema.
    fault: Option<Box<str>>,
}

/// The verdict on a schema.
#[derive(Clone, Debug)]
enum KnownSchema {
    Decoder(Arc<Decoder>),
    Refused(Arc<Reject>),
}

impl ConfluentMessages {
    /// Makes a decoder that uses the schemas of this registry.
    pub fn new(registry: Registry, times: Times) -> Self {
        Self { registry, times, cache: RwLock::default() }
    }

    fn known(&self, id: u32) -> Option<KnownSchema> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.kept.get(&id).cloned()
    }

    /// Returns why an id counts as unknown; `None` if it does not.
    fn missing(&self, id: u32) -> Option<Reject> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        let missing = cache.missing.get(&id).filter(|missing| Instant::now() < missing.until)?;
        let message = match &missing.fault {
            None => {
                format!("the schema registry has no schema {id}; register it, and replay the message")
            }
            Some(fault) => format!(
                "the schema registry does not give schema {id}, though it answers about others: {fault}; \
                 correct it there, and replay the message"
            ),
        };
        Some(Reject::new(Reason::UnknownSchema, message))
    }

    fn keep(&self, id: u32, text_bytes: usize, known: KnownSchema) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        if cache.kept.len() >= KEPT_MAX || cache.bytes + text_bytes > KEPT_BYTES_MAX {
            cache.kept.clear();
            cache.bytes = 0;
        }
        cache.missing.remove(&id);
        cache.settling.remove(&id);
        cache.bytes += text_bytes;
        cache.kept.insert(id, known);
    }

    /// Records that the registry does not return a schema for an id. For as long as `settle`, returns an
    /// error instead, so that the registry is asked again.
    fn keep_missing(&self, id: u32, fault: Option<&str>, settle: Duration) -> Result<(), RegistryError> {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let waits = !settle.is_zero() && cache.hurried_until.is_none_or(|until| now >= until);
        if waits {
            if cache.settling.len() >= SETTLING_MAX {
                cache.settling.clear();
            }
            let asked = cache.settling.entry(id).or_insert(now);
            if now > *asked + SETTLING_FOR {
                // Nobody has asked for it in the meantime: its messages went to another worker.
                *asked = now;
            }
            let since = *asked;
            if now < since + settle {
                let message = match fault {
                    None => format!("it does not have schema {id} yet; asking again"),
                    Some(fault) => format!("it does not give schema {id} yet: {fault}; asking again"),
                };
                return Err(RegistryError::of_schema(message));
            }
            cache.hurried_until = Some(now + self.times.hurry);
        }
        cache.settling.remove(&id);
        if cache.missing.len() >= MISSING_MAX {
            cache.missing.clear();
        }
        cache.missing.insert(id, Missing { until: now + self.times.unknown, fault: fault.map(Box::from) });
        Ok(())
    }

    /// Returns how long to ask again for an id whose request fails; `None` if every other request fails too.
    async fn patience(&self) -> Option<Duration> {
        let other = {
            let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
            cache.kept.keys().next().copied()
        };
        let asked = async {
            match other {
                Some(id) => self.registry.schema(id).await.is_ok(),
                None => false,
            }
        };
        let (answers, is_there) = tokio::join!(asked, self.registry.check());
        match (answers, is_there) {
            (true, _) => Some(self.times.settle),
            (false, Ok(())) => Some(self.times.settle * UNSURE_FACTOR),
            (false, Err(_)) => None,
        }
    }
}

#[async_trait]
impl MessageDecoder for ConfluentMessages {
    fn decode<'a>(&self, value: &'a [u8]) -> Result<EventRecordRef<'a>, DecodeFailure> {
        let (id, body) = split(value).map_err(DecodeFailure::Reject)?;
        match self.known(id) {
            Some(KnownSchema::Decoder(decoder)) => decoder.decode(body).map_err(DecodeFailure::Reject),
            Some(KnownSchema::Refused(reject)) => Err(DecodeFailure::Reject(Reject::clone(&reject))),
            None if id > ID_MAX => Err(DecodeFailure::Reject(Reject::new(
                Reason::UnknownSchema,
                format!(
                    "{id} is not a valid schema id (the largest is {ID_MAX}): the value is not in Confluent \
                     wire format; fix the producer, and send the event again"
                ),
            ))),
            None => Err(self.missing(id).map_or(DecodeFailure::NeedsSchema(id), DecodeFailure::Reject)),
        }
    }

    async fn fetch(&self, schema_id: u32) -> Result<(), RegistryError> {
        if self.known(schema_id).is_some() || self.missing(schema_id).is_some() || schema_id > ID_MAX {
            return Ok(());
        }
        let found = match self.registry.schema(schema_id).await {
            Ok(found) => found,
            Err(fault) => {
                let Some(settle) = self.patience().await else {
                    let message = fault.message().to_owned();
                    return Err(RegistryError { kind: fault.kind(), message, is_of_schema: false });
                };
                return self.keep_missing(schema_id, Some(fault.message()), settle);
            }
        };
        match found {
            Lookup::Avro(text) => self.keep(schema_id, text.len(), compiled(schema_id, &text)),
            Lookup::Unusable(why) => self.keep(schema_id, 0, refused(why)),
            Lookup::Missing => self.keep_missing(schema_id, None, self.times.settle)?,
        }
        Ok(())
    }
}

fn compiled(id: u32, text: &str) -> KnownSchema {
    match Decoder::compile(text) {
        Ok(decoder) => KnownSchema::Decoder(Arc::new(decoder)),
        Err(error) => refused(format!("the registry's schema {id} is {error}")),
    }
}

fn refused(why: String) -> KnownSchema {
    KnownSchema::Refused(Arc::new(Reject::new(Reason::UnknownEvent, why)))
}

/// Returns the schema id and the body.
fn split(value: &[u8]) -> Result<(u32, &[u8]), Reject> {
    match value.split_first() {
        Some((&MAGIC, rest)) => match rest.split_first_chunk::<4>() {
            Some((id, body)) => Ok((u32::from_be_bytes(*id), body)),
            None => Err(Reject::malformed(format!(
                "{} bytes: the magic byte and the schema id of Confluent's wire format take five",
                value.len()
            ))),
        },
        None => Err(Reject::malformed("empty: neither magic byte nor schema id")),
        Some(_) if value.starts_with(&SINGLE_OBJECT) => Err(Reject::malformed(
            "single-object encoding (C3 01), but registry.url is set: switch the producer to Confluent's \
             wire format, or leave registry.url empty",
        )),
        Some((first, _)) => Err(Reject::malformed(format!(
            "the first byte is {first:02X}, not the magic byte 00 of Confluent's wire format"
        ))),
    }
}
