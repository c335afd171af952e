//! Maintenance, which trims everything that only grows while workers run. The tests interrupt maintenance
//! after every effect.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use prorata_samples::trace::{node, pod};
use prorata_schemas::event::EventRecord;
use prorata_schemas::tables::Table;
use prorata_testkit::fakes::{FakeEncoder, FakeTables, Fault, Faults};
use prorata_worker::WorkerError;
use prorata_worker::ports::ObjectStore;
use prorata_worker::root::maintain::{MaintainPorts, Maintained, maintain};

use super::leftovers::{days, orphaned_events, unnamed_snapshots};
use crate::world::World;
use crate::world::member::Member;

/// Returns the ports for maintenance of a world.
pub fn ports(world: &World, store: Arc<dyn ObjectStore>, tables: Arc<FakeTables>) -> MaintainPorts {
    let (encoder, clock) = (Arc::new(FakeEncoder), Arc::new(world.clock.clone()));
    MaintainPorts { store, tables: tables.clone(), logs: tables, encoder, clock }
}

pub async fn run(world: &World, faults: Faults) -> Result<Maintained, WorkerError> {
    let tables = Arc::new(world.lake.tables.with_faults(faults.clone()));
    let store = Arc::new(world.lake.store.with_faults(faults));
    maintain(&ports(world, store, tables), "keeper").await
}

/// Returns all stored table files, live or not.
fn table_files(world: &World) -> BTreeSet<String> {
    let of_table =
        |path: &String| Table::HOURLY.iter().any(|table| path.starts_with(&format!("{}/", table.name())));
    world.lake.objects().into_iter().filter(of_table).collect()
}

fn live(world: &World) -> BTreeSet<String> {
    let files = world.lake.files().into_iter();
    files
        .flat_map(|(table, paths)| paths.into_iter().map(move |path| format!("{}/{path}", table.name())))
        .collect()
}

/// Creates a shard that restated hours nine days ago and yesterday. Returns the files that the older
/// restatement replaced.
async fn restated() -> (World, BTreeSet<String>) {
    let world = days(1).await;
    let mut member = world.member("b");
    let settle = async |member: &mut Member, minutes: i64, event: EventRecord| {
        world.set_minutes(minutes);
        world.produce(&[event]);
        for _ in 0..4 {
            member.settle(&world).await.unwrap();
        }
    };
    settle(&mut member, 25 * 60 + 10, pod("acme", 25 * 60, "first", 1)).await;
    settle(&mut member, 25 * 60 + 20, pod("acme", 70, "late", 1)).await;
    let long_ago: BTreeSet<String> = table_files(&world).difference(&live(&world)).cloned().collect();
    assert!(long_ago.len() > 10, "files were replaced: {}", long_ago.len());
    settle(&mut member, 10 * 24 * 60, pod("acme", 10 * 24 * 60 - 9, "second", 1)).await;
    settle(&mut member, 10 * 24 * 60 + 10, pod("acme", 9 * 24 * 60, "late again", 1)).await;
    member.drain().await;
    (world, long_ago)
}

#[tokio::test]
async fn files_replaced_a_week_ago_are_deleted_and_newer_ones_stay() {
    let (world, long_ago) = restated().await;
    let (files, live_before) = (table_files(&world), live(&world));
    let recent: BTreeSet<String> = files
        .iter()
        .filter(|path| !live_before.contains(*path) && !long_ago.contains(*path))
        .cloned()
        .collect();
    assert!(!recent.is_empty(), "files were replaced of late, too");
    let foreign = format!("{}/notes.txt", Table::Hours.name());
    world.lake.store.overwrite(&foreign, "mine".into());
    let maintained = run(&world, Faults::default()).await.unwrap();
    let deleted: u64 = maintained.tables.values().map(|table| table.files).sum();
    assert_eq!(deleted as usize, long_ago.len());
    let left = table_files(&world);
    assert!(left.contains(&foreign));
    assert_eq!(left.intersection(&long_ago).count(), 0, "of {}", long_ago.len());
    assert!(left.is_superset(&recent) && left.is_superset(&live_before));
    assert_eq!(live(&world), live_before);
    assert!(maintained.tables[&Table::Hours].log_files > 0);
    // Nothing is left to do.
    let again = run(&world, Faults::default()).await.unwrap();
    assert_eq!(again.tables.values().map(|table| table.files + table.log_files).sum::<u64>(), 0);
    assert_eq!(again.state_objects, 0);
    // The shard continues, and restates an hour whose first files are gone.
    let mut member = world.member("c");
    world.set_minutes(10 * 24 * 60 + 70);
    world.produce(&[pod("acme", 80, "later still", 1), pod("acme", 10 * 24 * 60 + 60, "live", 1)]);
    member.settle(&world).await.unwrap();
    assert!(table_files(&world).is_superset(&live(&world)));
}

/// In a local folder, the times of files come from the clocks of the processes that wrote them.
#[tokio::test]
async fn a_worker_whose_clock_was_ahead_makes_no_file_old() {
    let (world, long_ago) = restated().await;
    let recent: BTreeSet<String> = table_files(&world).difference(&long_ago).cloned().collect();
    let mut member = world.member("ahead");
    world.set_minutes(20 * 24 * 60);
    world.produce(&[pod("acme", 20 * 24 * 60 - 9, "third", 1)]);
    member.settle(&world).await.unwrap();
    member.drain().await;
    world.set_minutes(10 * 24 * 60 + 20);
    let maintained = run(&world, Faults::default()).await.unwrap();
    let deleted: u64 = maintained.tables.values().map(|table| table.files).sum();
    assert_eq!(deleted as usize, long_ago.len());
    assert!(table_files(&world).is_superset(&recent));
}

#[tokio::test]
async fn maintenance_that_is_cut_off_after_any_effect_is_finished_by_the_next() {
    let (world, _) = restated().await;
    run(&world, Faults::default()).await.unwrap();
    let whole = world.lake.objects();
    for effect in (0..).step_by(7) {
        let (world, _) = restated().await;
        let live_before = live(&world);
        let cut_off = run(&world, Faults::with(Fault::CrashAfter(effect))).await;
        assert!(table_files(&world).is_superset(&live(&world)), "after effect {effect}");
        assert_eq!(live(&world), live_before);
        run(&world, Faults::default()).await.unwrap();
        // Owners have random names, so only the numbers of objects are compared.
        assert_eq!(world.lake.objects().len(), whole.len(), "after effect {effect}");
        if cut_off.is_ok() {
            assert!(effect > 20, "there was something to cut off: {effect}");
            break;
        }
        world.pass(Duration::from_secs(1));
    }
}

#[tokio::test]
async fn a_folder_that_is_not_a_root_is_refused() {
    let world = World::default();
    let error = run(&world, Faults::default()).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert_eq!(world.lake.objects().len(), 0);
}

#[tokio::test]
async fn the_next_owner_sweeps_the_state_of_a_dead_attempt_and_maintenance_the_rest() {
    // The worker dies at each effect in order, and so also between its objects and its decision.
    let mut found = 0;
    for effect in 0.. {
        let world = days(1).await;
        world.set_minutes(25 * 60 + 10);
        world.produce(&[
            pod("acme", 25 * 60 + 8, "more", 1),
            node("acme", 70, 4),
            node("acme", 25 * 60 + 9, 4),
        ]);
        let mut dying = world.start("dying", Faults::with(Fault::CrashAfter(effect)), |_| {});
        for _ in 0..40 {
            if dying.is_gone() {
                break;
            }
            dying.step().await;
            world.pass(Duration::from_secs(5));
        }
        if !dying.is_gone() {
            break;
        }
        world.broker.expire("dying");
        let orphans = orphaned_events(&world);
        found += orphans.len() + unnamed_snapshots(&world).len();
        let mut next = world.member("next");
        for _ in 0..4 {
            next.settle(&world).await.unwrap();
            world.pass(Duration::from_secs(1_801));
        }
        assert_eq!(unnamed_snapshots(&world), [""; 0], "after effect {effect}");
        next.drain().await;
        // If the log had lost checkpoints, only these files would still have their events.
        run(&world, Faults::default()).await.unwrap();
        assert_eq!(orphaned_events(&world), orphans, "after effect {effect}");
        world.set_minutes(25 * 60 + 8 * 24 * 60);
        run(&world, Faults::default()).await.unwrap();
        assert_eq!(orphaned_events(&world), [""; 0], "after effect {effect}");
    }
    assert!(found > 2, "there were orphans to sweep: {found}");
}
