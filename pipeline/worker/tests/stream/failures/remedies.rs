//! Every remedy that the message of a stopped shard names, applied as the message states, while the other
//! shard continues.

use std::collections::BTreeSet;
use std::time::Duration;

use prorata_samples::trace::{START, TRACE_END, node, pod, trace};
use prorata_schemas::event::EventRecord;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::Faults;
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::names::{self, ArchivePath, Shard};
use prorata_worker::ports::ObjectStore;
use prorata_worker::{StopReason, WorkerError};

use crate::harness::*;
use crate::sim::foreign;
use crate::world::World;
use crate::world::member::{Member, Stepped};
use crate::world::script::read;

/// Steps for some minutes, and asserts that the worker does not stop.
async fn lives(world: &World, member: &mut Member, minutes: u64) {
    for _ in 0..minutes * 6 {
        let stepped = member.step().await;
        assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
        world.pass(Duration::from_secs(10));
    }
}

/// Steps until a shard is stopped. Returns the shard and the message.
async fn stopped(world: &World, member: &mut Member, reason: StopReason) -> (Shard, String) {
    for _ in 0..400 {
        lives(world, member, 1).await;
        let shards = member.status.lock().shards.clone();
        let stop = shards.iter().find_map(|(shard, status)| Some((*shard, status.stopped.clone()?)));
        if let Some((shard, stop)) = stop {
            assert_eq!(stop.reason, reason, "{}", stop.message);
            return (shard, stop.message);
        }
    }
    panic!("no shard is stopped");
}

/// Steps until no shard is stopped, for at most this many minutes.
async fn wait_until_running(world: &World, member: &mut Member, minutes: u64) {
    for _ in 0..minutes {
        lives(world, member, 1).await;
        let status = member.status.lock();
        if status.shards.values().all(|shard| shard.stopped.is_none()) && status.ready {
            return;
        }
    }
    let stop = member.status.lock().shards.values().find_map(|shard| shard.stopped.clone());
    panic!("it is still stopped: {stop:?}");
}

/// Runs `prorata backfill --shards <shard>` while the worker has the other shards.
async fn backfill(world: &World, shard: Shard, events: &[EventRecord]) -> Result<(), WorkerError> {
    backfill_without(world, shard, events, &[]).await
}

/// Runs the same command with `--without-archive-file`.
async fn backfill_without(
    world: &World,
    shard: Shard,
    events: &[EventRecord],
    without: &[&str],
) -> Result<(), WorkerError> {
    let mut options = BackfillOptions::new("mender".into());
    options.without_archive_files = without.iter().map(ToString::to_string).collect();
    options.shards = Some(world.shards);
    options.only_shards = Some(BTreeSet::from([shard]));
    options.threads = 1;
    let outcome = foreign::run(world, events, Faults::default(), options).await?;
    let others = events.iter().filter(|event| world.shard_of(&event.event.organization_id) != shard).count();
    assert_eq!(outcome.events_elsewhere, others as u64);
    Ok(())
}

/// Asserts that both shards have closed all hours through `least`, and that the tables of their closed hours
/// equal a plain fold of these events.
pub(super) fn assert_tables(world: &World, events: &[EventRecord], least: Hour) {
    let mut content = Content::new();
    for (shard, checkpoint) in world.audit.latest() {
        let closed = checkpoint.closed_through.unwrap();
        assert!(closed >= least, "shard {shard} is closed through {closed}");
        let mine = |event: &&EventRecord| {
            world.shard_of(&event.event.organization_id) == shard && event.event.event_time.hour() <= closed
        };
        let events: Vec<EventRecord> = events.iter().filter(mine).cloned().collect();
        content.extend(expected(&events, closed, |_| shard, rules));
    }
    assert_content(&world.lake, &content, "");
}

/// Returns an archive file of the shard of `acme`, and a late event of the file's hour.
fn victim(world: &World) -> (String, EventRecord) {
    let shard = world.shard_of("acme");
    let hour_of = |path: &String| {
        let file = ArchivePath::parse(path).filter(|file| file.shard == shard && file.hour.0 > START);
        file.map(|file| file.hour)
    };
    let (path, hour) =
        world.lake.objects().into_iter().find_map(|path| hour_of(&path).map(|hour| (path, hour))).unwrap();
    (path, pod("acme", (hour.0 - START) * 60 + 1, "late", 1))
}

#[tokio::test]
async fn a_damaged_file_is_restored_from_a_copy() {
    let world = read().await;
    let (path, late) = victim(&world);
    let copy = world.lake.store.get(&path).await.unwrap().unwrap();
    world.lake.store.overwrite(&path, "damaged".into());
    world.produce(std::slice::from_ref(&late));
    let mut member = world.member("b");
    let (_, message) = stopped(&world, &mut member, StopReason::Damaged).await;
    assert!(message.contains(&format!("'{path}' is damaged")) && message.contains("restore it from a copy"));
    world.lake.store.overwrite(&path, copy);
    wait_until_running(&world, &mut member, 61).await;
    member.settle(&world).await.unwrap();
    assert_tables(&world, &[trace(), vec![late]].concat(), TRACE_END);
}

#[tokio::test]
async fn a_damaged_or_lost_file_is_left_out_and_its_events_are_folded_from_a_copy() {
    for lost in [false, true] {
        let world = read().await;
        let (path, late) = victim(&world);
        if lost {
            world.lake.store.delete(&path).await.unwrap();
        } else {
            world.lake.store.overwrite(&path, "damaged".into());
        }
        world.produce(std::slice::from_ref(&late));
        let mut member = world.member("b");
        let (shard, message) = stopped(&world, &mut member, StopReason::Damaged).await;
        let way_out = format!(
            "fold a copy of its events with 'prorata backfill --shards {shard} --without-archive-file {path}'"
        );
        assert!(message.contains(&way_out), "{message}");
        // The operator looks for the copy. Meanwhile nothing is published without the file's events.
        let before = world.lake.content();
        lives(&world, &mut member, 20).await;
        assert_eq!(world.lake.content(), before);
        backfill_without(&world, shard, &trace(), &[&path]).await.unwrap();
        // The backfill has fixed the shard, so the shard need not wait for its next try.
        wait_until_running(&world, &mut member, 2).await;
        member.settle(&world).await.unwrap();
        assert_tables(&world, &[trace(), vec![late]].concat(), TRACE_END);
    }
}

#[tokio::test]
async fn only_an_archive_file_of_an_owned_shard_is_left_out() {
    let world = read().await;
    let (path, _) = victim(&world);
    let shard = world.shard_of("acme");
    for (of, path, why) in [
        (shard, "date=2026-11-01/part.avro", "name a file by its path under the lake"),
        (1 - shard, &path, "this run does not own its shard"),
    ] {
        let error = backfill_without(&world, of, &trace(), &[path]).await.unwrap_err();
        assert!(error.to_string().contains(&format!("--without-archive-file {path}: {why}")), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[tokio::test]
async fn lost_events_are_folded_from_a_copy_and_then_earliest_continues() {
    let world = read().await;
    world.audit.free_offsets();
    let shard = world.shard_of("acme");
    let next = world.broker.bounds("nodes", shard).unwrap().1;
    let more: Vec<_> = (0..4).map(|minute| node("acme", 365 + minute, 20 + minute)).collect();
    world.produce(&more);
    world.broker.delete_before("nodes", shard, next + 2).unwrap();
    let mut member = world.member("b");
    let (stopped, message) = stopped(&world, &mut member, StopReason::OffsetsLost).await;
    assert_eq!(stopped, shard);
    let way_out = format!(
        "if you have a copy of its events, fold it with 'prorata backfill --shards {shard}', then set \
         kafka.offsets_lost: earliest and restart the worker"
    );
    assert!(message.contains(&way_out), "{message}");
    // Nothing that happens while the worker runs can restore the events, so the shard is not tried again.
    world.audit.look();
    let claims = world.audit.claims(shard);
    lives(&world, &mut member, 180).await;
    world.audit.look();
    assert_eq!(world.audit.claims(shard), claims, "a shard without its offsets is tried again");
    backfill(&world, shard, &more).await.unwrap();
    member.drain().await;
    let mut member = world.start("c", Faults::default(), |options| options.continue_without_lost = true);
    world.set_minutes(9 * 60);
    let live = [node("acme", 8 * 60 + 30, 3), pod("hooli", 8 * 60 + 30, "live", 1)];
    world.produce(&live);
    member.settle(&world).await.unwrap();
    assert!(member.status.lock().ready);
    assert_tables(&world, &[trace(), more, live.to_vec()].concat(), Hour(START + 6));
}

#[tokio::test]
async fn a_foreign_file_is_removed_from_its_table() {
    let world = read().await;
    let late = pod("acme", 70, "late", 1);
    let path = "date=2026-11-01/part-00000.parquet";
    world.lake.tables.add_foreign(Table::CostAllocation, path);
    world.produce(std::slice::from_ref(&late));
    let mut member = world.member("b");
    let (_, message) = stopped(&world, &mut member, StopReason::ForeignFile).await;
    assert!(message.contains("remove it from the table"), "{message}");
    world.lake.tables.remove_foreign(Table::CostAllocation, path);
    wait_until_running(&world, &mut member, 61).await;
    member.settle(&world).await.unwrap();
    assert_tables(&world, &[trace(), vec![late]].concat(), TRACE_END);
}

#[tokio::test]
async fn missing_checkpoints_are_restored() {
    let world = read().await;
    let shard = world.shard_of("acme");
    let paths = world.lake.objects().into_iter();
    let of_shard = |path: &String| names::parse_checkpoint(path).is_some_and(|(of, _)| of == shard);
    let paths: Vec<String> = paths.filter(of_shard).collect();
    let mut copies = Vec::new();
    for path in &paths {
        copies.push((path.clone(), world.lake.store.get(path).await.unwrap().unwrap()));
        world.lake.store.delete(path).await.unwrap();
    }
    let mut member = world.member("b");
    let (stopped, message) = stopped(&world, &mut member, StopReason::StateBehindTables).await;
    assert_eq!(stopped, shard);
    assert!(message.contains("restore the missing checkpoints"), "{message}");
    for (path, bytes) in copies {
        world.lake.store.overwrite(&path, bytes);
    }
    wait_until_running(&world, &mut member, 61).await;
    member.settle(&world).await.unwrap();
    assert_tables(&world, &trace(), TRACE_END);
}

#[tokio::test]
async fn a_backfill_of_one_shard_is_refused_while_a_worker_has_it_and_not_for_another() {
    let world = read().await;
    let (path, late) = victim(&world);
    world.lake.store.overwrite(&path, "damaged".into());
    world.produce(&[late]);
    let mut member = world.member("b");
    let (shard, _) = stopped(&world, &mut member, StopReason::Damaged).await;
    let error = backfill(&world, 1 - shard, &trace()).await.unwrap_err();
    assert!(matches!(error, WorkerError::Held { .. }), "{error}");
    let error = backfill(&world, 2, &trace()).await.unwrap_err();
    assert!(
        error.to_string().contains("--shards names shard 2, but the root has 2 shards, 0 to 1"),
        "{error}"
    );
    assert_eq!(error.exit_code(), 2);
}

#[tokio::test]
async fn a_backfill_that_ends_with_an_error_lets_its_shards_go() {
    let world = read().await;
    let mut options = BackfillOptions::new("wrong".into());
    options.shards = Some(world.shards);
    options.threads = 1;
    // The backfill is refused only after it has claimed the shards, because the root has a worker.
    options.to = Some(Hour(START + 100));
    let late = [pod("acme", 61, "late", 1)];
    let error = foreign::run(&world, &late, Faults::default(), options).await.unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    world.audit.look();
    for (shard, checkpoint) in world.audit.latest() {
        let owner = checkpoint.owner.as_ref().unwrap();
        assert!(owner.released, "shard {shard} is held by {}, which is gone", owner.id);
    }
}
