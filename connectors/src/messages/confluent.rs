//! Confluent's wire format, with schemas fetched from a registry once and kept.
//!
//! If the registry does not know an id, its messages are rejected. But a registry has several nodes, and a
//! schema may reach one later than another. So a worker lets such messages wait until it has asked for some
//! seconds ([`Times::settle`]). Other messages wait with them, so it waits only once in a while: a producer
//! that sends one unknown id after another does not stop the rest.

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

/// Most schemas to keep. When one more comes, all are dropped, and fetched again as messages need them.
const KEPT_MAX: usize = 1024;
/// Most bytes of their texts; beyond that, all are dropped too.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Most ids to keep that the registry does not know.
const MISSING_MAX: usize = 16 * 1024;
/// How long an unknown id counts as the same question when it is asked again: a few times the longest pause.
const SETTLING_FOR: Duration = Duration::from_secs(120);
/// Most ids to keep that are being asked again.
const SETTLING_MAX: usize = 1024;
/// The largest id: registries count with signed numbers.
const ID_MAX: u32 = i32::MAX as u32;

/// How long to ask for an id that the registry does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long the registry is asked again before the id counts as unknown; zero: at once.
    pub settle: Duration,
    /// How long it then counts as unknown before the registry is asked again: a producer may have registered
    /// it.
    pub unknown: Duration,
    /// For how long, after waiting for one id in vain, other ids count as unknown at once.
    pub hurry: Duration,
}

impl Times {
    /// Those of a worker.
    pub const PATIENT: Self = Self { settle: Duration::from_secs(5), ..Self::AT_ONCE };

    /// Those of a command that a person waits for.
    pub const AT_ONCE: Self =
        Self { settle: Duration::ZERO, unknown: Duration::from_secs(30), hurry: Duration::from_secs(300) };
}

/// Decodes messages by the schema ids in them.
#[derive(Debug)]
pub struct ConfluentMessages {
    registry: Registry,
    times: Times,
    cache: RwLock<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    kept: HashMap<u32, KnownSchema>,
    /// Bytes of the texts in `kept`.
    bytes: usize,
    /// Until when ids are taken for unknown.
    missing: HashMap<u32, Instant>,
    /// Since when ids have been asked for that the registry does not know yet.
    settling: HashMap<u32, Instant>,
    /// Until when none is waited for.
    hurried_until: Option<Instant>,
}

/// What is known of a schema.
#[derive(Clone, Debug)]
enum KnownSchema {
    Decoder(Arc<Decoder>),
    Refused(Arc<Reject>),
}

impl ConfluentMessages {
    /// Decodes with the schemas of this registry.
    pub fn new(registry: Registry, times: Times) -> Self {
        Self { registry, times, cache: RwLock::default() }
    }

    fn known(&self, id: u32) -> Option<KnownSchema> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.kept.get(&id).cloned()
    }

    fn is_missing(&self, id: u32) -> bool {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.missing.get(&id).is_some_and(|until| Instant::now() < *until)
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

    /// Keeps that the registry does not know an id, unless it is asked for it again.
    fn keep_missing(&self, id: u32) -> Result<(), RegistryError> {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let waits = !self.times.settle.is_zero() && cache.hurried_until.is_none_or(|until| now >= until);
        if waits {
            if cache.settling.len() >= SETTLING_MAX {
                cache.settling.clear();
            }
            let asked = cache.settling.entry(id).or_insert(now);
            if now > *asked + SETTLING_FOR {
                // It was not asked for again: its messages went to another worker.
                *asked = now;
            }
            let since = *asked;
            if now < since + self.times.settle {
                let message = format!("it does not have schema {id} yet; asking again");
                return Err(RegistryError::transient(message));
            }
            cache.hurried_until = Some(now + self.times.hurry);
        }
        cache.settling.remove(&id);
        if cache.missing.len() >= MISSING_MAX {
            cache.missing.clear();
        }
        cache.missing.insert(id, now + self.times.unknown);
        Ok(())
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
            None if self.is_missing(id) => Err(DecodeFailure::Reject(Reject::new(
                Reason::UnknownSchema,
                format!("the schema registry has no schema {id}; register it, and replay the message"),
            ))),
            None => Err(DecodeFailure::NeedsSchema(id)),
        }
    }

    async fn fetch(&self, schema_id: u32) -> Result<(), RegistryError> {
        if self.known(schema_id).is_some() || self.is_missing(schema_id) || schema_id > ID_MAX {
            return Ok(());
        }
        let found = self.registry.schema(schema_id).await;
        match found
            .map_err(|fault| RegistryError { kind: fault.kind(), message: fault.message().to_owned() })?
        {
            Lookup::Avro(text) => self.keep(schema_id, text.len(), compiled(schema_id, &text)),
            Lookup::Unusable(why) => self.keep(schema_id, 0, refused(why)),
            Lookup::Missing => self.keep_missing(schema_id)?,
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

/// The schema id and the body.
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
