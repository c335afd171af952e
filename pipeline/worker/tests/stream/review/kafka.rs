//! Kafka in ways that the simulation's fake has not.

use std::sync::Arc;
use std::time::Duration;

use prorata_samples::trace::{node, pod, trace};
use prorata_worker::StopReason;
use prorata_worker::status::ShardStop;

use super::rig::Leaderless;
use crate::world::member::{Member, Stepped};
use crate::world::script::read;
use crate::world::{TOPICS, World};

#[tokio::test]
async fn a_partition_without_a_leader_for_a_day_grows_no_checkpoint() {
    let world = read().await;
    let before = world.audit.latest()[&0].clone();
    let fails = Arc::default();
    let source = Leaderless { inner: world.broker.source("b", &TOPICS), fails: Arc::clone(&fails) };
    let (mut worker, status) = world.worker_on(source, Arc::new(world.lake.store.clone()), "b", |_| {}).await;
    for _ in 0..24 * 60 * 6 {
        worker.step(Duration::ZERO).await.unwrap();
        world.pass(Duration::from_secs(10));
    }
    assert!(!status.lock().ready, "a shard that is not read");
    assert!(status.lock().waits_for().unwrap().contains("leader not available"));
    world.audit.look();
    let after = world.audit.latest()[&0].clone();
    let claims = after.owners.len() - before.owners.len();
    let checkpoints = after.seq - before.seq;
    println!("{claims} claims of shard 0 in a day, {checkpoints} checkpoints, {fails:?} starts");
    assert!(claims < 10, "{claims} owners more, for ever, in every checkpoint");
    assert!(checkpoints < 10, "{checkpoints} checkpoints of a shard without news");
}

/// Steps until a shard is stopped, for at most so many seconds; why.
async fn stopped(world: &World, member: &mut Member, seconds: u64) -> Option<ShardStop> {
    for _ in 0..seconds {
        match member.step().await {
            Stepped::Done(_) => {}
            Stepped::Stopped(Some(error)) => {
                let reason = error.stop_reason().unwrap();
                return Some(ShardStop { reason, sentence: error.to_string() });
            }
            other => panic!("{other:?}"),
        }
        let stop = member.status.lock().shards.values().find_map(|shard| shard.stopped.clone());
        if stop.is_some() {
            return stop;
        }
        world.pass(Duration::from_secs(1));
    }
    None
}

#[tokio::test]
async fn a_recreated_topic_that_fills_between_two_looks_is_a_loud_stop() {
    let world = read().await;
    let shard = world.shard_of("acme");
    let next = world.broker.bounds("nodes", shard).unwrap().1;
    assert!(next >= 1);
    world.broker.recreate("nodes");
    // Fewer than were read before, as the worker first looks.
    let mut member = world.member("b");
    let mut stop = stopped(&world, &mut member, 2).await;
    // Then it fills.
    for organization in ["acme", "hooli"] {
        let news: Vec<_> = (0..next + 6).map(|n| node(organization, 400 + n, 50 + n)).collect();
        world.produce(&news);
    }
    if stop.is_none() {
        stop = stopped(&world, &mut member, 60).await;
    }
    let stop = stop.expect("events of the new topic are passed over in silence");
    assert_eq!(stop.reason, StopReason::OffsetsLost, "{}", stop.sentence);
}

#[tokio::test]
async fn a_topic_away_for_an_hour_is_compared_though_another_topic_is_heard_all_the_while() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    let next = world.broker.bounds("nodes", world.shard_of("acme")).unwrap().1;
    (0..2).for_each(|shard| world.broker.set_partition_down("nodes", shard, true));
    world.broker.recreate("nodes");
    for organization in ["acme", "hooli"] {
        let news: Vec<_> = (0..next + 6).map(|n| node(organization, 420 + n, 50 + n)).collect();
        world.produce(&news);
    }
    for second in 0..720 {
        world.produce(&[pod("acme", 421 + second / 12, &format!("x{second}"), 1)]);
        assert!(matches!(member.step().await, Stepped::Done(_)));
        world.pass(Duration::from_secs(5));
    }
    (0..2).for_each(|shard| world.broker.set_partition_down("nodes", shard, false));
    let stop = stopped(&world, &mut member, 60).await;
    let stop = stop.expect("a topic recreated an hour ago is read on in its midst");
    assert_eq!(stop.reason, StopReason::OffsetsLost, "{}", stop.sentence);
}
