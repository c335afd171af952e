//! Events in foreign files that are far in the past because of a wrong clock.

use prorata_samples::trace::{START, TRACE_END, node, pod, trace};
use prorata_schemas::reject::Reason;
use prorata_schemas::time::{Hour, WallTime};
use prorata_testkit::fakes::{Faults, SteppedClock};
use prorata_worker::StopReason;
use prorata_worker::backfill::BackfillOptions;

use crate::harness::*;
use crate::sim::foreign;
use crate::world::World;
use crate::world::script::read;

/// A time far beyond the horizon, in hours.
const BACK: i64 = 3_000;

fn options(world: &World, owner: &str) -> BackfillOptions {
    let mut options = BackfillOptions::new(owner.into());
    options.shards = Some(world.shards);
    options.threads = 1;
    options.max_hours = 1_000;
    // The limit has the same effect as more than 64 MiB of events.
    options.buffer_bytes = 1;
    options
}

#[tokio::test]
async fn an_ancient_event_is_a_dead_letter_and_the_tables_are_those_without_it() {
    let mut lake = Lake::default();
    lake.store = lake.store.with_clock(SteppedClock::new(WallTime(TRACE_END.end().0)));
    let run = |owner| Run::new(owner).with(|options| (options.max_hours, options.buffer_bytes) = (1_000, 1));
    // Each shard has one organization. One shard was claimed before the event arrived; the other shard was
    // not.
    let ancient = [pod("acme", -60 * BACK, "ancient", 1), pod("hooli", -60 * BACK, "ancient", 1)];
    for owner in ["aa", "bb"] {
        let outcome = lake.run(&files(&[&trace(), &ancient]), run(owner)).await.unwrap();
        assert_eq!(outcome.dead_letters[&Reason::TooLate], 2);
        let why = "lies further back than backfill.max_hours: 1000";
        assert!(outcome.dead_letter_examples[0].contains(why), "{outcome:?}");
        assert_content(&lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
    }
    let letters = lake.objects().into_iter().filter(|path| path.starts_with("dead-letter/"));
    assert_eq!(letters.count(), 1, "the same input leaves one copy");
    // If `to` is set, the distance of an event is counted from that hour.
    let named = run("cc").with(|options| options.to = Some(Hour(START - BACK + 10)));
    let outcome = Lake::default().run(&files(&[&ancient]), named).await.unwrap();
    assert_eq!((outcome.events_new, outcome.dead_letters.len()), (2, 0));
}

#[tokio::test]
async fn a_worker_never_folds_half_a_century_for_a_backfill() {
    let world = read().await;
    let ancient =
        [node("acme", -60 * BACK, 1), pod("acme", -60 * BACK, "ancient", 1), pod("acme", 61, "late", 1)];
    let outcome = foreign::run(&world, &ancient, Faults::default(), options(&world, "bb")).await.unwrap();
    assert_eq!((outcome.events_new, outcome.dead_letters[&Reason::TooLate]), (1, 2));
    let mut member = world.start("c", Faults::default(), |options| options.max_history_hours = 1_000);
    world.audit.free_offsets();
    for _ in 0..6 {
        let _ = member.settle(&world).await;
    }
    let first = world.lake.content().into_keys().map(|(_, hour, _)| hour).min().unwrap();
    assert!(first >= Hour(START), "hours are published from {} hours before the first on", START - first.0);
}

/// Creates a world with shards that a worker has owned, but to which nobody has sent anything.
async fn untouched() -> World {
    let world = World::default();
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    member.drain().await;
    world
}

#[tokio::test]
async fn a_backfill_cannot_exceed_the_history_limit_of_a_workers_shard() {
    let world = untouched().await;
    let ancient = [node("acme", -60 * BACK, 1), pod("acme", -60 * BACK, "ancient", 1)];
    let mut bounded = options(&world, "bb");
    (bounded.max_hours, bounded.max_history_hours) = (100_000, 1_000);
    let outcome = foreign::run(&world, &ancient, Faults::default(), bounded).await.unwrap();
    assert_eq!(outcome.dead_letters[&Reason::TooLate], 2);
    assert!(outcome.dead_letter_examples[0].contains("work.max_history_hours: 1000"), "{outcome:?}");
}

#[tokio::test]
async fn a_worker_stops_a_shard_whose_archive_begins_too_far_back_and_has_the_others() {
    let world = untouched().await;
    let ancient = [node("acme", -60 * BACK, 1), pod("acme", -60 * BACK, "ancient", 1)];
    let mut unbounded = options(&world, "bb");
    unbounded.max_hours = 100_000;
    foreign::run(&world, &ancient, Faults::default(), unbounded).await.unwrap();
    let mut member = world.start("c", Faults::default(), |options| options.max_history_hours = 1_000);
    world.produce(&trace());
    for _ in 0..6 {
        let _ = member.settle(&world).await;
    }
    let shards = member.status.lock().shards.clone();
    let stopped = shards.iter().filter_map(|(shard, status)| Some((*shard, status.stopped.as_ref()?.reason)));
    let stops: Vec<_> = stopped.collect();
    assert_eq!(stops, [(world.shard_of("acme"), StopReason::HistoryTooLong)], "{shards:?}");
    let first = world.lake.content().into_keys().map(|(_, hour, _)| hour).min().unwrap();
    assert!(first >= Hour(START), "the others are published, from their first hour on");
}
