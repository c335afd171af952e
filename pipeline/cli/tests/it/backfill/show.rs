//! `prorata show` on the sample day, and on shards with damaged objects.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;

use serde_json::{Value, json};

use super::harness::*;

fn show(room: &Room, what: &str, shard: u64, args: &[&str]) -> Output {
    let mut command = program();
    command.args(["show", what, "--shard", &shard.to_string(), "--lake"]).arg(room.path("lake"));
    command.args(args).output().unwrap()
}

/// Returns the JSON lines that were printed.
fn lines(output: &Output) -> Vec<Value> {
    text(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the documents about all shards of a lake that have a checkpoint.
fn checkpoints(room: &Room) -> BTreeMap<u64, Value> {
    let shown = (0..16).map(|shard| (shard, show(room, "checkpoint", shard, &[])));
    let shown = shown.filter(|(_, shown)| code(shown) == 0);
    shown.map(|(shard, shown)| (shard, json(&shown)["checkpoint"].clone())).collect()
}

/// Builds a room with three hours of one node in a lake, and returns the shard that has closed them.
fn one_shard() -> (Room, u64) {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.run("lake", &[]);
    let closed =
        checkpoints(&room).into_iter().filter(|(_, checkpoint)| checkpoint["closed_through"] != Value::Null);
    let shards: Vec<u64> = closed.map(|(shard, _)| shard).collect();
    assert_eq!(shards.len(), 1);
    (room, shards[0])
}

/// Returns the name of the last object that has these parts in its name.
fn object(room: &Room, parts: [&str; 2]) -> String {
    let objects = room.objects("lake");
    objects.into_iter().rfind(|name| parts.iter().all(|part| name.contains(part))).unwrap()
}

/// Changes the bytes of an object.
fn change(room: &Room, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let path = room.path("lake").join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn everything_that_the_sample_day_has_stored_is_shown() {
    let room = sample_day();
    let checkpoints = checkpoints(&room);
    let mut organizations = BTreeSet::new();
    for (shard, checkpoint) in &checkpoints {
        assert_eq!(checkpoint["shard"], *shard);
        let closed = checkpoint["closed_through"].as_str().unwrap();
        assert!(checkpoint["hours"].get(closed).is_some(), "the hours of the parts are there: {checkpoint}");
        let rules = json(&show(&room, "rules", *shard, &[]));
        assert_eq!(
            rules["versions"].as_array().unwrap().len(),
            checkpoint["rules"].as_array().unwrap().len()
        );
        assert_eq!(rules["versions"][0]["stored"]["rules"]["version"], checkpoint["rules"][0]["version"]);
        let newest = json(&show(&room, "snapshot", *shard, &[]));
        assert_eq!(newest["hour"], closed, "the newest snapshot is that of the last closed hour");
        for organization in newest["organizations"].as_array().unwrap() {
            let id = organization["organization_id"].as_str().unwrap();
            let one = json(&show(&room, "snapshot", *shard, &["--hour", closed, "--organization", id]));
            assert_eq!(one["organizations"], json!([organization]));
            assert_eq!(one["state"]["organization_id"], id);
            let running = one["state"]["pods"].as_array().unwrap().len() as u64;
            assert_eq!(organization["pods"], running);
            organizations.insert(id.to_owned());
        }
    }
    assert_eq!(organizations.len(), 2, "{organizations:?}");
}

#[test]
fn an_hour_of_the_archive_is_shown_event_by_event() {
    const HOUR: &str = "2026-11-01T10";
    let room = sample_day();
    let mut events = 0;
    for shard in checkpoints(&room).into_keys() {
        let all = show(&room, "archive", shard, &["--hour", HOUR]);
        assert_eq!(code(&all), 0, "{}", error(&all));
        let all = lines(&all);
        assert!(all.iter().all(|line| line["file"].as_str().is_some_and(|file| file.ends_with(".avro"))));
        let of = |lines: &[Value]| {
            let events = lines.iter().filter(|line| line.get("event").is_some());
            events.cloned().collect::<Vec<_>>()
        };
        let files: Vec<_> = all.iter().filter(|line| line.get("bytes").is_some()).collect();
        assert!(!files.is_empty() && files.iter().all(|file| file["counts"] == true));
        let all = of(&all);
        assert!(all.iter().all(|line| line["event_time"].as_str().unwrap().starts_with(HOUR)));
        let ids: BTreeSet<&str> = all.iter().map(|line| line["organization_id"].as_str().unwrap()).collect();
        let parts = ids.iter().map(|id| {
            let own = of(&lines(&show(&room, "archive", shard, &["--hour", HOUR, "--organization", id])));
            assert!(!own.is_empty() && own.iter().all(|line| line["organization_id"] == *id));
            own.len()
        });
        assert_eq!(parts.sum::<usize>(), all.len());
        events += all.len();
    }
    assert!(events > 100, "{events}");
}

#[test]
fn an_unknown_name_is_an_error_that_lists_the_known_names() {
    let (room, shard) = one_shard();
    let taken: Vec<u64> = checkpoints(&room).into_keys().collect();
    let other = (0..16).find(|other| !taken.contains(other)).unwrap();
    let other = show(&room, "checkpoint", other, &[]);
    assert_eq!(code(&other), 2);
    let taken: Vec<String> = taken.iter().map(u64::to_string).collect();
    let expected =
        format!("has no checkpoint; name a shard that has one with --shard: {}\n", taken.join(", "));
    assert!(message(&other).ends_with(&expected), "{}", error(&other));
    let hour = show(&room, "snapshot", shard, &["--hour", "2026-12-01T00"]);
    assert_eq!(code(&hour), 2);
    assert!(message(&hour).contains("has no snapshot of hour 2026-12-01T00; it has "), "{}", error(&hour));
    assert!(message(&hour).ends_with("try --hour 2026-11-01T02\n"), "{}", error(&hour));
    let organization = show(&room, "snapshot", shard, &["--organization", "acne"]);
    assert_eq!(code(&organization), 2);
    assert!(message(&organization).contains("has no organization 'acne'"), "{}", error(&organization));
    let hour = show(&room, "archive", shard, &["--hour", "2026-12-01T00"]);
    assert_eq!(code(&hour), 2);
    assert!(message(&hour).contains("has no file of hour 2026-12-01T00"), "{}", error(&hour));
    let mut nowhere = program();
    nowhere.args(["show", "rules", "--shard", "0", "--lake"]).arg(room.path("nowhere"));
    let nowhere = nowhere.output().unwrap();
    assert_eq!(code(&nowhere), 2);
    assert!(message(&nowhere).contains("is not a prorata lake"), "{}", error(&nowhere));
}

#[test]
fn a_damaged_checkpoint_is_shown_as_it_is_stored_and_hides_nothing_else() {
    let (room, shard) = one_shard();
    let before = json(&show(&room, "checkpoint", shard, &[]));
    let whole = lines(&show(&room, "archive", shard, &[]));
    let name = before["object"].as_str().unwrap();
    // With one digit changed, the object is still JSON.
    change(&room, name, |bytes| {
        let at = bytes.windows(6).rposition(|window| window == b"\"seq\":").unwrap() + 6;
        bytes[at] = b'0' + (bytes[at] - b'0' + 1) % 10;
    });
    let damaged =
        format!("prorata: '{name}' is damaged: its checksum does not match; restore it from a copy");
    let is_reported = |shown: &Output| {
        assert_eq!(code(shown), 1, "{}", error(shown));
        assert!(error(shown).starts_with(&damaged), "{}", error(shown));
    };
    let shown = show(&room, "checkpoint", shard, &[]);
    is_reported(&shown);
    let as_stored = json(&shown);
    let parts = as_stored["parts_as_stored"].as_object().unwrap().values();
    let hours = parts.chain([&as_stored["as_stored"]]).filter_map(|part| part["hours"].as_object().cloned());
    let hours: serde_json::Map<String, Value> = hours.flatten().collect();
    assert_eq!(Value::from(hours), before["checkpoint"]["hours"], "in the object and its parts");
    let rules = show(&room, "rules", shard, &[]);
    is_reported(&rules);
    assert_eq!(json(&rules)["versions"][0]["from"], Value::Null);
    assert_ne!(json(&rules)["versions"][0]["stored"], Value::Null);
    let snapshot = show(&room, "snapshot", shard, &[]);
    is_reported(&snapshot);
    assert_eq!(json(&snapshot)["organizations"][0]["organization_id"], "acme");
    let archive = show(&room, "archive", shard, &[]);
    is_reported(&archive);
    let archive = lines(&archive);
    assert_eq!(archive[0]["counts"], Value::Null, "nobody knows which files count");
    assert_eq!(archive[1..], whole[1..]);
    change(&room, name, |bytes| bytes.truncate(90));
    let shown = show(&room, "checkpoint", shard, &[]);
    is_reported(&shown);
    assert_eq!(json(&shown)["as_stored"], Value::Null);
}

#[test]
fn damaged_snapshots_rules_and_archive_files_are_named_and_the_rest_is_shown() {
    let (room, shard) = one_shard();
    let snapshot = object(&room, ["state/", "2026-11-01T02"]);
    change(&room, &snapshot, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let shown = show(&room, "snapshot", shard, &[]);
    assert_eq!(code(&shown), 1);
    assert_eq!(json(&shown)["objects"][0]["is_readable"], false);
    let expected =
        format!("prorata: '{snapshot}' cannot be used: its checksum does not match; nothing is lost");
    assert!(error(&shown).starts_with(&expected), "{}", error(&shown));
    let earlier = show(&room, "snapshot", shard, &["--hour", "2026-11-01T01"]);
    assert_eq!((code(&earlier), json(&earlier)["objects"][0]["is_readable"].clone()), (0, json!(true)));

    let rules = object(&room, ["rules/", ".json"]);
    change(&room, &rules, |bytes| *bytes.last_mut().unwrap() = b' ');
    let shown = show(&room, "rules", shard, &[]);
    assert_eq!(code(&shown), 1);
    assert_eq!(json(&shown)["versions"][0]["stored"], Value::Null);
    assert!(error(&shown).starts_with(&format!("prorata: '{rules}' is damaged: ")), "{}", error(&shown));

    let hour = ["--hour", "2026-11-01T00"];
    let archive = object(&room, ["events/", "hour=00"]);
    let (folder, file) = archive.rsplit_once('/').unwrap();
    let stray = format!("{folder}/0000000001-zombie-{}", file.rsplit('-').next().unwrap());
    std::fs::copy(room.path("lake").join(&archive), room.path("lake").join(&stray)).unwrap();
    let whole = lines(&show(&room, "archive", shard, &hour));
    change(&room, &archive, |bytes| bytes.truncate(bytes.len() - 20));
    let shown = show(&room, "archive", shard, &hour);
    assert_eq!(code(&shown), 1);
    assert!(error(&shown).starts_with(&format!("prorata: '{archive}' is damaged: ")), "{}", error(&shown));
    let shown = lines(&shown);
    assert!(shown.iter().any(|line| line["file"] == *archive && line.get("fault").is_some()), "{shown:?}");
    let of_stray =
        |lines: &[Value]| lines.iter().filter(|line| line["file"] == *stray).cloned().collect::<Vec<_>>();
    assert_eq!(of_stray(&shown), of_stray(&whole), "the other file is shown whole");
    assert_eq!(of_stray(&shown)[0]["counts"], false, "the file of another owner does not count");
    assert!(of_stray(&shown).len() > 1);
}
