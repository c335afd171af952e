//! Stops with an error because of messages that Kafka lost, topics that have changed, or a root that somebody
//! else has changed.

use std::time::Duration;

use prorata_samples::trace::{node, pod, trace};
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::tables::Table;
use prorata_testkit::fakes::{FakeBroker, Faults};
use prorata_worker::names;
use prorata_worker::ports::ObjectStore;
use prorata_worker::status::ShardStop;
use prorata_worker::{StopReason, WorkerError};

use crate::harness::*;
use crate::world::member::{Member, Stepped};
use crate::world::script::read;
use crate::world::{QUIET, TOPICS, World};

/// Returns the shard of `acme` and the offset of its next message of nodes.
fn acme(world: &World) -> (u16, i64) {
    let shard = world.shard_of("acme");
    (shard, world.broker.bounds("nodes", shard).unwrap().1)
}

fn more(hourly_cost: i64) -> Vec<EventRecord> {
    (0..4).map(|minute| node("acme", 365 + minute, hourly_cost + minute)).collect()
}

/// Steps until the process ends with an error, removes the process from the group, and returns the error.
async fn ends(world: &World, mut member: Member) -> WorkerError {
    let error = member.settle(world).await.expect_err("it does not stop");
    world.broker.expire(&member.name);
    error
}

/// Steps until a shard is stopped, stops the process cleanly, and returns the stop of the shard. If no other
/// shard is left, the process ends on its own with exit code 1.
async fn stops(world: &World, mut member: Member) -> ShardStop {
    for _ in 0..400 {
        match member.step().await {
            Stepped::Done(_) => {}
            Stepped::Stopped(Some(error)) => {
                assert_eq!(error.exit_code(), 1, "{error}");
                world.broker.expire(&member.name);
                return ShardStop { reason: error.stop_reason().unwrap(), message: error.to_string() };
            }
            other => panic!("{other:?}"),
        }
        let stop = member.status.lock().shards.values().find_map(|shard| shard.stopped.clone());
        if let Some(stop) = stop {
            assert!(!member.status.lock().ready, "{stop:?}");
            member.drain().await;
            return stop;
        }
        world.pass(Duration::from_secs(5));
    }
    panic!("no shard is stopped");
}

async fn stops_with_lost_offsets(world: &World, why: &str) {
    let ShardStop { reason, message } = stops(world, world.member("b")).await;
    assert_eq!(reason, StopReason::OffsetsLost);
    assert!(message.contains(why), "{message}");
    assert!(message.starts_with("offsets_lost: topic nodes, partition "), "{message}");
    // The stop changes nothing, and the next worker stops in the same way.
    let before = world.lake.files();
    stops(world, world.member("c")).await;
    assert_eq!(world.lake.files(), before);
}

/// Steps again after a pause, and asserts that every topic partition is read to its end.
async fn step_to_the_ends(world: &World, member: &mut Member) {
    world.pass(Duration::from_secs(60));
    for _ in 0..4 {
        let stepped = member.step().await;
        assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
    }
    let status = member.status.lock().clone();
    for (shard, topics) in status.shards.iter().map(|(shard, status)| (shard, &status.topics)) {
        assert!(topics.values().all(|topic| topic.at_end), "shard {shard}: {topics:?}");
    }
}

/// Settles, lets quiet shards become due for a checkpoint, and settles again. Checkpoints then have the
/// offsets of all that was read.
async fn settle_after_rest(world: &World, member: &mut Member) {
    member.settle(world).await.unwrap();
    world.pass(QUIET);
    member.settle(world).await.unwrap();
}

/// Starts a worker with `kafka.offsets_lost: earliest`, and asserts that it folds these events.
async fn assert_continues(world: &World, events: &[EventRecord]) {
    world.audit.free_offsets();
    let mut member = world.start("d", Faults::default(), |options| options.continue_without_lost = true);
    settle_after_rest(world, &mut member).await;
    let latest = world.audit.latest();
    for (shard, checkpoint) in &latest {
        assert!(checkpoint.dirty.is_empty());
        // If a partition is empty, the worker notices only later that it was recreated.
        let next = checkpoint.offsets["nodes"].next;
        assert!(next >= Some(world.broker.bounds("nodes", *shard).unwrap().1));
        let last = checkpoint.offsets["nodes"].last.as_ref().map(|last| last.offset);
        assert!(last < next, "{last:?} was read of the log before");
    }
    let mut content = Content::new();
    for (shard, checkpoint) in latest {
        let closed = checkpoint.closed_through.unwrap();
        let of_shard = |event: &&EventRecord| world.shard_of(&event.event.organization_id) == shard;
        let within = |event: &&EventRecord| event.event.event_time.hour() <= closed;
        let events: Vec<EventRecord> = events.iter().filter(of_shard).filter(within).cloned().collect();
        content.extend(expected(&events, closed, |_| shard, rules));
    }
    assert_content(&world.lake, &content, "");
}

#[tokio::test]
async fn retention_beyond_the_next_message_is_a_loud_stop() {
    let world = read().await;
    let (shard, next) = acme(&world);
    world.produce(&more(20));
    world.broker.delete_before("nodes", shard, next + 2).unwrap();
    stops_with_lost_offsets(&world, "out of range").await;
    assert_continues(&world, &[&trace()[..], &more(20)[2..]].concat()).await;
}

#[tokio::test]
async fn retention_up_to_the_next_message_loses_nothing() {
    let world = read().await;
    let (shard, next) = acme(&world);
    world.produce(&more(20));
    world.broker.delete_before("nodes", shard, next).unwrap();
    settle_after_rest(&world, &mut world.member("b")).await;
    assert_continues(&world, &[&trace()[..], &more(20)[..]].concat()).await;
}

#[tokio::test]
async fn retention_up_to_the_next_message_of_every_topic_loses_nothing() {
    let world = read().await;
    for (topic, shard) in TOPICS.iter().flat_map(|topic| [(topic, 0), (topic, 1)]) {
        let next = world.broker.bounds(topic, shard).unwrap().1;
        world.broker.delete_before(topic, shard, next).unwrap();
    }
    let rest = [more(20), vec![pod("acme", 366, "more", 1)]].concat();
    world.produce(&rest);
    let mut member = world.member("b");
    member.settle(&world).await.unwrap();
    let taken: u64 = member.status.lock().counts.events.values().sum();
    assert_eq!(taken, rest.len() as u64);
    step_to_the_ends(&world, &mut member).await;
}

#[tokio::test]
async fn retention_that_overtakes_a_worker_is_a_loud_stop() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("b");
    member.settle(&world).await.unwrap();
    let (shard, next) = acme(&world);
    world.produce(&more(20));
    world.broker.delete_before("nodes", shard, next + 1).unwrap();
    let stop = stops(&world, member).await;
    assert_eq!(stop.reason, StopReason::OffsetsLost, "{}", stop.message);
    assert_continues(&world, &[&trace()[..], &more(20)[1..]].concat()).await;
}

#[tokio::test]
async fn a_loss_in_one_topic_loses_nothing_of_another() {
    for seed in 0..48 {
        let world = World::on(FakeBroker::seeded(seed), 2);
        world.broker.set_poll_messages(40);
        world.audit.free_offsets();
        let mut member = world.start("a", Faults::default(), |options| options.continue_without_lost = true);
        // The worker reads both topics from their beginning, and has read part of each.
        world.produce(&trace());
        for _ in 0..3 {
            let stepped = member.step().await;
            assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
        }
        let (shard, next) = acme(&world);
        world.produce(&more(20));
        world.broker.delete_before("nodes", shard, next + 4).unwrap();
        member.settle(&world).await.unwrap();
        for shard in 0..2 {
            let read = world.audit.latest()[&shard].offsets["pods"].next;
            assert_eq!(read, Some(world.broker.bounds("pods", shard).unwrap().1), "seed {seed}");
        }
        let counts = member.status.lock().counts.events.clone();
        let of_pods = |kind: &EventKind| format!("{kind:?}").starts_with("Pod");
        let taken: u64 = counts.iter().filter(|(kind, _)| of_pods(kind)).map(|(_, count)| *count).sum();
        let sent = world.sent().iter().filter(|sent| sent.topic == "pods").count();
        assert_eq!(taken, sent as u64, "seed {seed}: events of pods are left out");
    }
}

#[tokio::test]
async fn messages_of_a_deleted_log_are_not_compared_with_the_next_log() {
    let world = World::default();
    world.audit.free_offsets();
    world.produce(&trace());
    let mut member = world.start("a", Faults::default(), |options| options.continue_without_lost = true);
    member.settle(&world).await.unwrap();
    let (shard, next) = acme(&world);
    world.produce(&more(20)[..1]);
    member.step().await;
    let decided = member.status.lock().counts.checkpoints;
    world.produce(&more(20)[1..]);
    member.step().await;
    assert_eq!(member.status.lock().counts.checkpoints, decided, "what was read is in memory alone");
    world.broker.recreate("nodes");
    settle_after_rest(&world, &mut member).await;
    let offsets = &world.audit.latest()[&shard].offsets["nodes"];
    assert!(offsets.next < Some(next) && offsets.last.is_none(), "{offsets:?}");
}

#[tokio::test]
async fn a_recreated_topic_is_a_loud_stop() {
    let world = read().await;
    world.broker.recreate("nodes");
    world.produce(&more(20));
    // The other shard's partition is now empty, and may be read first.
    stops_with_lost_offsets(&world, "").await;
    assert_continues(&world, &[&trace()[..], &more(20)[..]].concat()).await;
}

#[tokio::test]
async fn a_log_that_diverged_is_a_loud_stop() {
    let world = read().await;
    let (shard, next) = acme(&world);
    world.broker.truncate("nodes", shard, next - 1).unwrap();
    world.produce(&more(20)[..1]);
    stops_with_lost_offsets(&world, "is not the one that was read before").await;
    world.produce(&more(20));
    stops_with_lost_offsets(&world, "is not the one that was read before").await;
    assert_continues(&world, &[&trace()[..], &more(20)[..]].concat()).await;
}

#[tokio::test]
async fn a_log_that_diverges_under_a_worker_is_a_loud_stop() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("b");
    member.settle(&world).await.unwrap();
    let (shard, next) = acme(&world);
    world.broker.truncate("nodes", shard, next - 1).unwrap();
    world.produce(&more(20));
    let stop = stops(&world, member).await;
    assert_eq!(stop.reason, StopReason::OffsetsLost, "{}", stop.message);
}

#[tokio::test]
async fn another_number_of_partitions_is_a_loud_stop() {
    for (topics, while_running) in [(&TOPICS[..1], false), (&TOPICS[..1], true), (&TOPICS[..], true)] {
        let world = World::default();
        world.produce(&trace());
        let mut member = world.member("a");
        member.settle(&world).await.unwrap();
        topics.iter().for_each(|topic| world.broker.set_partitions(topic, 3));
        let error =
            if while_running { ends(&world, member).await } else { ends(&world, world.member("b")).await };
        assert!(matches!(error, WorkerError::Configuration(_)), "{error}");
        assert!(error.to_string().contains("has 3 partitions, but the root has 2 shards"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[tokio::test]
async fn a_topic_that_was_read_must_be_named() {
    let world = read().await;
    world.broker.set_partitions("more", 2);
    let mut member = world.start_with_topics("b", &["nodes", "more"]);
    let error = member.settle(&world).await.unwrap_err();
    assert!(error.to_string().contains("has read topic 'pods', which kafka.topics does not name"), "{error}");
    // An additional topic is not an error. The topic is read from its beginning.
    let mut member = world.start_with_topics("c", &["nodes", "pods", "more"]);
    member.settle(&world).await.unwrap();
}

#[tokio::test]
async fn tables_ahead_of_the_checkpoints_are_a_loud_stop() {
    let world = read().await;
    for (shard, checkpoint) in world.audit.latest() {
        for seq in checkpoint.seq - 1..=checkpoint.seq {
            world.lake.store.delete(&names::checkpoint(shard, seq)).await.unwrap();
        }
        for seq in 1..checkpoint.seq {
            world.lake.store.delete(&names::checkpoint(shard, seq)).await.unwrap();
        }
    }
    let before = world.lake.files();
    let stop = stops(&world, world.member("b")).await;
    assert_eq!(stop.reason, StopReason::StateBehindTables);
    assert!(stop.message.starts_with("state_behind_tables: "), "{}", stop.message);
    assert_eq!(world.lake.files(), before);
}

#[tokio::test]
async fn a_file_of_somebody_else_is_a_loud_stop_once_its_partition_is_touched() {
    let world = read().await;
    world.lake.tables.add_foreign(Table::CostAllocation, "date=2026-11-01/part-00000.parquet");
    let mut member = world.member("b");
    let stepped = member.step().await;
    assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
    world.produce(&[pod("acme", 70, "late", 1)]);
    let ShardStop { reason, message } = stops(&world, member).await;
    assert_eq!(reason, StopReason::ForeignFile);
    assert!(message.starts_with("foreign_file: date=2026-11-01/part-00000.parquet"), "{message}");
}

#[tokio::test]
async fn a_log_that_lacks_just_the_last_record_is_a_loud_stop() {
    let world = read().await;
    let (shard, next) = acme(&world);
    world.broker.truncate("nodes", shard, next - 1).unwrap();
    stops_with_lost_offsets(&world, "but more had been read").await;
}
