//! Messages in the form that our own producers send.

use prorata_schemas::event::EventKind;

use super::MAGIC;
use crate::avro::encode_single_object;
use crate::registry::{Registry, RegistryFault};

/// An encoder that puts the header of our newest schemas in front of canonical bodies.
#[derive(Clone, Debug)]
pub struct MessageEncoder {
    /// The headers in the order of [`EventKind::ALL`].
    headers: Vec<Vec<u8>>,
}

impl MessageEncoder {
    /// Returns an encoder for single-object encoding.
    pub fn single_object() -> Self {
        Self { headers: EventKind::ALL.map(|kind| encode_single_object(kind, &[])).to_vec() }
    }

    /// Returns an encoder for Confluent's wire format. Registers our newest schemas under their record names
    /// to get their ids.
    ///
    /// # Errors
    /// The errors of [`Registry::register`].
    pub async fn registered(registry: &Registry) -> Result<Self, RegistryFault> {
        let mut headers = Vec::with_capacity(EventKind::ALL.len());
        for kind in EventKind::ALL {
            let id = registry.register_event(kind).await?;
            let mut header = vec![MAGIC];
            header.extend(id.to_be_bytes());
            headers.push(header);
        }
        Ok(Self { headers })
    }

    /// Returns the message of an event with this canonical body.
    pub fn encode(&self, kind: EventKind, body: &[u8]) -> Vec<u8> {
        // Kinds are declared in the order of ALL.
        let header = self.headers.get(kind as usize).map_or(&[][..], Vec::as_slice);
        [header, body].concat()
    }
}
