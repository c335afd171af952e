//! Shards that are assigned and revoked at every single step.

use prorata_samples::trace::{pod, trace};
use prorata_testkit::fakes::{FakeMessages, Faults};
use prorata_worker::backfill::BackfillOptions;

use crate::sim::{foreign, producer::LATER};
use crate::world::cluster::{Cluster, ROUND};
use crate::world::member::Stepped;
use crate::world::script::{LONG, SHORT, check, produce_part};
use crate::world::{What, World};

/// Number of rounds of each part in which the group may change. After these rounds, the group no longer
/// changes.
const ROUNDS: u64 = 10;

/// Runs the story with one member, or with two if `second`. In one round `happens` changes the group, and a
/// few rounds later `undone` reverses the change.
async fn survives(second: bool, happens: impl Fn(&mut Cluster), undone: impl Fn(&mut Cluster)) {
    for story in [SHORT, LONG] {
        for at in story.numbers(story.parts as u64 * ROUNDS, 2) {
            let context = format!("in round {} of part {}", at % ROUNDS, at / ROUNDS);
            let world = World::default();
            let mut cluster = Cluster::new(&world, story.tune);
            cluster.start("b", Faults::default());
            if second {
                cluster.start("c", Faults::default());
            }
            for part in 0..story.parts {
                produce_part(&world, part);
                for round in 0..ROUNDS {
                    if part as u64 * ROUNDS + round == at {
                        happens(&mut cluster);
                    }
                    if part as u64 * ROUNDS + round == at + 3 {
                        undone(&mut cluster);
                    }
                    cluster.round().await;
                }
                cluster.settle(&context).await;
            }
            undone(&mut cluster);
            cluster.settle(&context).await;
            assert!(cluster.stops.is_empty(), "{context}: {:?}", cluster.stops);
            check(&world, &context);
        }
    }
}

fn nothing(_cluster: &mut Cluster) {}

#[tokio::test]
async fn a_member_that_joins_takes_a_shard_over() {
    survives(false, |cluster| cluster.start("a", Faults::default()), nothing).await;
}

#[tokio::test]
async fn a_group_that_takes_everything_from_everybody_first_loses_nothing() {
    let join = |cluster: &mut Cluster| {
        cluster.world.broker.set_eager(true);
        cluster.start("a", Faults::default());
    };
    survives(true, join, |cluster| cluster.world.broker.rebalance()).await;
}

#[tokio::test]
async fn a_member_whose_session_ends_comes_back() {
    let expire = |cluster: &mut Cluster| {
        cluster.world.broker.expire("b");
    };
    survives(true, expire, nothing).await;
    survives(false, expire, nothing).await;
}

#[tokio::test]
async fn a_member_cut_off_from_the_group_is_a_zombie_until_it_hears_of_it() {
    let cut = |cluster: &mut Cluster| {
        cluster.world.broker.isolate("b", true);
        cluster.world.broker.expire("b");
    };
    survives(true, cut, |cluster| cluster.world.broker.isolate("b", false)).await;
}

#[tokio::test]
async fn a_revocation_that_runs_out_makes_two_owners_for_a_while() {
    let join = |cluster: &mut Cluster| {
        cluster.start("a", Faults::default());
        let newcomer = cluster.members.pop().unwrap();
        cluster.members.insert(0, newcomer);
    };
    // The newcomer steps first. Its shard is revoked from the other member, which does not know this yet.
    survives(true, join, |cluster| cluster.world.broker.run_out("b")).await;
    let at_once = |cluster: &mut Cluster| {
        cluster.world.broker.isolate("b", true);
        cluster.start("a", Faults::default());
    };
    let late = |cluster: &mut Cluster| {
        cluster.world.broker.run_out("b");
        cluster.world.broker.isolate("b", false);
    };
    survives(true, at_once, late).await;
}

#[tokio::test]
async fn a_member_that_stops_cleanly_leaves_nothing_behind() {
    survives(true, |cluster| cluster.members[1].stop(), nothing).await;
}

#[tokio::test]
async fn a_shard_taken_while_messages_wait_for_the_registry_loses_none() {
    let world = World::default();
    let (first, rest) = (&trace()[..1], &trace()[1..]);
    world.produce(first);
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    // A checkpoint is decided, so that none is due for a minute.
    world.produce(&rest[..4]);
    while let Stepped::Done(true) = member.step().await {}
    // The worker takes some messages, and later messages of their topic partition wait for a schema. None of
    // the messages is decided. If the next claim took the waiting messages, it would count the earlier
    // messages as read.
    world.produce(&[pod("acme", 290, "before", 1)]);
    world.registry.set_down(true);
    let waits = pod("acme", 300, "waits", 1);
    let value = FakeMessages::encode(LATER, &waits);
    world.send_event(&waits, value, What::Unregistered(waits.clone()));
    world.produce(&rest[4..]);
    let decided = member.status.lock().counts.checkpoints;
    let stepped = member.step().await;
    assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
    assert_eq!(member.status.lock().counts.checkpoints, decided);
    // A backfill takes the shards. The group still assigns them to the worker, so the worker takes them
    // again.
    let mut options = BackfillOptions::new("backfill".into());
    (options.shards, options.take_over) = (Some(2), true);
    foreign::run(&world, first, Faults::default(), options).await.unwrap();
    for _ in 0..20 {
        member.step().await;
        world.pass(ROUND);
    }
    assert!(member.status.lock().counts.conflicts > 0);
    world.registry.register(LATER);
    world.registry.set_down(false);
    member.settle(&world).await.unwrap();
    check(&world, "");
}
