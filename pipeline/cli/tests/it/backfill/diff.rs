//! `prorata diff` on two lakes, and on a lake now and at an earlier time.

use std::process::Output;

use prorata_samples::trace::pod;

use super::harness::*;

fn diff(room: &Room, args: &[&str]) -> Output {
    program().args(["diff", "--json", "--lake"]).arg(room.path("lake")).args(args).output().unwrap()
}

#[test]
fn equal_lakes_do_not_differ_and_differences_by_rules_add_up() {
    let room = Room::new();
    room.generate(6);
    let rules = room.path("rules.yaml");
    std::fs::write(
        &rules,
        "rules:\n  version: \"2\"\n  weights: {gpu: \"5\", cpu: \"2\", memory: \"0.1\"}\n",
    )
    .unwrap();
    room.run("lake", &[]);
    room.run("same", &[]);
    assert_eq!(code(&room.run("other", &["--config", rules.to_str().unwrap()])), 0);
    let with = |lake: &str| diff(&room, &["--with", room.path(lake).to_str().unwrap()]);
    let same = with("same");
    assert_eq!(code(&same), 0, "{}", text(&same));
    let other = with("other");
    assert_eq!(code(&other), 1, "{}", text(&other));
    let report = json(&other);
    assert_eq!(report["balanced"], true);
    for list in ["hours", "namespaces", "pods"] {
        assert!(!report[list].as_array().unwrap().is_empty(), "{list}: {report:#}");
    }
    assert_eq!(report["only_in"], serde_json::json!({}));
}

#[test]
fn a_late_event_shows_in_the_difference_of_two_lake_versions() {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.run("lake", &[]);
    let then = instant_after(&room.path("lake"));
    let mut events = trace();
    events.push(pod("acme", 65, "late", 1));
    room.put_events("late.avro", &events);
    room.run("lake", &[]);
    let changed = diff(&room, &["--since", &then.to_string()]);
    assert_eq!(code(&changed), 1, "{}{}", text(&changed), error(&changed));
    let report = json(&changed);
    assert_eq!(report["balanced"], true, "{report:#}");
    let hours: Vec<&str> =
        report["hours"].as_array().unwrap().iter().map(|hour| hour["hour"].as_str().unwrap()).collect();
    assert!(!hours.contains(&"2026-11-01T00"), "before the late event: {hours:?}");
    let pods = report["pods"].as_array().unwrap();
    assert!(pods.iter().any(|found| found["pod_uid"] == "late"), "{report:#}");
}

#[test]
fn an_organization_that_only_one_lake_has_is_named() {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.run("lake", &[]);
    room.put_events("more.avro", &[prorata_samples::trace::node("beta", 0, 10)]);
    room.run("more", &[]);
    let output = diff(&room, &["--with", room.path("more").to_str().unwrap()]);
    assert_eq!(code(&output), 1);
    assert_eq!(json(&output)["only_in"], serde_json::json!({ "beta": "after" }));
}
