//! Decoding of what producers send: other versions of our schemas compared with apache-avro, every refusal,
//! and damage.

mod archive;
mod header;
mod letters;
mod writers;

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prorata_connectors::avro::{Decoder, SingleObjects, encode_single_object, fingerprint};
use prorata_samples::arbitrary::{event, samples};
use prorata_samples::dice::{dice, mutate};
use prorata_schemas::avsc;
use prorata_schemas::body::wire::{put_bytes, put_long};
use prorata_schemas::body::{EventRecordRef, encode};
use prorata_schemas::event::{CommitmentKind, CommitmentSet, Event, EventKind, EventRecord, Payload};
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::rules::Rules;
use serde_json::{Value as Json, json};

/// Decodes a body with a writer's schema.
fn decode(schema: &str, body: &[u8]) -> Result<EventRecord, Reject> {
    Decoder::compile(schema).unwrap().decode(body).map(EventRecordRef::into_owned)
}

/// Another version of a schema, and the value that its writer would send.
struct Version {
    schema: Json,
    value: Vec<(String, Value)>,
}

impl Version {
    fn newest(event: &Event) -> Self {
        let text = avsc(event.payload.kind());
        let schema = Schema::parse_str(text).unwrap();
        let reader = GenericDatumReader::builder(&schema).build().unwrap();
        let Value::Record(value) = reader.read_value(&mut &encode(event)[..]).unwrap() else {
            unreachable!()
        };
        Self { schema: serde_json::from_str(text).unwrap(), value }
    }

    fn fields(&mut self) -> &mut Vec<Json> {
        self.schema["fields"].as_array_mut().unwrap()
    }

    fn body(&self) -> Vec<u8> {
        let schema = Schema::parse_str(&self.schema.to_string()).unwrap();
        let writer = GenericDatumWriter::builder(&schema).build().unwrap();
        writer.write_value_to_vec(Value::Record(self.value.clone())).unwrap()
    }

    fn decode(&self) -> Result<EventRecord, Reject> {
        decode(&self.schema.to_string(), &self.body())
    }

    fn field(&mut self, name: &str) -> (&mut Json, &mut Value) {
        let schema = self.schema["fields"].as_array_mut().unwrap();
        let schema = schema.iter_mut().find(|field| field["name"] == name).unwrap();
        let (_, value) = self.value.iter_mut().find(|(field, _)| field == name).unwrap();
        (schema, value)
    }

    /// Changes this version to another writer's version with the same meaning, as far as possible.
    fn evolve(&mut self, dice: &mut impl FnMut(usize) -> usize) {
        for step in 0..=dice(6) {
            let at = dice(self.value.len());
            let field = self.fields()[at].clone();
            match dice(7) {
                0 => {
                    let to = dice(self.value.len());
                    self.fields().swap(at, to);
                    self.value.swap(at, to);
                }
                1 => self.add(step, at, dice(6)),
                2 if field.get("default").is_some() => {
                    self.fields().remove(at);
                    self.value.remove(at);
                }
                3 if field["type"].is_array() => {
                    let variants = self.fields()[at]["type"].as_array_mut().unwrap();
                    variants.reverse();
                    self.fields()[at].as_object_mut().unwrap().remove("default");
                    if let Value::Union(index, _) = &mut self.value[at].1 {
                        *index = 1 - *index;
                    }
                }
                4 if !field["type"].is_array() => {
                    self.fields()[at]["type"] = json!(["null", field["type"]]);
                    self.fields()[at].as_object_mut().unwrap().remove("default");
                    let (_, value) = &mut self.value[at];
                    *value = Value::Union(1, Box::new(value.clone()));
                }
                5 if field["type"] == "string" => {
                    self.fields()[at]["type"] = json!("bytes");
                    self.fields()[at].as_object_mut().unwrap().remove("default");
                    let (_, value) = &mut self.value[at];
                    let Value::String(text) = value.clone() else { unreachable!() };
                    *value = Value::Bytes(text.into_bytes());
                }
                6 if field["type"]["logicalType"] == "timestamp-micros" => {
                    self.fields()[at]["type"] = json!("long");
                    let (_, value) = &mut self.value[at];
                    let Value::TimestampMicros(micros) = *value else { unreachable!() };
                    *value = Value::Long(micros);
                }
                _ => {}
            }
        }
    }

    /// Adds a field of any form that we do not know.
    fn add(&mut self, step: usize, at: usize, form: usize) {
        let (name, inner) = (format!("extra_{step}"), format!("extra.Inner{step}"));
        let record = json!({"type": "record", "name": inner, "fields": [{"name": "x", "type": "double"}]});
        let record_value = Value::Record(vec![("x".to_owned(), Value::Double(0.5))]);
        let (schema, value) = match form {
            0 => (json!("float"), Value::Float(1.5)),
            1 => (json!({"type": "array", "items": record}), Value::Array(vec![record_value; 3])),
            2 => (json!({"type": "fixed", "name": inner, "size": 5}), Value::Fixed(5, vec![7; 5])),
            3 => (json!(["null", record]), Value::Union(1, Box::new(record_value))),
            4 => {
                let map = [("a".to_owned(), Value::Array(vec![Value::Null; 4]))];
                let nulls = json!({"type": "array", "items": "null"});
                (json!({"type": "map", "values": nulls}), Value::Map(map.into()))
            }
            _ => (
                json!({"type": "enum", "name": inner, "symbols": ["A", "B"]}),
                Value::Enum(1, "B".to_owned()),
            ),
        };
        self.fields().insert(at, json!({"name": name, "type": schema}));
        self.value.insert(at, (name, value));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(4),
        failure_persistence: None,
        ..ProptestConfig::with_cases(1_000)
    })]

    #[test]
    fn records_of_apache_avro_are_read(event in event()) {
        let version = Version::newest(&event);
        prop_assert_eq!(version.decode(), Ok(EventRecord::new(event)));
    }

    /// The library first resolves a value to our newest schema and then writes it. The library and our
    /// decoder must give the same canonical body.
    #[test]
    fn other_versions_resolve_as_apache_avro_resolves_them(event in event(), seed in any::<u64>()) {
        let mut version = Version::newest(&event);
        version.evolve(&mut dice(seed));
        // The library cannot resolve a decimal of few bytes, so it gets decimals as plain bytes.
        let plain = |schema: &str| Schema::parse_str(&schema.replace("\"decimal\"", "\"none\"")).unwrap();
        let (ours, theirs) = (plain(avsc(event.payload.kind())), plain(&version.schema.to_string()));
        let resolved = GenericDatumReader::builder(&theirs).reader_schema(&ours).build().unwrap();
        let resolved = resolved.read_value(&mut &version.body()[..]).unwrap();
        let writer = GenericDatumWriter::builder(&ours).build().unwrap();
        let resolved = writer.write_value_to_vec(resolved).unwrap();
        let expected = decode(avsc(event.payload.kind()), &resolved);
        // A version of a savings plan without its spend or discounts is not a savings plan.
        let is_plan = |set: &CommitmentSet| set.kind == CommitmentKind::SavingsPlan;
        let may_lack = matches!(&event.payload, Payload::CommitmentSet(set) if is_plan(set));
        prop_assert!(expected.is_ok() || may_lack);
        prop_assert_eq!(version.decode(), expected, "{}", version.schema);
    }
}

fn sample(kind: EventKind) -> Event {
    samples().into_iter().find(|event| event.payload.kind() == kind).unwrap()
}

/// Returns the reason why a version is refused.
fn reason(version: &Version) -> (Reason, String) {
    let reject = version.decode().expect_err("refused");
    (reject.reason, reject.message)
}

#[test]
fn a_schema_that_does_not_resolve_is_an_unknown_event_and_says_why() {
    let refused = |kind: EventKind, name: &str, schema: Json, value: Value, why: &str| {
        let mut version = Version::newest(&sample(kind));
        let field = version.field(name);
        (field.0["type"], *field.1) = (schema, value);
        let (reason, message) = reason(&version);
        assert_eq!(reason, Reason::UnknownEvent, "{message}");
        assert!(message.contains(why) && message.contains(kind.name()), "{message}");
    };
    let logical = |base: &str, logical: &str| json!({"type": base, "logicalType": logical});
    let cents = json!({"type": "bytes", "logicalType": "decimal", "precision": 28, "scale": 2});
    let text = || Value::String("1".to_owned());
    refused(EventKind::PodUsage, "interval_end", json!("double"), Value::Double(0.0), "field interval_end");
    let (millis, nanos) = (Value::TimestampMillis(1), Value::TimestampNanos(1));
    refused(
        EventKind::PodUsage,
        "interval_end",
        logical("long", "timestamp-millis"),
        millis,
        "timestamp-millis",
    );
    refused(EventKind::PodUsage, "event_time", logical("long", "timestamp-nanos"), nanos, "timestamp-nanos");
    refused(
        EventKind::PodUsage,
        "cpu_millis",
        json!("double"),
        Value::Double(1.0),
        "double cannot be read as long",
    );
    // Debezium writes milliseconds as a plain long, and only an attribute for Kafka Connect shows it.
    let debezium = json!({"type": "long", "connect.name": "io.debezium.time.Timestamp"});
    refused(EventKind::PodUsage, "event_time", debezium, Value::Long(1), "io.debezium.time.Timestamp");
    let decimal = Value::Decimal(apache_avro::Decimal::from([1u8]));
    let fixed = json!({"type": "fixed", "name": "F", "size": 12, "logicalType": "decimal", "precision": 28});
    refused(EventKind::RateSet, "per_gpu_hour", fixed, decimal.clone(), "decimal(28,0)");
    refused(EventKind::RateSet, "per_gpu_hour", cents, decimal, "decimal(28,2)");
    refused(
        EventKind::RateSet,
        "per_gpu_hour",
        json!("bytes"),
        Value::Bytes(vec![1]),
        "bytes cannot be read",
    );
    refused(EventKind::RateSet, "per_gpu_hour", json!("string"), text(), "string cannot be read");
    refused(EventKind::PodStarted, "priority", json!("long"), Value::Long(1), "long cannot be read as int");
    refused(
        EventKind::PodStarted,
        "labels",
        json!({"type": "map", "values": "int"}),
        Value::Map([].into()),
        "int cannot be read as string",
    );
    refused(EventKind::QuotaSet, "namespaces", json!("string"), text(), "namespaces");
}

#[test]
fn a_required_field_that_is_missing_or_null_is_an_unknown_event() {
    let mut missing = Version::newest(&sample(EventKind::NodeStopped));
    let index = missing.fields().iter().position(|field| field["name"] == "node_id").unwrap();
    missing.fields().remove(index);
    missing.value.remove(index);
    let (code, message) = reason(&missing);
    assert_eq!(code, Reason::UnknownEvent);
    assert!(message.contains("field node_id is required"), "{message}");

    let mut null = Version::newest(&sample(EventKind::NodeStopped));
    let field = null.field("node_id");
    (field.0["type"], *field.1) = (json!(["null", "string"]), Value::Union(0, Box::new(Value::Null)));
    assert_eq!(reason(&null).0, Reason::UnknownEvent);
}

#[test]
fn an_unknown_symbol_of_an_enum_rejects_only_its_event() {
    let mut event = sample(EventKind::NodeStarted);
    let Payload::NodeStarted(node) = &mut event.payload else { unreachable!() };
    node.capacity_type = prorata_schemas::event::CapacityType::Spot;
    let symbols = ["RESERVED", "SPOT", "ON_DEMAND"];
    for (index, symbol) in (0..).zip(symbols) {
        let mut version = Version::newest(&event);
        let field = version.field("capacity_type");
        field.0["type"]["symbols"] = json!(symbols);
        *field.1 = Value::Enum(index, symbol.to_owned());
        match symbol {
            "RESERVED" => assert_eq!(reason(&version).0, Reason::UnknownEvent),
            "SPOT" => assert_eq!(version.decode(), Ok(EventRecord::new(event.clone()))),
            _ => assert_ne!(version.decode().unwrap().event, event),
        }
        // Kafka Connect writes an enum as text.
        let field = version.field("capacity_type");
        (field.0["type"], *field.1) = (json!("string"), Value::String(symbol.to_owned()));
        assert_eq!(version.decode().is_err(), symbol == "RESERVED");
    }
}

#[test]
fn names_inside_a_record_do_not_matter_and_its_own_does() {
    for event in samples() {
        let (kind, body) = (event.payload.kind(), encode(&event));
        let text = avsc(kind);
        let name = kind.name();
        let renamed = text.replace(&format!("events.{name}"), "events.Other").replacen(
            "Other\"",
            &format!("{name}\""),
            1,
        );
        let decoded = decode(&renamed, &body);
        assert_eq!(decoded, Ok(EventRecord::new(event.clone())), "{renamed}");
        let namespaced = text.replacen(
            &format!("prorata.events.{name}\""),
            &format!("{name}\", \"namespace\": \"prorata.events\""),
            1,
        );
        assert_eq!(decode(&namespaced, &body), Ok(EventRecord::new(event)));
        let foreign = text.replacen(&format!("prorata.events.{name}"), &format!("acme.{name}"), 1);
        let reject = Decoder::compile(&foreign).unwrap().decode(&body).unwrap_err();
        assert_eq!(reject.reason, Reason::UnknownEvent);
        assert!(reject.message.contains(&format!("acme.{name} is not one of the records of")), "{reject}");
    }
}

#[test]
fn values_are_judged_after_resolution_as_before() {
    let mut version = Version::newest(&sample(EventKind::RateSet));
    version.fields().reverse();
    version.value.reverse();
    *version.field("region").1 = Value::String(String::new());
    assert_eq!(reason(&version).0, Reason::InvalidField);
    let text = version.schema.to_string();
    let body = version.body();
    let decoder = Decoder::compile(&text).unwrap();
    assert_eq!(decoder.decode(&body[..body.len() - 1]).unwrap_err().reason, Reason::Malformed);
    assert_eq!(decoder.decode(&[&body[..], &[0]].concat()).unwrap_err().reason, Reason::Malformed);
}

/// A decoder that counted to these numbers would never return.
#[test]
fn hostile_counts_and_depths_cost_nothing() {
    let list = json!({"type": "record", "name": "prorata.events.NodeStopped", "fields": [
        {"name": "list", "type":
            {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}},
        {"name": "nulls", "type": {"type": "array", "items": "null"}},
        {"name": "organization_id", "type": "string"},
        {"name": "event_time", "type": "long"},
        {"name": "cluster_id", "type": "string"},
        {"name": "node_id", "type": "string"},
    ]});
    let decoder = Decoder::compile(&list.to_string()).unwrap();
    let body = |depth: usize, nulls: i64| {
        let mut body = vec![2; depth];
        body.push(0);
        put_long(&mut body, nulls);
        body.push(0);
        put_bytes(&mut body, b"o");
        put_long(&mut body, 0);
        put_bytes(&mut body, b"c");
        put_bytes(&mut body, b"n");
        body
    };
    assert!(decoder.decode(&body(10, i64::MAX)).is_ok());
    assert_eq!(decoder.decode(&body(1_000_000, 1)).unwrap_err().reason, Reason::Malformed);
}

#[test]
fn an_invalid_schema_is_an_error() {
    for text in ["", "{", "\"acme\"", "{\"type\": \"record\"}", "[\"string\", \"string\"]", "7", "\u{0}"] {
        assert!(Decoder::compile(text).is_err(), "{text:?}");
    }
    for text in ["\"string\"", "[\"null\", \"int\"]", "[]"] {
        let reject = Decoder::compile(text).unwrap().decode(&[0]).unwrap_err();
        assert!(matches!(reject.reason, Reason::UnknownEvent | Reason::Malformed), "{text}: {reject}");
    }
}

#[test]
fn messages_stay_short_whatever_they_quote() {
    let long = "x".repeat(100_000);
    let mut event = sample(EventKind::RateSet);
    let Payload::RateSet(rate) = &mut event.payload else { unreachable!() };
    rate.currency = long.as_str().into();
    event.organization_id = long.as_str().into();
    let mismatch = Rules::default().check_currency(&event).unwrap_err();
    let foreign = avsc(EventKind::NodeStopped).replace("prorata.events.NodeStopped", &long[..500]);
    let foreign =
        Decoder::compile(&foreign).unwrap().decode(&encode(&sample(EventKind::NodeStopped))).unwrap_err();
    for message in [mismatch.message, foreign.message, Decoder::compile(&long).unwrap_err().to_string()] {
        assert!(message.len() < 600, "{} bytes", message.len());
    }
}

#[test]
fn single_objects_carry_the_fingerprint_of_their_schema() {
    let objects = SingleObjects::new([]).unwrap();
    for event in samples() {
        let message = encode_single_object(event.payload.kind(), &encode(&event));
        let record = objects.decode(&message).map(EventRecordRef::into_owned);
        assert_eq!(record, Ok(EventRecord::new(event)));
        for length in 0..10 {
            assert_eq!(objects.decode(&message[..length]).unwrap_err().reason, Reason::Malformed);
        }
        let mut other = message.clone();
        other[5] ^= 1;
        assert_eq!(objects.decode(&other).unwrap_err().reason, Reason::UnknownSchema);
        other[0] = 0;
        assert_eq!(objects.decode(&other).unwrap_err().reason, Reason::Malformed);
    }
}

#[test]
fn fingerprints_are_crc_64_avro_of_the_parsing_canonical_form() {
    let canonical = concat!(
        r#"{"name":"prorata.events.NodeStopped","type":"record","fields":["#,
        r#"{"name":"organization_id","type":"string"},{"name":"event_time","type":"long"},"#,
        r#"{"name":"cluster_id","type":"string"},{"name":"node_id","type":"string"},"#,
        r#"{"name":"recorded_at","type":["null","long"]},{"name":"retracted","type":"boolean"}]}"#
    );
    assert_eq!(fingerprint(avsc(EventKind::NodeStopped)).unwrap(), fingerprint(canonical).unwrap());
    // These values come from the test data of the specification's repository.
    assert_eq!(i64::from_le_bytes(fingerprint("\"null\"").unwrap()), 7_195_948_357_588_979_594);
    let fixed = r#"{"namespace":"x.y","name":"foo","type":"fixed","size":15}"#;
    let plain = r#"{"type":"fixed","doc":"d","size":15,"name":"x.y.foo","aliases":["b"]}"#;
    assert_eq!(fingerprint(fixed).unwrap(), fingerprint(plain).unwrap());
    let fixed = fingerprint(r#"{"name":"foo","type":"fixed","size":15}"#).unwrap();
    assert_eq!(i64::from_le_bytes(fixed), 1_756_455_273_707_447_556);
    let pigs = r#"{"type":"record","name":"PigValue","fields":[
        {"name":"value","type":["null","int","long","PigValue"]}]}"#;
    assert_eq!(i64::from_le_bytes(fingerprint(pigs).unwrap()), -1_759_257_747_318_642_341);
}

#[test]
fn older_writers_of_single_objects_are_read_once_their_schema_is_known() {
    let mut version = Version::newest(&sample(EventKind::PodStopped));
    version.fields().pop();
    version.value.pop();
    let schema = version.schema.to_string();
    let message = [&[0xc3, 0x01][..], &fingerprint(&schema).unwrap(), &version.body()].concat();
    assert_eq!(SingleObjects::new([]).unwrap().decode(&message).unwrap_err().reason, Reason::UnknownSchema);
    let objects = SingleObjects::new([&schema[..]]).unwrap();
    assert_eq!(objects.decode(&message).map(EventRecordRef::into_owned), version.decode());
}

#[test]
fn prices_must_be_in_the_organizations_currency() {
    let mut event = sample(EventKind::RateSet);
    event.organization_id = "acme".into();
    let Payload::RateSet(rate) = &mut event.payload else { unreachable!() };
    rate.currency = "EUR".into();
    let mut rules = Rules::default();
    assert_eq!(rules.check_currency(&event).unwrap_err().reason, Reason::CurrencyMismatch);
    rules.currencies.insert("acme".into(), "EUR".into());
    assert_eq!(rules.check_currency(&event), Ok(()));
    assert_eq!(rules.check_currency(&sample(EventKind::PodUsage)), Ok(()));
}

#[test]
fn a_hundred_thousand_damaged_messages_never_panic() {
    let mut dice = dice(2027);
    let objects = SingleObjects::new([]).unwrap();
    let writers: Vec<(Decoder, Vec<u8>)> = samples()
        .iter()
        .flat_map(|event| {
            let mut versions = [Version::newest(event), Version::newest(event)];
            versions[1].evolve(&mut dice);
            versions.map(|version| (Decoder::compile(&version.schema.to_string()).unwrap(), version.body()))
        })
        .collect();
    let messages: Vec<Vec<u8>> =
        samples().iter().map(|event| encode_single_object(event.payload.kind(), &encode(event))).collect();
    for round in 0..80_000 {
        let (decoder, body) = &writers[round % writers.len()];
        let mut body = body.clone();
        mutate(&mut body, &mut dice);
        let _ = decoder.decode(&body);
    }
    for round in 0..20_000 {
        let mut message = messages[round % messages.len()].clone();
        mutate(&mut message, &mut dice);
        let _ = objects.decode(&message);
    }
}

#[test]
fn ten_thousand_damaged_schemas_never_panic() {
    let mut dice = dice(2028);
    let bodies: Vec<_> = samples().iter().map(|event| (event.payload.kind(), encode(event))).collect();
    let mut compiled = 0;
    for round in 0..10_000 {
        let (kind, body) = &bodies[round % bodies.len()];
        let mut text = avsc(*kind).as_bytes().to_vec();
        mutate(&mut text, &mut dice);
        if let Ok(decoder) = Decoder::compile(&String::from_utf8_lossy(&text)) {
            compiled += 1;
            let _ = decoder.decode(body);
        }
    }
    assert!(compiled > 1_000, "only {compiled} damaged schemas were schemas");
}
