//! A broken shard does not prevent a command or a worker from handling the other shards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use prorata_samples::trace::{TRACE_END, node, pod, trace};
use prorata_schemas::reject::Reason;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeEncoder, Faults};
use prorata_worker::WorkerError;
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::dead_letters::DeadLetters;
use prorata_worker::names;
use prorata_worker::ports::ObjectStore;
use prorata_worker::root::maintain::{MaintainPorts, maintain};

use crate::sim::foreign;
use crate::world::member::Member;
use crate::world::script::read;
use crate::world::{What, World};

/// Truncates the latest checkpoint of a shard to nothing, as a power cut does in a local folder.
fn damage(world: &World, shard: u16) {
    let latest = world.audit.latest();
    world.lake.store.overwrite(&names::checkpoint(shard, latest[&shard].seq), "".into());
}

#[tokio::test]
async fn one_damaged_shard_keeps_no_other_from_maintenance() {
    let world = read().await;
    let latest = world.audit.latest();
    damage(&world, 0);
    // The orphan is from a dead attempt on the other shard.
    let orphan = format!("{}part-{:010}-dead-0-ff.json", names::state_folder(1), latest[&1].seq);
    assert!(names::parse_part(&orphan).is_some());
    world.lake.store.overwrite(&orphan, "{}".into());
    let (store, tables) = (Arc::new(world.lake.store.clone()), Arc::new(world.lake.tables.clone()));
    let (encoder, clock) = (Arc::new(FakeEncoder), Arc::new(world.clock.clone()));
    let ports = MaintainPorts { store, tables: tables.clone(), logs: tables, encoder, clock };
    let error = maintain(&ports, "keeper").await.unwrap_err();
    assert!(matches!(error, WorkerError::Damaged { .. }) && error.exit_code() == 1, "{error}");
    assert!(!world.lake.objects().contains(&orphan), "shard 1 is trimmed");
}

#[tokio::test]
async fn one_damaged_shard_keeps_no_other_from_a_backfill() {
    let world = read().await;
    let before = world.lake.content();
    damage(&world, world.shard_of("acme"));
    let events = [pod("acme", 61, "late", 1), pod("hooli", 145, "late", 1)];
    let mut options = BackfillOptions::new("bb".into());
    options.shards = Some(world.shards);
    options.threads = 1;
    let outcome = foreign::run(&world, &events, Faults::default(), options.clone()).await.unwrap();
    assert_eq!((outcome.events_new, outcome.events_elsewhere), (1, 1));
    assert_eq!(outcome.left_out.keys().collect::<Vec<_>>(), [&world.shard_of("acme")]);
    let changed: BTreeSet<u16> = world
        .lake
        .content()
        .into_iter()
        .filter(|(place, digests)| before.get(place) != Some(digests))
        .map(|((_, _, shard), _)| shard)
        .collect();
    assert_eq!(changed, [world.shard_of("hooli")].into());
    // If a shard is named, it must be intact.
    options.owner = "cc".into();
    options.only_shards = Some([world.shard_of("acme")].into());
    let error = foreign::run(&world, &events, Faults::default(), options.clone()).await.unwrap_err();
    assert!(matches!(error, WorkerError::Damaged { .. }), "{error}");
    // The other shards can be named meanwhile.
    options.owner = "dd".into();
    options.only_shards = Some([world.shard_of("hooli")].into());
    options.from = Some(Hour(TRACE_END.0 - 1));
    foreign::run(&world, &events, Faults::default(), options).await.unwrap();
}

/// Creates a world with a waiting file of dead letters in each of two shards. Returns the world, its worker,
/// and the paths of the files.
async fn with_letters() -> (World, Member, Vec<String>) {
    let world = World::default();
    world.produce(&trace());
    world.dead_letters.set_room(Some(0));
    let organizations = ["acme", "hooli"];
    let shards: BTreeSet<u16> =
        organizations.iter().map(|organization| world.shard_of(organization)).collect();
    assert_eq!(shards.len(), 2);
    for organization in &organizations {
        world.send_event(&node(organization, 10, 1), vec![1, 2], What::Bad(Reason::Malformed));
    }
    let mut member = world.member("a");
    for _ in 0..12 {
        member.step().await;
        world.pass(Duration::from_secs(61));
    }
    let letters = world.lake.objects().into_iter().filter(|path| names::parse_dead_letters(path).is_some());
    let letters: Vec<String> = letters.collect();
    let waiting: BTreeSet<_> =
        letters.iter().filter_map(|path| names::parse_dead_letter_shard(path)).collect();
    assert_eq!(waiting, shards);
    (world, member, letters)
}

#[tokio::test]
async fn lost_and_damaged_files_of_letters_keep_no_other_from_the_topic() {
    for damage in [None, Some("not letters")] {
        let (world, mut member, letters) = with_letters().await;
        // Somebody has deleted or damaged the files.
        for path in letters.iter().filter(|path| names::parse_dead_letter_shard(path) == Some(0)) {
            match damage {
                None => world.lake.store.delete(path).await.unwrap(),
                Some(bytes) => world.lake.store.overwrite(path, bytes.into()),
            }
        }
        world.dead_letters.set_room(None);
        for _ in 0..60 {
            member.step().await;
            world.pass(Duration::from_secs(61));
        }
        let waits = format!("{:?}", member.status.lock().waits);
        assert_eq!(world.dead_letters.letters().len(), 1, "the letter of the other shard; {waits}");
        let waiting = world
            .audit
            .latest()
            .values()
            .map(|checkpoint| checkpoint.unsent_dead_letters.len())
            .sum::<usize>();
        assert_eq!(waiting, 0, "no list grows");
    }
}

#[tokio::test]
async fn one_damaged_shard_keeps_no_other_letter_from_the_list() {
    let (world, _member, letters) = with_letters().await;
    damage(&world, 0);
    let listed = DeadLetters::load(&world.lake.store).await.unwrap();
    let others = letters.iter().filter(|path| names::parse_dead_letter_shard(path) != Some(0));
    assert_eq!(listed.files.iter().map(|file| &file.path).collect::<Vec<_>>(), others.collect::<Vec<_>>());
    assert_eq!(listed.left_out.keys().collect::<Vec<_>>(), [&0]);
}
