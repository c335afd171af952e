//! Snapshots that cannot be read, and recomputations that are interrupted again and again.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use prorata_samples::trace::{START, pod, trace};
use prorata_testkit::fakes::Faults;
use prorata_worker::names::ArchivePath;

use super::leftovers::days;
use super::watched::{WatchedStore, worker};
use crate::world::World;

#[tokio::test]
async fn folding_again_gets_on_however_often_the_group_moves_its_shard() {
    let world = days(10).await;
    // The event is from hour 22 of the second day. The newest snapshot before it is from the previous day, 23
    // hours earlier.
    world.produce(&[pod("acme", (24 + 22) * 60 + 5, "late", 1)]);
    let mut dirty = Vec::new();
    for life in 0..12 {
        let mut member = world.start(&format!("m{life}"), Faults::default(), |options| {
            options.rows_in_flight = 1;
        });
        for _ in 0..200 {
            member.step().await;
            world.pass(Duration::from_secs(1));
            if member.status.lock().counts.checkpoints >= 12 {
                break;
            }
        }
        member.drain().await;
        dirty.push(world.audit.latest()[&0].dirty.first());
    }
    assert!(
        dirty.last().unwrap().is_none() || dirty.last().unwrap() > &dirty[2],
        "in 12 lives of 12 checkpoints it has not come past the first dirty hour: {dirty:?}"
    );
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_read_is_written_again() {
    assert_is_written_again("damaged".into()).await;
}

/// The checksum is correct, because the object is a snapshot of another lake.
#[tokio::test]
async fn a_snapshot_of_another_lake_is_written_again() {
    let other = days(1).await;
    other.produce(&[pod("acme", 20 * 60, "foreign", 1)]);
    let mut member = other.member("b");
    for _ in 0..4 {
        member.settle(&other).await.unwrap();
    }
    member.drain().await;
    let checkpoint = other.audit.latest()[&0].clone();
    let snapshot = checkpoint.hours[&checkpoint.closed_through.unwrap()].snapshot.clone().unwrap();
    assert_is_written_again(other.lake.store.object(&snapshot).unwrap()).await;
}

/// Replaces the newest snapshot of a lake with these bytes, and asserts that it is written again.
async fn assert_is_written_again(bytes: Bytes) {
    let world = days(1).await;
    let checkpoint = world.audit.latest()[&0].clone();
    let closed = checkpoint.closed_through.unwrap();
    let damaged = checkpoint.hours[&closed].snapshot.clone().unwrap();
    world.lake.store.overwrite(&damaged, bytes);
    let mut read = Vec::new();
    for life in 0..3 {
        let store = WatchedStore::of(&world);
        let (mut worker, _) = worker(&world, &store, &format!("m{life}"), |_| {}).await;
        for _ in 0..40 {
            worker.step(Duration::ZERO).await.unwrap();
            world.pass(Duration::from_secs(2));
        }
        worker.drain().await;
        read.push(store.take().gets.iter().filter(|path| path.ends_with(".snapshot")).count());
    }
    world.audit.look();
    let named = world.audit.latest()[&0].hours[&closed].snapshot.clone();
    assert_ne!(
        named.as_ref(),
        Some(&damaged),
        "the damaged snapshot is kept; every owner folds its hour again"
    );
    assert!(
        named.is_some() && read[1..] == [1, 1],
        "{named:?}: a later owner reads one snapshot, not {read:?}"
    );
    assert!(!world.lake.objects().contains(&damaged), "the damaged one is deleted");
}

#[tokio::test]
async fn when_no_snapshot_can_be_read_late_events_fold_all_history_once_and_not_each_time() {
    // The snapshots look as if a release with another format had written them.
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    member.drain().await;
    for checkpoint in world.audit.latest().values() {
        for snapshot in checkpoint.hours.values().filter_map(|entry| entry.snapshot.as_ref()) {
            world.lake.store.overwrite(snapshot, "PRSN another format".into());
        }
    }
    let store = WatchedStore::of(&world);
    let (mut worker, _) = worker(&world, &store, "b", |_| {}).await;
    let mut from_the_first = Vec::new();
    for round in 0..4 {
        if round > 0 {
            world.produce(&[pod("acme", 350 + round, &format!("late {round}"), 1)]);
        }
        for _ in 0..60 {
            worker.step(Duration::ZERO).await.unwrap();
            world.pass(Duration::from_secs(5));
        }
        let paths = store.take().gets.into_iter();
        let read = paths.filter_map(|path| ArchivePath::parse(&path));
        let read = read.filter(|path| path.shard == world.shard_of("acme"));
        let hours: BTreeSet<i64> = read.map(|path| path.hour.0 - START).collect();
        from_the_first.push(hours.contains(&0));
    }
    assert!(from_the_first[0], "no snapshot, so it is folded from the first event");
    assert_eq!(from_the_first[1..], [false; 3], "each late event of hour 5 reads the archive from hour 0 on");
}
