//! Producers with a registry, in several versions and from other programs.

use prorata_connectors::messages::MessageEncoder;
use prorata_connectors::registry::Registry;
use prorata_schemas::avsc;
use prorata_schemas::avsc::full_name;
use prorata_schemas::body::wire::put_bytes;
use prorata_schemas::event::EventKind;
use prorata_testkit::conformance::messages::Written;
use serde_json::{Value, json};

/// Returns a message in Confluent's framing, with this schema id.
pub fn framed(id: u32, body: &[u8]) -> Vec<u8> {
    [&[0][..], &id.to_be_bytes(), body].concat()
}

/// Returns a message with this body, which has our newest schema. Registers the schema of the message. An
/// unknown schema is not registered, and has the given id.
///
/// # Errors
/// If the registry refuses the schema.
pub async fn message(
    registry: &Registry,
    unknown: u32,
    kind: EventKind,
    body: &[u8],
    written: Written,
) -> Result<Vec<u8>, String> {
    let subject = full_name(kind);
    let (registered, body) = match written {
        Written::Unknown => return Ok(framed(unknown, body)),
        Written::Newest => (registry.register_event(kind).await, body.to_vec()),
        Written::Evolved => {
            (registry.register(&subject, &evolved(kind)).await, [&[4, b'v', b'2'][..], body, &[0]].concat())
        }
        Written::Foreign => {
            let mut bytes = Vec::new();
            put_bytes(&mut bytes, body);
            (registry.register("acme.Other", &foreign()).await, bytes)
        }
    };
    Ok(framed(registered.map_err(|error| error.to_string())?, &body))
}

/// Returns values that name no schema in a registry.
pub fn strange() -> Vec<Vec<u8>> {
    let single = MessageEncoder::single_object().encode(EventKind::NodeStopped, b"body");
    vec![vec![0], vec![0, 0, 0, 1], b"{\"json\": true}".to_vec(), single]
}

/// Returns our schema with one field of another version before our fields and one after them.
fn evolved(kind: EventKind) -> String {
    let mut schema: Value = serde_json::from_str(avsc(kind)).unwrap();
    let fields = schema["fields"].as_array_mut().unwrap();
    fields.insert(0, json!({ "name": "producer_version", "type": "string", "default": "" }));
    fields.push(json!({ "name": "trace_id", "type": ["null", "string"], "default": null }));
    schema.to_string()
}

fn foreign() -> String {
    json!({ "type": "record", "name": "acme.Other", "fields": [{ "name": "x", "type": "bytes" }] })
        .to_string()
}
