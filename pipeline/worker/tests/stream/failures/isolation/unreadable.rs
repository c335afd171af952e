//! A batch of messages that cannot be read, which stops its shard until the batch is skipped.

use std::time::Duration;

use prorata_samples::trace::{TRACE_END, pod, trace};
use prorata_schemas::reject::Reason;
use prorata_testkit::fakes::Faults;
use prorata_worker::StopReason;
use prorata_worker::stream::SkippedBatch;

use crate::harness::{assert_content, expected, rules, shard_of};
use crate::world::World;
use crate::world::member::{Member, Stepped};

/// Steps for twenty minutes.
async fn live(world: &World, member: &mut Member) {
    for _ in 0..240 {
        let stepped = member.step().await;
        assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
        world.pass(Duration::from_secs(5));
    }
}

/// Creates a world in which two records of `acme` are in an unreadable batch among other records. Returns the
/// world, the shard of the two records, and the first offset of the batch.
fn broken() -> (World, u16, i64) {
    let world = World::default();
    world.produce(&trace()[..4]);
    let shard = world.shard_of("acme");
    let first = world.broker.bounds("pods", shard).unwrap().1;
    world.produce(&[pod("acme", 50, "lost", 1), pod("acme", 51, "lost too", 1)]);
    world.broker.set_unreadable("pods", shard, first, first + 1);
    world.produce(&trace()[4..]);
    (world, shard, first)
}

fn skipping(world: &World, shard: u16, first: i64, through: i64) -> Member {
    let batch = SkippedBatch { topic: "pods".into(), partition: shard, offset: first, through };
    world.start("b", Faults::default(), move |options| options.skip_batches = vec![batch])
}

#[tokio::test]
async fn a_batch_that_cannot_be_read_stops_its_shard_alone_and_says_where_it_is() {
    let (world, shard, first) = broken();
    let mut member = world.member("a");
    live(&world, &mut member).await;
    let status = member.status.lock().clone();
    let stop = status.shards[&shard].stopped.clone().unwrap();
    assert_eq!(stop.reason, StopReason::Unreadable);
    let place = format!("unreadable: topic pods, partition {shard}, offset {first}: it does not unpack");
    assert!(stop.message.contains(&place) && stop.message.contains("kafka.skip_batches"), "{}", stop.message);
    assert!(status.shards[&(1 - shard)].stopped.is_none());
    let latest = world.audit.latest();
    assert!(latest[&(1 - shard)].closed_through >= Some(TRACE_END), "the other shard continues");
    assert!(latest[&shard].owner.as_ref().unwrap().released);
}

#[tokio::test]
async fn a_batch_that_is_to_be_passed_over_is_a_dead_letter_and_the_rest_is_read() {
    let (world, shard, first) = broken();
    let mut member = world.member("a");
    live(&world, &mut member).await;
    member.drain().await;
    let mut member = skipping(&world, shard, first, first + 1);
    member.settle(&world).await.unwrap();
    let letters = world.dead_letters.letters();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!(letter.rejected.reject.reason, Reason::Malformed);
    let message = format!("the batch of offsets {first} to {} cannot be read", first + 1);
    assert!(letter.rejected.reject.message.contains(&message), "{letter:?}");
    assert_eq!(letter.origin.to_string(), format!("topic pods, partition {shard}, offset {first}"));
    assert_content(&world.lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
    // The batch is skipped once, and the next worker needs no setting.
    member.drain().await;
    let mut member = world.member("c");
    world.produce(&[pod("acme", 365, "next", 1)]);
    member.settle(&world).await.unwrap();
    assert_eq!(member.status.lock().counts.events.values().sum::<u64>(), 1);
    assert_eq!(world.dead_letters.letters().len(), 1);
}

#[tokio::test]
async fn a_batch_that_differs_from_the_skipped_offsets_stops_its_shard() {
    let (world, shard, first) = broken();
    for (offset, through) in [(first, first), (first - 1, first + 1)] {
        let mut member = skipping(&world, shard, offset, through);
        live(&world, &mut member).await;
        let stop = member.status.lock().shards[&shard].stopped.clone().unwrap();
        assert_eq!(stop.reason, StopReason::Unreadable);
        member.drain().await;
    }
}
