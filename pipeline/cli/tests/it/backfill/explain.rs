//! `prorata explain` on the sample day: every kind of subject, and similar names if the subject does not
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;

use prorata_samples::trace::{node, pod};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{EventRecord, Payload};
use serde_json::{Value, json};

use super::harness::*;

const HOUR: &str = "2026-11-01T10";

fn explain(room: &Room, hour: &str, args: &[&str]) -> Output {
    let lake = room.path("lake");
    program().args(["explain", "--hour", hour, "--lake"]).arg(lake).args(args).output().unwrap()
}

/// Returns one row of every kind, from the namespaces of the sample day.
fn one_of_each_kind(room: &Room) -> BTreeMap<String, (&'static str, Value)> {
    let mut kinds = BTreeMap::new();
    for (organization, namespaces) in
        [("org-0000-aurora", ["search", "kube-system"]), ("org-0001-borealis", ["notebooks", "search"])]
    {
        for namespace in namespaces {
            let explanation =
                explain(room, HOUR, &["--namespace", namespace, "--organization", organization, "--json"]);
            assert_eq!(code(&explanation), 0, "{}", error(&explanation));
            for row in json(&explanation)["rows"].as_array().unwrap() {
                let committed = row["commitment"] != "";
                let kind = format!("{} {committed}", row["kind"].as_str().unwrap());
                kinds.entry(kind).or_insert_with(|| (organization, row.clone()));
            }
        }
    }
    kinds
}

#[test]
fn rows_of_every_kind_are_explained_and_are_those_of_the_table() {
    let room = sample_day();
    let kinds = one_of_each_kind(&room);
    assert!(kinds.len() >= 2, "{:?}", kinds.keys());
    for (kind, (_, row)) in &kinds {
        let uid = row["pod_uid"].as_str().unwrap();
        let explanation = explain(&room, HOUR, &["--pod", uid, "--json"]);
        assert_eq!(code(&explanation), 0, "{kind}: {}{}", text(&explanation), error(&explanation));
        let document = json(&explanation);
        assert_eq!(document["is_same_as_table"], true);
        let mine: Vec<&Value> = document["rows"].as_array().unwrap().iter().collect();
        assert!(mine.contains(&row), "{kind}: {document:#}");
        let people = explain(&room, HOUR, &["--pod", row["pod"].as_str().unwrap()]);
        assert_eq!(code(&people), 0, "{}", error(&people));
        let people = text(&people);
        assert!(people.contains("The same rows are in cost_allocation/date=2026-11-01/"), "{people}");
        assert!(people.contains(row["figures"]["EffectiveCost"].as_str().unwrap()), "{people}");
    }
}

#[test]
fn nodes_and_commitments_are_explained() {
    let room = sample_day();
    let mut commitments = 0;
    for (organization, row) in one_of_each_kind(&room).values() {
        let of = |subject, name| [subject, name, "--organization", organization, "--json"];
        let explanation = explain(&room, HOUR, &of("--node", row["resource"].as_str().unwrap()));
        if row["kind"] == "pod_node" {
            assert_eq!(code(&explanation), 0, "{}", error(&explanation));
            assert!(
                json(&explanation)["charges"].as_array().unwrap().iter().all(|charge| charge["total"] != "0")
            );
        }
        let commitment = row["commitment"].as_str().unwrap();
        if !commitment.is_empty() {
            commitments += 1;
            let explanation = explain(&room, HOUR, &of("--commitment", commitment));
            assert_eq!(code(&explanation), 0, "{}", error(&explanation));
            assert_ne!(json(&explanation)["trace"]["commitments"][0]["committed"], Value::Null);
        }
    }
    assert!(commitments > 0);
}

#[test]
fn an_unknown_resource_is_reported_with_the_nearest_names() {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.run("lake", &[]);
    let unknown = explain(&room, "2026-11-01T00", &["--pod", "team/aa"]);
    assert_eq!(code(&unknown), 2);
    let said = message(&unknown);
    assert!(said.contains("has no pod 'team/aa'; the nearest: '"), "{said}");
    let hour = explain(&room, "2026-12-01T00", &["--pod", "a"]);
    assert_eq!(code(&hour), 2);
    assert!(message(&hour).contains("the lake has no hour 2026-12-01T00: it has 2026-11-01T00 to"));
    let organization = explain(&room, "2026-11-01T00", &["--pod", "a", "--organization", "acne"]);
    assert_eq!(code(&organization), 2);
    assert!(message(&organization).contains("has no rows of organization 'acne'"));
    let mut nowhere = program();
    nowhere.args(["explain", "--hour", HOUR, "--pod", "a", "--lake"]).arg(room.path("nowhere"));
    let nowhere = nowhere.output().unwrap();
    assert_eq!(code(&nowhere), 2);
    assert!(message(&nowhere).contains("is not a prorata lake"), "{}", error(&nowhere));
    let nothing = explain(&room, HOUR, &[]);
    assert_eq!(code(&nothing), 2);
}

/// Tenants choose the names of their pods and namespaces. No command prints a name that a terminal would
/// interpret, or that looks like a line of its own.
#[test]
fn names_cannot_move_a_terminal() {
    const EVIL: &str = "a\u{1b}]0;t\u{7}\u{1b}[2J\r\n  idle  0.00\u{9b}1m\u{202e}\u{2028}";
    let room = Room::new();
    let EventRecord { mut event, .. } = pod("acme", 40, EVIL, 1);
    let Payload::PodStarted(started) = &mut event.payload else { panic!("not a start of a pod") };
    started.namespace = EVIL.into();
    room.put_events("good.avro", &[trace(), vec![EventRecord::new(event)]].concat());
    let backfill = room.run("lake", &[]);
    let hour = "2026-11-01T00";
    let node = explain(&room, hour, &["--node", "n"]);
    let document = explain(&room, hour, &["--node", "n", "--json"]);
    let near = explain(&room, hour, &["--pod", "a\u{1b}"]);
    let lake = room.path("lake");
    let check = program().arg("check").arg("--lake").arg(&lake).output().unwrap();
    let letters = program().arg("dead-letters").arg("--lake").arg(&lake).output().unwrap();
    let mut shown = 0;
    for output in [&backfill, &node, &document, &near, &check, &letters] {
        for printed in [text(output), error(output)] {
            let lines = printed.trim_end_matches('\n').split('\n');
            assert!(lines.clone().all(|line| !line.contains(char::is_control)), "{printed:?}");
            assert!(!printed.contains(['\u{202e}', '\u{2028}']), "{printed:?}");
            assert!(lines.clone().all(|line| !line.starts_with("  idle  0.00\u{fffd}")), "{printed}");
            shown += usize::from(printed.contains("]0;t"));
        }
    }
    assert!(shown >= 4, "the name is printed by {shown} commands");
    let evil = json(&document).to_string();
    assert!(evil.contains(&serde_json::to_string(EVIL).unwrap()[1..8]), "JSON keeps it: {evil}");
}

#[test]
fn an_organization_must_be_named_where_two_have_the_pod() {
    let room = Room::new();
    let mut events = trace();
    events.extend([node("beta", 0, 10), pod("beta", 30, "a", 1)]);
    room.put_events("good.avro", &events);
    room.run("lake", &[]);
    let both = explain(&room, "2026-11-01T00", &["--pod", "a"]);
    assert_eq!(code(&both), 2);
    let said = message(&both);
    assert!(said.contains("2 organizations have a pod 'a'") && said.contains("--organization"), "{said}");
    let one = explain(&room, "2026-11-01T00", &["--pod", "a", "--organization", "beta"]);
    assert_eq!(code(&one), 0, "{}", error(&one));
    assert!(text(&one).starts_with("pod a of organization beta, hour 2026-11-01T00: "), "{}", text(&one));
}

#[test]
fn a_late_event_is_in_the_explanation_of_the_hours_since() {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.run("lake", &[]);
    room.put_events("late.avro", &[pod("acme", 65, "late", 1)]);
    room.run("lake", &[]);
    let explanation = explain(&room, "2026-11-01T01", &["--pod", "late", "--json"]);
    assert_eq!(code(&explanation), 0, "{}", error(&explanation));
    let document = json(&explanation);
    assert_eq!(document["is_same_as_table"], true);
    assert_eq!(document["events"][0]["kind"], "PodStarted");
}

#[test]
fn changes_by_a_late_event_are_reported_and_add_up() {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.run("lake", &[]);
    let of_node = |more: &[&str]| {
        let explanation = explain(&room, "2026-11-01T01", &[&["--node", "n", "--json"], more].concat());
        assert_eq!(code(&explanation), 0, "{}{}", text(&explanation), error(&explanation));
        json(&explanation)
    };
    let before = of_node(&[]);
    let then = instant_after(&room.path("lake")).to_string();
    let nothing = of_node(&["--since", &then]);
    assert_eq!((&nothing["changes"]["rows"], &nothing["changes"]["difference"]), (&json!([]), &json!("0")));
    room.put_events("late.avro", &[pod("acme", 65, "late", 1)]);
    room.run("lake", &[]);
    let after = of_node(&["--since", &then]);
    let changes = &after["changes"];
    assert_eq!((&changes["before"], &changes["after"]), (&before["cost"], &after["cost"]));
    // The cost of the node stays the same. Its other rows lose the cost that the late pod takes.
    assert_eq!(changes["difference"], "0");
    let rows = changes["rows"].as_array().unwrap();
    let late: Vec<&Value> = rows.iter().filter(|row| row["pod_uid"] == "late").collect();
    assert_eq!(late.len(), 1, "{changes:#}");
    assert_eq!((&late[0]["is_new"], &late[0]["is_gone"]), (&json!(true), &json!(false)));
    assert!(rows.iter().any(|row| row["pod_uid"] == "a" && row["is_new"] == false), "{changes:#}");
    let sum = |side: &str| {
        let figures = rows.iter().flat_map(|row| row["figures"].as_array().unwrap());
        let costs = figures.filter(|figure| figure["column"] == "EffectiveCost");
        let amounts = costs.filter_map(|figure| figure[side].as_str());
        amounts.map(|amount| amount.parse::<Decimal12>().unwrap().atoms()).sum::<i128>()
    };
    assert_eq!(sum("before"), sum("after"), "what the rows lose and gain adds up: {changes:#}");
    // Only the file of the late event is new.
    let late = json(&explain(&room, "2026-11-01T01", &["--pod", "late", "--json"]));
    assert_eq!(changes["new_files"], json!([late["events"][0]["file"]]));
    let people = explain(&room, "2026-11-01T01", &["--pod", "late", "--since", &then]);
    assert_eq!(code(&people), 0, "{}", error(&people));
    let people = text(&people);
    let heading = format!("What has changed since {then}\n");
    assert!(people.contains(&heading) && people.contains("late: a new row"), "{people}");
    assert!(people.contains("  new events in "), "{people}");
}

#[test]
fn a_bill_is_explained_line_by_line() {
    let room = Room::new();
    room.put_events("good.avro", &billed_trace());
    room.run("lake", &[]);
    let hour = "2026-11-01T01";
    let people = explain(&room, hour, &["--bill", "i-1"]);
    assert_eq!(code(&people), 0, "{}{}", text(&people), error(&people));
    let people = text(&people);
    assert!(people.starts_with("bill i-1 of organization acme, hour 2026-11-01T01: 2 USD\n"), "{people}");
    for said in [
        "Line day of aws, account 111122223333, for i-1: m5.xlarge on demand",
        "it is min(1, 2) / 3 of the line",
        "By the lines of the bill, list price 2.5 an hour",
    ] {
        assert!(people.contains(said), "{said}: {people}");
    }
    let of = |hour: &str, args: &[&str]| json(&explain(&room, hour, &[args, &["--json"]].concat()));
    let document = of(hour, &["--bill", "i-1"]);
    let bill = &document["trace"]["bills"][0];
    assert_eq!((&bill["left"]["hours"], &bill["part"]["effective"]), (&json!("2"), &json!("2")));
    let node = of(hour, &["--node", "n"]);
    assert_eq!((&node["cost"], &node["trace"]["bills"]), (&json!("2"), &document["trace"]["bills"]));
    let pod = of("2026-11-01T00", &["--pod", "a"]);
    let kinds: BTreeSet<&str> =
        pod["events"].as_array().unwrap().iter().filter_map(|event| event["kind"].as_str()).collect();
    assert!(kinds.contains("BillSet"), "{pod:#}");
    let unknown = explain(&room, hour, &["--bill", "i-2"]);
    assert_eq!(code(&unknown), 2);
    assert!(message(&unknown).contains("has no bill 'i-2'; the nearest: 'i-1'"), "{}", error(&unknown));
}

#[test]
fn a_resource_whose_charges_pods_divide_with_others_is_found_through_its_pods() {
    let room = Room::new();
    let mut events = billed_trace();
    for key in ["nat-1", "nat-2"] {
        let mut of_key = events[1].event.clone();
        let Payload::BillSet(bill) = &mut of_key.payload else { panic!("not a bill") };
        bill.resource_key = key.into();
        bill.lines[0].service = "NAT".into();
        (bill.lines[0].hours, bill.lines[0].list_unit_price) = (None, None);
        events.push(EventRecord::new(of_key));
    }
    room.put_events("good.avro", &events);
    let rules = "rules: {shared_charges: [{service: NAT, over: pods}]}\n";
    std::fs::write(room.path("prorata.yaml"), rules).unwrap();
    let output = room.run("lake", &["--config", room.path("prorata.yaml").to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", error(&output));
    let unknown = explain(&room, "2026-11-01T01", &["--bill", "nat-1"]);
    let hint = "a charge of several resources has no key: explain it with --bill '', or by a pod";
    assert!(code(&unknown) == 2 && message(&unknown).contains(hint), "{}", error(&unknown));
    let pod = text(&explain(&room, "2026-11-01T01", &["--pod", "a"]));
    assert!(pod.contains("2 lines"), "{pod}");
}

/// Packs an hour, and explains it from the pack alone.
#[test]
fn a_packed_hour_is_explained_in_the_same_words_without_the_lake() {
    let room = sample_day();
    let (_, (organization, row)) = one_of_each_kind(&room).into_iter().next().unwrap();
    let subject = ["--pod", row["pod_uid"].as_str().unwrap(), "--organization", organization];
    let pack = room.path("pack");
    let packed = explain(&room, HOUR, &[&subject[..], &["--pack", pack.to_str().unwrap()]].concat());
    assert_eq!(code(&packed), 0, "{}", error(&packed));
    let [people, document] =
        [&[][..], &["--json"]].map(|form| explain(&room, HOUR, &[&subject[..], form].concat()));
    assert_eq!(text(&packed), text(&people));
    let again = explain(&room, HOUR, &[&subject[..], &["--pack", pack.to_str().unwrap()]].concat());
    assert_eq!(code(&again), 2);
    assert!(message(&again).contains("is not empty"), "{}", error(&again));
    std::fs::rename(room.path("lake"), room.path("elsewhere")).unwrap();
    for (form, expected) in [(&[][..], people), (&["--json"], document)] {
        let mut alone = program();
        alone.args(["explain", "--hour", HOUR]).args(subject).args(form).arg("--lake").arg(&pack);
        let alone = alone.output().unwrap();
        assert_eq!((code(&alone), text(&alone)), (0, text(&expected)), "{}", error(&alone));
    }
    // The pack has the hours since the snapshot from which the hour is folded, and no other hours.
    let objects = room.objects("pack");
    let of = |folder: &str| objects.iter().filter(|name| name.starts_with(folder)).collect::<Vec<_>>();
    assert!(objects.len() < room.objects("elsewhere").len() / 2, "{objects:#?}");
    assert!(of("events/").iter().all(|name| name.contains("/hour=")) && !of("events/").is_empty());
    let shards: BTreeSet<&str> =
        [of("events/"), of("state/")].concat().iter().map(|name| name.split('/').nth(1).unwrap()).collect();
    assert_eq!(shards.len(), 1, "{shards:?}");
}
