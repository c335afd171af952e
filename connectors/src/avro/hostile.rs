//! Tests with hostile schemas: a few kilobytes that cost a library unbounded time or memory. Each schema is
//! compiled or refused, and zeros are skipped as if they were records of the schema. The tests count the
//! work: the types visited, and the characters of the compiled form.

use prorata_schemas::avsc::avsc;
use prorata_schemas::body::wire::{Wire, put_bytes, put_long};
use prorata_schemas::event::EventKind;
use prorata_schemas::reject::RecordError;
use serde_json::{Value as Json, json};

use super::limits::{FIELDS_MAX, NAME_BYTES_MAX, NAMED_MAX, SCHEMA_BYTES_MAX};
use super::skip::STEPS;
use super::{Decoder, Reading};

/// Maximum number of types that a walk visits for each byte: the type that takes the byte, and the levels
/// above.
const STEPS_PER_BYTE: u64 = 66;

fn record(name: &str, fields: impl IntoIterator<Item = (String, Json)>) -> Json {
    let fields = fields.into_iter().map(|(name, of)| json!({"name": name, "type": of}));
    json!({"type": "record", "name": name, "fields": fields.collect::<Vec<_>>()})
}

fn numbered<'a>(count: usize, of: impl Fn(usize) -> Json + 'a) -> impl Iterator<Item = (String, Json)> + 'a {
    (0..count).map(move |at| (format!("f{at}"), of(at)))
}

/// Returns `depth` nested records around a `leaf`, each with `wide` fields of the record below. Each level
/// multiplies the work of a naive walk by `wide`.
fn laughs(depth: usize, wide: usize, leaf: Json) -> Json {
    let mut inner = (leaf, "L".to_owned());
    for level in 0..depth {
        let name = format!("R{level}");
        let (below, named) = inner;
        let fields = numbered(wide, move |at| if at == 0 { below.clone() } else { json!(named) });
        inner = (record(&name, fields), name);
    }
    inner.0
}

fn top(x: Json) -> Json {
    record("acme.Top", [("x".to_owned(), x), ("y".to_owned(), json!("boolean"))])
}

/// Returns records that are named `record`. A library mistakes `{"type": "record"}` for a reference to one of
/// them.
fn doubles(levels: usize) -> Json {
    let level = |at: usize| {
        let of = if at == 0 {
            json!("int")
        } else {
            let copy = || json!({"type": "record"});
            let mut inner = record(&format!("x{at}"), [("f".to_owned(), copy()), ("g".to_owned(), copy())]);
            inner["namespace"] = format!("n{}", at - 1).into();
            inner
        };
        let mut outer = record("record", [("a".to_owned(), of)]);
        outer["namespace"] = format!("n{at}").into();
        outer
    };
    (0..levels).map(level).collect()
}

fn aliases(count: usize, fields: usize) -> Json {
    let mut schema = record("acme.A", numbered(fields, |_| json!("int")));
    schema["aliases"] = (0..count).map(|at| format!("a{at}")).collect();
    schema
}

fn namespaces(length: usize, count: usize) -> Json {
    let fixed = |at| json!({"type": "fixed", "name": format!("t{at}"), "size": 1});
    let mut schema = record("A", numbered(count, fixed));
    schema["namespace"] = "n".repeat(length).into();
    schema
}

/// Returns a record with a default of nested unions.
fn default(depth: usize) -> Json {
    let (mut of, mut value) = (json!({"type": "array", "items": "int"}), json!([]));
    for _ in 0..depth {
        of = json!({"type": "array", "items": ["null", "string", of]});
        value = json!([value]);
    }
    let mut schema = record("acme.D", [("x".to_owned(), of)]);
    schema["fields"][0]["default"] = value;
    schema
}

/// Returns nested records, each in a type object whose logical type does not fit a record.
fn wrapped(levels: usize, doc: usize) -> Json {
    (0..levels).fold(json!({"type": "string", "doc": "z".repeat(doc)}), |inner, level| {
        json!({"type": record(&format!("R{level}"), [("a".to_owned(), inner)]), "logicalType": "date"})
    })
}

/// Returns records that contain themselves along paths that take no bytes.
fn endless() -> Json {
    let both = || [("a".to_owned(), json!("R")), ("b".to_owned(), json!("R"))];
    let inner = record("S", both().into_iter().chain([("c".to_owned(), json!("S"))]));
    record("R", both().into_iter().chain([("c".to_owned(), inner)]))
}

/// Returns a union of 2,000 fixed types and a record whose fields are unions of the same fixed types.
fn wide_unions() -> Json {
    let fixed = |at: usize| json!({"type": "fixed", "name": format!("t{at}"), "size": at % 2});
    let names = |count: usize| (0..count).map(|at| format!("t{at}")).collect::<Json>();
    let mut branches: Vec<Json> = (0..2_000).map(fixed).collect();
    branches.push(record("Unions", numbered(10, |_| names(2_000))));
    json!(branches)
}

/// Returns a record with `count` fields, each of a type that takes no bytes.
fn many_fields(count: usize) -> Json {
    let letter = |digit: usize| char::from(b'a' + (digit % 26) as u8);
    let name = |at: usize| String::from_iter([letter(at / 676), letter(at / 26), letter(at)]);
    let fields = record("F", (0..count).map(|at| (name(at), json!("N"))));
    json!([{"type": "fixed", "name": "N", "size": 0}, fields])
}

fn refused(schema: &Json) -> String {
    Decoder::compile(&schema.to_string()).unwrap_err().to_string()
}

/// Compiles a schema, and skips zeros as if they were its records. Returns the number of types visited.
fn passed(schema: &Json) -> u64 {
    let text = schema.to_string();
    let decoder = Decoder::compile(&text).unwrap();
    let compiled = format!("{decoder:?}").len();
    assert!(compiled <= 64 * text.len() + 4_096, "{compiled} characters for {}", text.len());
    let zeros = vec![0; 1 << 20];
    STEPS.set(0);
    let _judged = decoder.decode(&zeros);
    // A file's block is read like this: record after record, as long as a record takes bytes.
    let mut wire = Wire::new(&zeros[..1 << 16]);
    let mut left = usize::MAX;
    while wire.rest().len() < left {
        left = wire.rest().len();
        if matches!(decoder.next(&mut wire), Err(RecordError::Malformed(_))) {
            break;
        }
    }
    STEPS.get()
}

#[test]
fn hostile_schemas_cost_no_more_than_the_bytes_that_they_read() {
    let empty = || record("L", []);
    let long = || record("L", [("l".to_owned(), json!("long"))]);
    let null = || record("L", numbered(1_000, |_| json!("null")));
    let double = || record("L", numbered(16, |_| json!("double")));
    let symbols: Json = (0..20_000).map(|at| format!("S{at}")).collect();
    let cases = [
        ("laughs", top(laughs(24, 16, empty()))),
        ("laughs of nulls", top(laughs(2, 1_000, null()))),
        ("laughs of longs", top(laughs(24, 16, long()))),
        ("laughs of doubles, longer than any memory", top(laughs(24, 16, double()))),
        ("arrays of laughs", json!({"type": "array", "items": laughs(24, 16, empty())})),
        ("aliases", aliases(2_000, 4_000)),
        ("default", default(21)),
        ("deep default", default(59)),
        ("wrapped", wrapped(30, 100_000)),
        ("endless", endless()),
        ("many symbols", json!({"type": "enum", "name": "E", "symbols": symbols})),
        ("wide unions", wide_unions()),
        ("fields", many_fields(FIELDS_MAX)),
    ];
    for (name, schema) in cases {
        let steps = passed(&schema);
        assert!(steps <= STEPS_PER_BYTE * (1 << 20), "{name}: {steps} types were passed");
    }
    assert!(passed(&top(laughs(24, 16, empty()))) <= 2 + (1 << 16), "a record of one byte is one type");
}

#[test]
fn hostile_schemas_past_a_bound_are_refused_with_what_is_wrong() {
    for levels in [16, 18, 40] {
        assert!(refused(&doubles(levels)).ends_with("a named type lacks 'name', or has an invalid one"));
    }
    for (length, count) in [(10_000, 500), (100_000, 1_000)] {
        assert!(refused(&namespaces(length, count)).contains("more than the 512 that are allowed"));
    }
    assert!(refused(&wrapped(20, 900_000)).contains(&format!("more than the {SCHEMA_BYTES_MAX} that are")));
    assert!(refused(&default(70)).contains("recursion limit"));
    assert!(refused(&many_fields(FIELDS_MAX + 1)).ends_with("more than 10000 fields"));
    let mut halves = many_fields(FIELDS_MAX / 2 + 1);
    let mut other = halves[1].clone();
    other["name"] = "G".into();
    halves.as_array_mut().unwrap().push(other);
    assert!(refused(&halves).ends_with("more than 10000 fields"), "the fields of all records count");
    let field = |bytes| record("R", [("f".repeat(bytes), json!("int"))]);
    assert!(refused(&field(NAME_BYTES_MAX + 1)).contains("a name has 513 bytes, more than the 512"));
    assert!(Decoder::compile(&field(NAME_BYTES_MAX).to_string()).is_ok());
    let mut parts = field(1);
    parts["namespace"] = "n.".repeat(NAME_BYTES_MAX / 2).trim_end_matches('.').into();
    assert!(refused(&parts).contains("a name has 513 bytes, more than the 512"), "a name of many parts");
    let fixed = |count| (0..count).map(|at| json!({"type": "fixed", "name": format!("t{at}"), "size": 0}));
    assert!(refused(&fixed(NAMED_MAX + 1).collect()).ends_with("more than 4096 named types"));
    assert!(Decoder::compile(&fixed(NAMED_MAX).collect::<Json>().to_string()).is_ok());
    let deep = |depth| (0..depth).fold(json!("int"), |inner, _| json!({"type": "map", "values": inner}));
    assert!(refused(&deep(65)).ends_with("nested more than 64 levels deep"));
    assert!(Decoder::compile(&deep(64).to_string()).is_ok());
}

/// The plan leaves out foreign fields that take no bytes, so they cost no step for each item of an array.
#[test]
fn fields_without_bytes_leave_our_records_as_they_are() {
    let mut schema: Json = serde_json::from_str(avsc(EventKind::CommitmentSet)).unwrap();
    for field in schema["fields"].as_array_mut().unwrap() {
        if field["name"] == "assignments" {
            let inner = field["type"]["items"]["fields"].as_array_mut().unwrap();
            inner.extend((0..1_000).map(|at| json!({"name": format!("null{at}"), "type": "null"})));
        }
    }
    let extra = json!({"name": "extra", "type": laughs(24, 16, record("L", []))});
    schema["fields"].as_array_mut().unwrap().push(extra);
    let decoder = Decoder::compile(&schema.to_string()).unwrap();
    assert!(matches!(decoder.branches[0].reading, Reading::Direct(EventKind::CommitmentSet)));
}

/// Decodes one of our events with a foreign field that would take a library too long to skip.
#[test]
fn an_event_with_a_hostile_field_is_read() {
    let mut schema: Json = serde_json::from_str(avsc(EventKind::NodeStopped)).unwrap();
    let leaf = record("L", [("n".to_owned(), json!({"type": "array", "items": "null"}))]);
    let extra = laughs(3, 4, leaf);
    schema["fields"].as_array_mut().unwrap().insert(0, json!({"name": "extra", "type": extra}));
    let decoder = Decoder::compile(&schema.to_string()).unwrap();
    let mut body = Vec::new();
    for _ in 0..64 {
        put_long(&mut body, i64::MAX);
        put_long(&mut body, 0);
    }
    put_bytes(&mut body, b"acme");
    put_long(&mut body, 0);
    put_bytes(&mut body, b"c");
    put_bytes(&mut body, b"n");
    // Neither `recorded_at` nor a retraction.
    body.extend([0, 0]);
    STEPS.set(0);
    assert_eq!(decoder.decode(&body).unwrap().event.organization_id(), "acme");
    assert!(STEPS.get() < 64 * 4, "{} types were passed", STEPS.get());
}
