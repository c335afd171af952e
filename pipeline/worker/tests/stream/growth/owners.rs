//! Claims of a shard. A checkpoint does not grow with the number of claims, and the objects that a dead owner
//! left never count.

use std::time::Duration;

use prorata_samples::trace::{START, pod};
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeBroker, Faults};
use prorata_worker::names::{self, ArchivePath, ObjectId};
use prorata_worker::ports::ObjectStore;

use crate::harness::rules;
use crate::world::World;
use crate::world::oracle::{self, Also};

/// Returns the size of the shard's latest checkpoint in bytes, and the number of hours in it.
fn size(world: &World) -> (usize, usize) {
    world.audit.look();
    let latest = world.audit.latest()[&0].clone();
    (world.lake.store.objects()[&names::checkpoint(0, latest.seq)].len(), latest.hours.len())
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
async fn claims_grow_no_checkpoint() {
    let world = World::on(FakeBroker::default(), 1);
    world.produce(&[pod("acme", 10, "a", 1), pod("acme", 400, "b", 1)]);
    live(&world, "first", 40, false).await;
    let (before, hours_before) = size(&world);
    for claim in 0..1_000 {
        live(&world, &format!("c{claim}"), 3, claim % 2 == 0).await;
    }
    let (claims, (after, hours)) = (world.audit.claims(0), size(&world));
    println!("{claims} claims, {before} bytes before, {after} after");
    assert!(claims > 1_000, "{claims} claims");
    let of_hours = 1_000 * (hours - hours_before);
    assert!(after <= before + of_hours + 64, "{after} bytes after {before}, {hours} hours");
    world.produce(&[pod("acme", 20, "late", 1)]);
    live(&world, "last", 100, false).await;
    oracle::check(&world, &Also::default(), |_, hour| rules(hour), "after 1,000 claims");
}

#[tokio::test]
async fn objects_of_a_dead_owner_or_of_a_stranger_never_count() {
    let world = World::on(FakeBroker::default(), 1);
    world.produce(&[pod("acme", 10, "a", 1), pod("acme", 400, "b", 1)]);
    live(&world, "first", 40, true).await;
    live(&world, "second", 3, true).await;
    world.audit.look();
    let latest = world.audit.latest()[&0].clone();
    let zombie = latest.owner.as_ref().unwrap().id.clone();
    live(&world, "third", 3, false).await;
    let any = world.lake.objects().into_iter().find(|path| path.starts_with(names::EVENTS)).unwrap();
    let copy = world.lake.store.get(&any).await.unwrap().unwrap();
    let any = ArchivePath::parse(&any).unwrap();
    for (owner, seq) in
        [&*zombie, "somebody"].into_iter().flat_map(|owner| (1..9).map(move |seq| (owner, seq)))
    {
        // Garbage would stop the shard, and the copy would count its events in another hour.
        for (n, bytes) in [(7, vec![1, 2, 3].into()), (8, copy.clone())] {
            let object_id = ObjectId { seq: latest.seq - 3 + seq, owner: owner.into(), n };
            let path = ArchivePath { hour: Hour(START + 2), object_id, ..any.clone() }.path();
            world.lake.store.put_if_absent(&path, bytes).await.unwrap();
        }
    }
    world.produce(&[pod("acme", 130, "late", 1)]);
    live(&world, "last", 100, false).await;
    oracle::check(&world, &Also::default(), |_, hour| rules(hour), "zombies");
}
