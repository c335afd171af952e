//! The dependencies for which a worker waits, their messages in its status, and the end of each wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prorata_samples::trace::{START, TRACE_END, pod, pod_stop, trace};
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeBroker, Fault, Faults, Resume};
use prorata_worker::WorkerError;
use prorata_worker::names;
use prorata_worker::ports::{Clock, ErrorKind, ObjectStore};
use prorata_worker::source::SourceError;
use prorata_worker::status::{Dependency, ShardStatus, Status};

use crate::harness::*;
use crate::world::member::{Member, Stepped};
use crate::world::{TOPICS, World};

async fn step(member: &mut Member) {
    let stepped = member.step().await;
    assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
}

fn waits(member: &Member) -> Vec<Dependency> {
    member.status.lock().waits.keys().copied().collect()
}

#[tokio::test]
async fn it_says_that_it_waits_for_storage_until_storage_answers() {
    let world = World::default();
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    assert_eq!(waits(&member), []);
    world.produce(&trace());
    world.audit.set_outage(true);
    for _ in 0..20 {
        step(&mut member).await;
        world.pass(Duration::from_secs(5));
    }
    assert_eq!(waits(&member), [Dependency::Storage]);
    let message = member.status.lock().waiting_for().unwrap();
    assert!(message.starts_with("storage: ") && message.contains("503 slow down"), "{message}");
    world.audit.set_outage(false);
    member.settle(&world).await.unwrap();
    assert_eq!(waits(&member), []);
    assert_content(&world.lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
}

/// Returns the kind and the message of the worker's wait for storage; `None` if the worker does not wait for
/// it.
fn storage_wait(member: &Member) -> Option<(ErrorKind, String)> {
    let status = member.status.lock();
    status.waits.get(&Dependency::Storage).map(|wait| (wait.kind, wait.message.clone()))
}

#[tokio::test]
async fn storage_that_needs_a_person_is_reported_by_its_kind_and_heals() {
    for kind in [ErrorKind::Permission, ErrorKind::Missing, ErrorKind::Invalid] {
        let world = World::default();
        let faults = Faults::default();
        let mut member = world.start("a", faults.clone(), |_| {});
        member.settle(&world).await.unwrap();
        world.produce(&trace());
        faults.set_storage_down(Some(kind));
        let retries = member.status.lock().counts.retries;
        let wait = loop {
            step(&mut member).await;
            if let Some(wait) = storage_wait(&member) {
                break wait;
            }
            world.pass(Duration::from_secs(5));
        };
        assert_eq!(wait.0, kind);
        assert!(wait.1.starts_with("storage: "), "{}", wait.1);
        assert!(wait.1.contains("the worker continues as soon as this is corrected"), "{}", wait.1);
        assert!(!wait.1.contains("same command"), "{}", wait.1);
        assert!(
            member.status.lock().counts.retries <= retries + 2,
            "reported at once, not after many attempts"
        );
        for _ in 0..50 {
            world.pass(Duration::from_secs(20));
            step(&mut member).await;
            assert_eq!(storage_wait(&member).map(|wait| wait.0), Some(kind));
        }
        faults.set_storage_down(None);
        member.settle(&world).await.unwrap();
        assert_eq!(waits(&member), []);
        assert_content(&world.lake, &expected(&trace(), TRACE_END, shard_of, rules), kind.name());
    }
}

#[tokio::test]
async fn a_worker_that_starts_on_storage_that_needs_a_person_ends_with_exit_code_2() {
    for (kind, code) in [(ErrorKind::Permission, 2), (ErrorKind::Missing, 2), (ErrorKind::Transient, 4)] {
        let world = World::default();
        let faults = Faults::default();
        faults.set_storage_down(Some(kind));
        let mut member = world.start("a", faults, |_| {});
        let Stepped::Stopped(Some(error)) = member.step().await else { panic!("it runs") };
        assert_eq!(error.exit_code(), code, "{error}");
        assert_eq!(error.storage_kind(), Some(kind));
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("run the same command again")));
    }
}

#[tokio::test]
async fn a_full_disk_is_waited_for_although_it_can_be_read() {
    let world = World::default();
    let faults = Faults::default();
    let mut member = world.start("a", faults.clone(), |_| {});
    member.settle(&world).await.unwrap();
    world.produce(&trace());
    faults.add(Fault::Full(faults.effects()));
    while storage_wait(&member).is_none() {
        step(&mut member).await;
        world.pass(Duration::from_secs(5));
    }
    for _ in 0..50 {
        let reads = faults.reads();
        world.pass(Duration::from_secs(31));
        step(&mut member).await;
        assert!(faults.reads() > reads, "reads are answered");
        let (kind, message) = storage_wait(&member).unwrap();
        assert_eq!(kind, ErrorKind::Transient);
        assert!(message.contains("no space left on device"), "{message}");
    }
    faults.calm();
    member.settle(&world).await.unwrap();
    assert_eq!(waits(&member), []);
    assert_content(&world.lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
}

#[tokio::test]
async fn tables_that_take_no_commit_are_behind_from_the_first_checkpoint_they_lack() {
    let world = World::on(FakeBroker::default(), 1);
    let faults = Faults::default();
    let tables = Arc::new(world.lake.tables.with_faults(faults.clone()));
    let (source, store) = (world.broker.source("a", &TOPICS), Arc::new(world.lake.store.clone()));
    let (mut worker, status) = world.worker_with(source, store, tables, "a", |_| {}).await;
    let shard = || status.lock().shards.get(&0).cloned().unwrap_or_default();
    world.produce(&trace());
    while shard().closed_through.is_none() || shard().published_at < shard().checkpoint_at {
        worker.step(Duration::ZERO).await.unwrap();
        world.pass(Duration::from_secs(5));
    }
    // Hours without new events do not make a table lag.
    world.pass(Duration::from_secs(6 * 3_600));
    worker.step(Duration::ZERO).await.unwrap();
    assert_eq!(shard().published_at, Some(world.now()));

    faults.set_storage_down(Some(ErrorKind::Transient));
    let (before, closed) = (world.now(), shard().closed_through);
    world.produce(&[pod("a", 13 * 60, "next", 1)]);
    while shard().closed_through <= closed {
        world.pass(Duration::from_secs(60));
        worker.step(Duration::ZERO).await.unwrap();
    }
    let since = shard().published_at;
    assert!(since > Some(before), "{since:?} after {before:?}");
    // Further checkpoints, or their absence, do not shorten the lag either.
    for _ in 0..100 {
        world.pass(Duration::from_secs(600));
        worker.step(Duration::ZERO).await.unwrap();
        assert_eq!(shard().published_at, since);
    }
    faults.set_storage_down(None);
    world.pass(Duration::from_secs(600));
    worker.step(Duration::ZERO).await.unwrap();
    assert_eq!(shard().published_at, Some(world.now()));
}

#[tokio::test]
async fn a_clock_that_is_set_makes_no_checkpoint_older() {
    let world = World::default();
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    let clock = world.clock_of("a");
    let age = |member: &Member| {
        let status = member.status.lock();
        let of = |shard: &ShardStatus| clock.now().micros_since(shard.checkpoint_at.unwrap());
        status.shards.values().map(of).collect::<Vec<_>>()
    };
    let before = age(&member);
    for ahead in [480, -480] {
        clock.set_ahead(ahead);
        step(&mut member).await;
        assert_eq!(age(&member), before, "{ahead} s ahead");
    }
}

#[tokio::test]
async fn storage_that_answers_within_a_long_step_is_a_sign_of_life() {
    let world = World::default();
    let faults = Faults::default();
    let mut member = world.start("a", faults.clone(), |_| {});
    member.settle(&world).await.unwrap();
    world.produce(&trace());
    let before = Instant::now();
    let second = faults.effects() + 1;
    faults.add(Fault::Pause(second));
    let hangs = loop {
        match member.step().await {
            Stepped::Paused => break member.status.lock().heartbeat,
            Stepped::Done(_) => member.status.lock().heartbeat = None,
            other => panic!("{other:?}"),
        }
    };
    assert!(hangs.is_some_and(|ticked| ticked >= before), "the first effect of the step was answered");
    assert!(world.resume(&faults, second, Resume::Happen));
    member.settle(&world).await.unwrap();
}

/// Lets time pass, with a step every five seconds, for `seconds` or until a step is not done. Returns the
/// result of the last step.
async fn pass(world: &World, member: &mut Member, seconds: u64) -> Stepped {
    for _ in 0..seconds / 5 {
        world.pass(Duration::from_secs(5));
        let stepped = member.step().await;
        if !matches!(stepped, Stepped::Done(_)) {
            return stepped;
        }
    }
    Stepped::Done(false)
}

fn gives_up(stepped: &Stepped) {
    let Stepped::Stopped(Some(error)) = stepped else { panic!("{stepped:?}") };
    assert!(matches!(error, WorkerError::Source(SourceError::Unavailable(_))), "{error}");
    assert_eq!(error.exit_code(), 4);
}

fn set_silent(world: &World, silent: bool) {
    for (topic, shard) in TOPICS.iter().flat_map(|topic| [(topic, 0), (topic, 1)]) {
        world.broker.set_partition_down(topic, shard, silent);
    }
}

#[tokio::test]
async fn it_says_that_it_waits_for_kafka_and_gives_up_after_ten_minutes_without_a_word() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    set_silent(&world, true);
    pass(&world, &mut member, 15).await;
    assert_eq!(waits(&member), []);
    pass(&world, &mut member, 580).await;
    assert_eq!(waits(&member), [Dependency::Kafka]);
    set_silent(&world, false);
    step(&mut member).await;
    assert_eq!(waits(&member), [], "Kafka has spoken");
    world.broker.set_down(true);
    pass(&world, &mut member, 300).await;
    world.pass(Duration::from_secs(3_600));
    let stepped = pass(&world, &mut member, 595).await;
    assert!(matches!(stepped, Stepped::Done(_)), "while it did not listen nothing counts: {stepped:?}");
    gives_up(&pass(&world, &mut member, 60).await);
}

#[tokio::test]
async fn a_member_that_has_lost_all_shards_and_hears_of_no_others_is_not_ready_and_gives_up() {
    for comes_back in [true, false] {
        let world = World::default();
        let mut member = world.member("a");
        member.settle(&world).await.unwrap();
        assert!(member.status.lock().ready);
        world.broker.isolate("a", true);
        world.broker.lapse("a");
        pass(&world, &mut member, 60).await;
        assert!(member.status.lock().shards.is_empty());
        assert_eq!((waits(&member), member.status.lock().ready), (vec![Dependency::Kafka], false));
        if comes_back {
            world.broker.isolate("a", false);
            member.settle(&world).await.unwrap();
            assert_eq!((waits(&member), member.status.lock().ready), (vec![], true));
            assert_eq!(member.status.lock().shards.len(), 2);
        } else {
            gives_up(&pass(&world, &mut member, 600).await);
        }
    }
}

#[tokio::test]
async fn a_member_without_shards_hears_nothing_and_waits_for_nobody() {
    let world = World::default();
    let mut first = world.member("a");
    first.settle(&world).await.unwrap();
    let mut second = world.member("b");
    let mut third = world.member("c");
    for _ in 0..40 {
        for member in [&mut first, &mut second, &mut third] {
            step(member).await;
        }
    }
    let idle = [&mut first, &mut second, &mut third]
        .into_iter()
        .find(|member| member.status.lock().shards.is_empty());
    let idle = idle.unwrap();
    world.broker.set_down(true);
    step(idle).await;
    world.broker.set_down(false);
    for _ in 0..5 {
        world.pass(Duration::from_secs(300));
        step(idle).await;
    }
    assert_eq!(waits(idle), []);
}

#[tokio::test]
async fn a_clean_stop_releases_a_shard_that_had_nothing_to_do_for_days() {
    let world = World::default();
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    for _ in 0..60 {
        world.pass(Duration::from_secs(3_600));
        step(&mut member).await;
    }
    member.drain().await;
    for (shard, checkpoint) in world.audit.latest() {
        assert!(checkpoint.owner.as_ref().unwrap().released, "shard {shard}");
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_storage_that_never_answers() {
    let world = World::default();
    let status = Arc::new(Status::default());
    let faults = Faults::default();
    world.produce(&trace());
    let opening = world.open(&TOPICS, "a", faults.clone(), status, |options| {
        options.drain_timeout = Duration::from_millis(50);
    });
    let worker = opening.await.unwrap();
    faults.add(Fault::Pause(faults.effects() + 3));
    let stop = AtomicBool::new(false);
    let stopping = async {
        while faults.paused().is_empty() {
            tokio::task::yield_now().await;
        }
        stop.store(true, Ordering::Relaxed);
    };
    let running = tokio::time::timeout(Duration::from_secs(60), worker.run(&stop));
    let (outcome, ()) = tokio::join!(running, stopping);
    outcome.expect("it keeps waiting").unwrap();
}

/// Creates a root into which a worker has read the trace before it stopped, and deletes every snapshot.
async fn without_snapshots() -> World {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    member.drain().await;
    for checkpoint in world.audit.latest().values() {
        for snapshot in checkpoint.hours.values().filter_map(|entry| entry.snapshot.as_ref()) {
            world.lake.store.delete(snapshot).await.unwrap();
        }
    }
    world
}

#[tokio::test]
async fn without_a_snapshot_that_can_be_used_hours_are_folded_again_by_the_slice() {
    let world = without_snapshots().await;
    let before = world.lake.files();
    let more = [pod("acme", 365, "more", 1)];
    world.produce(&more);
    let mut member = world.member("b");
    member.settle(&world).await.unwrap();
    assert_eq!(world.lake.files(), before, "what is folded again is the same, and no hour is restated");
    world.set_minutes(8 * 60);
    world.produce(&[pod("acme", 476, "moves time", 1), pod("hooli", 476, "moves time", 1)]);
    member.settle(&world).await.unwrap();
    let all = [trace(), more.to_vec()].concat();
    assert_content(&world.lake, &expected(&all, Hour(START + 6), shard_of, rules), "");
}

#[tokio::test]
async fn a_late_event_of_an_hour_that_folding_again_only_leads_up_to_is_in_the_tables() {
    for steps in 1..6 {
        let world = without_snapshots().await;
        let mut member = world.start("b", Faults::default(), |options| options.rows_in_flight = 1);
        for _ in 0..steps {
            step(&mut member).await;
        }
        let late = [pod("acme", 250, "late", 1), pod_stop("acme", 255, "late")];
        world.produce(&late);
        member.settle(&world).await.unwrap();
        let all = [trace(), late.to_vec()].concat();
        let context = format!("after {steps} steps");
        assert_content(&world.lake, &expected(&all, TRACE_END, shard_of, rules), &context);
    }
}

#[tokio::test]
async fn an_old_checkpoint_goes_by_its_age_though_it_cannot_be_read() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    let shard = world.shard_of("acme");
    let second = world.audit.latest()[&shard].seq;
    assert!(second >= 2);
    world.lake.store.overwrite(&names::checkpoint(shard, 1), "damaged".into());
    for age in 0..16 {
        world.pass(Duration::from_secs(12 * 3_600 + 1));
        step(&mut member).await;
        let kept = world.lake.store.objects();
        let stays = [1, 2].map(|seq| kept.contains_key(&names::checkpoint(shard, seq)));
        assert!(age > 12 || stays == [true; 2], "seven days are not over");
        assert!(
            age < 15 || stays == [false; 2],
            "they are over, and nothing reads a checkpoint to delete it"
        );
    }
}
