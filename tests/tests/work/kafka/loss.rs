//! Kafka has lost messages. A worker reports this, stops, and changes nothing. It continues with the
//! remaining messages once it is configured to do so.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use prorata_connectors::archive::write_events;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_testkit::wait::eventually;
use prorata_worker::names::Shard;
use serde_json::json;

use crate::world::topics::{Admin, Offsets};
use crate::world::worker::Worker;
use crate::world::{Load, World};

/// The parts of every message that describe both ways out.
const WAYS_OUT: [&str; 3] =
    ["'prorata backfill --shards ", "set kafka.offsets_lost: earliest and restart", "continues without"];

fn load(seed: u64) -> Load {
    Load { organizations: 4, pods: 8, hours: 3, ..Load::small(seed) }
}

/// Creates a world whose messages can be read without a registry.
fn world(name: &str) -> (World, Admin) {
    let mut world = World::new(name);
    world.set("registry.url", json!(""));
    let admin = Admin::new(&world);
    (world, admin)
}

/// Starts a worker, waits until it has taken everything, and stops it.
fn take_all(world: &World, admin: &Admin) {
    let mut worker = world.worker();
    let (_, ends) = admin.ranges(&world.topics);
    // Offsets of a recreated topic may be lower than the offsets that were read of the old topic.
    eventually("the worker's offsets are Kafka's", || {
        worker.program.assert_running();
        match next_offsets(world).into_iter().find(|(partition, next)| *next > ends[partition]) {
            None => Ok(()),
            Some(ahead) => Err(format!("{ahead:?} is not{}", worker.program.tail())),
        }
    });
    world.drained(std::slice::from_mut(&mut worker), ends.values().sum());
    assert_eq!(worker.counter("dead_letters"), 0);
    worker.stop();
}

/// Returns the offsets from which workers continue.
fn next_offsets(world: &World) -> Offsets {
    let mut next = Offsets::new();
    for (shard, checkpoint) in world.lake().checkpoints() {
        for (topic, offsets) in &checkpoint.offsets {
            next.extend(offsets.next.map(|offset| ((topic.to_string(), shard), offset)));
        }
    }
    next
}

/// Checks that a worker stops with a message, and that the next worker does too. Both leave the tables
/// unchanged.
fn stops(world: &World, words: &[&str]) {
    let before = world.lake().tables();
    for _ in 0..2 {
        says_so(world.worker(), words);
    }
    assert_eq!(world.lake().tables(), before);
}

fn says_so(worker: Worker, words: &[&str]) {
    let words = [&["offsets_lost: topic ", ", partition "], words, &WAYS_OUT].concat();
    worker.stops_loudly(&words);
}

/// Checks that a worker continues with the remaining messages, and that a worker with the default setting
/// then continues too.
fn check_continues(world: &mut World, admin: &Admin) {
    world.set("kafka.offsets_lost", json!("earliest"));
    take_all(world, admin);
    world.set("kafka.offsets_lost", json!("stop"));
    let before = world.lake().tables();
    take_all(world, admin);
    assert_eq!(world.lake().tables(), before);
}

/// Fails unless the tables equal a backfill of the worker's archive, and a backfill of these loads and
/// events.
fn assert_law(world: &World, loads: &[Load], events: &[EventRecord]) {
    let archived = world.backfill(&format!("{}/events", world.root), "archived");
    world.lake().assert_equals(&archived, world.through());
    write(&world.folder.path().join("events/more"), events);
    world.assert_law(loads);
}

fn write(folder: &Path, events: &[EventRecord]) {
    std::fs::create_dir_all(folder).unwrap();
    let bodies: Vec<(EventKind, &[u8])> =
        events.iter().map(|record| (record.event.payload.kind(), &*record.body)).collect();
    std::fs::write(folder.join("events.avro"), write_events(&bodies).unwrap()).unwrap();
}

#[test]
fn messages_that_retention_took_before_they_were_read_are_a_loud_stop() {
    let (mut world, admin) = world("retention");
    let [first, second, third] = [81, 82, 83].map(load);
    world.send(first);
    take_all(&world, &admin);
    // No message before the next offset is lost, although the record before it cannot be compared.
    admin.delete_before(&next_offsets(&world));
    world.send(second);
    take_all(&world, &admin);

    let next = next_offsets(&world);
    world.send(third);
    let (_, ends) = admin.ranges(&world.topics);
    let middle = ends.iter().filter_map(|(partition, end)| {
        let next = next.get(partition)?;
        (end - next > 1).then(|| (partition.clone(), (next + end + 1) / 2))
    });
    let middle: Offsets = middle.collect();
    assert!(!middle.is_empty(), "{next:?} {ends:?}");
    admin.delete_before(&middle);
    stops(&world, &[&world.name, "no longer exists: Kafka has "]);
    check_continues(&mut world, &admin);
    assert_law(&world, &[first, second], &admin.events(&world.topics));
}

#[test]
fn messages_that_retention_takes_before_a_running_worker_are_a_loud_stop() {
    let (mut world, admin) = world("overtaken");
    world.set("kafka.session_timeout", json!("40s"));
    let [first, second] = [84, 85].map(load);
    let mut worker = world.worker();
    let messages = world.send(first);
    world.drained(std::slice::from_mut(&mut worker), messages);
    let before = world.lake().tables();
    freeze(&worker);
    world.send(second);
    let (earliest, ends) = admin.ranges(&world.topics);
    let last = earliest.into_iter().map(|(partition, low)| (low.max(ends[&partition] - 1), partition));
    admin.delete_before(&last.map(|(last, partition)| (partition, last)).collect());
    worker.program.signal("CONT");
    says_so(worker, &[&world.name]);
    assert_eq!(world.lake().tables(), before);
    check_continues(&mut world, &admin);
    assert_law(&world, &[first], &admin.events(&world.topics));
}

/// Freezes a worker, and waits for the brokers' last answers to it. The brokers hold a request for records
/// for half a second, or longer on a busy machine. Nothing shows when the last request ends. The worker stays
/// in the group, because its session lasts 40 seconds or more.
fn freeze(worker: &Worker) {
    worker.program.signal("STOP");
    thread::sleep(Duration::from_secs(10));
}

/// Sends load to one topic.
fn send_to(world: &mut World, topic: &str, load: Load) {
    let topics = std::mem::replace(&mut world.topics, vec![topic.to_owned()]);
    world.send(load);
    world.topics = topics;
}

/// Recreates a topic with records other than those that were read. Returns the ends before and after.
fn recreated(world: &mut World, admin: &Admin, topic: &str, load: Load) -> (Offsets, Offsets) {
    let topics = [topic.to_owned()];
    let (_, before) = admin.ranges(&topics);
    admin.recreate(world, topic);
    send_to(world, topic, load);
    let (_, after) = admin.ranges(&topics);
    (before, after)
}

#[test]
fn a_recreated_topic_that_is_shorter_is_a_loud_stop() {
    let (mut world, admin) = world("shorter");
    let (first, second) = (Load { pods: 16, hours: 6, ..load(86) }, Load { pods: 1, hours: 1, ..load(87) });
    world.send(first);
    take_all(&world, &admin);
    let topic = world.topics[0].clone();
    let (before, after) = recreated(&mut world, &admin, &topic, second);
    let shorter = before.iter().all(|(partition, end)| *end == 0 || after[partition] < end - 1);
    assert!(shorter && after.values().any(|end| *end > 0), "{before:?} {after:?}");
    stops(&world, &[&topic, "no longer exists: Kafka has 0 to "]);
    check_continues(&mut world, &admin);
    assert_law(&world, &[first, second], &[]);
}

#[test]
fn a_recreated_topic_that_is_longer_is_a_loud_stop() {
    let (mut world, admin) = world("longer");
    let (first, second) = (load(88), Load { pods: 16, hours: 6, ..load(89) });
    world.send(first);
    take_all(&world, &admin);
    let topic = world.topics[0].clone();
    let (before, after) = recreated(&mut world, &admin, &topic, second);
    let longer = before.iter().all(|(partition, end)| *end == 0 || after[partition] > *end);
    assert!(longer, "{before:?} {after:?}");
    let words =
        [&*topic, "is not the one that was read before: the topic was recreated, or its log has diverged"];
    stops(&world, &words);
    check_continues(&mut world, &admin);
    assert_law(&world, &[first, second], &[]);
}

#[test]
fn a_topic_recreated_under_a_running_worker_is_a_loud_stop() {
    let (mut world, admin) = world("under");
    let [first, second] = [90, 91].map(load);
    let mut worker = world.worker();
    let messages = world.send(first);
    world.drained(std::slice::from_mut(&mut worker), messages);
    let topic = world.topics[0].clone();
    let before = world.lake().tables();
    admin.recreate(&world, &topic);
    says_so(worker, &[&topic]);
    assert_eq!(world.lake().tables(), before);
    send_to(&mut world, &topic, second);
    check_continues(&mut world, &admin);
    assert_law(&world, &[first, second], &[]);
}

#[test]
fn a_topic_recreated_under_a_frozen_worker_is_a_loud_stop() {
    let (mut world, admin) = world("under-frozen");
    // The worker stays a member, so nothing is loaded again.
    world.set("kafka.session_timeout", json!("60s"));
    let (first, second) = (load(90), Load { pods: 16, hours: 6, ..load(91) });
    let mut worker = world.worker();
    let messages = world.send(first);
    world.drained(std::slice::from_mut(&mut worker), messages);
    let topic = world.topics[0].clone();
    let before = world.lake().tables();
    let frozen = Instant::now();
    freeze(&worker);
    let (old, new) = recreated(&mut world, &admin, &topic, second);
    assert!(old.iter().any(|(partition, end)| new[partition] > *end), "it is not longer than it was");
    // This is longer than the silence after which a worker compares the last read record again. Nothing shows
    // whether a frozen worker would.
    thread::sleep(Duration::from_secs(20).saturating_sub(frozen.elapsed()));
    worker.program.signal("CONT");
    says_so(worker, &[&topic]);
    assert_eq!(world.lake().tables(), before);
    check_continues(&mut world, &admin);
    assert_law(&world, &[first, second], &[]);
}

/// Returns the shards that cannot continue, according to the messages of a log.
fn stopped(log: &str) -> BTreeSet<Shard> {
    let named = log.split("'prorata backfill --shards ").skip(1);
    named.map(|rest| rest.split('\'').next().unwrap().parse().unwrap()).collect()
}

/// Follows each step of the message: fold a copy of the events into the stopped shards, set the option,
/// restart the worker. Nothing is lost, and nobody blocks the backfill.
#[test]
fn the_way_out_of_lost_offsets_loses_nothing() {
    let (mut world, admin) = world("way-out");
    let [first, second, third] = [98, 99, 100].map(load);
    world.send(first);
    take_all(&world, &admin);
    let next = next_offsets(&world);
    world.send(second);
    let (_, ends) = admin.ranges(&world.topics);
    admin.delete_before(&ends);
    let lost = ends.iter().filter(|(partition, end)| next.get(partition).is_some_and(|next| next < *end));
    let lost: BTreeSet<Shard> = lost.map(|((_, shard), _)| *shard).collect();
    assert!(!lost.is_empty(), "{next:?} {ends:?}");
    let mut worker = world.worker();
    eventually("the shards are stopped", || match stopped(&worker.program.log()) {
        shards if shards == lost => Ok(()),
        shards => Err(format!("{shards:?} of {lost:?}{}", worker.program.tail())),
    });

    // The worker continues with shards that have lost nothing, if there are any.
    let copy = world.folder.path().join("copy");
    world.write(second, &copy);
    let (copy, config) = (copy.to_str().unwrap(), world.config());
    for shard in lost.iter().map(Shard::to_string) {
        let arguments = ["backfill", "--shards", &shard, "--events", copy, "--lake", &world.root, "--config"];
        world.run(&[&arguments[..], &[config.to_str().unwrap()]].concat()).succeeded();
    }
    if worker.program.is_running() {
        worker.stop();
    }
    world.set("kafka.offsets_lost", json!("earliest"));
    take_all(&world, &admin);
    world.set("kafka.offsets_lost", json!("stop"));
    world.send(third);
    take_all(&world, &admin);
    world.assert_law(&[first, second, third]);
}
