//! Schemas that the registry does not return, and the topic partitions that wait for them.

use std::time::Duration;

use prorata_samples::trace::{TRACE_END, node, pod, trace};
use prorata_schemas::event::EventRecord;
use prorata_schemas::reject::Reason;
use prorata_testkit::fakes::{FakeBroker, FakeMessages, Faults};

use crate::world::member::{Member, Stepped};
use crate::world::script::check;
use crate::world::{What, World};

/// A schema for which the registry returns an unexpected answer.
const ODD: u32 = 40_301;

/// The smallest id of many unknown schemas.
const UNKNOWN: u32 = 1_000_000;

fn send(world: &World, schema: u32, event: &EventRecord) {
    world.send_event(event, FakeMessages::encode(schema, event), What::Unregistered(event.clone()));
}

async fn live(world: &World, member: &mut Member, seconds: u64) {
    for _ in 0..seconds / 5 {
        let stepped = member.step().await;
        assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
        world.pass(Duration::from_secs(5));
    }
}

/// Returns the next offset that a worker will read.
fn next(member: &Member, shard: u16, topic: &str) -> i64 {
    member.status.lock().shards[&shard].topics[topic].next_offset
}

fn unknown(member: &Member) -> u64 {
    member.status.lock().counts.dead_letters.get(&Reason::UnknownSchema).copied().unwrap_or_default()
}

#[tokio::test]
async fn a_schema_that_the_registry_does_not_give_holds_up_its_topic_partition_alone() {
    let world = World::default();
    world.registry.set_odd(ODD, true);
    let shard = world.shard_of("acme");
    send(&world, ODD, &pod("acme", 5, "odd", 1));
    world.produce(&trace());
    let mut member = world.member("a");
    live(&world, &mut member, 1_200).await;
    assert_eq!(next(&member, shard, "pods"), 0, "it waits");
    let ends = |shard, topic| world.broker.bounds(topic, shard).unwrap().1;
    for (shard, topic) in [(shard, "nodes"), (1 - shard, "pods"), (1 - shard, "nodes")] {
        assert_eq!(next(&member, shard, topic), ends(shard, topic), "{topic} of shard {shard}");
    }
    assert!(world.audit.latest()[&(1 - shard)].closed_through >= Some(TRACE_END));
    assert!(world.registry.fetches() < 100, "{} questions in 20 minutes", world.registry.fetches());
    // The registry now answers that it does not know the schema.
    world.registry.set_odd(ODD, false);
    member.settle(&world).await.unwrap();
    assert_eq!(unknown(&member), 1);
    check(&world, "");
}

#[tokio::test]
async fn a_flood_of_unknown_schemas_holds_up_no_other_topic_partition() {
    const FLOOD: u32 = 3_000;
    let world = World::default();
    world.broker.set_poll_messages(100_000);
    let shard = world.shard_of("acme");
    let event = pod("acme", 5, "unknown", 1);
    (0..FLOOD).for_each(|number| send(&world, UNKNOWN + number, &event));
    world.produce(&trace());
    let mut member = world.member("a");
    // One step joins the group, and another step reads.
    live(&world, &mut member, 15).await;
    let ends = |shard, topic| world.broker.bounds(topic, shard).unwrap().1;
    for (shard, topic) in [(shard, "nodes"), (1 - shard, "pods"), (1 - shard, "nodes")] {
        assert_eq!(next(&member, shard, topic), ends(shard, topic), "{topic} of shard {shard}");
    }
    assert!(next(&member, shard, "pods") < ends(shard, "pods"), "the flood is not over");
    let mut steps = 0;
    while unknown(&member) < u64::from(FLOOD) {
        steps += 1;
        assert!(steps < 30, "{} of the flood after 30 steps", unknown(&member));
        assert!(matches!(member.step().await, Stepped::Done(_)));
    }
    let most = world.registry.most_at_once();
    assert!((2..=16).contains(&most), "{most} questions at once");
    member.settle(&world).await.unwrap();
    check(&world, "");
}

#[tokio::test]
async fn a_waiting_partition_is_not_read_and_kafka_does_not_count_as_silent() {
    let world = World::on(FakeBroker::default(), 1);
    world.registry.set_odd(ODD, true);
    let first = [pod("acme", 5, "odd", 1), node("hooli", 5, 3)];
    first.iter().for_each(|event| send(&world, ODD, event));
    world.produce(&trace());
    let rest = |number| [pod("acme", 300, &format!("{number}"), 1), node("hooli", 300, number)];
    (1..50).for_each(|number| world.produce(&rest(number)));
    let mut member = world.start("a", Faults::default(), |options| options.queue_bytes = 4_096);
    // The time is longer than the maximum silence of Kafka.
    live(&world, &mut member, 1_200).await;
    assert_eq!([next(&member, 0, "pods"), next(&member, 0, "nodes")], [0, 0]);
    world.registry.set_odd(ODD, false);
    member.settle(&world).await.unwrap();
    assert_eq!(unknown(&member), 2);
    assert!(member.status.lock().waits.is_empty());
    crate::world::oracle::check(&world, &Default::default(), |_, hour| crate::harness::rules(hour), "");
}
