//! Replays dead letters: `prorata dead-letters` lists them by reason, and after a fix each counts once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use prorata_connectors::archive::read_events;
use prorata_schemas::event::{
    CapacityType, Event, EventKind, EventRecord, NodeStarted, NodeStopped, Payload,
};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::reject::Reason;
use prorata_schemas::time::Hour;
use prorata_tests::program::Ended;
use rdkafka::message::{Headers, Message};
use serde_json::{Value, json};

use super::world::events::{Sender, write};
use super::world::registry;
use super::world::topics::Admin;
use super::world::worker::Worker;
use super::world::{Load, SHARDS, World, variable};

/// Letters by reason.
type Counts = BTreeMap<String, u64>;

/// Exit code of a replay that leaves letters that would be rejected again.
const LEFT: i32 = 3;

/// An organization that is not in the load.
const ORGANIZATION: &str = "replays";

/// Age of the organization's history in hours, which is beyond the horizon.
const OLD_HOURS: i64 = 36 * 24;

/// Running time, in hours, of a node that stops within the horizon.
const LATER_HOURS: i64 = 36;

/// Runs `prorata dead-letters`.
fn dead_letters(world: &World, arguments: &[&str]) -> Ended {
    let config = world.config();
    let command = [&["dead-letters", "--config", config.to_str().unwrap()], arguments].concat();
    world.run(&command)
}

/// Checks the exit code, and returns the JSON document that the command printed.
fn document(ended: &Ended, code: i32) -> Value {
    assert_eq!(ended.code, Some(code), "{}{}", ended.output, ended.log);
    serde_json::from_str(&ended.output).unwrap()
}

/// Returns the number with this name, such as `count`, for each reason.
fn counts(reasons: &Value, number: &str) -> Counts {
    let reasons = reasons.as_object().unwrap().iter();
    reasons.map(|(reason, of)| (reason.clone(), of[number].as_u64().unwrap())).collect()
}

fn of(counts: &[(Reason, u64)]) -> Counts {
    counts.iter().map(|(reason, count)| (reason.code().to_owned(), *count)).collect()
}

/// Returns the number of letters on the topic of dead letters, by reason. A letter counts once, however often
/// it was sent.
fn on_topic(admin: &Admin, topic: &str) -> Counts {
    let mut letters = BTreeSet::new();
    admin.read(&[topic.to_owned()], |message| {
        let headers = message.headers().unwrap();
        let header = |name: &str| {
            let found = headers.iter().find(|header| header.key == name).unwrap();
            String::from_utf8(found.value.unwrap().to_vec()).unwrap()
        };
        let origin = ["prorata.topic", "prorata.partition", "prorata.offset"].map(header);
        letters.insert((header("prorata.reason"), origin));
    });
    let mut counts = Counts::new();
    for (reason, _) in letters {
        *counts.entry(reason).or_default() += 1;
    }
    counts
}

/// Returns the events of a folder's files.
fn read(folder: &Path) -> Vec<EventRecord> {
    let mut events = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            events.extend(read(&path));
        } else {
            let file = std::fs::File::open(&path).unwrap();
            read_events(file, &mut |_, event| events.push(event.unwrap().into_owned())).unwrap();
        }
    }
    events
}

fn assert_equals(world: &World, name: &str, events: &[&EventRecord]) {
    let events = write(world, &format!("{name}-events"), events.iter().copied());
    world.lake().assert_equals(&world.backfill(&events, name), world.through());
}

fn event(hour: i64, payload: Payload) -> EventRecord {
    EventRecord::new(Event::new(ORGANIZATION.into(), Hour(hour).start(), payload))
}

/// Returns the events of a node that runs from one hour to another.
fn node(name: &str, from: i64, to: i64) -> [EventRecord; 2] {
    let started = NodeStarted {
        cluster_id: "cluster".into(),
        node_id: name.into(),
        node_name: name.into(),
        provider: "aws".into(),
        region: "eu-central-1".into(),
        zone: None,
        instance_type: "m5.xlarge".into(),
        instance_family: "m5".into(),
        capacity_type: CapacityType::OnDemand,
        capacity: [("cpu".into(), Quantity::parse("cpu", "4").unwrap())].into(),
        gpu_model: None,
        hourly_cost: "0.23".parse().unwrap(),
        currency: "USD".into(),
        pool_id: None,
        gpus: None,
        resource_key: None,
        account_id: None,
    };
    let stopped = NodeStopped { cluster_id: "cluster".into(), node_id: name.into() };
    [event(from, Payload::NodeStarted(Box::new(started))), event(to, Payload::NodeStopped(stopped))]
}

/// A load with two faults: the prices of one organization seem to be in another currency, and the schema of
/// one event type is unknown.
struct Broken {
    load: Vec<EventRecord>,
    organization: String,
    unknown: EventKind,
}

impl Broken {
    fn new(world: &World, load: Load) -> Self {
        let folder = world.folder.path().join("load");
        world.write(load, &folder);
        let load = read(&folder);
        let priced = load.iter().find(|record| record.event.payload.currency().is_some()).unwrap();
        let organization = priced.event.organization_id.to_string();
        Self { load, organization, unknown: EventKind::PodStarted }
    }

    fn is_unknown(&self, record: &EventRecord) -> bool {
        record.event.payload.kind() == self.unknown
    }

    fn is_mispriced(&self, record: &EventRecord) -> bool {
        *record.event.organization_id == *self.organization && record.event.payload.currency().is_some()
    }

    fn count(&self, is: impl Fn(&Self, &EventRecord) -> bool) -> u64 {
        let count = self.load.iter().filter(|record| is(self, record)).count() as u64;
        assert!(count > 0, "the load has none");
        count
    }

    fn good(&self) -> Vec<&EventRecord> {
        let good = |record: &&EventRecord| !self.is_unknown(record) && !self.is_mispriced(record);
        self.load.iter().filter(good).collect()
    }
}

fn take(world: &World, worker: &mut Worker, messages: i64) {
    world.drained(std::slice::from_mut(worker), messages);
}

/// Checks that the dead letters are listed by reason and are on the dead-letter topic. Also checks that a
/// replay with the registry at `without` sends none of them.
fn are_listed(world: &World, admin: &Admin, dead: &str, letters: &Counts, without: &str) {
    let listing = document(&dead_letters(world, &["--json"]), 0);
    assert_eq!(counts(&listing["reasons"], "count"), *letters, "{listing}");
    assert_eq!(listing["dead_letters"], json!(letters.values().sum::<u64>()));
    assert_eq!(on_topic(admin, dead), *letters);
    let text = dead_letters(world, &[]).succeeded();
    for (reason, count) in letters {
        assert!(text.contains(&format!("\n{reason}: {count}\n  topic ")), "{text}");
    }
    let one = document(&dead_letters(world, &["--json", "--reason", "currency_mismatch"]), 0);
    assert_eq!(counts(&one["reasons"], "count").len(), 1, "{one}");

    let (_, ends) = admin.ranges(&world.topics);
    let config = world.config();
    let mut command =
        world.command(&["dead-letters", "--replay", "--json", "--config", config.to_str().unwrap()]);
    command.env("PRORATA_REGISTRY__URL", without);
    let replay = prorata_tests::program::Program::start(command, "dead-letters", world.folder.path()).wait();
    let replay = document(&replay, LEFT);
    assert_eq!(replay["replay"]["sent"], json!({}), "{replay}");
    assert_eq!(counts(&replay["replay"]["failing"], "count"), *letters);
    assert_eq!(admin.ranges(&world.topics).1, ends);
}

#[test]
fn repaired_events_count_once_after_a_replay() {
    let mut world = World::new("replay");
    let admin = Admin::new(&world);
    let broken = Broken::new(&world, Load::small(95));
    let dead = format!("{}-dead", world.name);
    world.create(std::slice::from_ref(&dead), SHARDS);
    world.set("kafka.dead_letter_topic", json!(dead));
    world.set("rules.currencies", json!({ &*broken.organization: "EUR" }));
    let (sender, real) = Sender::new(&world);
    let unknown = world.runtime.block_on(real.register_event(broken.unknown)).unwrap();
    let without = registry::without(unknown, &variable("PRORATA_TEST_REGISTRY"), &world.runtime);

    let mut worker = world.worker_with(&[("PRORATA_REGISTRY__URL", &without)]);
    let [started, stopped] = node("own", world.now.0 - 3, world.now.0 - 2);
    sender.event("another", &started);
    sender.event(ORGANIZATION, &stopped);
    sender.send(ORGANIZATION, ORGANIZATION, b"no Avro at all");
    let messages = 3 + world.send(Load::small(95));
    take(&world, &mut worker, messages);
    let left = [(Reason::KeyMismatch, 1), (Reason::Malformed, 1)];
    let sendable = [
        (Reason::UnknownSchema, broken.count(Broken::is_unknown)),
        (Reason::CurrencyMismatch, broken.count(Broken::is_mispriced)),
    ];
    are_listed(&world, &admin, &dead, &of(&[left, sendable].concat()), &without);
    let good = [&broken.good()[..], &[&stopped]].concat();
    worker.stop();
    assert_equals(&world, "before", &good);

    // The fix is a registry that has the schema, and rules that have the currency.
    world.set("rules.version", json!("2"));
    world.set("rules.currencies", json!({}));
    let (nothing, from) = (write(&world, "nothing", []), Hour(world.now.0 - 48).to_string());
    let config = world.config();
    let rules = ["--lake", &world.root, "--from", &from, "--config", config.to_str().unwrap()];
    world.run(&[&["backfill", "--events", &nothing], &rules[..]].concat()).succeeded();
    let mut worker = world.worker();
    let replay = document(&dead_letters(&world, &["--replay", "--json"]), LEFT);
    let sent: u64 = sendable.iter().map(|(_, count)| count).sum();
    let topics = replay["replay"]["sent"].as_object().unwrap();
    assert_eq!(topics.values().filter_map(Value::as_u64).sum::<u64>(), sent, "{replay}");
    assert_eq!(counts(&replay["replay"]["failing"], "count"), of(&left));
    let messages = messages + i64::try_from(sent).unwrap();
    take(&world, &mut worker, messages);
    // The producer sends an event again if a replay cannot fix it.
    sender.event(ORGANIZATION, &started);
    take(&world, &mut worker, messages + 1);
    assert_eq!(worker.counter("dead_letters"), 0);
    let all: Vec<&EventRecord> = broken.load.iter().chain([&started, &stopped]).collect();
    assert_equals(&world, "after", &all);
    replays_nothing_more(&world, &admin, &of(&left), sent);
    worker.stop();
    assert_equals(&world, "again", &all);
}

/// Checks that a second replay sends and changes nothing.
fn replays_nothing_more(world: &World, admin: &Admin, left: &Counts, before: u64) {
    let ((_, ends), tables) = (admin.ranges(&world.topics), world.lake().tables());
    let again = document(&dead_letters(world, &["--replay", "--json"]), LEFT);
    assert_eq!(again["replay"]["sent"], json!({}), "{again}");
    assert_eq!(counts(&again["replay"]["failing"], "count"), *left);
    assert_eq!(again["already_replayed"], json!(before));
    let text = dead_letters(world, &["--replay", "--reason", "unknown_schema"]).succeeded();
    assert!(text.contains("Nothing was replayed."), "{text}");
    assert_eq!(admin.ranges(&world.topics).1, ends);
    assert_eq!(world.lake().tables(), tables);
}

#[test]
fn a_replay_folds_late_events_once() {
    let world = World::new("too-late");
    let (sender, _) = Sender::new(&world);
    let now = world.now.0;
    // This node keeps the organization in the tables until now.
    let old = node("old", now - OLD_HOURS, now - 3);
    let new = node("new", now - 3, now - 2);
    let late = node("late", now - OLD_HOURS - 24, now - OLD_HOURS - 20);
    // This node stops within the horizon, so after a state that is kept.
    let later = node("later", now - OLD_HOURS, now - OLD_HOURS + LATER_HOURS);
    let mut worker = world.worker();
    for record in old.iter().chain(&new) {
        sender.event(ORGANIZATION, record);
    }
    take(&world, &mut worker, 4);
    for record in late.iter().chain(&later) {
        sender.event(ORGANIZATION, record);
    }
    take(&world, &mut worker, 8);
    let listing = document(&dead_letters(&world, &["--json"]), 0);
    assert_eq!(counts(&listing["reasons"], "count"), of(&[(Reason::TooLate, 3)]));

    // The worker holds the shard, and a replay takes it over only with the option.
    let held = dead_letters(&world, &["--replay"]);
    assert_eq!(held.code, Some(2), "{}", held.log);
    assert!(held.log.contains("is held by worker") && held.log.contains("--take-over"), "{}", held.log);
    let replay = document(&dead_letters(&world, &["--replay", "--take-over", "--json"]), 0);
    let folded = &replay["replay"]["folded"];
    assert_eq!((&folded["events"], &folded["new"]), (&json!(3), &json!(3)), "{replay}");
    // Only the published hours in which the node ran are restated.
    assert_eq!(folded["hours_restated"], json!(LATER_HOURS), "{replay}");

    // The worker notices, and continues.
    let last = node("last", now - 2, now - 1);
    for record in &last {
        sender.event(ORGANIZATION, record);
    }
    take(&world, &mut worker, 10);
    assert!(worker.counter("conflicts") > 0, "the worker did not notice");
    let before = world.lake().tables();
    let again = document(&dead_letters(&world, &["--replay", "--take-over", "--json"]), 0);
    assert_eq!(
        (&again["replay"]["folded"], &again["already_replayed"]),
        (&Value::Null, &json!(3)),
        "{again}"
    );
    assert_eq!(world.lake().tables(), before);
    worker.stop();
    assert_equals(&world, "expected", &[old, new, late, later, last].iter().flatten().collect::<Vec<_>>());
}
