//! Wrong wall clocks, and their effects on closed hours, rejected events and reported messages.

use std::time::Duration;

use prorata_samples::trace::{START, node, pod};
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, WallTime};
use prorata_worker::names::TableFile;
use prorata_worker::status::Dependency;

use crate::harness::{Run, files};
use crate::world::World;
use crate::world::member::{Member, Stepped};
use crate::world::script::read;

const DAY: i64 = 86_400;

/// Returns the number of hours in the tables that the clock of the world has not reached.
fn ahead(world: &World) -> usize {
    let now = world.now().hour();
    let files = world.lake.files();
    let hours = files.get(&Table::Hours).into_iter().flatten().filter_map(|path| TableFile::parse(path));
    hours.filter(|file| file.hour > now).count()
}

/// Sends live events for some minutes from now, and steps the worker.
async fn lives(world: &World, member: &mut Member, minutes: i64) {
    let from = (world.now().0 - Hour(START).start().0) / 60_000_000;
    for minute in from..from + minutes {
        let of = |name: &str| format!("{name}{minute}");
        world.produce(&[pod("acme", minute, &of("a"), 1), pod("hooli", minute, &of("h"), 1)]);
        world.produce(&[node("acme", minute, 3), node("hooli", minute, 3)]);
        for _ in 0..12 {
            let stepped = member.step().await;
            assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
            world.pass(Duration::from_secs(5));
        }
    }
}

fn closed(world: &World) -> Vec<Option<Hour>> {
    world.audit.latest().values().map(|checkpoint| checkpoint.closed_through).collect()
}

/// Returns the message that the worker reports about its clock; `None` if it reports nothing.
fn clock_message(member: &Member) -> Option<String> {
    let status = member.status.lock();
    let wait = status.waits.get(&Dependency::Clock).map(|wait| wait.message.clone());
    assert_eq!(wait.is_some(), status.clock_skew_seconds != 0);
    assert!(wait.is_none() || !status.ready, "a worker that cannot trust its clock is not ready");
    wait
}

#[tokio::test]
async fn a_clock_that_leaps_ahead_closes_no_hour_and_rejects_no_event() {
    let world = read().await;
    let mut member = world.member("b");
    lives(&world, &mut member, 10).await;
    let before = closed(&world);
    assert_eq!(clock_message(&member), None);
    world.clock_of("b").set_ahead(40 * DAY);
    // Nobody sends events, so only the clock could close an hour.
    for _ in 0..5 * 12 {
        member.step().await;
        world.pass(Duration::from_secs(5));
    }
    let message = clock_message(&member).unwrap();
    assert!(message.contains("3456000 s ahead of"), "{message}");
    assert_eq!(ahead(&world), 0, "hours of the future are published");
    assert_eq!(closed(&world), before);
    lives(&world, &mut member, 70).await;
    assert!(closed(&world) > before, "events close hours all the same");
    world.clock_of("b").set_ahead(0);
    lives(&world, &mut member, 2).await;
    assert_eq!((clock_message(&member), ahead(&world)), (None, 0));
    assert_eq!(world.dead_letters.letters().len(), 0);
}

#[tokio::test]
async fn a_clock_that_falls_behind_rejects_no_event() {
    let world = read().await;
    let mut member = world.member("b");
    lives(&world, &mut member, 10).await;
    world.clock_of("b").set_ahead(-DAY);
    lives(&world, &mut member, 30).await;
    let message = clock_message(&member).unwrap();
    assert!(message.contains("86400 s behind"), "{message}");
    world.clock_of("b").set_ahead(0);
    lives(&world, &mut member, 130).await;
    assert_eq!(world.dead_letters.letters().len(), 0, "live events are dead letters");
    // The tables have all events, exactly as a worker with a correct clock writes them.
    member.drain().await;
    crate::world::oracle::check(&world, &Default::default(), |_, hour| crate::harness::rules(hour), "");
}

#[tokio::test]
async fn an_event_that_only_one_of_the_two_clocks_calls_future_waits() {
    let world = read().await;
    let mut member = world.member("b");
    lives(&world, &mut member, 10).await;
    let before = closed(&world);
    // The producer's clock has the same error.
    world.clock_of("b").set_ahead(40 * DAY);
    let minute = (world.now().0 - Hour(START).start().0) / 60_000_000;
    world.produce(&[pod("acme", minute + 40 * 24 * 60, "ahead", 1)]);
    for _ in 0..3 * 12 {
        member.step().await;
        world.pass(Duration::from_secs(5));
    }
    assert_eq!((world.dead_letters.letters().len(), ahead(&world)), (0, 0));
    assert_eq!(closed(&world), before);
    world.clock_of("b").set_ahead(0);
    lives(&world, &mut member, 5).await;
    let letters = world.dead_letters.letters();
    let reasons: Vec<String> = letters.iter().map(|letter| letter.rejected.reject.to_string()).collect();
    assert!(reasons.len() == 1 && reasons[0].starts_with("in_the_future: "), "{reasons:?}");
}

/// The producers of one organization have clocks that are ahead, within the accepted limit. They send as
/// often as other producers.
#[tokio::test]
async fn no_hour_closes_before_the_clock_has_passed_its_end_whatever_event_times_come() {
    for ahead in [0, 4, 9] {
        let world = read().await;
        let mut member = world.member("b");
        let from = (world.now().0 - Hour(START).start().0) / 60_000_000;
        for minute in from..from + 130 {
            let of = |name: &str| format!("{name}{minute}");
            world.produce(&[pod("gamma", minute + ahead, &of("g"), 1), node("gamma", minute + ahead, 3)]);
            for _ in 0..12 {
                let stepped = member.step().await;
                assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
                for hour in closed(&world).into_iter().flatten() {
                    let end = WallTime(hour.next().start().0);
                    assert!(world.now() >= end, "hour {hour} is closed early, {ahead} m ahead");
                }
                world.pass(Duration::from_secs(5));
            }
            // The other producers' clocks are right, and a minute passes until their events are read.
            world.produce(&[pod("acme", minute, &of("a"), 1), pod("hooli", minute, &of("h"), 1)]);
            world.produce(&[node("acme", minute, 3), node("hooli", minute, 3)]);
        }
        assert_eq!(member.status.lock().counts.late_events, 0, "{ahead} m ahead makes others late");
        assert!(closed(&world).into_iter().all(|closed| closed >= Some(Hour(START + 8))), "{ahead} m ahead");
        assert_eq!(world.dead_letters.letters().len(), 0);
    }
}

#[tokio::test]
async fn a_clock_set_back_does_not_stop_checkpoints_or_hours() {
    let world = read().await;
    let mut member = world.member("b");
    lives(&world, &mut member, 10).await;
    let seqs = |world: &World| world.audit.latest().values().map(|latest| latest.seq).collect::<Vec<_>>();
    let before = seqs(&world);
    world.clock_of("b").set_ahead(-10 * 3_600);
    world.produce(&[pod("acme", 7 * 60 + 5, "x", 1), pod("hooli", 7 * 60 + 5, "x", 1)]);
    for _ in 0..10 * 12 {
        member.step().await;
        world.pass(Duration::from_secs(5));
    }
    assert!(
        seqs(&world) > before,
        "no checkpoint after the step back: delays are measured by the wall clock"
    );
}

#[tokio::test]
async fn a_worker_does_not_start_with_a_clock_that_the_store_contradicts() {
    for ahead in [2 * DAY, -DAY] {
        let world = read().await;
        let before = closed(&world);
        world.clock_of("b").set_ahead(ahead);
        let mut member = world.member("b");
        let error = member.settle(&world).await.unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        assert!(error.to_string().contains("correct the clock"), "{error}");
        assert_eq!(closed(&world), before);
        let released = |shard: u16| world.audit.latest()[&shard].owner.as_ref().unwrap().released;
        assert!(released(0) && released(1), "an orderly end releases the shards");
    }
}

#[tokio::test]
async fn an_allowed_clock_difference_is_not_reported() {
    let world = read().await;
    world.clock_of("b").set_ahead(9 * 60);
    let mut member = world.member("b");
    lives(&world, &mut member, 10).await;
    assert_eq!((clock_message(&member), world.dead_letters.letters().len()), (None, 0));
}

#[tokio::test]
async fn a_backfill_whose_clock_is_wrong_is_refused_in_a_workers_root() {
    let world = read().await;
    let before = (closed(&world), world.lake.files());
    // The event is two days ahead, so a clock that is as far ahead takes it for an event of today.
    let minute = (world.now().0 - Hour(START).start().0) / 60_000_000;
    let files = files(&[&[pod("acme", minute + 2 * DAY / 60, "ahead", 1)]]);
    for seconds in [2 * DAY, -DAY] {
        let mut run = Run::new("bf").with(|options| options.take_over = true);
        run.now = Some(WallTime(world.now().0 + seconds * 1_000_000));
        let error = world.lake.run(&files, run).await.unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("the clock of this machine is"), "{error}");
    }
    assert_eq!((closed(&world), world.lake.files()), before);
    let run = Run::new("bf").with(|options| options.take_over = true);
    let outcome = world.lake.run(&files, run).await.unwrap();
    assert_eq!(outcome.dead_letters_all(), 1, "an event two days ahead");
}
