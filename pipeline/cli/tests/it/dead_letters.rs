//! `prorata dead-letters` as a program: the letters that it lists and replays, and its exit codes.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use prorata_connectors::archive::write_dead_letters;
use prorata_connectors::avro::encode_single_object;
use prorata_connectors::store::Store;
use prorata_samples::trace::pod;
use prorata_schemas::event::EventRecord;
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::time::WallTime;
use prorata_testkit::wait::Deadline;
use prorata_worker::checkpoint::OwnerKind;
use prorata_worker::checkpoint::log::{self, Appended, Log};
use prorata_worker::names::{self, ObjectId};
use prorata_worker::ports::{DeadLetter, ObjectStore, Origin, Rejected};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::backfill::harness::*;

/// The shard of organization `acme` among 16.
const SHARD: u16 = 4;

fn letter(reason: Reason, offset: i64, key: &str, value: Vec<u8>) -> DeadLetter {
    let origin = Origin::Message {
        topic: "pods".to_owned(),
        partition: SHARD.into(),
        offset,
        timestamp_millis: 1_763_643_600_000,
        key: Some(key.as_bytes().to_vec()),
        headers: vec![("trace".to_owned(), Some(vec![1, 0, 255])), ("empty".to_owned(), None)],
    };
    DeadLetter { origin, rejected: Rejected { reject: Reject::new(reason, "why"), bytes: value } }
}

fn value(record: &EventRecord) -> Vec<u8> {
    encode_single_object(record.event.payload.kind(), &record.body)
}

fn late() -> EventRecord {
    pod("acme", 45, "late", 1)
}

/// Builds a lake from the events of the trace, and adds these letters as a worker would.
fn lake_with(letters: &[DeadLetter], released: bool) -> Room {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    let output = room.run("lake", &[]);
    assert_eq!(code(&output), 0, "{}", error(&output));
    put_letters(&room.path("lake"), letters, released);
    room
}

fn put_letters(lake: &Path, letters: &[DeadLetter], released: bool) {
    let store = Store::open(lake.to_str().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut log = Log::new(log::latest(&store, SHARD).await.unwrap());
        let mut next = log.decided().next_draft();
        assert!(next.closed_through.is_some(), "the trace is acme's");
        next.set_owner("w1".into(), OwnerKind::Worker);
        next.set_released(released);
        let object_id = ObjectId { seq: next.seq, owner: "w1".into(), n: 1 };
        let path = names::dead_letters(SHARD, &object_id, "d1");
        store.put_if_absent(&path, write_dead_letters(letters).unwrap().into()).await.unwrap();
        next.name_dead_letters(path, false);
        log.seal(next, WallTime(0));
        assert_eq!(log.append(&store).await.unwrap(), Appended::Ours);
    });
}

fn dead_letters(room: &Room, args: &[&str]) -> Output {
    program().current_dir(room.path("events")).arg("dead-letters").args(args).output().unwrap()
}

fn on_lake(room: &Room, args: &[&str]) -> Output {
    let lake = room.path("lake");
    dead_letters(room, &[&["--lake", lake.to_str().unwrap()], args].concat())
}

fn three() -> Vec<DeadLetter> {
    vec![
        letter(Reason::Malformed, 7, "acme", b"no Avro".to_vec()),
        letter(Reason::TooLate, 8, "acme", value(&late())),
        letter(Reason::KeyMismatch, 9, "hooli", value(&late())),
    ]
}

#[test]
fn letters_are_listed_by_reason() {
    let room = lake_with(&three(), true);
    let output = on_lake(&room, &[]);
    assert_eq!((code(&output), error(&output)), (0, String::new()));
    let listed = text(&output);
    assert!(
        listed.contains("3 dead letters in ")
            && listed.contains(": malformed 1, key_mismatch 1, too_late 1."),
        "{listed}"
    );
    let example = "  topic pods, partition 4, offset 8, 2025-11-20T13:00:00.000000Z: why";
    assert!(listed.lines().any(|line| line == example), "{listed}");
    let config = room.path("prorata.yaml");
    std::fs::write(&config, format!("root:\n  url: {}\n", room.path("lake").display())).unwrap();
    let args = ["--config", config.to_str().unwrap(), "--json", "--reason", "key_mismatch"];
    let output = dead_letters(&room, &args);
    assert_eq!(code(&output), 0, "{}", error(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["dead_letters"], &json["reasons"]["key_mismatch"]["count"]), (&1.into(), &1.into()));
    assert_eq!(json["replay"], serde_json::Value::Null);
    assert!(json["reasons"]["too_late"].is_null(), "{json}");
}

#[test]
fn late_events_are_folded_once_and_the_rest_is_reported() {
    let room = lake_with(&three(), true);
    let output = on_lake(&room, &["--replay"]);
    let printed = text(&output);
    assert_eq!((code(&output), error(&output)), (3, String::new()), "{printed}");
    assert!(
        printed.contains("Folded: 1 events, 1 of them new; 3 published hours have changed."),
        "{printed}"
    );
    assert!(printed.contains("2 still fail: malformed 1, key_mismatch 1."), "{printed}");
    assert!(printed.contains("send the event again"), "{printed}");
    let other = Room::new();
    let mut events = trace();
    events.push(late());
    other.put_events("all.avro", &events);
    other.run("lake", &[]);
    assert_eq!(room.content("lake"), other.content("lake"), "as if it had come in time");
    let output = on_lake(&room, &["--replay", "--json"]);
    assert_eq!(code(&output), 3);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["already_replayed"], &json["replay"]["folded"]), (&1.into(), &serde_json::Value::Null));
    let output = on_lake(&room, &["--replay", "--reason", "too_late"]);
    assert_eq!(code(&output), 0, "none of those fails");
    assert!(text(&output).contains("Nothing was replayed."), "{}", text(&output));
    let output = on_lake(&room, &[]);
    assert!(text(&output).contains("1 of them were replayed before."), "{}", text(&output));
}

#[test]
fn a_backfills_own_letters_are_listed_with_the_file_to_fix() {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.put("folder/garbage.avro", b"this is no avro file at all");
    assert_eq!(code(&room.run("lake", &[])), 3);
    let output = on_lake(&room, &["--replay"]);
    assert_eq!(code(&output), 3);
    let printed = text(&output);
    assert!(printed.contains("1 still fail: malformed 1."), "{printed}");
    let remedy = "fix 'folder/garbage.avro' at its source, and fold it again with 'prorata backfill \
                  --events'";
    assert!(printed.contains(remedy), "{printed}");
}

#[test]
fn a_worker_that_holds_a_shard_is_not_disturbed_unasked() {
    let room = lake_with(&[letter(Reason::TooLate, 8, "acme", value(&late()))], false);
    let before = room.content("lake");
    let output = on_lake(&room, &["--replay"]);
    assert_eq!(code(&output), 2);
    assert!(
        error(&output)
            .contains("shard 4 is held by worker 'w1', which has not released it; stop the worker, or"),
        "{}",
        error(&output)
    );
    assert!(text(&output).contains("Nothing was replayed."), "{}", text(&output));
    assert_eq!(room.content("lake"), before);
    let output = on_lake(&room, &["--replay", "--take-over"]);
    assert_eq!(code(&output), 0, "{}", error(&output));
    assert_ne!(room.content("lake"), before);
}

#[test]
fn a_message_goes_back_to_its_topic_as_it_came() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("pods", 16, 1).unwrap();
    let event = value(&late());
    let letters = [
        letter(Reason::UnknownSchema, 7, "acme", event.clone()),
        letter(Reason::InvalidField, 8, "acme", b"still wrong".to_vec()),
    ];
    let room = lake_with(&letters, false);
    let config = room.path("prorata.yaml");
    let servers = cluster.bootstrap_servers();
    std::fs::write(&config, format!("kafka:\n  bootstrap_servers: {servers}\n  topics: [pods]\n")).unwrap();
    let replay = || on_lake(&room, &["--replay", "--config", config.to_str().unwrap()]);
    let output = replay();
    assert_eq!(code(&output), 3, "{}{}", error(&output), text(&output));
    assert!(text(&output).contains("Sent back to their topics: pods 1."), "{}", text(&output));
    assert!(text(&output).contains("1 still fail: invalid_field 1."), "{}", text(&output));
    assert!(text(&replay()).contains("Nothing was replayed."));

    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", &servers).set("group.id", "test").create().unwrap();
    let mut partitions = TopicPartitionList::new();
    for partition in 0..16 {
        partitions.add_partition_offset("pods", partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&partitions).unwrap();
    // The test waits a little longer for messages that should not arrive.
    let (mut found, deadline) = (Vec::new(), Deadline::start());
    let window = Deadline::after(Duration::from_secs(2));
    while !window.passed() || (found.is_empty() && !deadline.passed()) {
        found.extend(consumer.poll(Duration::from_millis(100)).map(|message| message.unwrap().detach()));
    }
    let [sent] = &found[..] else { panic!("one message, once: {found:?}") };
    assert_eq!((sent.key(), sent.payload()), (Some(&b"acme"[..]), Some(&event[..])));
    assert_eq!(sent.partition(), i32::from(SHARD), "the partition of its key");
    let headers: Vec<_> = sent.headers().unwrap().iter().map(|header| (header.key, header.value)).collect();
    assert_eq!(headers, [("trace", Some(&[1, 0, 255][..])), ("empty", None)]);
}

#[test]
fn a_replay_needs_to_know_where_kafka_is() {
    let room = lake_with(&[letter(Reason::Malformed, 7, "acme", value(&late()))], true);
    let output = on_lake(&room, &["--replay"]);
    assert_eq!(code(&output), 3);
    assert!(text(&output).contains("topic 'pods' is not in kafka.topics"), "{}", text(&output));
    let config = room.path("prorata.yaml");
    std::fs::write(&config, "kafka:\n  topics: [pods]\n").unwrap();
    let output = on_lake(&room, &["--replay", "--config", config.to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    assert!(
        error(&output).contains("kafka.bootstrap_servers is empty; name the brokers as host:port"),
        "{}",
        error(&output)
    );
}

#[test]
fn wrong_usage_is_reported_in_one_message() {
    let room = lake_with(&[], true);
    let config = room.path("prorata.yaml");
    std::fs::write(&config, "log:\n  level: warn\n").unwrap();
    let nowhere = room.path("nowhere");
    for (args, said) in [
        (
            &["--config", config.to_str().unwrap()][..],
            "no lake is named: give --lake, or root.url in the file",
        ),
        (&["--lake", nowhere.to_str().unwrap()][..], "has no root.json: it is not a prorata lake"),
    ] {
        let output = dead_letters(&room, args);
        assert_eq!(code(&output), 2);
        assert!(message(&output).contains(said), "{}", error(&output));
    }
    assert!(!nowhere.exists(), "no lake is made for nothing");
    for (args, said) in [
        (
            &["--reason", "tool_late"][..],
            "not a dead-letter reason; the reasons are malformed, unknown_schema, ",
        ),
        (&["--take-over"][..], "--replay"),
    ] {
        let output = on_lake(&room, args);
        assert_eq!(code(&output), 2);
        assert!(error(&output).contains(said), "{}", error(&output));
    }
    assert_eq!(code(&dead_letters(&room, &[])), 2);
    assert!(text(&on_lake(&room, &[])).starts_with("No dead letters in "));
}
