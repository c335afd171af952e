//! Single-object encoding, for topics without a schema registry.

use async_trait::async_trait;
use prorata_schemas::avsc::OLDER;
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::reject::Reject;
use prorata_worker::source::{DecodeFailure, MessageDecoder, RegistryError};

use super::MAGIC;
use crate::avro::{SchemaError, SingleObjects};

/// A decoder of messages that carry the fingerprint of one of our schemas.
#[derive(Debug)]
pub struct SingleObjectMessages {
    objects: SingleObjects,
}

impl SingleObjectMessages {
    /// Makes a decoder that knows our newest schemas and all schemas released before.
    ///
    /// # Errors
    /// If one of them is not an Avro schema, which a test rules out.
    pub fn new() -> Result<Self, SchemaError> {
        Ok(Self { objects: SingleObjects::new(OLDER.iter().copied())? })
    }
}

#[async_trait]
impl MessageDecoder for SingleObjectMessages {
    fn decode<'a>(&self, value: &'a [u8]) -> Result<EventRecordRef<'a>, DecodeFailure> {
        // The value has the magic byte and a whole schema id. A shorter value is damaged in any format.
        if let [MAGIC, first, second, third, fourth, ..] = value {
            let id = u32::from_be_bytes([*first, *second, *third, *fourth]);
            return Err(DecodeFailure::Reject(Reject::malformed(format!(
                "Confluent's wire format (00, schema id {id}), but registry.url is empty: set it to the URL \
                 of the schema registry"
            ))));
        }
        self.objects.decode(value).map_err(DecodeFailure::Reject)
    }

    async fn fetch(&self, _schema_id: u32) -> Result<(), RegistryError> {
        Ok(())
    }
}
