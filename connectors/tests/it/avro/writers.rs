//! Events in the form of foreign writers: the table "Common writers" of `schemas/EVENTS.md`.

use apache_avro::types::Value;
use prorata_samples::arbitrary::samples;
use prorata_schemas::event::{CommitmentKind, Event, EventRecord, Payload};
use serde_json::{Value as Json, json};

use super::Version;

/// A function that returns a type and a value in the form of a writer.
type Form = fn(&str, Json, Value) -> (Json, Value);

/// Returns an event with each type and value in another form, from the inside out. Each type becomes
/// optional, with null at this index of the union.
fn version(event: &Event, null_at: u32, form: Form) -> Version {
    let newest = Version::newest(event);
    let mut schema = newest.schema;
    let fields = schema["fields"].as_array_mut().unwrap();
    let mut value = Vec::new();
    for (field, (name, inner)) in fields.iter_mut().zip(newest.value) {
        let (of, inner) = formed(&name, field["type"].clone(), inner, null_at, form);
        *field = json!({"name": name, "type": of});
        value.push((name, inner));
    }
    Version { schema, value }
}

fn formed(path: &str, of: Json, value: Value, null_at: u32, form: Form) -> (Json, Value) {
    let inner = |of: &Json, value: Value| formed(path, of.clone(), value, null_at, form);
    let optional = |of: Json| if null_at == 0 { json!(["null", of]) } else { json!([of, "null"]) };
    if let Json::Array(branches) = &of {
        let of = branches.iter().find(|branch| **branch != "null").unwrap();
        let Value::Union(_, value) = value else { unreachable!() };
        return match *value {
            Value::Null => {
                let (of, _) = form(path, of.clone(), Value::Null);
                (optional(of), Value::Union(null_at, Box::new(Value::Null)))
            }
            value => inner(of, value),
        };
    }
    let kind = of["type"].as_str().map(str::to_owned);
    let (of, value) = match (kind.as_deref(), value) {
        (Some("array"), Value::Array(items)) => {
            let none = inner(&of["items"], Value::Array(Vec::new())).0;
            let items: Vec<(Json, Value)> = items.into_iter().map(|item| inner(&of["items"], item)).collect();
            let items_of = items.first().map_or(none, |(of, _)| of.clone());
            let items = items.into_iter().map(|(_, item)| item).collect();
            (json!({"type": "array", "items": items_of}), Value::Array(items))
        }
        (Some("map"), Value::Map(entries)) => {
            let entries =
                entries.into_iter().map(|(key, text)| (key, Value::Union(1 - null_at, Box::new(text))));
            (json!({"type": "map", "values": optional(json!("string"))}), Value::Map(entries.collect()))
        }
        (Some("record"), Value::Record(fields)) => {
            let mut types = Vec::new();
            let mut values = Vec::new();
            for (field, (name, value)) in of["fields"].as_array().unwrap().iter().zip(fields) {
                let path = format!("{path}.{name}");
                let (of, value) = formed(&path, field["type"].clone(), value, null_at, form);
                types.push(json!({"name": name, "type": of}));
                values.push((name, value));
            }
            (json!({"type": "record", "name": path, "fields": types}), Value::Record(values))
        }
        (_, value) => form(path, of, value),
    };
    (optional(of), Value::Union(1 - null_at, Box::new(value)))
}

/// Turns enums into text, as all these writers do.
fn text_of_enums(of: Json, value: Value) -> (Json, Value) {
    let of = if of["type"] == "enum" { json!("string") } else { of };
    match value {
        Value::Enum(_, symbol) => (of, Value::String(symbol)),
        value => (of, value),
    }
}

/// The form of Spark: decimals of a fixed length, a separate name for each type, and null last.
fn spark(path: &str, of: Json, value: Value) -> (Json, Value) {
    if of["logicalType"] == "decimal" {
        let name = format!("topLevelRecord.{path}.fixed");
        let decimal = json!({"logicalType": "decimal", "precision": 28, "scale": 12});
        let mut of = json!({"type": "fixed", "name": name, "size": 12});
        of.as_object_mut().unwrap().append(&mut decimal.as_object().unwrap().clone());
        return (of, value);
    }
    text_of_enums(of, value)
}

/// The form of Kafka Connect and Debezium: null first, decimals with many digits, and microseconds as a plain
/// long.
fn connect(_: &str, mut of: Json, value: Value) -> (Json, Value) {
    if of["logicalType"] == "decimal" {
        of["precision"] = 64.into();
        of["connect.name"] = "org.apache.kafka.connect.data.Decimal".into();
        return (of, value);
    }
    match value {
        Value::TimestampMicros(micros) => {
            (json!({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}), Value::Long(micros))
        }
        value => text_of_enums(of, value),
    }
}

/// Writes null for every value that equals our default, like a writer whose columns are all nullable.
#[test]
fn a_null_reads_as_the_default_of_its_field() {
    for event in samples() {
        let mut version = version(&event, 1, spark);
        let ours = Version::newest(&event).schema;
        let mut nulls = 0;
        for ((_, value), field) in version.value.iter_mut().zip(ours["fields"].as_array().unwrap()) {
            let Value::Union(_, inner) = &*value else { unreachable!() };
            let is_default = match (&field["default"], &**inner) {
                (Json::Bool(default), Value::Boolean(value)) => value == default,
                (Json::Number(default), Value::Int(value)) => default.as_i64() == Some((*value).into()),
                (Json::Object(_), Value::Map(entries)) => entries.is_empty(),
                (Json::Array(_), Value::Array(items)) => items.is_empty(),
                _ => false,
            };
            if is_default {
                *value = Value::Union(1, Box::new(Value::Null));
                nulls += 1;
            }
        }
        assert!(nulls > 0, "each event has `retracted`: {}", version.schema);
        assert_eq!(version.decode(), Ok(EventRecord::new(event.clone())), "{}", version.schema);
    }
}

#[test]
fn records_of_common_writers_are_read() {
    for event in samples() {
        for (null_at, form) in [(1, spark as Form), (0, connect as Form)] {
            let version = version(&event, null_at, form);
            assert_eq!(version.decode(), Ok(EventRecord::new(event.clone())), "{}", version.schema);
        }
    }
}

#[test]
fn every_field_without_default_is_required_and_every_other_is_not() {
    for mut event in samples() {
        // A savings plan needs its commitment and its discounts.
        if let Payload::CommitmentSet(commitment) = &mut event.payload {
            commitment.kind = CommitmentKind::ReservedInstance;
            (commitment.hourly_commitment, commitment.discounts) = (None, Vec::new());
        }
        let names: Vec<(String, bool)> = Version::newest(&event)
            .fields()
            .iter()
            .map(|field| (field["name"].as_str().unwrap().to_owned(), field.get("default").is_some()))
            .collect();
        for (index, (name, optional)) in names.iter().enumerate() {
            let mut version = Version::newest(&event);
            version.fields().remove(index);
            version.value.remove(index);
            assert_eq!(version.decode().is_ok(), *optional, "{:?}.{name}", event.payload.kind());
        }
    }
}
