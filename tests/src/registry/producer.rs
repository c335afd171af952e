//! Producers with a registry, of several versions and of other programs.

use prorata_connectors::messages::MessageEncoder;
use prorata_connectors::registry::Registry;
use prorata_schemas::avsc;
use prorata_schemas::avsc::full_name;
use prorata_schemas::body::wire::put_bytes;
use prorata_schemas::event::EventKind;
use prorata_testkit::conformance::messages::Written;
use serde_json::{Value, json};

/// A message of a schema with this id.
pub fn framed(id: u32, body: &[u8]) -> Vec<u8> {
    [&[0][..], &id.to_be_bytes(), body].concat()
}

/// A message of this body of our newest schema. Its schema is registered, except for the unknown one,
/// which has the id named.
///
/// # Errors
/// The registry refuses the schema.
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

/// Values that name no schema of a registry.
pub fn strange() -> Vec<Vec<u8>> {
    let single = MessageEncoder::single_object().encode(EventKind::NodeStopped, b"body");
    vec![vec![0], vec![0, 0, 0, 1], b"{\"json\": true}".to_vec(), single]
}

/// Our schema with a field of another version in front, and one behind.
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
