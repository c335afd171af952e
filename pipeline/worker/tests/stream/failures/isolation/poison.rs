//! Problems of one shard, which must not affect other shards.

use std::time::Duration;

use prorata_samples::trace::{START, pod};
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::Faults;
use prorata_worker::names::ArchivePath;
use prorata_worker::{StopReason, WorkerError};

use crate::world::World;
use crate::world::member::{Member, Stepped};
use crate::world::script::read;

/// Runs members that Kubernetes restarts five minutes after they stop. Their shards move to the other member
/// when the session ends, after 45 seconds. Returns the member and the error of each stop.
async fn live(world: &World, rounds: usize) -> Vec<(usize, WorkerError)> {
    let mut members: Vec<Option<Member>> = vec![Some(world.member("a")), Some(world.member("b"))];
    let mut again = [usize::MAX; 2];
    let mut stops = Vec::new();
    for round in 0..rounds {
        for index in 0..2 {
            if members[index].is_none() && round + 51 == again[index] {
                world.broker.expire(["a", "b"][index]);
            }
            if members[index].is_none() && round >= again[index] {
                members[index] = Some(world.start(["a", "b"][index], Faults::default(), |_| {}));
            }
            let Some(member) = &mut members[index] else { continue };
            if let Stepped::Stopped(Some(error)) = member.step().await {
                stops.push((index, error));
                members[index] = None;
                again[index] = round + 60;
            }
        }
        world.pass(Duration::from_secs(5));
    }
    stops
}

/// Damages an archive file of shard 0 and makes its hour dirty. Returns the file, an organization of the
/// shard, and an organization of the other shard.
fn damage(world: &World) -> (String, &'static str, &'static str) {
    let is_victim =
        |path: &String| ArchivePath::parse(path).is_some_and(|file| file.shard == 0 && file.hour.0 > START);
    let victim = world.lake.objects().into_iter().find(is_victim).unwrap();
    let ArchivePath { hour, .. } = ArchivePath::parse(&victim).unwrap();
    world.lake.store.overwrite(&victim, "damaged".into());
    let of =
        |shard| ["acme", "hooli", "gamma"].into_iter().find(|name| world.shard_of(name) == shard).unwrap();
    let (ours, other) = (of(0), of(1));
    world.produce(&[pod(ours, (hour.0 - START) * 60 + 1, "late", 1)]);
    world.set_minutes(10 * 60);
    world.produce(&[pod(other, 9 * 60 + 50, "live", 1), pod(ours, 9 * 60 + 50, "live", 1)]);
    (victim, ours, other)
}

#[tokio::test]
async fn one_damaged_object_of_one_shard_stops_no_other_shard() {
    let world = read().await;
    let (victim, _, other) = damage(&world);
    let stops = live(&world, 240).await;
    let of = |index| stops.iter().filter(|(member, _)| *member == index).count();
    println!("stops in 20 minutes: {} of a, {} of b; the first: {:?}", of(0), of(1), stops.first());
    let both = [0, 1].into_iter().all(|index| of(index) > 0);
    assert!(!both, "one object stops all workers, one after another: {} stops in 20 minutes", stops.len());
    assert!(
        stops
            .iter()
            .all(|(_, error)| matches!(error, WorkerError::Damaged { object, .. } if *object == victim))
    );
    let latest = world.audit.latest();
    let closed = latest[&world.shard_of(other)].closed_through;
    assert!(closed >= Some(Hour(START + 8)), "the other shard closes its hours: {closed:?}");
    assert!(latest[&0].owner.as_ref().unwrap().released, "a stopped shard is released");
}

#[tokio::test]
async fn a_worker_with_a_stopped_shard_continues_with_the_others() {
    let world = read().await;
    let (victim, ..) = damage(&world);
    let mut member = world.member("b");
    for _ in 0..200 {
        let stepped = member.step().await;
        assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
        world.pass(Duration::from_secs(5));
    }
    let status = member.status.lock().clone();
    let stop = status.shards[&0].stopped.clone().unwrap();
    assert_eq!(stop.reason, StopReason::Damaged);
    assert!(stop.message.contains(&victim), "{}", stop.message);
    assert!(!status.ready && status.shards[&1].stopped.is_none() && status.shards[&1].loaded);
    assert!(status.shards[&1].closed_through >= Some(Hour(START + 8)));
    world.audit.look();
    let claims = world.audit.claims(0);
    assert!(claims < 12, "{claims} claims: a stopped shard is tried again with growing delays");
}
