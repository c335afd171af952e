//! Laws of generated events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prorata_schemas::body;
use prorata_schemas::event::{Event, EventKind, Payload, Quantities};
use prorata_schemas::quantity::Quantity;
use sha2::{Digest, Sha256};

use super::*;

/// 2026-11-01T00:00:00Z.
const START: i64 = 1_793_491_200_000_000;

/// Returns one organization's run, without disorder.
fn load(seed: u64, pods: u64, hours: u64) -> Load {
    Load {
        organizations: 1,
        pods,
        hours,
        start: Timestamp(START).hour(),
        seed,
        late_per_million: 0,
        duplicates_per_million: 0,
        usage_interval: None,
    }
}

fn events(number: u64, seed: u64, pods: u64, hours: u64) -> Vec<Event> {
    load(seed, pods, hours).organization(number).collect()
}

fn digest(events: impl Iterator<Item = Event>) -> String {
    let mut digest = Sha256::new();
    for event in events {
        let (kind, body) = (event.payload.kind(), body::encode(&event));
        digest.update([kind as u8]);
        digest.update((body.len() as u64).to_le_bytes());
        digest.update(&body);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn equal_arguments_make_the_events_that_they_always_made() {
    let load = Load {
        organizations: 3,
        seed: 9,
        late_per_million: 20_000,
        duplicates_per_million: 20_000,
        usage_interval: None,
        ..load(9, 40, 48)
    };
    assert_eq!(digest(load.arrivals()), "e2e26d93ed768d7b91e1a8d141ed10caceb0977103b49ae1b6e8b9b2842a39b7");
    assert_eq!(
        digest(load.organization(2)),
        "6c93e98de620458a4447433eba12b1d3d864da491bac3c34b761aee0a34982b9"
    );
}

#[test]
fn other_seeds_and_numbers_make_other_events() {
    assert_ne!(events(0, 1, 12, 6), events(0, 2, 12, 6));
    assert_ne!(events(0, 1, 12, 6), events(1, 1, 12, 6));
}

#[test]
fn arrivals_hold_every_organization_in_its_order() {
    let load = Load { organizations: 3, late_per_million: 20_000, ..load(9, 12, 6) };
    let mut by_organization: BTreeMap<_, Vec<Event>> = BTreeMap::new();
    for event in load.arrivals() {
        by_organization.entry(event.organization_id.to_string()).or_default().push(event);
    }
    let expected = (0..3).map(|number| load.organization(number));
    let expected = expected.map(|events| (events.id().to_owned(), events.collect::<Vec<_>>()));
    assert_eq!(by_organization, expected.collect());
}

#[test]
fn organizations_send_at_the_same_time() {
    let load = Load { organizations: 3, ..load(9, 12, 6) };
    let mut latest = 0;
    // Measured use is sent at the end of its interval.
    for event in load.arrivals().filter(|event| event.payload.kind() != EventKind::PodUsage) {
        assert!(event.event_time.0 > latest - 2 * MINUTE, "{event:?} comes after {latest}");
        latest = latest.max(event.event_time.0);
    }
}

#[test]
fn every_pod_is_measured_in_rounds_where_they_are_asked_for() {
    let load = Load { usage_interval: Some(Duration::from_secs(60)), ..load(3, 400, 4) };
    let (mut started, mut measured) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
    for event in load.organization(0) {
        match event.payload {
            Payload::PodStarted(pod) => drop(started.entry(pod.pod_uid).or_insert(event.event_time)),
            Payload::PodUsage(usage) => measured.entry(usage.pod_uid).or_default().push(event.event_time),
            _ => {}
        }
    }
    let before_the_last = Timestamp(START + 4 * HOUR - 2 * MINUTE);
    started.retain(|_, at| *at < before_the_last);
    // Nothing measures the pods of oddities.
    assert!(started.keys().filter(|uid| !measured.contains_key(*uid)).count() < started.len() / 4);
    for (uid, samples) in &measured {
        let [first, rounds @ ..] = samples.as_slice() else { panic!("{uid} has no sample") };
        assert!(started.get(uid).is_none_or(|at| at == first), "{uid}: from its start");
        assert!(rounds.iter().all(|from| from.0 % MINUTE == 0), "{uid}: {rounds:?}");
    }
}

#[test]
fn every_event_is_valid_and_round_trips() {
    for event in events(0, 3, 60, 48) {
        let decoded = body::decode(event.payload.kind(), &body::encode(&event)).unwrap();
        assert_eq!(decoded, event);
    }
}

#[test]
fn every_kind_of_event_but_bills_occurs_within_a_day() {
    let kinds: BTreeSet<_> = events(0, 1, 12, 24).iter().map(|event| event.payload.kind()).collect();
    let is_of_bills = |kind: EventKind| matches!(kind, EventKind::BillSet | EventKind::BillingPeriodClosed);
    let expected = EventKind::ALL.into_iter().filter(|kind| !is_of_bills(*kind));
    assert_eq!(kinds, expected.collect());
}

#[test]
fn events_lie_inside_the_run_and_the_first_at_its_start() {
    let events = events(0, 5, 20, 5);
    assert_eq!(events.first().unwrap().event_time.0, START);
    assert!(events.iter().all(|event| (START..START + 5 * HOUR).contains(&event.event_time.0)));
}

#[test]
fn the_requested_number_of_pods_runs_at_once() {
    let (mut live, mut area, mut since) = (BTreeMap::new(), 0_i64, START);
    let mut by_node: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in events(0, 4, 400, 48) {
        if !matches!(event.payload, Payload::PodUsage(_)) {
            area += i64::try_from(live.len()).unwrap() * (event.event_time.0 - since).max(0);
            since = since.max(event.event_time.0);
        }
        match event.payload {
            Payload::PodStarted(pod) if pod.workload_kind.as_deref() != Some("DaemonSet") => {
                by_node.entry(pod.node_id.clone()).or_default().push(pod.pod_uid.clone());
                live.insert(pod.pod_uid.clone(), ());
            }
            Payload::PodStopped(pod) => drop(live.remove(&pod.pod_uid)),
            Payload::NodeStopped(node) => {
                for uid in by_node.remove(&Some(node.node_id)).unwrap_or_default() {
                    live.remove(&uid);
                }
            }
            _ => {}
        }
    }
    let mean = area / (since - START);
    assert!((300..=500).contains(&mean), "{mean} pods at once");
}

#[test]
fn memory_does_not_grow_with_the_run() {
    let mut events = load(8, 100, 2_000).organization(0);
    let mut kept = Vec::new();
    while events.next().is_some() {
        kept.push(events.0.source().kept());
    }
    let (early, all) = (kept.iter().take(kept.len() / 4).max().unwrap(), kept.iter().max().unwrap());
    assert!(*all < early * 2, "{early} at first, {all} at most");
}

#[test]
fn quantities_are_written_in_many_forms_and_mean_their_amounts() {
    let mut texts = BTreeSet::new();
    let mut check = |quantities: &Quantities| {
        for (resource, quantity) in quantities {
            assert_eq!(Quantity::parse(resource, &quantity.text).unwrap(), *quantity, "{resource}");
            texts.insert(quantity.text.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned());
        }
    };
    for event in events(0, 6, 60, 24) {
        match &event.payload {
            Payload::PodStarted(pod) => check(&pod.requests),
            Payload::NodeStarted(node) => check(&node.capacity),
            _ => {}
        }
    }
    for form in ["", "m", "e-1", "Mi", "Gi", "Ki", "M"] {
        assert!(texts.contains(form), "no quantity of form '1{form}' in {texts:?}");
    }
}
