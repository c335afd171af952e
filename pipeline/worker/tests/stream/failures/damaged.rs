//! Damage to objects other than archive files, and faults of the program. The tests follow the message of the
//! stopped shard literally.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use prorata_samples::trace::{START, TRACE_END, pod, trace};
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeArchive, FakeEncoder, Faults};
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::names::{self, ArchivePath};
use prorata_worker::ports::{Archive, DeadLetter, EachRecord, FormatError, ObjectStore};
use prorata_worker::status::Status;
use prorata_worker::stream::{StreamPorts, Worker, WorkerOptions};
use prorata_worker::{Ports, StopReason};

use super::remedies::assert_tables;
use crate::harness::*;
use crate::sim::foreign;
use crate::world::member::Stepped;
use crate::world::script::read;
use crate::world::{TOPICS, World};

/// Creates a root whose checkpoints have parts, because its first hours are more than a day old.
async fn read_for_30_hours() -> (World, Vec<EventRecord>) {
    let world = World::default();
    let mut events = trace();
    world.produce(&events);
    let mut member = world.member("a");
    for hour in 8..30 {
        world.set_minutes(hour * 60);
        let more = [pod("acme", hour * 60 - 5, &format!("p{hour}"), 1)];
        world.produce(&more);
        events.extend(more);
        member.settle(&world).await.unwrap();
    }
    member.drain().await;
    (world, events)
}

/// Steps a new worker until it cannot continue with a shard, or at all, and returns its message.
async fn said(world: &World, name: &str) -> String {
    let mut member = world.member(name);
    for _ in 0..600 {
        match member.step().await {
            Stepped::Stopped(Some(error)) => return error.to_string(),
            Stepped::Done(_) => {}
            stepped => panic!("{stepped:?}"),
        }
        let shards = member.status.lock().shards.clone();
        if let Some(stop) = shards.into_values().find_map(|shard| shard.stopped) {
            assert_eq!(stop.reason, StopReason::Damaged, "{}", stop.message);
            member.drain().await;
            return stop.message;
        }
        world.pass(Duration::from_secs(10));
    }
    panic!("nothing is said");
}

/// Returns all events of the archive, as `--events <root>/events` reads them.
fn archived(world: &World) -> Vec<EventRecord> {
    let mut events = Vec::new();
    for (path, bytes) in world.lake.store.objects() {
        if ArchivePath::parse(&path).is_some() {
            let each =
                &mut |_, record: Result<EventRecordRef<'_>, _>| events.push(record.unwrap().into_owned());
            FakeArchive.read(&mut &bytes[..], each).unwrap();
        }
    }
    events
}

#[tokio::test]
async fn damaged_state_and_rules_are_restored_or_folded_into_a_new_root() {
    type Is = fn(&str) -> bool;
    let victims: [(&str, Is); 4] = [
        ("a checkpoint", |path| names::parse_checkpoint(path).is_some_and(|(shard, _)| shard == 0)),
        ("a part", |path| names::parse_part(path).is_some()),
        ("rules", |path| path.starts_with("rules/")),
        ("the root", |path| path == names::ROOT),
    ];
    for (what, is) in victims {
        let (world, events) = read_for_30_hours().await;
        let path = world.lake.objects().into_iter().rfind(|path| is(path)).unwrap();
        let copy = world.lake.store.get(&path).await.unwrap().unwrap();
        world.lake.store.overwrite(&path, "damaged".into());
        let message = said(&world, "b").await;
        assert!(message.contains(&format!("'{path}' is damaged")), "{what}: {message}");
        let way_out = "restore it from a copy, or fold its events into a new root";
        assert!(message.contains(way_out), "{what}: {message}");
        // The first remedy: fold the events into a new root.
        let fresh = world.fresh();
        let mut options = BackfillOptions::new("new".into());
        options.shards = Some(world.shards);
        options.to = Some(Hour(START + 29));
        foreign::run(&fresh, &archived(&world), Faults::default(), options).await.unwrap();
        let shard_of = |id: &str| world.shard_of(id);
        assert_content(&fresh.lake, &expected(&events, Hour(START + 29), shard_of, rules), what);
        // The second remedy: restore the copy.
        world.lake.store.overwrite(&path, copy);
        let mut next = world.member("c");
        next.settle(&world).await.unwrap();
        assert!(next.status.lock().ready, "{what}");
        assert_tables(&world, &events, Hour(START + 26));
    }
}

const FINE: u8 = 0;
const FAILS: u8 = 1;
const PANICS: u8 = 2;

/// An archive that fails to write the events of one organization while a flag is set.
struct Faulty(Arc<AtomicU8>);

impl Archive for Faulty {
    fn read(&self, file: &mut dyn Read, each: EachRecord<'_>) -> std::io::Result<()> {
        FakeArchive.read(file, each)
    }

    fn write(&self, events: &[(EventKind, &[u8])]) -> Result<Vec<u8>, FormatError> {
        let is_acme = events.iter().any(|(_, body)| prorata_schemas::body::organization_of(body) == b"acme");
        match self.0.load(Ordering::Relaxed) {
            FAILS if is_acme => Err(FormatError::new("encode events", "a fault of this release")),
            PANICS if is_acme => panic!("a fault of this release"),
            _ => FakeArchive.write(events),
        }
    }

    fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<Vec<u8>, FormatError> {
        FakeArchive.write_dead_letters(letters)
    }

    fn read_dead_letters(&self, bytes: &[u8]) -> Result<Vec<DeadLetter>, FormatError> {
        FakeArchive.read_dead_letters(bytes)
    }
}

#[tokio::test]
async fn a_fault_of_the_program_stops_one_shard_and_a_fixed_release_continues() {
    for (fault, reason) in [(FAILS, StopReason::EncodeFailed), (PANICS, StopReason::Internal)] {
        let world = read().await;
        let more = [pod("acme", 400, "a", 1), pod("hooli", 410, "h", 1)];
        world.produce(&more);
        world.set_minutes(9 * 60);
        let live = [pod("acme", 8 * 60 + 30, "b", 1), pod("hooli", 8 * 60 + 30, "i", 1)];
        world.produce(&live);
        let (status, faulty) = (Arc::new(Status::default()), Arc::new(AtomicU8::new(fault)));
        let ports = StreamPorts {
            shared: Ports {
                store: Arc::new(world.lake.store.clone()),
                tables: Arc::new(world.lake.tables.clone()),
                archive: Arc::new(Faulty(Arc::clone(&faulty))),
                encoder: Arc::new(FakeEncoder),
                clock: Arc::new(world.clock.clone()),
            },
            decoder: Arc::new(world.registry.decoder()),
            dead_letters: None,
            budgets: None,
            status: Arc::clone(&status),
        };
        let mut options = WorkerOptions::new("b".into());
        options.shards = Some(world.shards);
        let mut worker = Worker::open(world.broker.source("b", &TOPICS), ports, options).await.unwrap();
        let mut steps = async |count: u64| {
            for _ in 0..count {
                worker.step(Duration::ZERO).await.unwrap();
                world.pass(Duration::from_secs(5));
            }
        };
        steps(60).await;
        let shards = status.lock().shards.clone();
        let (acme, hooli) = (world.shard_of("acme"), world.shard_of("hooli"));
        let stop = shards[&acme].stopped.clone().unwrap_or_else(|| panic!("{fault}: {shards:#?}"));
        assert_eq!(stop.reason, reason, "{}", stop.message);
        assert!(stop.message.contains("report it"), "{}", stop.message);
        assert!(shards[&hooli].closed_through >= Some(Hour(START + 6)), "the other continues");
        if fault == PANICS {
            // The next worker runs the fixed release.
            worker.drain().await;
            world.member("c").settle(&world).await.unwrap();
        } else {
            // The worker tries the shard again on its own.
            faulty.store(FINE, Ordering::Relaxed);
            steps(400).await;
            assert!(status.lock().ready && status.lock().shards[&acme].stopped.is_none());
        }
        world.audit.look();
        assert_tables(&world, &[trace(), more.to_vec(), live.to_vec()].concat(), TRACE_END);
    }
}
