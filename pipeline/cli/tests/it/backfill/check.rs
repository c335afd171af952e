//! `prorata check` on an intact lake, and on a lake that somebody has changed.

use std::path::{Path, PathBuf};

use prorata_samples::trace::{node, pod};
use prorata_schemas::event::{EventRecord, Payload};
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_worker::names::DayFile;
use serde_json::Value;

use super::harness::*;

/// Builds a lake of two organizations and some hours.
fn lake(room: &Room) {
    room.generate(6);
    assert_eq!(code(&room.run("lake", &[])), 0);
}

fn check(room: &Room, args: &[&str]) -> (i32, Value) {
    let output = program().args(["check", "--json", "--lake"]).arg(room.path("lake")).args(args).output();
    let output = output.unwrap();
    (code(&output), json(&output))
}

/// Returns the kinds of the findings, without warnings.
fn errors(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let errors = findings.filter(|finding| finding["severity"] == "error");
    let mut kinds: Vec<String> =
        errors.map(|finding| finding["problem"].as_str().unwrap().to_owned()).collect();
    kinds.dedup();
    kinds
}

/// Returns a file of a table, and its path.
fn file(room: &Room, table: Table) -> (String, PathBuf) {
    let path = room.files("lake")[&table].first().unwrap().clone();
    let place = room.path("lake").join(table.name()).join(&path);
    (format!("{}/{path}", table.name()), place)
}

#[test]
fn the_lake_of_a_backfill_is_whole_and_its_money_adds_up() {
    let room = Room::new();
    lake(&room);
    let before = room.objects("lake");
    let (code, report) = check(&room, &[]);
    assert_eq!(errors(&report), Vec::<String>::new(), "{report:#}");
    assert_eq!(code, if report["findings"].as_array().unwrap().is_empty() { 0 } else { 3 });
    assert_eq!(check(&room, &["--allow-warnings"]).0, 0);
    assert_eq!(report["money"]["USD"]["difference"], "0");
    assert_ne!(report["money"]["USD"]["supply"], "0");
    assert_eq!(report["files"], room.files("lake").values().map(Vec::len).sum::<usize>());
    assert_eq!(room.objects("lake"), before, "a check writes nothing");
    let hour = report["from"].as_str().unwrap().to_owned();
    let (_, one) = check(&room, &["--from", &hour, "--to", &hour]);
    assert_eq!((&one["from"], &one["to"]), (&report["from"], &report["from"]));
    assert!(one["rows"].as_u64().unwrap() < report["rows"].as_u64().unwrap());
}

#[test]
fn a_file_that_is_gone_cut_or_damaged_is_named() {
    let room = Room::new();
    lake(&room);
    let (name, place) = file(&room, Table::CostAllocation);
    tamper(&room, &name, &place, &[]);
}

/// Damages a file of the lake in three ways. Checks that each way is reported with the name of the file, and
/// that the file's money is reported as missing.
fn tamper(room: &Room, name: &str, place: &Path, args: &[&str]) {
    let whole = std::fs::read(place).unwrap();
    let cases: [(&str, Option<Vec<u8>>); 3] = [
        ("file_missing", None),
        ("file_size_mismatch", Some(whole[..whole.len() - 9].to_vec())),
        ("file_damaged", Some(vec![0; whole.len()])),
    ];
    for (problem, content) in cases {
        match content {
            Some(content) => std::fs::write(place, content).unwrap(),
            None => std::fs::remove_file(place).unwrap(),
        }
        let (code, report) = check(room, args);
        assert_eq!(code, 1, "{report:#}");
        let findings = report["findings"].as_array().unwrap();
        let named = findings.iter().any(|found| found["problem"] == problem && found["location"] == name);
        assert!(named, "{problem}: {report:#}");
        assert!(errors(&report).contains(&"unbalanced".to_owned()), "{report:#}");
    }
}

#[test]
fn rows_of_another_hour_in_a_file_are_money_that_does_not_add_up() {
    let room = Room::new();
    lake(&room);
    let files = room.files("lake")[&Table::CostAllocation].clone();
    let place = |path: &str| room.path("lake").join("cost_allocation").join(path);
    let (first, last) = (place(files.first().unwrap()), place(files.last().unwrap()));
    std::fs::copy(first, last).unwrap();
    let (code, report) = check(&room, &[]);
    assert_eq!(code, 1);
    assert!(errors(&report).contains(&"unbalanced".to_owned()), "{report:#}");
}

#[test]
fn a_file_that_somebody_adds_to_a_table_is_named() {
    let room = Room::new();
    lake(&room);
    let (name, place) = file(&room, Table::CostAllocation);
    // The copy has the same rows under another name in the format of this project.
    let other = |path: &str| path.replace("-00000", "-99999");
    let foreign = PathBuf::from(other(place.to_str().unwrap()));
    std::fs::copy(&place, &foreign).unwrap();
    let path = other(name.strip_prefix("cost_allocation/").unwrap());
    let date = path["date=".len()..].split('/').next().unwrap();
    let add = serde_json::json!({ "add": {
        "path": path, "partitionValues": { "date": date }, "size": foreign.metadata().unwrap().len(),
        "modificationTime": 0, "dataChange": true,
    }});
    let log = room.path("lake/cost_allocation/_delta_log");
    let commits = std::fs::read_dir(&log).unwrap();
    let commits = commits.filter(|entry| entry.as_ref().unwrap().path().extension().unwrap() == "json");
    std::fs::write(log.join(format!("{:020}.json", commits.count())), add.to_string()).unwrap();
    let (code, report) = check(&room, &[]);
    assert_eq!(
        (code, errors(&report)),
        (1, vec!["duplicate_hour".into(), "unreferenced_file".into(), "unbalanced".into()])
    );
    let findings = report["findings"].as_array().unwrap();
    let named = findings.iter().find(|finding| finding["problem"] == "unreferenced_file").unwrap();
    assert_eq!(named["location"], format!("cost_allocation/{path}"));
}

#[test]
fn a_damaged_checkpoint_is_named() {
    let room = Room::new();
    lake(&room);
    let objects = room.objects("lake");
    let newest = objects.iter().filter(|name| name.contains("/checkpoint-")).max().unwrap();
    std::fs::write(room.path("lake").join(newest), "{}").unwrap();
    let (code, report) = check(&room, &[]);
    assert_eq!((code, errors(&report)), (1, vec!["checkpoint_damaged".to_owned()]), "{report:#}");
    assert_eq!(report["findings"][0]["location"], newest.as_str());
}

/// A GKE node, a serverless pod, and agreements for them and for other things.
const AGREEMENTS: &str = r#"
organization_id: acme
currency: USD
commitments:
  - {id: cud-g2, from: 2026-10-01, provider: gcp, kind: COMMITTED_USE_DISCOUNT, region: US-Central1,
     instance_family: G2, vcpu: 4, memory_gib: 16, hourly_cost: "0.40"}
  - {id: another-region, from: 2026-10-01, provider: gcp, kind: COMMITTED_USE_DISCOUNT, region: us-east1,
     instance_family: g2, vcpu: 4, memory_gib: 16, hourly_cost: "0.40"}
  - {id: not-yet, from: 2027-01-01, provider: gcp, kind: COMMITTED_USE_DISCOUNT, region: us-east1,
     instance_family: g2, vcpu: 4, memory_gib: 16, hourly_cost: "0.40"}
reservations:
  - {id: too-small, from: 2026-10-01, provider: aws, region: EU-Central-1, gpu_model: H100, quantity: 1,
     capacity: {cpu: 1, nvidia.com/gpu: 1}, unit_hourly_price: "1"}
  - {id: another-model, from: 2026-10-01, provider: aws, region: eu-central-1, gpu_model: H200, quantity: 1,
     capacity: {cpu: 1, nvidia.com/gpu: 1}, unit_hourly_price: "1"}
"#;

#[test]
fn an_agreement_that_matches_nothing_is_a_warning() {
    let room = Room::new();
    let mut events = [node("acme", 0, 1), pod("acme", 0, "p", 2)].map(|record| record.event);
    for event in &mut events {
        match &mut event.payload {
            Payload::NodeStarted(node) => {
                node.provider = "gce".into();
                node.region = "us-central1".into();
                node.instance_family = "g2".into();
            }
            Payload::PodStarted(pod) => {
                pod.node_id = None;
                pod.region = Some("eu-central-1".into());
                pod.gpu_model = Some("NVIDIA-H100-80GB-HBM3".into());
            }
            other => panic!("{other:?}"),
        }
    }
    room.put_events("events.avro", &events.map(EventRecord::new));
    std::fs::write(room.path("agreements.yaml"), AGREEMENTS).unwrap();
    let sent = program()
        .args(["agreements", "--file"])
        .arg(room.path("agreements.yaml"))
        .arg("--output")
        .arg(room.path("events"))
        .output()
        .unwrap();
    assert_eq!(code(&sent), 0, "{}", error(&sent));
    assert_eq!(code(&room.run("lake", &["--to", "2026-11-01T03"])), 0);
    let (_, report) = check(&room, &["--from", "2026-11-01T01"]);
    let findings = report["findings"].as_array().unwrap().iter();
    let found: Vec<(&str, &str)> = findings
        .filter(|finding| finding["problem"] == "never_matched")
        .map(|finding| (finding["location"].as_str().unwrap(), finding["message"].as_str().unwrap()))
        .collect();
    let expected = [
        (
            "organization 'acme', commitment 'another-region'",
            "in 3 hours no on-demand node was of its provider, region and instance family, and none of its \
             discounts applied",
        ),
        (
            "organization 'acme', reservation 'another-model'",
            "in 3 hours no serverless pod was in eu-central-1 with GPU model h200",
        ),
    ];
    assert_eq!(found, expected, "{report:#}");
    assert_eq!(errors(&report), Vec::<String>::new());
}

#[test]
fn a_lake_that_cannot_be_checked_gives_one_message() {
    let room = Room::new();
    let check = |args: &[&str]| program().arg("check").args(args).output().unwrap();
    let nowhere = room.path("nowhere");
    let output = check(&["--lake", nowhere.to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    assert!(message(&output).contains("is not a prorata lake"), "{}", error(&output));
    lake(&room);
    let lake = room.path("lake");
    let range = ["--from", "2026-11-02T00", "--to", "2026-11-01T00"];
    let output = check(&[&["--lake", lake.to_str().unwrap()][..], &range].concat());
    assert_eq!(code(&output), 2);
    assert!(message(&output).contains("is before --from"), "{}", error(&output));
}

#[test]
fn a_configuration_that_exposes_secrets_gives_a_warning() {
    let room = Room::new();
    let config = room.path("prorata.yaml");
    std::fs::write(&config, format!("root: {{url: {:?}}}\n", room.path("fresh"))).unwrap();
    let warnings = |environment: &[(&str, &str)]| -> Vec<String> {
        let mut check = program();
        check.args(["check", "--json", "--config"]).arg(&config).envs(environment.iter().copied());
        let report = json(&check.output().unwrap());
        let checks = report["checks"].as_array().unwrap().iter();
        let warnings = checks.filter(|check| check["check"] == "security" && check["outcome"] == "warning");
        warnings.map(|check| check["message"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(warnings(&[]), Vec::<String>::new());
    let all = warnings(&[
        ("PRORATA_KAFKA__SECURITY_PROTOCOL", "sasl_plaintext"),
        ("PRORATA_KAFKA__SASL_USERNAME", "me"),
        ("PRORATA_KAFKA__SASL_PASSWORD", "s3cret"),
        ("PRORATA_REGISTRY__URL", "http://127.0.0.1:9"),
        ("PRORATA_REGISTRY__USERNAME", "me"),
        ("AWS_ALLOW_INVALID_CERTIFICATES", "true"),
    ]);
    let begins =
        ["the password or token for Kafka", "the password for the schema registry", "AWS_ALLOW_INVALID_"];
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all.iter().zip(begins).all(|(message, begin)| message.starts_with(begin)), "{all:?}");
    assert!(!all.concat().contains("s3cret"));
}

#[test]
fn a_configuration_that_cannot_start_is_reported_check_by_check() {
    let room = Room::new();
    let config = room.path("prorata.yaml");
    std::fs::write(&config, format!("root: {{url: {:?}}}\n", room.path("fresh"))).unwrap();
    let output = program().args(["check", "--json", "--config"]).arg(&config).output().unwrap();
    assert_eq!(code(&output), 2, "{}", error(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let outcome = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["check"] == name).unwrap()["outcome"].as_str().unwrap().to_owned()
    };
    assert_eq!(["storage", "clock", "root"].map(outcome), ["ok", "ok", "ok"], "{report:#}");
    assert_eq!(["registry", "topics"].map(outcome), ["skipped", "failed"], "{report:#}");
    assert!(!room.path("fresh").join("root.json").exists(), "a check makes no root");
}

/// Builds a lake whose first hours are beyond a horizon of two days and compacted into daily files. Returns
/// the last hour with events.
fn compacted_lake(room: &Room) -> Hour {
    lake(room);
    let (_, report) = check(room, &[]);
    let last: Hour = report["to"].as_str().unwrap().parse().unwrap();
    let to = Hour(last.0 + 4 * 24).to_string();
    let backfill = |version: &str, args: &[&str]| {
        let config = room.path("prorata.yaml");
        let rules = format!("{{version: '{version}', weights: {{gpu: '8', cpu: '0.9', memory: '0.1'}}}}");
        std::fs::write(&config, format!("root: {{horizon: 2d}}\nrules: {rules}\n")).unwrap();
        let output = room.backfill("lake").arg("--config").arg(config).args(args).output();
        assert_eq!(code(&output.unwrap()), 0);
    };
    backfill("two", &["--to", &to, "--from", &to]);
    // Hours are removed by the first checkpoint that knows that they are published.
    backfill("three", &["--from", &to]);
    let output = program().args(["maintain", "--json", "--lake"]).arg(room.path("lake")).output().unwrap();
    let done = json(&output);
    assert_ne!(done["tables"]["cost_allocation"]["files_compacted"], 0, "{done:#}");
    last
}

#[test]
fn a_file_of_a_day_that_is_gone_cut_or_damaged_is_named() {
    let room = Room::new();
    let to = compacted_lake(&room).to_string();
    let args = ["--to", &to];
    let (_, report) = check(&room, &args);
    assert_eq!(errors(&report), Vec::<String>::new(), "{report:#}");
    let table = format!("{}/", Table::CostAllocation.name());
    let is_of_day = |name: &&String| name.strip_prefix(&table).and_then(DayFile::parse).is_some();
    let objects = room.objects("lake");
    let name = objects.iter().find(is_of_day).expect("a file of a day");
    tamper(&room, name, &room.path("lake").join(name), &args);
}
