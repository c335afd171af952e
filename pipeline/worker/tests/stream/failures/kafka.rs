//! Behaviour of Kafka that the fake of the simulation does not imitate.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use prorata_samples::trace::{node, pod, trace};
use prorata_testkit::fakes::{FakeBroker, Faults, Record};
use prorata_worker::StopReason;
use prorata_worker::source::Message;
use prorata_worker::status::ShardStop;

use super::rig::Leaderless;
use crate::world::member::{Member, Stepped};
use crate::world::script::read;
use crate::world::{TOPICS, World};

#[tokio::test]
async fn a_partition_without_a_leader_for_a_day_grows_no_checkpoint() {
    let world = read().await;
    let before = world.audit.latest()[&0].clone();
    let claims_before = world.audit.claims(0);
    let fails = Arc::default();
    let source = Leaderless { inner: world.broker.source("b", &TOPICS), fails: Arc::clone(&fails) };
    let (mut worker, status) = world.worker_on(source, Arc::new(world.lake.store.clone()), "b", |_| {}).await;
    for _ in 0..24 * 60 * 6 {
        worker.step(Duration::ZERO).await.unwrap();
        world.pass(Duration::from_secs(10));
    }
    assert!(!status.lock().ready, "a shard that is not read");
    assert!(status.lock().waiting_for().unwrap().contains("leader not available"));
    world.audit.look();
    let after = world.audit.latest()[&0].clone();
    let claims = world.audit.claims(0) - claims_before;
    let checkpoints = after.seq - before.seq;
    println!("{claims} claims of shard 0 in a day, {checkpoints} checkpoints, {fails:?} starts");
    assert!(claims < 10, "{claims} owners more, for ever, in every checkpoint");
    assert!(checkpoints < 10, "{checkpoints} checkpoints of a shard without news");
}

/// Steps until a shard is stopped, for at most `seconds`. Returns the stop, or `None` if no shard was
/// stopped.
async fn stopped(world: &World, member: &mut Member, seconds: u64) -> Option<ShardStop> {
    for _ in 0..seconds {
        match member.step().await {
            Stepped::Done(_) => {}
            Stepped::Stopped(Some(error)) => {
                let reason = error.stop_reason().unwrap();
                return Some(ShardStop { reason, message: error.to_string() });
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
    // When the worker first looks, the topic has fewer records than were read before.
    let mut member = world.member("b");
    let mut stop = stopped(&world, &mut member, 2).await;
    // Then the topic fills.
    for organization in ["acme", "hooli"] {
        let news: Vec<_> = (0..next + 6).map(|n| node(organization, 400 + n, 50 + n)).collect();
        world.produce(&news);
    }
    if stop.is_none() {
        stop = stopped(&world, &mut member, 60).await;
    }
    let stop = stop.expect("events of the new topic are passed over in silence");
    assert_eq!(stop.reason, StopReason::OffsetsLost, "{}", stop.message);
}

/// Recreates a topic while nobody reads it. The new log has a transaction marker at the offset of the last
/// record read, and `after` events after the marker. Returns the stop of the shard, or `None` if the shard
/// continues.
async fn recreated_with_a_marker(after: i64) -> Option<ShardStop> {
    let world = read().await;
    let shard = world.shard_of("acme");
    let next = world.broker.bounds("nodes", shard).unwrap().1;
    let others = world.broker.messages("nodes", 1 - shard).unwrap();
    world.broker.recreate("nodes");
    for Message { timestamp_millis, key, value, headers, .. } in others {
        world.broker.produce("nodes", 1 - shard, Record { timestamp_millis, key, value, headers }).unwrap();
    }
    let before: Vec<_> = (0..next - 1).map(|n| node("acme", 361 + n, 20 + n)).collect();
    world.produce(&before);
    world.broker.skip_offsets("nodes", shard, 1).unwrap();
    let after: Vec<_> = (0..after).map(|n| node("acme", 380 + n, 50 + n)).collect();
    world.produce(&after);
    let mut member = world.member("b");
    stopped(&world, &mut member, 60).await
}

#[tokio::test]
async fn a_recreated_topic_with_a_marker_at_the_last_offset_is_a_loud_stop() {
    for after in [0, 2] {
        let stop = recreated_with_a_marker(after).await.expect("its first records are never read");
        assert_eq!(stop.reason, StopReason::OffsetsLost, "{}", stop.message);
        assert!(stop.message.contains("is gone, and not by retention"), "{}", stop.message);
    }
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
    assert_eq!(stop.reason, StopReason::OffsetsLost, "{}", stop.message);
}

/// Returns another installation on the root of `world`, which reads as another consumer.
fn other(world: &World, group_id: &str, cluster_id: Option<&str>) -> World {
    let mut other = world.clone();
    other.broker = FakeBroker::of_consumer(group_id, cluster_id);
    TOPICS.iter().for_each(|topic| other.broker.set_partitions(topic, other.shards));
    other
}

/// Steps until the worker is refused, and returns the message.
async fn refused(member: &mut Member) -> String {
    for _ in 0..10 {
        match member.step().await {
            Stepped::Done(_) => {}
            Stepped::Stopped(Some(error)) => {
                assert_eq!(error.exit_code(), 2, "{error}");
                return error.to_string();
            }
            stepped => panic!("{stepped:?}"),
        }
    }
    panic!("it continues")
}

#[tokio::test]
async fn two_groups_on_one_root_are_noticed() {
    // Blue and green deployments use the same topics and the same root, but different groups.
    let blue = World::default();
    let mut one = blue.member("a");
    one.settle(&blue).await.unwrap();
    let claims = |world: &World| {
        world.audit.look();
        world.audit.latest().into_keys().map(|shard| world.audit.claims(shard)).sum::<usize>()
    };
    let before = claims(&blue);
    let groups = [("green", Some("memory")), ("prorata", Some("another")), ("green", None)];
    for (group, cluster) in groups {
        let green = other(&blue, group, cluster);
        let message = refused(&mut green.member("a")).await;
        assert!(message.contains("this root is read by 'prorata@memory'"), "{message}");
        assert!(message.contains("set kafka.moved_from: 'prorata@memory'"), "{message}");
    }
    assert_eq!(claims(&blue), before, "it is compared before anything is claimed");
    // An unknown cluster id does not count as another cluster.
    let unidentified = other(&blue, "prorata", None);
    let mut member = unidentified.member("b");
    assert!(matches!(member.step().await, Stepped::Done(_)));
}

#[tokio::test]
async fn a_root_moves_to_another_group_as_the_refusal_says() {
    let blue = World::default();
    blue.produce(&[pod("acme", 415, "p1", 1)]);
    let mut one = blue.member("a");
    one.settle(&blue).await.unwrap();
    let green = other(&blue, "green", Some("memory"));
    let moved =
        || green.start("g", Faults::default(), |options| options.moved_from = "prorata@memory".to_owned());
    let mut member = moved();
    assert!(matches!(member.step().await, Stepped::Done(_)));
    // Blue was not stopped. Once green has taken the shards, blue is refused and does not take them back.
    let mut message = None;
    for second in 0..600 {
        if second % 30 == 0 {
            blue.produce(&[pod("acme", 416 + second / 60, &format!("p{second}"), 1)]);
        }
        let stepped = member.step().await;
        assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
        if let Stepped::Stopped(Some(error)) = one.step().await {
            message = Some(error.to_string());
            break;
        }
        blue.pass(Duration::from_secs(1));
    }
    let message = message.expect("blue continues for ever");
    assert!(
        message.contains("reads as 'prorata@memory'") && message.contains("read by 'green@memory'"),
        "{message}"
    );
    // The option has no effect once the root has moved, and blue does not take over again on its own.
    let message = refused(&mut blue.member("c")).await;
    assert!(message.contains("read by 'green@memory'"), "{message}");
    assert!(matches!(moved().step().await, Stepped::Done(_)));
}

#[tokio::test]
async fn a_lone_worker_that_is_fenced_is_started_once_more_and_then_has_a_rival() {
    let world = read().await;
    let mut member = world.member("b");
    member.settle(&world).await.unwrap();
    // Under load, the member's own session ends, and the next member of the same name takes its place.
    for _ in 0..11 {
        assert!(matches!(member.step().await, Stepped::Done(_)));
        world.pass(Duration::from_secs(60));
    }
    let mut again = world.member("b");
    assert!(matches!(again.step().await, Stepped::Done(_)));
    let fenced = |stepped: Stepped| match stepped {
        Stepped::Stopped(Some(error)) => (error.exit_code(), error.to_string()),
        stepped => panic!("{stepped:?}"),
    };
    let (code, message) = fenced(member.step().await);
    assert_eq!(code, 4, "{message}");
    assert!(
        message.contains("Restart the worker: if it ends at once for the same reason, another member"),
        "{message}"
    );
    // If a worker is fenced again at once, it has a rival.
    let mut rival = world.member("b");
    assert!(matches!(rival.step().await, Stepped::Done(_)));
    let (code, message) = fenced(again.step().await);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("uses the same kafka.group_instance_id"), "{message}");
}

#[tokio::test]
async fn no_hour_closes_once_more_partitions_are_reported() {
    let world = read().await;
    let mut member = world.member("b");
    member.settle(&world).await.unwrap();
    world.audit.look();
    let closed = |world: &World| -> Vec<_> {
        world.audit.latest().values().map(|latest| latest.closed_through).collect()
    };
    let before = closed(&world);
    // These hours would close with the next step.
    world.produce(&[pod("acme", 60 * 40, "late", 1), pod("hooli", 60 * 40, "late", 1)]);
    TOPICS.iter().for_each(|topic| world.broker.set_partitions(topic, 2 * world.shards));
    let message = refused(&mut member).await;
    assert!(message.contains("so no hour closes") && message.contains("kafka.retired_topics"), "{message}");
    world.audit.look();
    assert_eq!(closed(&world), before);
    assert!(
        world.audit.latest().values().all(|latest| latest.owner.as_ref().is_some_and(|owner| owner.released))
    );
}

#[tokio::test]
async fn a_retired_topic_leaves_the_checkpoints() {
    let world = read().await;
    let [retired, kept] = TOPICS;
    let read = |world: &World| {
        world.audit.look();
        let latest = world.audit.latest();
        latest
            .values()
            .flat_map(|latest| latest.offsets.keys().map(ToString::to_string))
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(read(&world), TOPICS.map(str::to_owned).into());
    // A topic that is left out but not retired is reported as missing.
    let message = refused(&mut world.start_with_topics("b", &[kept])).await;
    assert!(
        message.contains(retired) && message.contains("in kafka.retired_topics once nobody writes to it"),
        "{message}"
    );
    world.broker.expire("b");
    world.audit.free_offsets();
    let mut member = world.start_on(&[kept], "c", Faults::default(), |options| {
        options.retired_topics = vec![retired.into()];
    });
    member.settle(&world).await.unwrap();
    member.drain().await;
    assert_eq!(read(&world), BTreeSet::from([kept.to_owned()]));
    // After that no worker needs the option.
    let mut member = world.start_with_topics("d", &[kept]);
    member.settle(&world).await.unwrap();
}
