//! What late events cost, counted: never more than three times the least possible.
//!
//! The least: the organization's own hours from the late one on, until its state is the recorded one; and for
//! each hour whose rows change, one file of each table whose rows change, and the organization's state.

use std::time::Duration;

use prorata_samples::trace::{START, TRACE_END, node, pod, pod_stop, trace};
use prorata_schemas::event::EventRecord;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeBroker, FakeSource};
use prorata_worker::checkpoint::{Decided, log};
use prorata_worker::root::{KeyHash, Root};
use prorata_worker::stream::Worker;

use super::watched::{Asked, WatchedStore, worker};
use crate::harness::*;
use crate::world::World;

const ORGANIZATIONS: usize = 200;

/// Steps until nothing is left to do.
async fn settle(world: &World, worker: &mut Worker<FakeSource>, seconds: u64) {
    for _ in 0..60 {
        worker.step(Duration::ZERO).await.unwrap();
        world.pass(Duration::from_secs(seconds));
    }
}

async fn latest(world: &World) -> Decided {
    log::latest(&world.lake.store, 0).await.unwrap()
}

fn organization(n: usize) -> String {
    format!("org-{n:03}")
}

/// Each organization has a node and a pod that run all along, and starts another pod now and then.
fn history(organizations: usize, hours: i64) -> Vec<EventRecord> {
    let mut events = Vec::new();
    for n in 0..organizations {
        let organization = organization(n);
        events.extend([node(&organization, 0, 10), pod(&organization, 5, "first", 1)]);
        let every = if hours > 100 { 24 } else { 6 };
        for hour in (1..hours).filter(|hour| (hour + n as i64) % every == 0) {
            events.push(pod(&organization, hour * 60 + 7, &format!("p{hour}"), 1));
        }
    }
    // The watermark is ahead of all of them.
    events.push(pod("org-000", hours * 60 + 20, "now", 1));
    events.sort_by_key(|record| record.event.event_time);
    events
}

fn bytes(asked: &Asked, of: &str) -> (usize, usize) {
    let puts = asked.puts.iter().filter(|(path, _)| path.ends_with(of));
    puts.fold((0, 0), |(objects, bytes), (_, size)| (objects + 1, bytes + size))
}

struct Cost {
    organization_hours: u64,
    archive_files: usize,
    restated: u64,
    whole: u64,
    /// Objects and bytes.
    tables: (usize, usize),
    snapshots: (usize, usize),
}

/// What a late event of one organization among many costs.
async fn cost(organizations: usize, hours: i64, late: &[EventRecord]) -> (Cost, World, Decided) {
    let world = World::on(FakeBroker::default(), 1);
    world.set_minutes(hours * 60 + 21);
    world.produce(&history(organizations, hours));
    let store = WatchedStore::of(&world);
    let (mut worker, status) = worker(&world, &store, "a", |_| {}).await;
    let last = Some(Hour(START + hours - 1));
    for _ in 0..100 {
        settle(&world, &mut worker, 1).await;
        let latest = latest(&world).await;
        if latest.closed_through == last && latest.dirty.is_empty() {
            break;
        }
    }
    settle(&world, &mut worker, 1).await;
    let checkpoint = latest(&world).await;
    assert_eq!(checkpoint.closed_through, last, "all is closed before anything is late");
    store.take();
    let before = status.lock().counts.clone();
    world.produce(late);
    for _ in 0..20 {
        settle(&world, &mut worker, 1).await;
        if latest(&world).await.dirty.is_empty() {
            break;
        }
    }
    assert!(latest(&world).await.dirty.is_empty());
    let asked = store.take();
    let after = status.lock().counts.clone();
    let cost = Cost {
        organization_hours: after.folded_organization_hours - before.folded_organization_hours,
        archive_files: asked.gets.iter().filter(|path| path.starts_with("events/")).count(),
        restated: after.restated_hours - before.restated_hours,
        whole: after.restated_whole - before.restated_whole,
        tables: bytes(&asked, ".parquet"),
        snapshots: bytes(&asked, ".snapshot"),
    };
    (cost, world, checkpoint)
}

/// A pod that still runs lets no later state be the recorded one.
#[tokio::test]
async fn a_late_event_costs_the_hours_of_its_own_organization() {
    let of_many = [1, 6, 48].map(|lateness| (ORGANIZATIONS, 60, lateness));
    for (organizations, hours, lateness) in of_many.into_iter().chain([(20, 24 * 32, 24 * 30)]) {
        let late = hours - lateness;
        let (cost, world, before) =
            cost(organizations, hours, &[pod("org-007", late * 60 + 1, "late", 1)]).await;
        // All hours since then change. Before two days ago, the nearest snapshot is of a day's end.
        let changed = lateness as u64;
        let lead_up = if lateness >= 48 { 23 } else { 0 };
        assert!(
            cost.organization_hours <= changed + lead_up,
            "{lateness} h late: {} hours of organizations folded, {changed} at least",
            cost.organization_hours
        );
        assert!(cost.organization_hours <= 3 * changed, "{lateness} h late");
        assert_eq!((cost.restated, cost.whole), (changed, 0), "{lateness} h late");
        let files = before.hours.range(Hour(START + late)..).map(|(_, entry)| &entry.tables);
        let least = files.flatten().map(|(_, file)| file.bytes).sum::<u64>() as usize;
        assert!(
            cost.tables.1 <= 3 * least,
            "{lateness} h late: {:?} of tables, {least} at least",
            cost.tables
        );
        let kept = before.hours.range(Hour(START + late)..).filter(|(_, entry)| entry.snapshot.is_some());
        let kept = kept.count();
        let size = world.lake.store.objects();
        let whole: usize = before
            .hours
            .range(Hour(START + late)..)
            .filter_map(|(_, entry)| Some(size.get(entry.snapshot.as_ref()?)?.len()))
            .sum();
        assert_eq!(cost.snapshots.0, kept, "{lateness} h late: one object for each snapshot");
        let share = whole / organizations;
        assert!(
            cost.snapshots.1 <= 3 * share,
            "{lateness} h late: {:?} of snapshots, {share} for one organization",
            cost.snapshots
        );
        println!(
            "{lateness} h late: {} hours of organizations folded, {} archive files read, {:?} of tables \
             ({least} at least), {:?} of snapshots ({share} at least)",
            cost.organization_hours, cost.archive_files, cost.tables, cost.snapshots,
        );
    }
}

/// A pod that came and went leaves the state as it was: nothing after that is folded.
#[tokio::test]
async fn a_late_event_that_is_over_ends_with_its_hour() {
    let (hours, late) = (60, 20);
    let events = [pod("org-007", late * 60 + 1, "late", 1), pod_stop("org-007", late * 60 + 31, "late")];
    let (cost, ..) = cost(ORGANIZATIONS, hours, &events).await;
    assert!(cost.organization_hours <= 3, "{} hours of organizations folded", cost.organization_hours);
    assert!(cost.restated <= 2, "{} hours restated", cost.restated);
}

/// Of 100 events one is late by hours, all the time.
#[tokio::test]
async fn a_trickle_of_late_events_costs_no_more_than_the_stream() {
    let mut costs = Vec::new();
    for trickles in [false, true] {
        let world = World::on(FakeBroker::default(), 1);
        world.set_minutes(21);
        world.produce(&(0..ORGANIZATIONS).map(|n| node(&organization(n), 0, 10)).collect::<Vec<_>>());
        let store = WatchedStore::of(&world);
        let (mut worker, status) = worker(&world, &store, "a", |options| {
            options.checkpoint_every = Duration::from_secs(60);
        })
        .await;
        for minute in 0..24 * 60 {
            world.set_minutes(minute + 21);
            let n = |step: i64| organization((minute * 10 + step) as usize % ORGANIZATIONS);
            let events = (0..10).map(|step| pod(&n(step), minute + 20, &format!("p{minute} {step}"), 1));
            world.produce(&events.collect::<Vec<_>>());
            if trickles && minute % 10 == 0 && minute > 6 * 60 {
                let late = minute - 60 - (minute * 7) % (5 * 60);
                let organization = n(5);
                let came = [
                    pod(&organization, late, &format!("late {minute}"), 1),
                    pod_stop(&organization, late + 1, &format!("late {minute}")),
                ];
                world.produce(&came);
            }
            worker.step(Duration::ZERO).await.unwrap();
            worker.step(Duration::ZERO).await.unwrap();
        }
        settle(&world, &mut worker, 60).await;
        let asked = store.take();
        let counts = status.lock().counts.clone();
        assert_eq!(counts.restated_whole, 0);
        println!(
            "trickle {trickles}: {} hours of organizations, {:?} of tables, {:?} of snapshots, {} late",
            counts.folded_organization_hours,
            bytes(&asked, ".parquet"),
            bytes(&asked, ".snapshot"),
            counts.late_events,
        );
        costs.push((counts.folded_organization_hours, bytes(&asked, ".snapshot").1));
    }
    let [(folded, snapshots), (folded_late, snapshots_late)] = costs[..] else { panic!("two runs") };
    assert!(folded_late <= 2 * folded, "{folded_late} hours of organizations folded, {folded} without");
    assert!(snapshots_late <= 2 * snapshots, "{snapshots_late} bytes of snapshots, {snapshots} without");
}

/// Where the other rows cannot be taken from the old file, they are folded again, and the file is mended.
#[tokio::test]
async fn a_damaged_file_of_a_late_hour_is_made_anew_from_all_organizations() {
    for damage in ["damaged", "acme 1 a row that nobody wrote"] {
        let world = World::default();
        world.produce(&trace());
        let mut member = world.member("a");
        member.settle(&world).await.unwrap();
        let shard = world.shard_of("acme");
        let hour = Hour(START + 3);
        let files = world.audit.latest()[&shard].hours[&hour].tables.clone();
        let file = &files[&Table::CostAllocation].path;
        world.lake.store.overwrite(&format!("{}/{file}", Table::CostAllocation.name()), damage.into());
        // Another organization of the shard, if there is one, must be read back.
        let late = pod("acme", 190, "late", 1);
        world.produce(std::slice::from_ref(&late));
        for _ in 0..4 {
            member.settle(&world).await.unwrap();
        }
        assert_eq!(member.status.lock().counts.restated_whole, 1);
        let all = [trace(), vec![late]].concat();
        assert_content(&world.lake, &expected(&all, TRACE_END, shard_of, rules), damage);
    }
}

/// A root of format 1 has no patches and no marks of organizations: the release before reads it.
#[tokio::test]
async fn in_a_root_of_format_1_late_events_leave_what_the_release_before_reads() {
    let world = World::default();
    let root = Root { format: 1, shards: world.shards, key_hash: KeyHash::Murmur2 };
    root.create(&world.lake.store).await.unwrap();
    let trace: Vec<EventRecord> =
        trace().into_iter().filter(|record| &*record.event.organization_id == "acme").collect();
    world.produce(&trace);
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    let late = pod("acme", 190, "late", 1);
    world.produce(std::slice::from_ref(&late));
    for _ in 0..4 {
        member.settle(&world).await.unwrap();
    }
    assert_eq!(member.status.lock().counts.restated_whole, 0);
    for checkpoint in world.audit.checkpoints().values() {
        assert_eq!(checkpoint.format, 1);
        assert!(checkpoint.dirty.of_organizations().is_empty(), "as it is written");
        assert!(checkpoint.hours.values().all(|entry| entry.patches.is_empty()));
    }
    let all = [trace, vec![late]].concat();
    assert_content(&world.lake, &expected(&all, TRACE_END, shard_of, rules), "");
}
