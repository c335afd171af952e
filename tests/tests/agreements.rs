//! A file of agreements that is edited and sent again. All sent events together lead to the tables of the
//! last file alone.
//!
//! `PRORATA_SEEDS` is the number of histories. `PRORATA_FIRST_SEED` is the first seed, or `fresh` for a new
//! first seed each run.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::time::UNIX_EPOCH;

use prorata_collector::agreements::Agreements;
use prorata_collector::parse_instant;
use prorata_engine::{HourEvents, State, close_hour, has_hour};
use prorata_schemas::event::{
    CapacityType, Event, Labels, NodeStarted, Payload, PodStarted, Quantities, Recording,
};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Number of half hours in a history, from 2026-11-01T00.
const HALF_HOURS: i64 = 16;

fn instant(text: &str) -> Timestamp {
    parse_instant(text).unwrap()
}

fn half_hour(number: i64) -> Timestamp {
    Timestamp(instant("2026-11-01T00:00:00Z").0 + number * HOUR_MICROS / 2)
}

fn fold(events: &[Event], through: Hour) -> Vec<HourTables> {
    let (mut state, mut tables) = (State::new("acme".into()), Vec::new());
    let first = events.iter().map(|event| event.event_time.hour().0).min().unwrap();
    for hour in (first..=through.0).map(Hour) {
        let here = events.iter().filter(|event| event.event_time.hour() == hour).cloned();
        let events = HourEvents::of(hour, here);
        if !has_hour(&state, &events) {
            state = State::new("acme".into());
            continue;
        }
        let closed = close_hour(state, events, &Rules::default()).unwrap();
        state = closed.0;
        tables.push(closed.1);
    }
    tables
}

fn supply(tables: &[HourTables]) -> Vec<String> {
    tables.iter().map(|hour| hour.totals.supply_cost.to_string()).collect()
}

/// Events that were sent for a file that is edited. Each version is sent before the next version is written.
#[derive(Default)]
struct SentEvents {
    events: Vec<Event>,
    /// The changes that the command prints for the last version.
    changes: Vec<String>,
}

impl SentEvents {
    fn send(&mut self, file: &Value, now: Timestamp) -> usize {
        let agreements: Agreements = serde_json::from_value(file.clone()).unwrap();
        let found = agreements.events(now, &self.events).unwrap();
        let count = found.events.len();
        self.events.extend(found.events);
        self.changes = found.changes.iter().map(ToString::to_string).collect();
        count
    }
}

fn file(sections: Value) -> Value {
    let mut file = json!({"organization_id": "acme", "currency": "USD"});
    for (name, section) in sections.as_object().unwrap() {
        file[name] = section.clone();
    }
    file
}

fn commitment(from: &str, to: Option<&str>, cost: &str) -> Value {
    json!({
        "id": "m5", "from": from, "to": to, "provider": "aws", "kind": "RESERVED_INSTANCE", "region": "r",
        "instance_family": "m5", "vcpu": 4, "memory_gib": 16, "hourly_cost": cost,
    })
}

fn reservation(from: &str, to: Option<&str>, quantity: i32, price: &str) -> Value {
    json!({
        "id": "h100", "from": from, "to": to, "provider": "aws", "region": "r", "gpu_model": "H100",
        "capacity": {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 1}, "quantity": quantity,
        "unit_hourly_price": price,
    })
}

/// Returns the events of a sender that remembers which events it sent, and of a sender that does not.
fn with_and_without_memory(files: [Value; 2], now: Timestamp) -> [Vec<Event>; 2] {
    let later = Timestamp(now.0 + 1);
    let mut known = SentEvents::default();
    let mut forgetful = [SentEvents::default(), SentEvents::default()];
    for (file, (forgetful, at)) in files.iter().zip(forgetful.iter_mut().zip([now, later])) {
        known.send(file, at);
        forgetful.send(file, at);
    }
    [known.events, forgetful.into_iter().flat_map(|sent| sent.events).collect()]
}

#[test]
fn a_price_or_a_quantity_that_is_corrected_downwards_counts_as_corrected() {
    let version = |cost, quantity| {
        file(json!({
            "commitments": [commitment("2026-11-01", None, cost)],
            "reservations": [reservation("2026-11-01", None, quantity, "3")],
        }))
    };
    let now = instant("2026-11-01T03:00:00Z");
    for events in with_and_without_memory([version("19.22", 20), version("9.61", 2)], now) {
        assert_eq!(supply(&fold(&events, instant("2026-11-01T01:00:00Z").hour())), ["15.61", "15.61"]);
    }
}

#[test]
fn a_term_that_is_renewed_after_it_ended_continues() {
    let old = |cost, price| {
        let (from, to) = ("2026-10-01", Some("2026-11-01"));
        (commitment(from, to, cost), reservation(from, to, 1, price))
    };
    let new = |cost, price| {
        let (from, to) = ("2026-11-01", Some("2027-11-01"));
        (commitment(from, to, cost), reservation(from, to, 1, price))
    };
    let ((c1, r1), (c2, r2)) = (old("0.12", "3"), new("0.11", "2.5"));
    let files = [
        file(json!({"commitments": [c1], "reservations": [r1]})),
        file(json!({"commitments": [c1, c2], "reservations": [r1, r2]})),
    ];
    for events in with_and_without_memory(files, instant("2026-11-20T00:00:00Z")) {
        let supply = supply(&fold(&events, instant("2026-11-01T05:00:00Z").hour()));
        assert_eq!(supply.len(), 744 + 6);
        assert!(supply[..744].iter().all(|hour| hour == "3.12"), "{supply:?}");
        assert!(supply[744..].iter().all(|hour| hour == "2.61"), "{supply:?}");
    }
}

#[test]
fn a_pool_that_is_renewed_after_it_ended_continues() {
    let pool = |from: &str, to: Option<&str>| {
        json!({
            "id": "p", "from": from, "to": to, "cluster_id": "c", "provider": "aws", "default_qos": "low",
            "qos_pricing": [{"qos": "low", "per_fp16_tflop_hour": "2", "per_vram_gib_hour": "0"}],
        })
    };
    let (old, new) = (pool("2026-11-01", Some("2026-11-02")), pool("2026-11-02", None));
    let files = [file(json!({"pools": [old]})), file(json!({"pools": [old, new]}))];
    for mut events in with_and_without_memory(files, instant("2026-11-03T00:00:00Z")) {
        events.push(pod("pooled", Some("p"), &[("tensor-fusion.ai/tflops", "3")]));
        let tables = fold(&events, instant("2026-11-02T00:00:00Z").hour());
        assert_eq!(supply(&tables[23..]), ["6", "6"]);
    }
}

#[test]
fn people_are_shown_which_hours_change() {
    let version =
        |cost: &str, to: Option<&str>| file(json!({"commitments": [commitment("2026-11-01", to, cost)]}));
    let mut sent = SentEvents::default();
    let now = |hour: i64| half_hour(2 * hour);
    assert_eq!((sent.send(&version("5", None), now(10)), sent.changes.len()), (1, 0));
    assert_eq!(sent.send(&version("5", None), now(11)), 0, "nothing has changed");
    assert_eq!(sent.send(&version("4", None), now(12)), 1);
    assert_eq!(sent.changes, ["commitment m5 changes in the hours 2026-11-01T00 to 2026-11-01T11"]);
    assert_eq!(sent.send(&version("4", Some("2026-11-01T06:30:00Z")), now(13)), 1);
    assert_eq!(sent.changes, ["commitment m5 changes in the hours 2026-11-01T06 to 2026-11-01T12"]);
    assert_eq!(sent.send(&file(json!({})), now(14)), 1);
    assert_eq!(sent.changes, ["commitment m5 changes in the hours 2026-11-01T00 to 2026-11-01T06"]);
    let retraction = sent.events.last().unwrap().recording;
    assert_eq!(retraction, Recording::new(Some(now(14)), true));
    assert_eq!(sent.send(&file(json!({})), now(15)), 0);
}

#[test]
fn a_correction_must_be_recorded_later() {
    let version = |cost: &str, recorded_at: &str| {
        file(json!({"recorded_at": recorded_at, "commitments": [commitment("2026-11-01", None, cost)]}))
    };
    let mut sent = SentEvents::default();
    let now = half_hour(4);
    sent.send(&version("5", "2026-11-05"), now);
    let again: Agreements = serde_json::from_value(version("5", "2026-11-01")).unwrap();
    assert!(again.events(now, &sent.events).unwrap().events.is_empty(), "it corrects nothing");
    let earlier: Agreements = serde_json::from_value(version("4", "2026-11-05")).unwrap();
    let message = earlier.events(now, &sent.events).unwrap_err().to_string();
    assert!(message.contains("set a later 'recorded_at' at the top of the file"), "{message}");
}

/// Returns a random file. It has up to two versions of each of a few objects, which begin and end at half
/// hours.
fn any_file(rng: &mut ChaCha8Rng) -> Value {
    let text = |number: i64| half_hour(number).to_string();
    let mut sections = json!({"commitments": [], "reservations": [], "rates": [], "pools": []});
    let price = |rng: &mut ChaCha8Rng| ["1", "2.5", "7", "0"][rng.random_range(0..4)].to_owned();
    for section in ["commitments", "reservations", "rates", "pools"] {
        for id in ["a", "b"] {
            let mut edges: Vec<i64> = (0..4).map(|_| rng.random_range(0..HALF_HOURS)).collect();
            edges.sort_unstable();
            edges.dedup();
            // Sometimes the second version begins where the first one ends.
            let spans = match (&*edges, rng.random_range(0..4)) {
                (_, 0) => vec![],
                ([from, ..], 1) => vec![(*from, None)],
                ([a, b, c, ..], 2) => vec![(*a, Some(*b)), (*b, Some(*c))],
                ([a, b, c, ..], _) => vec![(*a, Some(*b)), (*c, None)],
                ([from, ..], _) => vec![(*from, None)],
                ([], _) => vec![],
            };
            for (from, to) in spans {
                let (from, to) = (text(from), to.map(text));
                let price = price(rng);
                let mut entry = match section {
                    "commitments" => commitment(&from, to.as_deref(), &price),
                    "reservations" => reservation(&from, to.as_deref(), rng.random_range(0..3), &price),
                    "rates" => json!({
                        "from": from, "provider": "aws", "region": "r", "qos": id, "gpu_model": "H100",
                        "per_vcpu_hour": price, "per_gib_hour": "0.5",
                    }),
                    _ => json!({
                        "id": id, "from": from, "to": to, "cluster_id": "c", "provider": "aws",
                        "default_qos": "low", "budget_per_day": "5",
                        "qos_pricing": [
                            {"qos": "low", "per_fp16_tflop_hour": price, "per_vram_gib_hour": "0.02"},
                        ],
                    }),
                };
                if section != "rates" {
                    entry["id"] = json!(id);
                }
                sections[section].as_array_mut().unwrap().push(entry);
            }
        }
    }
    file(sections)
}

fn quantities(pairs: &[(&str, &str)]) -> Quantities {
    let parse = |(name, text): &(&str, &str)| ((*name).into(), Quantity::parse(name, text).unwrap());
    pairs.iter().map(parse).collect()
}

/// Returns the start of a pod with quality of service `a`, which runs from the start.
fn pod(uid: &str, pool_id: Option<&str>, requests: &[(&str, &str)]) -> Event {
    let pod = PodStarted {
        cluster_id: "c".into(),
        namespace: "n".into(),
        pod_name: uid.into(),
        pod_uid: uid.into(),
        created_at: half_hour(0),
        priority: 0,
        node_id: None,
        region: Some("r".into()),
        zone: None,
        pool_id: pool_id.map(Into::into),
        qos: if pool_id.is_some() { "low".into() } else { "a".into() },
        gpu_model: Some("H100".into()),
        requests: quantities(requests),
        limits: Quantities::default(),
        workload_kind: None,
        workload_name: None,
        labels: Labels::default(),
        eviction_protected_until: None,
        gpus: None,
        gpu_sharing: None,
        volume_keys: Vec::new(),
    };
    Event::new("acme".into(), half_hour(0), Payload::PodStarted(Box::new(pod)))
}

/// Returns the objects that agreements affect: a node, and pods without a node.
fn cluster() -> Vec<Event> {
    let node = NodeStarted {
        cluster_id: "c".into(),
        node_id: "node".into(),
        node_name: "node".into(),
        provider: "aws".into(),
        region: "r".into(),
        zone: None,
        instance_type: "m5.xlarge".into(),
        instance_family: "m5".into(),
        capacity_type: CapacityType::OnDemand,
        capacity: quantities(&[("cpu", "4"), ("memory", "16Gi")]),
        gpu_model: None,
        hourly_cost: "1".parse().unwrap(),
        currency: "USD".into(),
        pool_id: Some("b".into()),
        gpus: None,
        resource_key: None,
        account_id: None,
    };
    vec![
        Event::new("acme".into(), half_hour(0), Payload::NodeStarted(Box::new(node))),
        pod("one", None, &[("cpu", "1"), ("memory", "1Gi"), ("nvidia.com/gpu", "1")]),
        pod("two", None, &[("cpu", "2"), ("memory", "1Gi"), ("nvidia.com/gpu", "1")]),
        pod("pooled", Some("a"), &[("tensor-fusion.ai/tflops", "3"), ("nvidia.com/gpu", "1")]),
    ]
}

/// Returns the tables without the number and the last time of events, which corrections raise.
fn worth(events: &[Event]) -> Vec<HourTables> {
    let mut tables = fold(events, half_hour(HALF_HOURS + 2).hour());
    for hour in &mut tables {
        (hour.totals.events, hour.totals.max_event_time) = (0, None);
    }
    tables
}

#[test]
fn all_versions_of_a_file_cost_the_same_as_the_last_alone() {
    let seeds: u64 = std::env::var("PRORATA_SEEDS").ok().map_or(300, |text| text.parse().unwrap());
    let first = match std::env::var("PRORATA_FIRST_SEED").as_deref() {
        Ok("fresh") => UNIX_EPOCH.elapsed().unwrap().as_micros() as u64,
        Ok(text) => text.parse().unwrap(),
        Err(_) => 0,
    };
    let mut corrections = 0;
    for seed in first..first + seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut sent, mut now) = (SentEvents::default(), half_hour(0));
        let mut files = vec![any_file(&mut rng)];
        for _ in 0..rng.random_range(1..5) {
            // Some edits return to an earlier version.
            let known = rng.random_range(0..files.len());
            let next = if rng.random_bool(0.3) { files[known].clone() } else { any_file(&mut rng) };
            files.push(next);
        }
        for file in &files {
            now = Timestamp(now.0 + 1 + rng.random_range(0..HOUR_MICROS * HALF_HOURS / 4));
            sent.send(file, now);
            corrections += u64::from(!sent.changes.is_empty());
        }
        let last = files.last().unwrap();
        let mut alone = SentEvents::default();
        alone.send(last, now);
        let all = [cluster(), sent.events.clone()].concat();
        let expected = worth(&[cluster(), alone.events].concat());
        assert_eq!(worth(&all), expected, "seed {seed}: {files:#?}");
        assert_eq!(sent.send(last, Timestamp(now.0 + 1)), 0, "seed {seed}: sent again");
    }
    assert!(corrections > seeds, "only {corrections} edits corrected anything");
}
