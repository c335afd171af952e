//! The owners of a shard that a checkpoint lists: only owners with objects that count, however often the
//! shard was claimed.

use std::collections::BTreeSet;
use std::time::Duration;

use prorata_samples::trace::pod;
use prorata_schemas::reject::Reason;
use prorata_testkit::fakes::{FakeBroker, Faults};
use prorata_worker::checkpoint::OwnerKind;
use prorata_worker::names::{self, ArchivePath, ObjectId};
use prorata_worker::ports::ObjectStore;

use crate::harness::rules;
use crate::world::oracle::{self, Also};
use crate::world::{What, World};

/// Returns the owners that the latest checkpoint of the shard lists.
fn listed(world: &World) -> Vec<String> {
    world.audit.look();
    world.audit.latest()[&0].owners.iter().map(|owner| owner.id.to_string()).collect()
}

/// Returns the owners with archive files or dead letters that count.
fn with_objects(world: &World) -> BTreeSet<String> {
    let latest = world.audit.latest();
    let id = |path: &str| -> Option<ObjectId> {
        let archived = ArchivePath::parse(path).map(|path| path.object_id);
        archived.or(names::parse_dead_letters(path).map(|(object_id, _)| object_id))
    };
    let ids = world.lake.objects().into_iter().filter_map(|path| id(&path));
    ids.filter(|id| latest[&0].admits(id)).map(|id| id.owner.to_string()).collect()
}

/// Runs a process that takes the shard for some steps, and then stops it cleanly or kills it.
async fn live(world: &World, name: &str, steps: usize, killed: bool) {
    let mut member = world.start(name, Faults::default(), |_| {});
    for _ in 0..steps {
        member.step().await;
        world.pass(Duration::from_secs(5));
    }
    if killed {
        drop(member);
        world.broker.expire(name);
    } else {
        member.drain().await;
    }
}

#[tokio::test]
async fn claims_that_leave_nothing_grow_no_checkpoint() {
    let world = World::on(FakeBroker::default(), 1);
    world.produce(&[pod("acme", 10, "a", 1), pod("acme", 400, "b", 1)]);
    live(&world, "first", 40, false).await;
    let before = listed(&world);
    for claim in 0..1_000 {
        live(&world, &format!("c{claim}"), 3, claim % 2 == 0).await;
    }
    let (claims, after) = (world.audit.claims(0), listed(&world));
    println!("{claims} claims, {} owners before, {} after", before.len(), after.len());
    assert!(claims > 1_000, "{claims} claims");
    assert!(after.len() <= before.len() + 1 && before.len() == 1, "{after:?}");
    world.produce(&[pod("acme", 20, "late", 1)]);
    live(&world, "last", 100, false).await;
    oracle::check(&world, &Also::default(), |_, hour| rules(hour), "after 1,000 claims");
}

#[tokio::test]
async fn owners_leave_once_their_archive_files_are_merged() {
    let world = World::on(FakeBroker::default(), 1);
    let shard_key = Some(b"acme".to_vec());
    for claim in 0..400 {
        let minute = 360 + claim * 3;
        world.set_minutes(minute + 5);
        world.produce(&[pod("acme", minute, &format!("p{claim}"), 1)]);
        if claim == 100 {
            let what = What::Bad(Reason::Malformed);
            world.send("pods", 0, shard_key.clone(), Some(vec![1, 2]), what);
        }
        live(&world, &format!("c{claim}"), 4, claim % 7 == 0).await;
    }
    let (claims, grown) = (world.audit.claims(0), listed(&world).len());
    let mut last = world.start("last", Faults::default(), |_| {});
    for _ in 0..3 {
        last.settle(&world).await.unwrap();
        world.pass(Duration::from_secs(1_801));
        world.produce(&[pod("acme", 1_600, &format!("{:?}", world.now()), 1)]);
    }
    last.settle(&world).await.unwrap();
    last.drain().await;
    let (kept, with_objects) = (listed(&world), with_objects(&world));
    println!("{claims} claims, {grown} owners, then {}, and {} have objects", kept.len(), with_objects.len());
    assert!(grown > 200, "they wrote something: {grown}");
    assert!(kept.len() <= 128 + with_objects.len(), "{} owners", kept.len());
    oracle::check(&world, &Also::default(), |_, hour| rules(hour), "owners have left");
}

#[tokio::test]
async fn what_a_dropped_owner_had_asked_for_never_counts() {
    let world = World::on(FakeBroker::default(), 1);
    world.produce(&[pod("acme", 10, "a", 1), pod("acme", 400, "b", 1)]);
    live(&world, "first", 40, true).await;
    live(&world, "second", 3, true).await;
    world.audit.look();
    let zombies = [&world.audit.latest()[&0].owner().unwrap().id, &world.audit.latest()[&0].owners[0].id]
        .map(ToString::to_string);
    let seq = world.audit.latest()[&0].seq;
    live(&world, "third", 3, false).await;
    live(&world, "fourth", 3, false).await;
    let hour = prorata_schemas::time::Hour(prorata_samples::trace::START + 2);
    let latest = || world.audit.latest()[&0].clone();
    let any = ArchivePath::parse(
        &world.lake.objects().into_iter().find(|path| path.starts_with(names::EVENTS)).unwrap(),
    );
    for (owner, seq) in zombies.iter().flat_map(|owner| (seq..seq + 4).map(move |seq| (owner, seq))) {
        let object_id = ObjectId { seq: seq + 1, owner: owner.as_str().into(), n: 7 };
        assert!(!latest().admits(&object_id), "{object_id} in {:?}", latest().owners);
        let path = ArchivePath { hour, object_id, ..any.clone().unwrap() }.path();
        world.lake.store.put_if_absent(&path, vec![1, 2, 3].into()).await.unwrap();
    }
    world.produce(&[pod("acme", 130, "late", 1)]);
    live(&world, "last", 100, false).await;
    assert!(latest().owners.iter().all(|owner| owner.kind == OwnerKind::Worker));
    oracle::check(&world, &Also::default(), |_, hour| rules(hour), "zombies");
}
