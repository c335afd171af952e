//! Avro single-object encoding: `C3 01`, the CRC-64-AVRO fingerprint of the writer's schema (little-endian),
//! then the body. Producers send it if no schema registry is configured.

use std::collections::HashMap;

use apache_avro::rabin::Rabin;
use prorata_schemas::avsc::avsc;
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::event::EventKind;
use prorata_schemas::reject::{Reason, Reject};
use serde_json::Value as Json;

use super::{Decoder, Schema, SchemaError};

const MAGIC: [u8; 2] = [0xc3, 0x01];

/// The fingerprint of an empty text, which is also the polynomial.
const EMPTY: u64 = 0xc15d_213a_a4d7_a795;

/// A decoder of messages in single-object encoding from writers with known schemas.
#[derive(Debug)]
pub struct SingleObjects {
    decoders: Vec<Decoder>,
    by_fingerprint: HashMap<[u8; 8], usize>,
}

impl SingleObjects {
    /// Makes a decoder that knows our newest schemas and the given `older` ones.
    ///
    /// # Errors
    /// If a text is not an Avro schema.
    pub fn new<'t>(older: impl IntoIterator<Item = &'t str>) -> Result<Self, SchemaError> {
        let mut objects = Self { decoders: Vec::new(), by_fingerprint: HashMap::new() };
        for text in older.into_iter().chain(EventKind::ALL.map(avsc)) {
            let place = objects.decoders.len();
            objects.decoders.push(Decoder::compile(text)?);
            // apache-avro keeps some attributes in its canonical form that the specification strips, so its
            // writers send another fingerprint. These schemas are ours, so they cannot harm it.
            let theirs =
                apache_avro::Schema::parse_str(text).map(|schema| schema.fingerprint::<Rabin>().bytes);
            if let Some(theirs) = theirs.ok().and_then(|bytes| bytes.try_into().ok()) {
                objects.by_fingerprint.insert(theirs, place);
            }
            objects.by_fingerprint.insert(canonical_fingerprint(text)?, place);
        }
        Ok(objects)
    }

    /// Decodes one message.
    ///
    /// # Errors
    /// `malformed` if the magic bytes are missing, `unknown_schema` if the fingerprint is not known, and the
    /// errors of [`Decoder::decode`].
    pub fn decode<'a>(&self, message: &'a [u8]) -> Result<EventRecordRef<'a>, Reject> {
        let missing = || Reject::malformed("no single-object header (C3 01 and an eight-byte fingerprint)");
        let rest = message.strip_prefix(&MAGIC).ok_or_else(missing)?;
        let (fingerprint, body) = rest.split_first_chunk::<8>().ok_or_else(missing)?;
        let place = self.by_fingerprint.get(fingerprint);
        let decoder = place.and_then(|place| self.decoders.get(*place)).ok_or_else(|| {
            let fingerprint = u64::from_le_bytes(*fingerprint);
            let message = format!("no known schema has the fingerprint {fingerprint:016x}");
            Reject::new(Reason::UnknownSchema, message)
        })?;
        decoder.decode(body)
    }
}

/// Puts the header of single-object encoding in front of `body`, which is written with our newest schema of
/// `kind`.
pub fn encode_single_object(kind: EventKind, body: &[u8]) -> Vec<u8> {
    let mut message = MAGIC.to_vec();
    let json: Json = serde_json::from_str(avsc(kind)).unwrap_or_default();
    message.extend(crc_64_avro(canonical_form(&json).as_bytes()).to_le_bytes());
    message.extend_from_slice(body);
    message
}

/// Returns the CRC-64-AVRO fingerprint of a schema's parsing canonical form, in the byte order of
/// single-object encoding.
///
/// # Errors
/// If the text is not an Avro schema.
pub fn fingerprint(schema: &str) -> Result<[u8; 8], SchemaError> {
    Schema::parse(schema)?;
    canonical_fingerprint(schema)
}

/// Returns the fingerprint of a text that is known to be an Avro schema.
fn canonical_fingerprint(schema: &str) -> Result<[u8; 8], SchemaError> {
    let json: Json = serde_json::from_str(schema)?;
    Ok(crc_64_avro(canonical_form(&json).as_bytes()).to_le_bytes())
}

fn crc_64_avro(bytes: &[u8]) -> u64 {
    bytes.iter().fold(EMPTY, |sum, byte| {
        let mixed = sum ^ u64::from(*byte);
        (0..8).fold(mixed, |sum, _| (sum >> 1) ^ (EMPTY & (sum & 1).wrapping_neg()))
    })
}

/// Returns the schema in the specification's parsing canonical form.
fn canonical_form(schema: &Json) -> String {
    let mut out = String::new();
    put_canonical(schema, "", &mut out);
    out
}

fn put_canonical(schema: &Json, namespace: &str, out: &mut String) {
    match schema {
        Json::String(name) => put_text(&full_name(name, namespace), out),
        Json::Array(variants) => {
            put_list(variants, out, |variant, out| put_canonical(variant, namespace, out))
        }
        Json::Object(_) => match schema.get("type").and_then(Json::as_str) {
            Some(form @ ("record" | "enum" | "fixed")) => put_named(schema, form, namespace, out),
            Some(form @ ("array" | "map")) => {
                let inner = if form == "array" { "items" } else { "values" };
                out.push_str(&format!("{{\"type\":\"{form}\",\"{inner}\":"));
                put_canonical(schema.get(inner).unwrap_or_default(), namespace, out);
                out.push('}');
            }
            _ => put_canonical(schema.get("type").unwrap_or_default(), namespace, out),
        },
        _ => {}
    }
}

fn put_named(schema: &Json, form: &str, namespace: &str, out: &mut String) {
    let text = |key: &str| schema.get(key).and_then(Json::as_str);
    let name = full_name(text("name").unwrap_or_default(), text("namespace").unwrap_or(namespace));
    let namespace = name.rsplit_once('.').map_or("", |(namespace, _)| namespace);
    out.push_str("{\"name\":");
    put_text(&name, out);
    out.push_str(&format!(",\"type\":\"{form}\","));
    let list = |key: &str| schema.get(key).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    match form {
        "record" => {
            out.push_str("\"fields\":");
            put_list(list("fields"), out, |field, out| {
                out.push_str("{\"name\":");
                put_text(field.get("name").and_then(Json::as_str).unwrap_or_default(), out);
                out.push_str(",\"type\":");
                put_canonical(field.get("type").unwrap_or_default(), namespace, out);
                out.push('}');
            });
        }
        "enum" => {
            out.push_str("\"symbols\":");
            put_list(list("symbols"), out, |symbol, out| put_text(symbol.as_str().unwrap_or_default(), out));
        }
        _ => out
            .push_str(&format!("\"size\":{}", schema.get("size").and_then(Json::as_u64).unwrap_or_default())),
    }
    out.push('}');
}

fn put_list(items: &[Json], out: &mut String, put: impl Fn(&Json, &mut String)) {
    let mut separator = '[';
    for item in items {
        out.push(separator);
        put(item, out);
        separator = ',';
    }
    out.push_str(if items.is_empty() { "[]" } else { "]" });
}

fn put_text(text: &str, out: &mut String) {
    out.push_str(&Json::from(text).to_string());
}

/// Returns a name qualified with its namespace; primitive types have no namespace.
fn full_name(name: &str, namespace: &str) -> String {
    let primitive = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"].contains(&name);
    if primitive || namespace.is_empty() || name.contains('.') {
        name.to_owned()
    } else {
        format!("{namespace}.{name}")
    }
}
