//! Every text of every event has a bound.

use std::collections::BTreeSet;

use prorata_samples::arbitrary::samples;
use prorata_schemas::event::bounds::{TEXT_BYTES_MAX, check_bounds};
use prorata_schemas::event::{Event, Payload};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Timestamp;
use serde_json::Value;

/// Pointers of all texts of a document.
fn texts(at: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| texts(&format!("{at}/{index}"), value, found));
        }
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            texts(&format!("{at}/{name}"), value, found);
        }),
        _ => {}
    }
}

/// Returns why an event is rejected in which one text is this long; `None` if that is not an event, because
/// the text is a decimal or a name of ours.
fn judged(event: &Value, at: &str, bytes: usize) -> Option<String> {
    let mut changed = event.clone();
    *changed.pointer_mut(at).unwrap() = Value::String("x".repeat(bytes));
    let (organization_id, payload): (OrganizationId, Payload) = serde_json::from_value(changed).ok()?;
    let event = Event::new(organization_id, Timestamp(0), payload);
    let rejected = check_bounds(&event, &Rules::default()).err();
    Some(rejected.map(|reject| reject.to_string()).unwrap_or_default())
}

#[test]
fn every_text_of_every_event_has_a_bound() {
    let mut fields = BTreeSet::new();
    for event in samples() {
        let kind = event.payload.kind().name();
        let event = serde_json::to_value((event.organization_id, event.payload)).unwrap();
        let mut found = Vec::new();
        texts("", &event, &mut found);
        for at in found {
            let Some(wrong) = judged(&event, &at, TEXT_BYTES_MAX + 1) else { continue };
            let why = "a text of 1025 bytes is above the limit of 1024";
            assert!(wrong.starts_with("invalid_field") && wrong.ends_with(why), "{kind} {at}: {wrong}");
            let right = judged(&event, &at, TEXT_BYTES_MAX).unwrap();
            assert!(!right.contains("bytes"), "{kind} {at}: {right}");
            let (field, _) = wrong.split_once(": a text").unwrap();
            fields.insert(field.to_owned());
        }
    }
    assert!(fields.len() > 70, "{} fields: {fields:?}", fields.len());
}
