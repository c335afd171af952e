//! Bad input becomes dead letters that name file and position, and the exit code is 3. The rest of the input
//! is folded.

use std::path::Path;

use prorata_samples::trace::{node, pod, pod_on, pod_stop};
use prorata_schemas::body::wire::{put_bytes, put_long};

use super::harness::*;

/// Runs a backfill that must end with dead letters, and returns its summary.
fn dead_lettered(room: &Room) -> String {
    let output = room.run("lake", &[]);
    assert_eq!(code(&output), 3, "{}", error(&output));
    assert_eq!(error(&output), "");
    let letters =
        room.objects("lake").into_iter().filter(|name| name.starts_with("dead-letter/shard=0000/")).count();
    assert!(letters > 0);
    text(&output)
}

fn with_trace() -> Room {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room
}

fn tables_of_the_trace()
-> std::collections::BTreeMap<(prorata_schemas::tables::Table, prorata_schemas::time::Hour, u16), Vec<String>>
{
    let room = with_trace();
    assert_eq!(code(&room.run("lake", &[])), 0);
    room.content("lake")
}

#[test]
fn a_file_that_is_not_avro() {
    let room = with_trace();
    room.put("folder/garbage.avro", b"this is no avro file at all");
    let summary = dead_lettered(&room);
    assert!(summary.contains("1 dead letters under dead-letter/: malformed 1."), "{summary}");
    assert!(
        summary.contains("  folder/garbage.avro: malformed: not an Avro object container file"),
        "{summary}"
    );
    assert_eq!(room.content("lake"), tables_of_the_trace());
}

#[test]
fn a_file_that_cannot_be_opened() {
    let room = with_trace();
    std::os::unix::fs::symlink(room.path("gone"), room.path("events").join("link.avro")).unwrap();
    let summary = dead_lettered(&room);
    assert!(summary.contains("  link.avro: malformed: the file cannot be opened: "), "{summary}");
}

#[test]
fn a_truncated_block() {
    let room = with_trace();
    let bytes = avro(&[node("acme", 200, 3), pod("acme", 201, "x", 1), pod_stop("acme", 202, "x")]);
    room.put("short.avro", &bytes[..bytes.len() - 30]);
    let summary = dead_lettered(&room);
    assert!(summary.contains("malformed 1."), "{summary}");
    assert!(summary.contains("  short.avro, block 0 at byte "), "{summary}");
}

#[test]
fn an_unknown_record() {
    let room = with_trace();
    let schema = r#"{"type":"record","name":"Weather","namespace":"elsewhere",
        "fields":[{"name":"sun","type":"int"}]}"#;
    let schema = apache_avro::Schema::parse_str(schema).unwrap();
    let mut writer = apache_avro::Writer::new(&schema, Vec::new()).unwrap();
    let mut record = apache_avro::types::Record::new(&schema).unwrap();
    record.put("sun", 7);
    writer.append_value(record).unwrap();
    room.put("weather.avro", &writer.into_inner().unwrap());
    let summary = dead_lettered(&room);
    assert!(summary.contains("unknown_event 1."), "{summary}");
    assert!(summary.contains("  weather.avro, block 0 at byte "), "{summary}");
    assert!(summary.contains("elsewhere.Weather"), "{summary}");
    assert_eq!(room.content("lake"), tables_of_the_trace());
}

/// Builds a container file that names this schema and holds a record of one byte.
fn container(schema: &[u8]) -> Vec<u8> {
    let sync = [7; 16];
    let mut file = b"Obj\x01".to_vec();
    put_long(&mut file, 1);
    put_bytes(&mut file, b"avro.schema");
    put_bytes(&mut file, schema);
    put_long(&mut file, 0);
    file.extend(sync);
    file.extend([2, 2, 0]);
    file.extend(sync);
    file
}

/// Each schema would exhaust a library's time or memory, or cause many log lines. Here, each schema causes a
/// dead letter and no log line.
#[test]
fn hostile_schemas() {
    let room = with_trace();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/corpus/schema");
    let mut files = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let schema = std::fs::read(entry.unwrap().path()).unwrap();
        room.put(&format!("{files}.avro"), &container(&schema));
        files += 1;
    }
    let summary = dead_lettered(&room);
    assert!(summary.contains(&format!("{files} dead letters under dead-letter/: ")), "{summary}");
    assert_eq!(room.content("lake"), tables_of_the_trace());
}

#[test]
fn a_negative_price() {
    let room = with_trace();
    room.put_events("price.avro", &[node("acme", 60, 4), node("acme", 70, -3)]);
    let summary = dead_lettered(&room);
    assert!(summary.contains("invalid_field 1."), "{summary}");
    assert!(summary.contains("record 1: invalid_field: NodeStarted.hourly_cost"), "{summary}");
}

#[test]
fn the_same_bad_input_again_leaves_one_copy_and_the_same_exit_code() {
    let room = with_trace();
    room.put("garbage.avro", b"no avro");
    let first = dead_lettered(&room);
    let objects = room.objects("lake");
    let second = dead_lettered(&room);
    let new: Vec<String> = room.objects("lake").into_iter().filter(|name| !objects.contains(name)).collect();
    assert!(new.iter().all(|name| name.starts_with("state/")), "{new:?}");
    assert!(first.starts_with("Folded 2026-11-01T00 to 2026-11-01T02 (3 hours)."), "{first}");
    assert!(second.starts_with("Nothing changed: the tables hold these events already."), "{second}");
}

#[test]
fn a_pod_on_an_unknown_node_is_accepted_and_counted() {
    let room = Room::new();
    room.put_events("pod.avro", &[pod_on("nowhere", "acme", 0, "a", 1), pod_stop("acme", 90, "a")]);
    let output = room.run("lake", &[]);
    assert_eq!(code(&output), 0, "{}", error(&output));
    let summary = text(&output);
    let line = summary.lines().find(|line| line.contains("unpriced pod-hours")).unwrap();
    assert!(line.ends_with(" 2"), "{summary}");
}

#[test]
fn a_clock_years_ahead_is_a_dead_letter_and_closes_nothing() {
    let room = with_trace();
    let years = 30 * 365 * 24 * 60;
    room.put_events("ahead.avro", &[pod("acme", years, "z", 1)]);
    let output = room.run("lake", &[]);
    assert_eq!(code(&output), 3, "{}", error(&output));
    let summary = text(&output);
    assert!(summary.contains("in_the_future"), "{summary}");
    assert_eq!(room.content("lake"), tables_of_the_trace());
}
