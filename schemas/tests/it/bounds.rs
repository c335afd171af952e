//! Every text and every list of every event has a bound.

use std::collections::BTreeSet;

use prorata_samples::arbitrary::samples;
use prorata_schemas::event::{
    Assignment, DiscountTarget, DiscountedPrice, Event, Payload, PlanDiscount, QosPrice, Quantities,
};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::money::{Ratio, UnitPrice};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rules::Rules;
use prorata_schemas::rules::bounds::{LIST_MAX, NAMES_MAX, TEXT_BYTES_MAX, check_bounds};
use prorata_schemas::time::Timestamp;
use serde_json::Value;

/// Collects the JSON pointers of all texts of a document.
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

/// Returns the reason for which an event is rejected if the text at `at` has this length; empty if the event
/// is accepted. Returns `None` if the result is not an event, because the text is a decimal or one of our
/// names.
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
            assert!(!right.contains("a text of"), "{kind} {at}: {right}");
            let (field, _) = wrong.split_once(": a text").unwrap();
            fields.insert(field.to_owned());
        }
    }
    assert!(fields.len() > 70, "{} fields: {fields:?}", fields.len());
}

fn quantities(count: usize) -> Quantities {
    let quantity = || Quantity { text: "1".into(), amount: 1 };
    (0..count).map(|at| (format!("example.com/{at}").into(), quantity())).collect()
}

fn discount() -> PlanDiscount {
    PlanDiscount {
        applies_to: DiscountTarget::Node,
        region: None,
        instance_family: None,
        instance_type: None,
        gpu_model: None,
        price: DiscountedPrice::Saving(Ratio::ZERO),
    }
}

/// Sets the length of one list of an event, chosen by the number `list`. Returns the list's field; `None` if
/// the event has no more lists.
fn lengthen(payload: &mut Payload, list: usize, count: usize) -> Option<&'static str> {
    match (payload, list) {
        (Payload::NodeStarted(node), 0) => {
            node.capacity = quantities(count);
            Some("NodeStarted.capacity")
        }
        (Payload::PodStarted(pod), 0) => {
            pod.requests = quantities(count);
            Some("PodStarted.requests")
        }
        (Payload::PodStarted(pod), 1) => {
            pod.limits = quantities(count);
            Some("PodStarted.limits")
        }
        (Payload::PodStarted(pod), 2) => {
            pod.labels = (0..count).map(|at| (format!("label-{at}").into(), "x".into())).collect();
            Some("PodStarted.labels")
        }
        (Payload::PodStarted(pod), 3) => {
            pod.volume_keys = vec!["vol-1".into(); count];
            Some("PodStarted.volume_keys")
        }
        (Payload::ReservationSet(reservation), 0) => {
            reservation.capacity = quantities(count);
            Some("ReservationSet.capacity")
        }
        (Payload::CommitmentSet(commitment), 0) => {
            commitment.assignments = vec![Assignment { cluster_id: "c".into(), priority: None }; count];
            Some("CommitmentSet.assignments")
        }
        (Payload::CommitmentSet(commitment), 1) => {
            commitment.assignments.clear();
            commitment.discounts = vec![discount(); count];
            Some("CommitmentSet.discounts")
        }
        (Payload::QuotaSet(quota), 0) => {
            quota.namespaces = vec!["n".into(); count];
            Some("QuotaSet.namespaces")
        }
        (Payload::QuotaSet(quota), 1) => {
            quota.min = quantities(count);
            Some("QuotaSet.min")
        }
        (Payload::QuotaSet(quota), 2) => {
            quota.max = Some(quantities(count));
            Some("QuotaSet.max")
        }
        (Payload::PoolSet(pool), 0) => {
            let zero = QosPrice {
                qos: "q".into(),
                per_fp16_tflop_hour: UnitPrice::ZERO,
                per_vram_gib_hour: UnitPrice::ZERO,
                limits_over_requests: Ratio::ZERO,
            };
            pool.qos_pricing = vec![zero; count];
            Some("PoolSet.qos_pricing")
        }
        (Payload::BillSet(bill), 0) => {
            let line = bill.lines.first()?.clone();
            bill.lines = vec![line; count];
            Some("BillSet.lines")
        }
        _ => None,
    }
}

#[test]
fn every_list_of_every_event_has_a_bound() {
    let judged = |event: &Event, list: usize, count: usize| {
        let mut event = event.clone();
        let field = lengthen(&mut event.payload, list, count)?;
        let rejected = check_bounds(&event, &Rules::default()).err();
        Some((field, rejected.map(|reject| reject.to_string()).unwrap_or_default()))
    };
    let mut fields = BTreeSet::new();
    for event in samples() {
        for list in 0.. {
            let Some((field, _)) = judged(&event, list, 1) else { break };
            let lists = ["assignments", "discounts", "namespaces", "qos_pricing", "lines", "volume_keys"];
            let bound = if lists.iter().any(|name| field.ends_with(name)) { LIST_MAX } else { NAMES_MAX };
            let (_, wrong) = judged(&event, list, bound + 1).unwrap();
            let why = format!("{field}: a list of {} is above the limit of {bound}", bound + 1);
            assert_eq!(wrong, format!("invalid_field: {why}"));
            let (_, right) = judged(&event, list, bound).unwrap();
            assert!(!right.contains("a list of"), "{field}: {right}");
            fields.insert(field);
        }
    }
    assert_eq!(fields.len(), 13, "{fields:?}");
}
