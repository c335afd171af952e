//! Unneeded objects are swept, regardless of who left them, and as fast as they are created.

use std::collections::BTreeSet;
use std::time::Duration;

use prorata_samples::trace::{node, pod, trace};
use prorata_testkit::fakes::{FakeBroker, Faults};
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::names::{self, ArchivePath};

use super::watched::{WatchedStore, worker};
use crate::sim::foreign;
use crate::world::World;

/// Creates a world of one shard with `days` closed days.
pub async fn days(days: i64) -> World {
    let world = World::on(FakeBroker::default(), 1);
    world.set_minutes(7 * 60);
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    world.set_minutes(days * 24 * 60);
    world.produce(&[pod("acme", days * 24 * 60 - 10, "now", 1)]);
    for _ in 0..4 {
        member.settle(&world).await.unwrap();
    }
    member.drain().await;
    world
}

/// Returns the stored snapshots that no latest checkpoint names.
pub fn unnamed_snapshots(world: &World) -> Vec<String> {
    world.audit.look();
    let latest = world.audit.latest();
    let entries = latest.values().flat_map(|checkpoint| checkpoint.hours.values());
    let named: BTreeSet<String> = entries.flat_map(|entry| entry.snapshot_objects().cloned()).collect();
    let snapshots = world.lake.objects().into_iter().filter(|path| names::parse_snapshot(path).is_some());
    snapshots.filter(|path| !named.contains(path)).collect()
}

/// Returns the archive files that no latest checkpoint names.
pub fn orphaned_events(world: &World) -> Vec<String> {
    world.audit.look();
    let named = world.audit.named();
    let is_orphan = |path: &String| ArchivePath::parse(path).is_some() && !named.contains(path);
    world.lake.objects().into_iter().filter(is_orphan).collect()
}

fn checkpoints(world: &World) -> BTreeSet<String> {
    world.lake.objects().into_iter().filter(|path| names::parse_checkpoint(path).is_some()).collect()
}

#[tokio::test]
async fn a_backfill_leaves_no_snapshot_that_nobody_names() {
    let world = days(1).await;
    let late = [pod("acme", 70, "late", 1)];
    let mut options = BackfillOptions::new("backfill".into());
    options.shards = Some(1);
    options.threads = 1;
    foreign::run(&world, &late, Faults::default(), options).await.unwrap();
    assert_eq!(unnamed_snapshots(&world), [""; 0]);
}

#[tokio::test]
async fn a_delete_that_fails_is_tried_again() {
    let world = days(1).await;
    world.produce(&[pod("acme", 70, "late", 1)]);
    let store = WatchedStore::of(&world);
    store.refuse_deletes(true);
    let (mut worker, _) = worker(&world, &store, "b", |_| {}).await;
    for _ in 0..60 {
        worker.step(Duration::ZERO).await.unwrap();
        world.pass(Duration::from_secs(5));
    }
    let left = unnamed_snapshots(&world);
    assert!(left.len() > 2, "replaced snapshots cannot be deleted: {left:?}");
    store.refuse_deletes(false);
    for _ in 0..30 {
        worker.step(Duration::ZERO).await.unwrap();
        world.pass(Duration::from_secs(5));
    }
    assert_eq!(unnamed_snapshots(&world), [""; 0]);
}

#[tokio::test]
async fn checkpoints_are_cleared_away_as_fast_as_they_are_made() {
    // Every two minutes, an event of one organization arrives 30 hours late.
    let world = World::on(FakeBroker::default(), 1);
    let start = 4 * 24 * 60;
    world.set_minutes(start);
    let mut member = world.start("a", Faults::default(), |options| {
        // A fold takes as many pods as fit one hour, and files of one hour at a time.
        options.rows_in_flight = 1;
        options.checkpoint_bytes = 1;
        options.max_restate_delay = Duration::ZERO;
    });
    world.produce(&[node("acme", 0, 10), pod("acme", 10, "a", 1), pod("acme", start - 10, "b", 1)]);
    member.settle(&world).await.unwrap();
    for minute in 0..60 {
        world.set_minutes(start + minute + 60);
        world.produce(&[pod("acme", start + minute + 59, &format!("live {minute}"), 1)]);
        if minute % 2 == 0 {
            world.produce(&[pod("acme", start + minute - 30 * 60, &format!("late {minute}"), 1)]);
        }
        for _ in 0..60 {
            member.step().await;
            world.pass(Duration::from_secs(1));
        }
    }
    let made = checkpoints(&world);
    assert!(made.len() > 256, "it is a load of checkpoints: {}", made.len());
    // A week later, one hour must be enough.
    world.set_minutes(start + 8 * 24 * 60);
    world.produce(&[pod("acme", start + 8 * 24 * 60 - 5, "a week later", 1)]);
    for step in 0..170 {
        member.step().await;
        world.pass(Duration::from_secs(if step < 130 { 30 } else { 1 }));
    }
    let left = checkpoints(&world).intersection(&made).count();
    assert_eq!(left, 0, "of {} checkpoints made in an hour the next has not cleared these away", made.len());
    assert_eq!(unnamed_snapshots(&world), [""; 0]);
}
