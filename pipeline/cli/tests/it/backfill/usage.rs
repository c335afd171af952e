//! Wrong usage and unavailable storage: the exit code, and one message that says what failed, where, and how
//! to fix it.

use super::harness::*;

fn fails(room: &Room, lake: &str, args: &[&str], expected: i32) -> String {
    let output = room.run(lake, args);
    assert_eq!(code(&output), expected, "{} {}", error(&output), text(&output));
    message(&output)
}

fn with_trace() -> Room {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room
}

#[test]
fn events_that_are_not_there() {
    let room = Room::new();
    let mut command = program();
    command.args(["backfill", "--events", "no/such/folder", "--lake"]).arg(room.path("lake"));
    let output = command.output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(message(&output).contains("--events 'no/such/folder' does not exist"), "{}", error(&output));
}

#[test]
fn events_without_avro_files() {
    let room = Room::new();
    room.put("README.md", b"nothing here");
    assert!(fails(&room, "lake", &[], 2).contains("no file whose name ends in .avro"));
    assert!(!room.path("lake").exists(), "no lake is made for nothing");
}

#[test]
fn a_lake_that_cannot_be_written() {
    let room = with_trace();
    std::fs::write(room.path("file"), "in the way").unwrap();
    let message = fails(&room, "file/lake", &[], 2);
    assert!(message.contains("storage cannot be used: read 'root.json': "), "{message}");
    assert!(
        message.contains("nothing is lost or duplicated; run the same command again once this is corrected"),
        "{message}"
    );
}

#[test]
fn a_lake_of_no_known_kind() {
    let mut command = program();
    let room = with_trace();
    command.arg("backfill").arg("--events").arg(room.path("events")).args(["--lake", "ftp://host/lake"]);
    let output = command.output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(message(&output).contains("name a folder, or a URL such as s3://bucket/folder"));
}

#[test]
fn a_full_disk() {
    let room = with_trace();
    let output = run_on_full_disk(&room.backfill("lake"), 4);
    assert_eq!(code(&output), 4, "{}", error(&output));
    assert!(message(&output).contains("storage is unavailable: "), "{}", error(&output));
    let output = room.run("lake", &[]);
    assert_eq!(code(&output), 0, "with room again: {}", error(&output));
    room.run("other", &[]);
    assert_eq!(room.content("lake"), room.content("other"));
}

#[test]
fn wrong_hours() {
    let room = with_trace();
    let output = room.run("lake", &["--from", "yesterday"]);
    assert_eq!(code(&output), 2);
    assert!(error(&output).contains("not an hour in UTC such as 2026-11-20T13"), "{}", error(&output));
    let message = fails(&room, "lake", &["--from", "2026-11-02T00", "--to", "2026-11-01T00"], 2);
    assert!(message.contains("--from 2026-11-02T00 is after --to 2026-11-01T00"), "{message}");
}

#[test]
fn a_wrong_configuration() {
    let room = with_trace();
    let config = room.path("prorata.yaml");
    std::fs::write(&config, "rules:\n  wieghts: {}\n").unwrap();
    let message = fails(&room, "lake", &["--config", config.to_str().unwrap()], 2);
    assert!(message.contains("unknown key rules.wieghts in '"), "{message}");
    assert!(message.contains("did you mean 'weights'?"), "{message}");
    let message = fails(&room, "lake", &["--config", "no-such-file.yaml"], 2);
    assert!(message.contains("--config 'no-such-file.yaml' cannot be read"), "{message}");
}

#[test]
fn another_number_of_shards_and_a_version_with_other_rules() {
    let room = with_trace();
    assert_eq!(code(&room.run("lake", &[])), 0);
    let config = room.path("prorata.yaml");
    std::fs::write(&config, "root:\n  shards: 4\n").unwrap();
    let message = fails(&room, "lake", &["--config", config.to_str().unwrap()], 2);
    assert!(message.contains("made with 16 shards, but the configuration says root.shards: 4"), "{message}");
    std::fs::write(&config, "rules:\n  gpu_memory_gb: 16\n").unwrap();
    let message = fails(&room, "lake", &["--config", config.to_str().unwrap()], 2);
    assert!(message.contains("rules.version '1' is in the root with other rules"), "{message}");
}

#[test]
fn schemas_are_printed_as_json() {
    let output = program().arg("schemas").output().unwrap();
    assert_eq!(code(&output), 0);
    let schemas: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schemas.len(), 16);
    let output = program().args(["schemas", "PodStarted"]).output().unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["name"], "prorata.events.PodStarted");
    let output = program().args(["schemas", "Podstarted"]).output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(message(&output).contains("'Podstarted' is not an event type; the types are NodeStarted, "));
}
