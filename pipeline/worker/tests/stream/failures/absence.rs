//! The absence law. If any one object is removed at rest, a worker ends with the tables of all events, or
//! stops loudly. After a loud stop, the worker continues once the object is restored.

use std::collections::BTreeMap;
use std::time::Duration;

use prorata_samples::trace::{START, TRACE_END, node, pod, trace};
use prorata_schemas::event::EventRecord;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::Faults;
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::names;
use prorata_worker::ports::ObjectStore;

use crate::harness::*;
use crate::sim::foreign;
use crate::world::World;
use crate::world::member::{Member, Stepped};
use crate::world::script::read;

/// Outcome of a worker in a world without some object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// The worker settles, and the tables hold all events.
    Equal,
    /// The worker stops a shard, or ends with an error that is not retried.
    Loud,
}

const TABLE_FILE: &str = "table file";
const CHECKPOINT: &str = "checkpoint";

/// Returns the kind of an object by its path.
fn kind(path: &str) -> &'static str {
    match path {
        _ if names::parse_checkpoint(path).is_some() => CHECKPOINT,
        _ if names::parse_snapshot(path).is_some() => "snapshot",
        _ if names::parse_part(path).is_some() => "part",
        _ if path.starts_with(names::EVENTS) => "archive file",
        _ if path.starts_with(names::DEAD_LETTERS) => "dead letters",
        _ if path.starts_with("rules/") => "rules",
        names::ROOT => "root",
        _ if path.starts_with("consumer/") => "consumer",
        _ => TABLE_FILE,
    }
}

/// Late events of closed hours of both shards, and events that close a day.
fn more() -> Vec<EventRecord> {
    let late = [pod("acme", 70, "late", 1), pod("hooli", 75, "late", 1), pod("gamma", 80, "late", 1)];
    let day = 30 * 60;
    let next = ["acme", "hooli", "gamma"].map(|of| pod(of, day - 5, "next", 1));
    late.into_iter().chain(next).chain([node("acme", day - 4, 7)]).collect()
}

/// Runs a worker until it has nothing to do or is stopped. Waits for the retries of a stopped shard.
async fn run(world: &World, member: &mut Member) -> End {
    for _ in 0..3_000 {
        if matches!(member.step().await, Stepped::Stopped(_)) {
            return End::Loud;
        }
        world.pass(Duration::from_secs(10));
        let status = member.status.lock();
        if status.shards.values().any(|shard| shard.stopped.is_some()) {
            return End::Loud;
        }
        drop(status);
        if is_equal(world) {
            return End::Equal;
        }
    }
    panic!("the worker neither ends nor stops");
}

/// Returns whether the tables have all events of the hours until shortly before the last hour.
fn is_equal(world: &World) -> bool {
    world.audit.look();
    let mut content = Content::new();
    for (shard, checkpoint) in world.audit.latest() {
        let Some(closed) = checkpoint.closed_through.filter(|closed| *closed >= Hour(START + 28)) else {
            return false;
        };
        let mine = |event: &EventRecord| {
            world.shard_of(&event.event.organization_id) == shard && event.event.event_time.hour() <= closed
        };
        let events: Vec<EventRecord> = [trace(), more()].concat().into_iter().filter(mine).collect();
        content.extend(expected(&events, closed, |_| shard, rules));
    }
    world.lake.content() == content
}

#[tokio::test]
async fn without_any_one_object_a_worker_ends_equal_or_stops_loudly() {
    // A lost table file is written again when its hour changes. Until then, every reader of the table fails.
    // The tests below remove checkpoints.
    let is_tried = |path: &String| ![TABLE_FILE, CHECKPOINT].contains(&kind(path));
    let mut ends: BTreeMap<(&str, End), usize> = BTreeMap::new();
    // The names of objects depend on the order in which encoding threads end. So each world has its own
    // names.
    for index in 0.. {
        let world = read().await;
        let Some(path) = world.lake.objects().into_iter().filter(is_tried).nth(index) else { break };
        let bytes = world.lake.store.get(&path).await.unwrap().unwrap();
        world.lake.store.delete(&path).await.unwrap();
        world.set_minutes(30 * 60);
        world.produce(&more());
        let mut member = world.member("b");
        let end = run(&world, &mut member).await;
        *ends.entry((kind(&path), end)).or_default() += 1;
        if end == End::Loud {
            drop(member);
            world.broker.expire("b");
            world.lake.store.overwrite(&path, bytes);
            let mut member = world.member("c");
            assert_eq!(run(&world, &mut member).await, End::Equal, "{path} is back");
        }
    }
    println!("{ends:#?}");
    let ended = |kind, end| ends.get(&(kind, end)).copied().unwrap_or_default();
    assert!(ended("archive file", End::Loud) > 2, "late events need the files of their hour");
    assert_eq!(ended("snapshot", End::Loud), 0, "an older one is found");
}

/// Runs a worker for some minutes. Returns whether it stops or stops a shard.
async fn is_loud(world: &World, member: &mut Member) -> bool {
    for _ in 0..60 {
        if matches!(member.step().await, Stepped::Stopped(_)) {
            return true;
        }
        world.pass(Duration::from_secs(10));
    }
    member.status.lock().shards.values().any(|shard| shard.stopped.is_some())
}

/// Workers do not need older checkpoints, and the last checkpoints only release the shards. The test below
/// covers lost checkpoints that tables know.
#[tokio::test]
async fn without_any_one_checkpoint_a_worker_continues_or_stops_loudly() {
    let mut tried = 0;
    for index in 0.. {
        let world = read().await;
        let is_checkpoint = |path: &String| kind(path) == CHECKPOINT;
        let Some(path) = world.lake.objects().into_iter().filter(is_checkpoint).nth(index) else { break };
        // The audit remembers every checkpoint.
        world.audit.look();
        let bytes = world.lake.store.get(&path).await.unwrap().unwrap();
        world.lake.store.delete(&path).await.unwrap();
        world.set_minutes(30 * 60);
        world.produce(&more());
        let mut member = world.member("b");
        let loud = is_loud(&world, &mut member).await;
        drop(member);
        world.broker.expire("b");
        if loud {
            world.lake.store.overwrite(&path, bytes);
        }
        let mut member = world.member("c");
        assert_eq!(run(&world, &mut member).await, End::Equal, "without {path}");
        tried += 1;
    }
    assert!(tried > 4, "{tried} checkpoints");
}

/// Returns the trace's events between two minutes.
fn between(from: i64, to: i64) -> Vec<EventRecord> {
    let minutes = |event: &EventRecord| (event.event.event_time.0 / 60_000_000) - START * 60;
    trace().into_iter().filter(|event| (from..to).contains(&minutes(event))).collect()
}

#[tokio::test]
async fn a_log_that_lost_its_last_checkpoints_is_a_loud_stop_and_loses_nothing() {
    let lake = Lake::default();
    lake.run(&files(&[&between(0, 180)]), Run::new("aa")).await.unwrap();
    lake.run(&files(&[&between(180, 400)]), Run::new("bb")).await.unwrap();
    assert_content(&lake, &expected(&trace(), TRACE_END, shard_of, rules), "before");
    let mut lost = Vec::new();
    for shard in 0..2 {
        let of_shard = |path: &String| names::parse_checkpoint(path).is_some_and(|(of, _)| of == shard);
        let last = lake.objects().into_iter().filter(of_shard).max().unwrap();
        lost.push((last.clone(), lake.store.get(&last).await.unwrap().unwrap()));
        lake.store.delete(&last).await.unwrap();
    }
    let next = [pod("acme", 370, "next", 1), node("hooli", 371, 4)];
    let error = lake.run(&files(&[&next]), Run::new("cc")).await.unwrap_err().to_string();
    assert!(error.starts_with("state_behind_tables: "), "{error}");
    for (path, bytes) in lost {
        lake.store.overwrite(&path, bytes);
    }
    lake.run(&files(&[&next]), Run::new("dd")).await.unwrap();
    let all = [trace(), next.to_vec()].concat();
    assert_content(&lake, &expected(&all, Hour(START + 6), shard_of, rules), "after");
}

/// A backfill only archives events of an open hour, and then the backfill's checkpoints are lost. No table
/// refers to these checkpoints.
#[tokio::test]
async fn archive_files_whose_checkpoints_are_lost_stay() {
    let world = read().await;
    let before = world.audit.latest();
    let foreign_events = [pod("acme", 365, "foreign", 1), pod("hooli", 366, "foreign", 1)];
    let mut options = BackfillOptions::new("bb".into());
    options.shards = Some(world.shards);
    options.threads = 1;
    foreign::run(&world, &foreign_events, Faults::default(), options).await.unwrap();
    world.audit.look();
    let archived: Vec<String> =
        world.lake.objects().into_iter().filter(|path| path.contains("-bb-")).collect();
    assert!(!archived.is_empty());
    for (shard, checkpoint) in world.audit.latest() {
        for seq in before[&shard].seq + 1..=checkpoint.seq {
            world.lake.store.delete(&names::checkpoint(shard, seq)).await.unwrap();
        }
    }
    let world = world.fresh_audit();
    let mut member = world.member("c");
    world.set_minutes(500);
    world.produce(&[node("acme", 490, 11), node("hooli", 491, 4), node("gamma", 492, 7)]);
    member.settle(&world).await.unwrap();
    let left = world.lake.objects();
    assert!(archived.iter().all(|path| left.contains(path)), "they are all that is left of their events");
}
