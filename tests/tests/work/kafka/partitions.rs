//! Topics get more partitions than the root has shards. Workers notice this within seconds, close nothing,
//! and print a way out that loses nothing.

use std::time::{Duration, Instant};

use prorata_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::world::topics::Admin;
use crate::world::worker::Worker;
use crate::world::worker::assert_refused;
use crate::world::{Load, SHARDS, World, sent};

/// Number of partitions after the change.
const WIDE: u16 = 8;

/// Maximum time from the brokers' change to the end of the last worker, on a busy machine. A worker asks
/// every three seconds, and releases its shards.
const NOTICED_MAX: Duration = Duration::from_secs(30);

/// Returns parts of the message: the fault, and each step of the way out.
fn words(topic: &str) -> [String; 6] {
    [
        format!("topic '{topic}' has {WIDE} partitions, but the root has {SHARDS} shards"),
        format!("Create another topic with {SHARDS} partitions for the producers"),
        "name it in kafka.topics".to_owned(),
        format!("'{topic}' in kafka.retired_topics"),
        "run 'prorata replay --config FILE'".to_owned(),
        "start the workers again".to_owned(),
    ]
}

/// Checks that a worker ends with this message about one of these topics.
fn says_so(worker: Worker, topics: &[String]) {
    let ended = worker.program.wait();
    let named = topics.iter().find(|topic| ended.log.contains(&words(topic)[0]));
    let words = words(named.unwrap_or(&topics[0]));
    assert_refused(ended, 2, &words.each_ref().map(String::as_str));
}

fn replay(world: &World) -> Value {
    let ended = world.run(&["replay", "--config", world.config().to_str().unwrap(), "--json"]);
    serde_json::from_str(&ended.succeeded()).unwrap()
}

/// Returns the number of messages on partitions of the old topics that no worker has ever read.
fn unread(replayed: &Value) -> u64 {
    let read = replayed["read"].as_array().unwrap();
    let wide = read.iter().filter(|read| read["partition"].as_u64() >= Some(SHARDS.into()));
    wide.map(|read| read["messages"].as_u64().unwrap()).sum()
}

/// Follows the way out, step by step as the message says.
fn way_out(world: &mut World, retired: &[String]) {
    let another: Vec<String> = retired.iter().map(|topic| format!("{topic}-2")).collect();
    world.create(&another, SHARDS);
    world.topics.retain(|topic| !retired.contains(topic));
    world.topics.extend(another);
    world.set("kafka.retired_topics", json!(retired));
    let replayed = replay(world);
    assert!(unread(&replayed) > 0, "nothing lay on the new partitions: {replayed}");
    // Some messages may be there twice, because a generator delivers at least once. The comparison at the end
    // of a test shows whether all are folded.
    assert!(replayed["events"]["new"].as_u64() > Some(0), "{replayed}");
    // Another replay changes nothing.
    let again = replay(world);
    assert_eq!(again["events"]["new"], 0, "{again}");
}

/// Checks that workers take the messages of the new topics, and continue once the configuration no longer
/// names the old topics.
fn check_continues(world: &mut World, load: Load) {
    let mut worker = world.worker();
    let messages = world.send(load);
    world.drained(std::slice::from_mut(&mut worker), messages);
    worker.stop();
    world.set("kafka.retired_topics", json!([]));
    let mut worker = world.worker();
    worker.ready();
    worker.stop();
}

fn load(seed: u64) -> Load {
    Load { organizations: 12, pods: 8, hours: 3, ..Load::small(seed) }
}

#[test]
fn more_partitions_under_running_workers_lose_nothing() {
    let mut world = World::new("widening");
    let admin = Admin::new(&world);
    let loads = [92, 93, 94].map(load);
    let mut workers = [world.worker(), world.worker()];
    workers.iter_mut().for_each(Worker::ready);
    // This generator has looked at the topics before they grow, and keeps its partitioning.
    let before = world.start_sending(loads[0], Some(100));
    let old = world.topics.clone();
    eventually("it sends", || match admin.ranges(&old).1.values().sum::<i64>() {
        0 => Err("nothing has been sent"),
        _ => Ok(()),
    });
    for topic in &old {
        admin.widen(topic, WIDE);
    }
    let grown = Instant::now();
    // This generator knows the new partitions: most of its organizations move.
    let after = world.start_sending(loads[1], None);
    for worker in workers {
        says_so(worker, &old);
    }
    let noticed = grown.elapsed();
    println!("all workers have ended {noticed:?} after the brokers knew");
    assert!(noticed < NOTICED_MAX, "{noticed:?}");
    // A worker that starts now ends as well.
    says_so(world.worker(), &old);
    sent(before);
    sent(after);
    way_out(&mut world, &old);
    check_continues(&mut world, loads[2]);
    world.assert_law(&loads);
}

#[test]
fn a_topic_that_grew_while_nobody_looked_is_a_loud_stop() {
    let mut world = World::new("wider");
    let admin = Admin::new(&world);
    let loads = [95, 96, 97].map(load);
    let mut worker = world.worker();
    let messages = world.send(loads[0]);
    world.drained(std::slice::from_mut(&mut worker), messages);
    worker.stop();
    let before = world.lake().tables();
    let grown = [world.topics[1].clone()];
    admin.widen(&grown[0], WIDE);
    let topics = std::mem::replace(&mut world.topics, grown.to_vec());
    world.send(loads[1]);
    world.topics = topics;
    for _ in 0..2 {
        says_so(world.worker(), &grown);
    }
    assert_eq!(world.lake().tables(), before);
    way_out(&mut world, &grown);
    check_continues(&mut world, loads[2]);
    world.assert_law(&loads);
}
