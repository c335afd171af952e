//! One worker that nothing happens to.

use prorata_schemas::event::EventRecord;
use prorata_schemas::reject::Reason;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::Faults;

use crate::harness::*;
use crate::world::{What, World};

/// Asserts that the lake is what a plain fold of these events through the trace's end gives.
fn assert_folded(world: &World, events: &[EventRecord], context: &str) {
    assert_content(&world.lake, &expected(events, TRACE_END, shard_of, rules), context);
}

#[tokio::test]
async fn a_worker_writes_what_a_plain_fold_gives() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    assert_folded(&world, &trace(), "");
    let status = member.status.lock().clone();
    assert!(status.ready);
    assert_eq!(status.counts.events.values().sum::<u64>(), 10);
    assert_eq!(status.shards[&0].closed_through, Some(Hour(START + 5)));
}

#[tokio::test]
async fn a_late_event_mends_what_it_touches() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    let late = [pod("acme", 70, "late", 1), pod_stop("acme", 170, "late"), node("hooli", 200, 8)];
    world.produce(&late);
    member.settle(&world).await.unwrap();
    assert_folded(&world, &[trace(), late.to_vec()].concat(), "");
    assert_eq!(member.status.lock().counts.late_events, 3);
    world.produce(&late);
    let before = world.lake.files();
    member.settle(&world).await.unwrap();
    assert_eq!(world.lake.files(), before, "an event that the archive holds changes nothing");
    let counts = member.status.lock().counts.clone();
    assert_eq!((counts.late_events, counts.late_duplicates), (3, 3));
}

#[tokio::test]
async fn a_second_worker_goes_on_where_the_first_stopped() {
    let world = World::default();
    let (first, second) = (&trace()[..5], &trace()[5..]);
    world.produce(first);
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    member.drain().await;
    drop(member);
    world.produce(second);
    let mut member = world.member("b");
    member.settle(&world).await.unwrap();
    assert_folded(&world, &trace(), "");
    assert_eq!(member.status.lock().counts.events.values().sum::<u64>(), 5);
}

#[tokio::test]
async fn the_first_event_of_a_shard_cannot_have_half_a_century_closed() {
    let world = World::default();
    let ancient = |hours: i64| pod("acme", -60 * hours, "ancient", 1);
    // 7 hours have passed since the start of the trace.
    world.produce(&[ancient(94), ancient(93)]);
    world.produce(&trace());
    let mut member = world.start("a", Faults::default(), |options| options.hours_max = 100);
    member.settle(&world).await.unwrap();
    let letters = world.letters.letters();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!(letter.rejected.reject.reason, Reason::TooLate);
    let sentence = &letter.rejected.reject.sentence;
    assert!(sentence.contains("101 hours back") && sentence.contains("work.hours_max: 100"), "{sentence}");
    assert_folded(&world, &[vec![ancient(93)], trace()].concat(), "");
}

#[tokio::test]
async fn a_dead_letter_that_is_too_large_for_its_topic_stays_in_the_file_and_holds_up_no_other() {
    let world = World::default();
    world.letters.set_largest(Some(100));
    let event = node("acme", 10, 1);
    for length in [101, 100] {
        world.send_event(&event, vec![255; length], What::Bad(Reason::UnknownSchema));
    }
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    let lengths =
        || world.letters.letters().iter().map(|letter| letter.rejected.bytes.len()).collect::<Vec<_>>();
    assert_eq!(lengths(), [100]);
    world.send_event(&event, vec![255; 99], What::Bad(Reason::UnknownSchema));
    member.settle(&world).await.unwrap();
    assert_eq!(lengths(), [100, 99]);
    let waiting =
        world.audit.latest().values().map(|checkpoint| checkpoint.dead_letters.len()).sum::<usize>();
    assert_eq!(waiting, 0);
}
