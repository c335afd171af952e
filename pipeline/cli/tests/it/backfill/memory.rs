//! Tests the peak memory of a backfill of many pods with a sample per minute. An hour need not fit in memory.
//!
//! `PODS=62500 cargo test --release -p prorata --test it backfill::memory` runs the full shape, in 512 MiB.
//! `SAMPLES` changes the samples of a pod, and `LIMIT_MIB` the limit.

use std::time::Duration;

use prorata_samples::trace::{START, node, pod_on};
use prorata_schemas::event::{Event, EventRecord, Payload, PodUsage};
use prorata_schemas::time::{Hour, Timestamp};

use super::harness::*;

const PODS_OF_A_NODE: u64 = 50;

/// Number of pods of the full shape, and the limit on its memory in bytes.
const PODS_ALL: u64 = 62_500;
const LIMIT: u64 = 512 << 20;

/// Memory of the program itself, in any shape.
const BASE: u64 = 64 << 20;

fn usage(uid: &str, minute: i64) -> EventRecord {
    let event_time = Timestamp(Hour(START).start().0 + minute * 60_000_000);
    let usage = PodUsage {
        pod_uid: uid.into(),
        interval_end: Timestamp(event_time.0 + 60_000_000),
        cpu_millis: 500 + minute,
        memory_bytes: (1 << 30) + minute * 4096,
        gpu_millis: 0,
        gpu_memory_bytes: None,
    };
    EventRecord::new(Event::new("acme".into(), event_time, Payload::PodUsage(usage)))
}

fn node_of(pod: u64) -> String {
    format!("node-{:05}", pod / PODS_OF_A_NODE)
}

fn named_node(index: u64) -> EventRecord {
    let mut event = node("acme", 0, 10).event;
    if let Payload::NodeStarted(node) = &mut event.payload {
        node.node_id = node_of(index * PODS_OF_A_NODE).into();
    }
    EventRecord::new(event)
}

/// Writes the events of one organization: nodes, pods on them, and `samples` samples of each pod, one a
/// minute.
fn put(room: &Room, pods: u64, samples: i64) {
    let nodes: Vec<EventRecord> = (0..pods.div_ceil(PODS_OF_A_NODE)).map(named_node).collect();
    room.put_events("nodes.avro", &nodes);
    let uids: Vec<String> = (0..pods).map(|index| format!("01234567-89ab-cdef-0123-{index:012}")).collect();
    let starts = (0..).zip(&uids).map(|(index, uid)| pod_on(&node_of(index), "acme", 0, uid, 1));
    room.put_events("starts.avro", &starts.collect::<Vec<_>>());
    for minute in 0..samples {
        let samples: Vec<EventRecord> = uids.iter().map(|uid| usage(uid, minute)).collect();
        room.put_events(&format!("usage-{minute:02}.avro"), &samples);
    }
}

/// Returns the peak resident memory of a process, in bytes; `None` after it has ended.
fn peak(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

#[test]
fn a_backfill_stays_within_its_memory_limit() {
    let number = |name: &str| std::env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    let pods = number("PODS").unwrap_or(PODS_ALL / 4);
    let limit = number("LIMIT_MIB").map_or(BASE + (LIMIT - BASE) * pods / PODS_ALL, |limit| limit << 20);
    let room = Room::new();
    put(&room, pods, number("SAMPLES").unwrap_or(60).cast_signed());
    let config = room.path("prorata.yaml");
    let buffer = limit / 8;
    std::fs::write(&config, format!("backfill: {{memory_limit: {limit}, buffer_bytes: {buffer}}}\n"))
        .unwrap();
    let mut running = room.backfill("lake").arg("--config").arg(&config).spawn().unwrap();
    let mut most = 0;
    let ended = loop {
        most = peak(running.id()).unwrap_or(0).max(most);
        match running.try_wait().unwrap() {
            Some(ended) => break ended,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(ended.success());
    println!("{pods} pods: {} MiB at most, the limit is {} MiB", most >> 20, limit >> 20);
    assert!(most <= limit + limit / 4, "{} MiB of {} MiB", most >> 20, limit >> 20);
}
