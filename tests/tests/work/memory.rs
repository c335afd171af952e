//! Memory stays within what is configured, however much comes and however slow storage is.

use std::time::Duration;

use serde_json::json;

use super::proxy::{Proxy, Weather};
use super::world::{Load, World, tuned, variable};

const MIB: u64 = 1 << 20;

/// Events of open hours.
const MEMORY_LIMIT: u64 = 16 * MIB;

/// Messages fetched ahead.
const QUEUE: u64 = 4 * MIB;

/// The program itself, its threads, what the Kafka library and storage clients hold, one hour being folded and written.
const BASE: u64 = 150 * MIB;

/// The most memory that a process has had.
fn peak(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().split(' ').next().unwrap().parse::<u64>().unwrap() * 1_024
}

#[test]
fn a_burst_before_a_slow_storage_stays_within_the_configured_memory() {
    let mut world = World::new("burst");
    world.root = format!("s3://{}/{}", variable("PRORATA_TEST_BUCKET"), world.name);
    world.set("work.memory_limit", json!(MEMORY_LIMIT));
    world.set("work.checkpoint_bytes", json!(4 * MIB));
    world.set("work.rows_in_flight", json!(10_000));
    world.set("kafka.queue_bytes", json!(QUEUE));
    let proxy = Proxy::before(&variable("AWS_ENDPOINT_URL"));
    world.environment("AWS_ENDPOINT_URL", &proxy.url(&variable("AWS_ENDPOINT_URL")));
    let pods = u32::try_from(tuned("PRORATA_BURST_PODS", 300)).unwrap();
    let load = Load { seed: 81, organizations: 12, pods, hours: 8 };
    let messages = world.send(load);
    proxy.set(Weather::Slow(Duration::from_millis(20)));
    let mut worker = world.worker();
    worker.ready();
    let before = worker.counter("rebalances");
    world.drained(std::slice::from_mut(&mut worker), messages);
    assert_eq!(worker.counter("rebalances"), before, "the group took shards away meanwhile");
    let (peak, bound) = (peak(worker.program.id()), MEMORY_LIMIT + QUEUE + BASE);
    println!("{messages} events, at most {} MiB", peak / MIB);
    assert!(peak <= bound, "{} MiB, more than {} MiB", peak / MIB, bound / MIB);
    worker.stop();
    world.assert_law(&[load]);
}
