//! Released schemas never break. `released/<version>/` keeps the schemas that producers and archives may use.
//! Every newest schema must read data of all released schemas, and every released schema must read data of
//! the newest schema.

use std::collections::BTreeMap;
use std::path::Path;

use apache_avro::Schema;
use apache_avro::schema::SchemaKind;
use apache_avro::schema_compatibility::SchemaCompatibility;
use prorata_schemas::avsc;
use prorata_schemas::avsc::{OLDER, full_name, kind_of};
use prorata_schemas::event::EventKind;
use serde_json::{Value as Json, json};

/// Returns all released schemas, as (version, file name, text).
fn released() -> Vec<(String, String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("released");
    let mut found = Vec::new();
    for version in std::fs::read_dir(root).unwrap() {
        let version = version.unwrap();
        for file in std::fs::read_dir(version.path()).unwrap() {
            let file = file.unwrap();
            let text = std::fs::read_to_string(file.path()).unwrap();
            let [version, name] =
                [version.file_name(), file.file_name()].map(|name| name.into_string().unwrap());
            found.push((version, name, text));
        }
    }
    found.sort();
    found
}

/// Checks that each of two schemas can read data of the other.
fn compatible(old: &str, new: &str) -> Result<(), String> {
    let parse = |text: &str| Schema::parse_str(text).map_err(|error| error.to_string());
    let (old_schema, new_schema) = (parse(old)?, parse(new)?);
    let backward = SchemaCompatibility::can_read(&old_schema, &new_schema);
    backward.map_err(|error| format!("the new schema cannot read old data: {error}"))?;
    let forward = SchemaCompatibility::can_read(&new_schema, &old_schema);
    forward.map_err(|error| format!("the old schema cannot read new data: {error}"))?;
    let (old, new) = (json_of(old), json_of(new));
    let (old, new) = (forms(&old), forms(&new));
    for (place, form) in &old {
        if let Some(other) = new.get(place)
            && other != form
        {
            return Err(format!("{place} changes its form from {form} to {other}"));
        }
    }
    Ok(())
}

fn json_of(text: &str) -> Json {
    serde_json::from_str(text).unwrap()
}

/// Returns the parts of a schema that the library ignores but data depends on. These are logical types and
/// their scale, which give numbers their meaning, and symbols and nulls that an older reader would not know.
fn forms(schema: &Json) -> BTreeMap<String, Json> {
    let mut found = BTreeMap::new();
    collect_forms("", schema, &mut found);
    found
}

fn collect_forms(place: &str, schema: &Json, found: &mut BTreeMap<String, Json>) {
    match schema {
        Json::Array(variants) => variants.iter().for_each(|variant| collect_forms(place, variant, found)),
        Json::Object(members) => {
            for field in members.get("fields").and_then(Json::as_array).unwrap_or(&vec![]) {
                let place = format!("{place}.{}", field["name"].as_str().unwrap());
                found.insert(format!("{place} (nullable)"), field["type"].is_array().into());
                collect_forms(&place, &field["type"], found);
            }
            for inner in ["items", "values", "type"] {
                members.get(inner).into_iter().for_each(|inner| collect_forms(place, inner, found));
            }
            let form = ["logicalType", "scale", "precision", "symbols"].map(|key| members.get(key).cloned());
            if form.iter().any(Option::is_some) {
                found.insert(place.to_owned(), json!(form));
            }
        }
        _ => {}
    }
}

#[test]
fn every_newest_schema_is_compatible_with_every_released_one() {
    let released = released();
    assert!(released.len() >= EventKind::ALL.len());
    for (version, name, old) in &released {
        let schema = Schema::parse_str(old).unwrap();
        let kind = kind_of(schema.name().unwrap().as_ref()).unwrap();
        if let Err(why) = compatible(old, avsc(kind)) {
            panic!("{} breaks released/{version}/{name}: {why}", full_name(kind));
        }
    }
}

#[test]
fn every_newest_schema_is_released() {
    let released = released();
    for kind in EventKind::ALL {
        let known = released.iter().any(|(_, _, text)| json_of(text) == json_of(avsc(kind)));
        assert!(
            known,
            "{}: copy events/*.avsc to a new folder of released/ with the change",
            full_name(kind)
        );
    }
}

#[test]
fn every_released_schema_is_the_newest_or_among_the_older_ones() {
    let known: Vec<Json> =
        EventKind::ALL.iter().map(|kind| avsc(*kind)).chain(OLDER.iter().copied()).map(json_of).collect();
    for (version, name, text) in released() {
        assert!(
            known.contains(&json_of(&text)),
            "released/{version}/{name}: add it to OLDER in src/event/avsc.rs"
        );
    }
}

/// Returns the schema of `kind` after `change` of its fields.
fn changed(kind: EventKind, change: impl FnOnce(&mut Vec<Json>)) -> String {
    let mut schema = json_of(avsc(kind));
    change(schema["fields"].as_array_mut().unwrap());
    schema.to_string()
}

#[test]
fn a_field_with_a_default_may_come_and_go() {
    let node = json!({"name": "node_id", "type": ["null", "string"], "default": null});
    let with = changed(EventKind::PodStopped, |fields| fields.insert(3, node));
    let without = changed(EventKind::PodStopped, |fields| fields.retain(|field| field["name"] != "reason"));
    for changed in [with, without] {
        assert_eq!(compatible(avsc(EventKind::PodStopped), &changed), Ok(()));
    }
}

#[test]
fn an_incompatible_change_is_refused() {
    let set = |name: &'static str, key: &'static str, value: Json| {
        move |fields: &mut Vec<Json>| {
            let field = fields.iter_mut().find(|field| field["name"] == name).unwrap();
            field[key] = value;
        }
    };
    let required = json!({"name": "node_id", "type": "string"});
    let millis = json!({"type": "long", "logicalType": "timestamp-millis"});
    let cents = json!({"type": "bytes", "logicalType": "decimal", "precision": 28, "scale": 2});
    let symbols = json!({"type": "enum", "name": "prorata.events.NodeStartedCapacityType",
        "symbols": ["ON_DEMAND", "SPOT", "RESERVED"]});
    let fewer =
        json!({"type": "enum", "name": "prorata.events.NodeStartedCapacityType", "symbols": ["SPOT"]});
    let refused = [
        (
            "a required field more",
            EventKind::PodStopped,
            changed(EventKind::PodStopped, |f| f.push(required)),
        ),
        (
            "a required field less",
            EventKind::PodStopped,
            changed(EventKind::PodStopped, |f| drop(f.remove(2))),
        ),
        (
            "another name",
            EventKind::PodStopped,
            changed(EventKind::PodStopped, set("pod_uid", "name", json!("uid"))),
        ),
        (
            "another type",
            EventKind::PodUsage,
            changed(EventKind::PodUsage, set("cpu_millis", "type", json!("double"))),
        ),
        (
            "a wider type",
            EventKind::PodStarted,
            changed(EventKind::PodStarted, set("priority", "type", json!("long"))),
        ),
        (
            "null",
            EventKind::PodStopped,
            changed(EventKind::PodStopped, set("pod_uid", "type", json!(["null", "string"]))),
        ),
        (
            "milliseconds",
            EventKind::PodUsage,
            changed(EventKind::PodUsage, set("interval_end", "type", millis)),
        ),
        (
            "another scale",
            EventKind::RateSet,
            changed(EventKind::RateSet, set("per_gpu_hour", "type", cents)),
        ),
        (
            "a symbol more",
            EventKind::NodeStarted,
            changed(EventKind::NodeStarted, set("capacity_type", "type", symbols)),
        ),
        (
            "a symbol less",
            EventKind::NodeStarted,
            changed(EventKind::NodeStarted, set("capacity_type", "type", fewer)),
        ),
    ];
    for (what, kind, changed) in refused {
        assert!(compatible(avsc(kind), &changed).is_err(), "{what} of {kind:?} passes");
    }
}

#[test]
fn every_record_and_field_has_a_doc_and_every_optional_field_defaults_to_null() {
    for kind in EventKind::ALL {
        let schema = json_of(avsc(kind));
        assert_eq!(schema["name"], full_name(kind));
        assert_documented(&schema);
        let fields = schema["fields"].as_array().unwrap();
        assert_eq!(fields[0]["name"], "organization_id");
        assert_eq!(fields[1]["name"], "event_time");
        assert_eq!(fields[1]["type"], json!({"type": "long", "logicalType": "timestamp-micros"}));
        let Schema::Record(record) = Schema::parse_str(avsc(kind)).unwrap() else { unreachable!() };
        for field in &record.fields {
            let ours = (28, 12);
            let decimal =
                matches!(&field.schema, Schema::Decimal(found) if (found.precision, found.scale) == ours);
            assert_eq!(decimal, SchemaKind::from(&field.schema) == SchemaKind::Decimal, "{}", field.name);
        }
    }
}

fn assert_documented(record: &Json) {
    let name = &record["name"];
    assert!(record["doc"].as_str().is_some_and(|doc| doc.ends_with('.')), "{name}");
    for field in record["fields"].as_array().unwrap() {
        assert!(field["doc"].as_str().is_some_and(|doc| doc.ends_with('.')), "{name}.{}", field["name"]);
        if field["type"].is_array() {
            assert_eq!(field["type"][0], "null", "{name}.{}", field["name"]);
            assert_eq!(field["default"], Json::Null, "{name}.{}", field["name"]);
            assert!(field.as_object().unwrap().contains_key("default"), "{name}.{}", field["name"]);
        }
        if field["type"]["items"]["type"] == "record" {
            assert_documented(&field["type"]["items"]);
        }
    }
}
