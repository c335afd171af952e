//! The final state of a root. Each sent message is exactly once in the archive or among the dead letters. The
//! tables equal a plain fold of the archived events.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::body::EventRecordRef;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::reject::Reason;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::FakeArchive;
use prorata_worker::checkpoint::Checkpoint;
use prorata_worker::names::{self, ArchivePath, Shard};
use prorata_worker::ports::{Archive, DeadLetter, Origin};

use crate::harness::{assert_content, expected, five_weeks};
use crate::world::{Sent, What, World};

/// The topic, partition and offset of a message.
pub type Place = (String, Shard, i64);

/// The content of the root that its checkpoints name.
pub struct Held {
    pub events: BTreeSet<(EventKind, Box<[u8]>)>,
    pub letters: BTreeMap<Place, Reason>,
}

/// Allowed differences from a run with workers only.
#[derive(Default)]
pub struct Also {
    /// Events that did not come through Kafka.
    pub foreign: Vec<EventRecord>,
    /// Offsets of messages that Kafka lost and that perhaps nobody has read.
    pub lost: BTreeSet<Place>,
}

/// Reads the archive and the dead letters.
pub fn held(world: &World) -> Held {
    let named = world.audit.named();
    let mut held = Held { events: BTreeSet::new(), letters: BTreeMap::new() };
    for (path, bytes) in world.lake.store.objects() {
        if !named.contains(&path) {
            continue;
        }
        if ArchivePath::parse(&path).is_some() {
            let each = &mut |_, record: Result<EventRecordRef<'_>, _>| {
                let record = record.unwrap();
                held.events.insert((record.event.kind(), record.body));
            };
            FakeArchive.read(&mut &bytes[..], each).unwrap();
        }
        if names::parse_dead_letter_shard(&path).is_some() {
            for letter in FakeArchive.read_dead_letters(&bytes).unwrap() {
                let Some(place) = place(&letter) else { continue };
                let before = held.letters.insert(place.clone(), letter.rejected.reject.reason);
                assert_eq!(before, None, "{place:?} is a dead letter twice");
            }
        }
    }
    held
}

fn place(letter: &DeadLetter) -> Option<Place> {
    match &letter.origin {
        Origin::Message { topic, partition, offset, .. } => {
            Some((topic.clone(), Shard::try_from(*partition).unwrap(), *offset))
        }
        Origin::File { .. } => None,
    }
}

/// Asserts the final state once everything has settled. Returns the dead letters by place.
pub fn check(world: &World, also: &Also, rules: impl Fn(Shard, Hour) -> Rules, context: &str) -> Held {
    world.audit.look();
    let held = held(world);
    let accepted = account(world, &held, also, context);
    check_topic(world, &held, context);
    let latest = world.audit.latest();
    let mut content = BTreeMap::new();
    for (shard, checkpoint) in &latest {
        assert!(checkpoint.dirty.is_empty(), "{context}: shard {shard} is dirty: {:?}", checkpoint.dirty);
        assert_eq!(
            checkpoint.unsent_dead_letters,
            Vec::<String>::new(),
            "{context}: letters wait in shard {shard}"
        );
        let Some(closed) = checkpoint.closed_through else { continue };
        let of_shard = |event: &&EventRecord| world.shard_of(&event.event.organization_id) == *shard;
        let within = |event: &&EventRecord| event.event.event_time.hour() <= closed;
        let events: Vec<EventRecord> = accepted.iter().filter(of_shard).filter(within).cloned().collect();
        content.extend(expected(&events, closed, |_| *shard, |hour| rules(*shard, hour)));
    }
    assert_content(&world.lake, &content, context);
    check_tables_are_the_checkpoints(world, &latest, context);
    held
}

/// Asserts that every message is accounted for once. Returns the events that count.
fn account(world: &World, held: &Held, also: &Also, context: &str) -> Vec<EventRecord> {
    let mut accepted: Vec<EventRecord> = also.foreign.clone();
    let mut letters = held.letters.clone();
    for sent in world.sent() {
        let Sent { topic, partition, offset, what, .. } = sent.clone();
        let place = (topic.to_owned(), partition, offset);
        if also.lost.contains(&place) {
            letters.remove(&place);
            continue;
        }
        let rejected = letters.remove(&place);
        match (&what, rejected) {
            (What::Unregistered(_), Some(Reason::UnknownSchema)) => {}
            (What::Event(event) | What::Unregistered(event), Some(reason))
                if may_be(world, &sent, event, reason) => {}
            (What::Event(event) | What::Unregistered(event), None) => accepted.push(event.clone()),
            (What::Bad(reason), Some(found)) if *reason == found => {}
            other => panic!("{context}: {place:?} came out wrong: {other:?}"),
        }
    }
    assert!(letters.is_empty(), "{context}: dead letters of messages that nobody sent: {letters:?}");
    let key = |event: &EventRecord| (event.event.payload.kind(), event.body.clone());
    let wanted: BTreeSet<_> = accepted.iter().map(key).collect();
    let lost = wanted.difference(&held.events).count();
    assert_eq!(lost, 0, "{context}: events are not in the archive");
    // Messages that Kafka lost may have been read before.
    let of_lost = |sent: &Sent| also.lost.contains(&(sent.topic.to_owned(), sent.partition, sent.offset));
    let mut foreign: BTreeSet<_> = held.events.difference(&wanted).cloned().collect();
    for sent in world.sent().iter().filter(|sent| of_lost(sent)) {
        if let What::Event(event) | What::Unregistered(event) = &sent.what
            && foreign.remove(&key(event))
        {
            accepted.push(event.clone());
        }
    }
    assert_eq!(foreign.len(), 0, "{context}: the archive holds events that do not count");
    // Equal events of two messages count once.
    let mut once = BTreeSet::new();
    accepted.retain(|event| once.insert(key(event)));
    accepted
}

/// Returns whether an event may have been rejected for a reason that depends on its arrival time.
fn may_be(world: &World, sent: &Sent, event: &EventRecord, reason: Reason) -> bool {
    const CLOCK_STEPS: i64 = 2 * 3_600_000_000;
    const SKEW: i64 = 600_000_000;
    let time = event.event.event_time;
    match reason {
        Reason::InTheFuture => time.0 + CLOCK_STEPS > sent.sent_at.0 + SKEW,
        Reason::TooLate => {
            let closed = world.audit.latest()[&sent.partition].closed_through;
            closed.is_some_and(|closed| time.hour() <= five_weeks().horizon(closed))
        }
        _ => false,
    }
}

/// Returns the messages that are in the topic of dead letters.
pub fn fed(world: &World) -> BTreeSet<Place> {
    world.dead_letters.letters().iter().filter_map(place).collect()
}

/// Asserts that the topic contains each dead letter at least once, and nothing else.
fn check_topic(world: &World, held: &Held, context: &str) {
    let fed = fed(world);
    let filed: BTreeSet<Place> = held.letters.keys().cloned().collect();
    assert_eq!(fed, filed, "{context}: dead letters on the topic, and in files");
}

/// Asserts that the tables have every hour exactly as its checkpoint names it.
fn check_tables_are_the_checkpoints(
    world: &World,
    latest: &BTreeMap<Shard, std::sync::Arc<Checkpoint>>,
    context: &str,
) {
    let live = world.lake.files();
    for checkpoint in latest.values() {
        for (hour, entry) in &checkpoint.hours {
            for (table, file) in entry.files() {
                let there = live.get(&table).is_some_and(|files| files.contains(&file.path));
                assert!(there, "{context}: {table:?} lacks hour {hour} of shard {}", checkpoint.shard);
            }
        }
    }
}
