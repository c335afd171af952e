//! Tables beyond the horizon are compacted to one file per shard and day. No crash, no race and no backfill
//! of such a day loses or duplicates a row.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prorata_samples::trace::{pod, pod_stop};
use prorata_schemas::event::EventRecord;
use prorata_schemas::reject::Reason;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeEncoder, FakeStore, FakeTables, Fault, Faults, Resume};
use prorata_worker::WorkerError;
use prorata_worker::backfill::{BackfillOptions, Outcome};
use prorata_worker::checkpoint::retention::Retention;
use prorata_worker::names::{self, DayFile, Shard, TableFile};
use prorata_worker::ports::TableEncoder;
use prorata_worker::root::maintain::{Maintained, maintain};
use prorata_worker::stream::WorkerOptions;

use crate::growth::leftovers::days;
use crate::growth::maintain::ports;
use crate::harness::{Lake, Run, assert_content, files, five_weeks};
use crate::world::World;

/// Number of days of the world, which are the days of the horizon and three days before it.
const DAYS: i64 = 38;

/// Creates a root whose first days lie beyond the horizon, with nothing left to do.
async fn old() -> World {
    let world = days(DAYS).await;
    // Hours leave the checkpoint with a checkpoint that knows that they are published.
    let mut member = world.member("b");
    world.set_minutes(DAYS * 24 * 60 + 70);
    world.produce(&[pod("acme", DAYS * 24 * 60 + 60, "once more", 1)]);
    for _ in 0..4 {
        member.settle(&world).await.unwrap();
    }
    member.drain().await;
    world
}

/// Returns an independent copy of the root.
fn copy(world: &World) -> World {
    let store = FakeStore::default().with_clock(world.clock.clone());
    world.lake.store.objects().into_iter().for_each(|(path, bytes)| store.overwrite(&path, bytes));
    let tables = FakeTables::default().with_clock(world.clock.clone());
    tables.restore(world.lake.tables.tables());
    let lake = Lake { store, tables, ..Lake::default() };
    let mut copied = world.clone();
    copied.lake = lake;
    copied
}

async fn compact(world: &World, id: &str, faults: Faults) -> Result<Maintained, WorkerError> {
    let tables = Arc::new(world.lake.tables.with_faults(faults.clone()));
    let store = Arc::new(world.lake.store.with_faults(faults));
    maintain(&ports(world, store, tables), id).await
}

fn compacted(maintained: &Maintained) -> u64 {
    maintained.tables.values().map(|table| table.compacted).sum()
}

/// Returns the rows of all live files, including the columns that depend on clocks, by table, hour and shard.
fn rows(world: &World) -> BTreeMap<(Table, Hour, Shard), String> {
    let objects = world.lake.store.objects();
    let mut rows = BTreeMap::new();
    for (table, paths) in world.lake.files() {
        for path in paths {
            let bytes = &objects[&format!("{}/{path}", table.name())];
            let (shard, _) = names::parse_table_file(&path).unwrap();
            let files = match TableFile::parse(&path) {
                Some(name) => vec![(name.hour, bytes.to_vec())],
                None => {
                    let files = FakeEncoder.split(table, bytes).unwrap().into_iter();
                    files.map(|file| (file.hour, file.file.bytes)).collect()
                }
            };
            for (hour, bytes) in files {
                let before = rows.insert((table, hour, shard), String::from_utf8(bytes).unwrap());
                assert_eq!(before, None, "{table:?} has hour {hour} of shard {shard} twice");
            }
        }
    }
    rows
}

fn day_files(world: &World) -> usize {
    world.lake.files().values().flatten().filter(|path| DayFile::parse(path).is_some()).count()
}

/// Returns the numbers of some effects, and of all of the last eight effects, because commits come at the
/// end.
fn some_of(effects: u64) -> impl Iterator<Item = u64> {
    let few = effects.saturating_sub(8);
    (0..few).step_by(usize::try_from(few / 8 + 1).unwrap()).chain(few..effects)
}

/// Returns an event of the first day and an event of the third day.
fn late() -> [EventRecord; 2] {
    [pod("acme", 70, "late", 1), pod_stop("acme", 2 * 24 * 60 + 100, "late")]
}

async fn backfill(
    world: &World,
    events: &[EventRecord],
    faults: Faults,
    change: impl FnOnce(&mut BackfillOptions),
) -> Result<Outcome, WorkerError> {
    // Each run has its own id, because the id decides whose objects count.
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let id = format!("backfill{}", RUNS.fetch_add(1, Ordering::Relaxed));
    let run = Run::new(&id).faults(faults).with(|options| options.shards = Some(1));
    world.lake.run(&files(&[events]), run.with(change)).await
}

#[tokio::test]
async fn days_beyond_the_horizon_become_one_file_a_table_with_the_same_rows() {
    let world = old().await;
    let before = rows(&world);
    let maintained = compact(&world, "first", Faults::default()).await.unwrap();
    let done = maintained.tables[&Table::Hours];
    assert!(done.compacted > 24 && done.day_files >= 2, "{done:?}");
    assert_eq!(rows(&world), before);
    world.audit.look();
    let latest = &world.audit.latest()[&0];
    let horizon = five_weeks().horizon(latest.closed_through.unwrap());
    for (table, paths) in world.lake.files() {
        let mut dates: BTreeMap<_, usize> = BTreeMap::new();
        for path in &paths {
            let date = names::partition_date(path).unwrap();
            if (date.days() + 1) * 24 < horizon.0 {
                *dates.entry(date).or_default() += 1;
            } else {
                assert!(TableFile::parse(path).is_some(), "{path} lies inside the horizon");
            }
        }
        assert!(dates.values().all(|files| *files == 1), "{table:?}: {dates:?}");
    }
    let again = compact(&world, "second", Faults::default()).await.unwrap();
    assert_eq!(compacted(&again), 0, "once is enough");
}

#[tokio::test]
async fn under_a_longer_horizon_what_has_left_stays_too_late_and_what_is_kept_is_corrected() {
    let world = old().await;
    let ten_weeks = Retention::new(Duration::from_secs(70 * 86_400)).unwrap();
    let mut member = world.start("c", Faults::default(), move |options| options.retention = ten_weeks);
    // Day 1 has left the checkpoint under the shorter horizon. Day 10 has not.
    let late = |day: i64, uid: &str| {
        let minute = day * 24 * 60 + 5;
        [pod("acme", minute, uid, 1), pod_stop("acme", minute + 30, uid)]
    };
    world.produce(&late(1, "gone"));
    world.produce(&late(10, "kept"));
    for _ in 0..3 {
        member.settle(&world).await.unwrap();
        world.pass(WorkerOptions::default().max_restate_delay);
    }
    member.drain().await;
    let letters = world.dead_letters.letters();
    assert_eq!(letters.len(), 2, "both events of day 1: {letters:?}");
    assert!(letters.iter().all(|letter| letter.rejected.reject.reason == Reason::TooLate), "{letters:?}");
    let rows = rows(&world);
    let has = |uid: &str| rows.values().any(|rows| rows.contains(uid));
    assert!(has("kept") && !has("gone"));
}

#[tokio::test]
async fn a_compaction_that_is_cut_off_after_any_effect_is_finished_by_the_next() {
    let world = old().await;
    let before = rows(&world);
    let whole = copy(&world);
    compact(&whole, "whole", Faults::default()).await.unwrap();
    let mut left = Vec::new();
    for effect in 0.. {
        let mut over = true;
        for fault in [Fault::CrashBefore(effect), Fault::CrashAfter(effect), Fault::LoseAnswer(effect)] {
            let world = copy(&world);
            over &= compact(&world, "first", Faults::with(fault)).await.is_ok();
            assert_eq!(rows(&world), before, "after effect {effect}");
            left.push(day_files(&world));
            compact(&world, "second", Faults::default()).await.unwrap();
            assert_eq!(rows(&world), before, "after effect {effect}, and again");
            assert_eq!(day_files(&world), day_files(&whole), "after effect {effect}");
        }
        if over {
            break;
        }
    }
    left.dedup();
    assert!(left.len() > 4, "it was cut off at many places: {left:?}");
}

#[tokio::test]
async fn of_two_compactions_at_once_each_row_stays_once() {
    let world = old().await;
    let before = rows(&world);
    for effect in 0..16 {
        let world = copy(&world);
        let faults = Faults::with(Fault::Pause(effect));
        let other = async {
            while faults.paused().is_empty() {
                tokio::task::yield_now().await;
            }
            let landed = compact(&world, "other", Faults::default()).await.unwrap();
            assert_eq!(rows(&world), before, "paused at effect {effect}");
            assert!(world.resume(&faults, effect, Resume::Happen));
            landed
        };
        let slow = compact(&world, "slow", faults.clone());
        let (slow, other) = tokio::join!(slow, other);
        assert_eq!(rows(&world), before, "paused at effect {effect}");
        assert!(compacted(&slow.unwrap()) + compacted(&other) > 24);
    }
}

#[tokio::test]
async fn a_backfill_that_comes_back_to_compacted_days_is_as_without_compaction() {
    let world = old().await;
    let plain = copy(&world);
    backfill(&plain, &late(), Faults::default(), |_| {}).await.unwrap();
    let expected = plain.lake.content();
    assert_ne!(expected, world.lake.content(), "the late events change something");
    compact(&world, "keeper", Faults::default()).await.unwrap();
    let days = day_files(&world);
    assert!(days > 2);
    let compacted = copy(&world);
    backfill(&world, &late(), Faults::default(), |_| {}).await.unwrap();
    assert_content(&world.lake, &expected, "a backfill");
    assert!(day_files(&world) < days, "days were split");
    // The backfill is cut off at any effect, and runs again.
    let counted = Faults::default();
    backfill(&copy(&compacted), &late(), counted.clone(), |_| {}).await.unwrap();
    for effect in some_of(counted.effects()) {
        let world = copy(&compacted);
        let cut_off = backfill(&world, &late(), Faults::with(Fault::CrashAfter(effect)), |_| {}).await;
        assert!(cut_off.is_err());
        rows(&world);
        compact(&world, "next", Faults::default()).await.unwrap();
        backfill(&world, &late(), Faults::default(), |_| {}).await.unwrap();
        assert_content(&world.lake, &expected, &format!("cut off after effect {effect}"));
    }
}

#[tokio::test]
async fn a_compaction_in_the_midst_of_a_backfill_changes_nothing() {
    let world = old().await;
    let plain = copy(&world);
    let counted = Faults::default();
    backfill(&plain, &late(), counted.clone(), |_| {}).await.unwrap();
    let expected = plain.lake.content();
    let mut splits = 0;
    for effect in some_of(counted.effects()) {
        let world = copy(&world);
        let faults = Faults::with(Fault::Pause(effect));
        let keeper = async {
            while faults.paused().is_empty() {
                tokio::task::yield_now().await;
            }
            let done = compact(&world, "keeper", Faults::default()).await.unwrap();
            assert!(world.resume(&faults, effect, Resume::Happen));
            (compacted(&done), day_files(&world))
        };
        let events = late();
        let filled = backfill(&world, &events, faults.clone(), |_| {});
        let (filled, (joined, days)) = tokio::join!(filled, keeper);
        filled.unwrap();
        splits += usize::from(joined > 0 && day_files(&world) < days);
        assert_content(&world.lake, &expected, &format!("compacted at effect {effect}"));
    }
    assert!(splits > 2, "compactions came between claim and publish: {splits}");
}

#[tokio::test]
async fn a_lost_day_stops_those_that_need_it_and_is_written_again_when_asked() {
    let world = old().await;
    let expected = world.lake.content();
    compact(&world, "keeper", Faults::default()).await.unwrap();
    let path = world.lake.files()[&Table::Hours].iter().find(|path| DayFile::parse(path).is_some()).cloned();
    let day = DayFile::parse(&path.clone().unwrap()).unwrap();
    let object = format!("{}/{}", Table::Hours.name(), path.unwrap());
    for broken in ["", "broken"] {
        let world = copy(&world);
        world.lake.store.overwrite(&object, broken.into());
        if !broken.is_empty() {
            let from = day.hours().next().unwrap();
            let refused = backfill(&world, &late(), Faults::default(), |_| {}).await.unwrap_err();
            assert!(refused.to_string().contains(&object), "{from}: {refused}");
        }
        let world = copy(&world);
        backfill(&world, &[], Faults::default(), |options| {
            options.rewrite = true;
            options.from = day.hours().next();
            options.take_over = true;
        })
        .await
        .unwrap();
        assert_content(&world.lake, &expected, "written again");
    }
}
