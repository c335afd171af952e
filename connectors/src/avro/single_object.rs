//! Avro single-object encoding: `C3 01`, the CRC-64-AVRO fingerprint of the writer's schema (little-endian), the body.
//! It is what producers send where no schema registry is configured.

use std::collections::HashMap;

use apache_avro::rabin::Rabin;
use prorata_schemas::avsc::avsc;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::reject::{Reason, Reject};

use super::{Decoder, OURS, SchemaError, parse};

const MAGIC: [u8; 2] = [0xc3, 0x01];

/// Decodes messages in single-object encoding from writers with known schemas.
#[derive(Debug)]
pub struct SingleObjects {
    by_fingerprint: HashMap<[u8; 8], Decoder>,
}

impl SingleObjects {
    /// Knows our newest schemas and the `older` ones given.
    ///
    /// # Errors
    /// A text is no Avro schema.
    pub fn new<'t>(older: impl IntoIterator<Item = &'t str>) -> Result<Self, SchemaError> {
        let mut by_fingerprint = HashMap::new();
        for text in older.into_iter().chain(EventKind::ALL.map(avsc)) {
            by_fingerprint.insert(fingerprint(text)?, Decoder::compile(text)?);
        }
        Ok(Self { by_fingerprint })
    }

    /// Decodes one message.
    ///
    /// # Errors
    /// `malformed` without the magic bytes, `unknown_schema` for a fingerprint not known, and what
    /// [`Decoder::decode`] finds.
    pub fn decode(&self, message: &[u8]) -> Result<EventRecord, Reject> {
        let missing = || Reject::malformed("no single-object header: C3 01 and eight bytes of fingerprint");
        let rest = message.strip_prefix(&MAGIC).ok_or_else(missing)?;
        let (fingerprint, body) = rest.split_first_chunk::<8>().ok_or_else(missing)?;
        let decoder = self.by_fingerprint.get(fingerprint).ok_or_else(|| {
            let fingerprint = u64::from_le_bytes(*fingerprint);
            let sentence = format!("no schema of ours has the fingerprint {fingerprint:016x}");
            Reject::new(Reason::UnknownSchema, sentence)
        })?;
        decoder.decode(body)
    }
}

/// The CRC-64-AVRO fingerprint of a schema's parsing canonical form, in the byte order of the encoding.
///
/// # Errors
/// The text is no Avro schema.
pub fn fingerprint(schema: &str) -> Result<[u8; 8], SchemaError> {
    let bytes = parse(schema)?.fingerprint::<Rabin>().bytes;
    bytes.try_into().map_err(|_| SchemaError("its fingerprint has not 64 bits".to_owned()))
}

/// A message in single-object encoding, written with our newest schema of `kind`.
pub fn encode_single_object(kind: EventKind, body: &[u8]) -> Vec<u8> {
    let mut message = MAGIC.to_vec();
    let ours = OURS.iter().find(|(ours, _)| *ours == kind);
    message.extend(ours.map(|(_, schema)| schema.fingerprint::<Rabin>().bytes).unwrap_or_default());
    message.extend_from_slice(body);
    message
}
