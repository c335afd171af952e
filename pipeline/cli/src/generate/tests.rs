//! Laws of the generator.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::body;
use prorata_schemas::event::{Event, EventKind, Payload, Quantities};
use prorata_schemas::quantity::Quantity;

use super::*;

const START: i64 = 1_793_491_200_000_000;

fn events(number: u64, seed: u64, pods: u64, hours: i64) -> Vec<Event> {
    Organization::new(number, seed, Run { start: START, end: START + hours * 60 * MINUTE, pods }).collect()
}

/// A stand-in for the archive's format: bodies one after the other.
fn joined(bodies: &[(EventKind, &[u8])]) -> std::io::Result<Vec<u8>> {
    Ok(bodies.iter().flat_map(|(_, body)| body.iter().copied()).collect())
}

pub(super) fn args(to: &Path) -> GenerateArgs {
    GenerateArgs {
        organizations: 3,
        pods: 12,
        hours: 6,
        seed: 9,
        to: to.to_owned(),
        start: Hour(START / (60 * MINUTE)),
        late_rate: 20_000,
        duplicate_rate: 20_000,
        events_per_file: 100,
        kafka: KafkaArgs::default(),
    }
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for organization in std::fs::read_dir(folder).unwrap() {
        for file in std::fs::read_dir(organization.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), bytes);
        }
    }
    found
}

#[test]
fn equal_arguments_make_equal_files() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let written = generate(&args(one.path()), &joined).unwrap();
    assert_eq!(generate(&args(two.path()), &joined).unwrap(), written);
    let (one, two) = (files(one.path()), files(two.path()));
    assert_eq!(one, two);
    assert_eq!(u64::try_from(one.len()).unwrap(), written.files);
    assert!(one.len() > 6, "{}", one.len());
}

#[test]
fn another_seed_makes_other_events() {
    assert_ne!(events(0, 1, 12, 6), events(0, 2, 12, 6));
    assert_ne!(events(0, 1, 12, 6), events(1, 1, 12, 6));
}

#[test]
fn a_full_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other"), "x").unwrap();
    let refused = generate(&args(folder.path()), &joined);
    assert!(matches!(refused, Err(GenerateError::FolderNotEmpty(_))));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn every_event_is_valid_and_says_what_was_meant() {
    for event in events(0, 3, 60, 48) {
        let decoded = body::decode(event.payload.kind(), &body::encode(&event)).unwrap();
        assert_eq!(decoded, event);
    }
}

#[test]
fn every_kind_of_event_occurs_within_a_day() {
    let kinds: BTreeSet<_> = events(0, 1, 12, 24).iter().map(|event| event.payload.kind()).collect();
    assert_eq!(kinds.len(), EventKind::ALL.len(), "{kinds:?}");
}

#[test]
fn events_lie_inside_the_run_and_the_first_at_its_start() {
    let events = events(0, 5, 20, 5);
    assert_eq!(events.first().unwrap().event_time.0, START);
    let hour = 60 * MINUTE;
    assert!(events.iter().all(|event| (START..START + 5 * hour).contains(&event.event_time.0)));
}

#[test]
fn as_many_pods_run_at_once_as_asked_for() {
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
fn what_is_kept_does_not_grow_with_the_run() {
    let end = START + 2_000 * 60 * MINUTE;
    let mut organization = Organization::new(0, 8, Run { start: START, end, pods: 100 });
    let mut kept = Vec::new();
    while organization.next().is_some() {
        kept.push(organization.kept());
    }
    let (early, all) = (kept.iter().take(kept.len() / 4).max().unwrap(), kept.iter().max().unwrap());
    assert!(*all < early * 2, "{early} at first, {all} at most");
}

#[test]
fn quantities_are_written_in_many_forms_and_mean_the_same() {
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

#[test]
fn arguments_are_refused_with_what_they_should_be() {
    assert_eq!(parse_hour("2026-11-01T00"), Ok(Hour(START / (60 * MINUTE))));
    for wrong in ["2026-11-01", "2026-11-01T24", "2026-02-30T00", "2026-1-1T00", "x", "2026-11-01T1"] {
        assert!(parse_hour(wrong).unwrap_err().contains("is not an hour such as"), "{wrong}");
    }
    assert_eq!(parse_part("0.015"), Ok(15_000));
    assert_eq!(parse_part("1"), Ok(1_000_000));
    for wrong in ["1.1", "-0.1", "ten"] {
        assert!(parse_part(wrong).is_err(), "{wrong}");
    }
}
