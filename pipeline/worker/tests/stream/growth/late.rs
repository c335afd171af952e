//! The counted cost of late events, which is never more than three times the minimum.
//!
//! The minimum is the fold of the organization's own hours, from the late hour until its state equals the
//! recorded state. Each hour whose rows change adds one file of each changed table, and the organization's
//! state.

use std::sync::Arc;
use std::time::Duration;

use prorata_samples::trace::{START, TRACE_END, node, node_stop, pod, pod_stop, trace};
use prorata_schemas::event::EventRecord;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeBroker, FakeSource};
use prorata_worker::checkpoint::{Decided, log, snapshot};
use prorata_worker::status::Status;
use prorata_worker::stream::{Worker, WorkerOptions};

use super::watched::{Asked, WatchedStore, worker};
use crate::harness::*;
use crate::world::World;

const ORGANIZATIONS: usize = 200;
const THOUSAND: usize = 1_000;

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

/// Returns events in which each organization has a node and a pod that run the whole time.
fn history(organizations: usize, hours: i64) -> Vec<EventRecord> {
    let running = |n| [node(&organization(n), 0, 10), pod(&organization(n), 5, "first", 1)];
    let mut events: Vec<_> = (0..organizations).flat_map(running).collect();
    // The watermark passes all hours.
    events.push(pod("org-000", hours * 60 + 20, "now", 1));
    events
}

/// Returns events in which the first organization has a node and a pod the whole time. Each other
/// organization has a node and a pod for some hours.
fn visits(organizations: usize, hours: i64) -> Vec<EventRecord> {
    const STAY: i64 = 12;
    let mut events = history(1, hours);
    for n in 1..organizations {
        let organization = organization(n);
        let came = (hours - STAY) * n as i64 / organizations as i64 * 60;
        events.extend([
            node(&organization, came, 10),
            pod(&organization, came + 5, "first", 1),
            pod_stop(&organization, came + STAY * 60 - 5, "first"),
            node_stop(&organization, came + STAY * 60),
        ]);
    }
    events.sort_by_key(|record| record.event.event_time);
    events
}

fn bytes(asked: &Asked, of: &str) -> (usize, usize) {
    let puts = asked.puts.iter().filter(|(path, _)| path.ends_with(of));
    puts.fold((0, 0), |(objects, bytes), (_, size)| (objects + 1, bytes + size))
}

/// The cost of late events.
struct Cost {
    organization_hours: u64,
    archive_files: usize,
    restated: u64,
    whole: u64,
    /// Number of objects, and their total size in bytes.
    tables: (usize, usize),
    snapshots: (usize, usize),
}

/// A shard whose hours are all closed.
struct Closed {
    world: World,
    store: WatchedStore,
    worker: Worker<FakeSource>,
    status: Arc<Status>,
    hours: i64,
}

impl Closed {
    async fn of(history: &[EventRecord], hours: i64) -> Self {
        let world = World::on(FakeBroker::default(), 1);
        world.set_minutes(hours * 60 + 21);
        world.produce(history);
        let store = WatchedStore::of(&world);
        let at_once = |options: &mut WorkerOptions| options.max_restate_delay = Duration::ZERO;
        let (mut worker, status) = worker(&world, &store, "a", at_once).await;
        let last = Some(Hour(START + hours - 1));
        for _ in 0..100 {
            settle(&world, &mut worker, 1).await;
            let latest = latest(&world).await;
            if latest.closed_through == last && latest.dirty.is_empty() {
                break;
            }
        }
        settle(&world, &mut worker, 1).await;
        assert_eq!(latest(&world).await.closed_through, last, "all is closed before anything is late");
        Self { world, store, worker, status, hours }
    }

    async fn cost(&mut self, late: &[EventRecord]) -> Cost {
        self.store.take();
        let before = self.status.lock().counts.clone();
        self.world.produce(late);
        for _ in 0..20 {
            settle(&self.world, &mut self.worker, 1).await;
            if latest(&self.world).await.dirty.is_empty() {
                break;
            }
        }
        assert!(latest(&self.world).await.dirty.is_empty());
        let asked = self.store.take();
        let after = self.status.lock().counts.clone();
        Cost {
            organization_hours: after.folded_organization_hours - before.folded_organization_hours,
            archive_files: asked.gets.iter().filter(|path| path.starts_with("events/")).count(),
            restated: after.restated_hours - before.restated_hours,
            whole: after.full_restatements - before.full_restatements,
            tables: bytes(&asked, ".parquet"),
            snapshots: bytes(&asked, ".snapshot"),
        }
    }

    /// Asserts the cost of a late pod that still runs. No later state equals the recorded state, so all hours
    /// since then change.
    async fn check_late(&mut self, organization: &str, lateness: i64) {
        let late = self.hours - lateness;
        let before = latest(&self.world).await;
        let objects = self.world.lake.store.objects();
        let cost = self.cost(&[pod(organization, late * 60 + 1, "late", 1)]).await;
        let context = format!("{lateness} h late");
        let changed = lateness as u64;
        // If the event is more than two days late, the nearest snapshot is from the end of a day.
        let lead_up = if lateness >= 48 { 23 } else { 0 };
        let folded = cost.organization_hours;
        assert!(folded <= (changed + lead_up).min(3 * changed), "{context}: {folded} folded");
        assert_eq!((cost.restated, cost.whole), (changed, 0), "{context}");
        let entries: Vec<_> = before.hours.range(Hour(START + late)..).map(|(_, entry)| entry).collect();
        let tables = entries.iter().map(|entry| entry.file_bytes()).sum::<u64>() as usize;
        assert!(cost.tables.1 <= 3 * tables, "{context}: {:?} of tables, {tables} at least", cost.tables);
        // The minimum is the state of the organization in each snapshot.
        let kept: Vec<_> = entries.iter().filter_map(|entry| entry.snapshot.as_ref()).collect();
        let own = |path: &&String| {
            let states = snapshot::decode_packed(&objects[*path]).unwrap();
            states[organization].state.len() + organization.len()
        };
        let states: usize = kept.iter().map(own).sum();
        assert_eq!(cost.snapshots.0, kept.len(), "{context}: one object for each snapshot");
        assert!(
            cost.snapshots.1 <= 3 * states,
            "{context}: {:?} of snapshots, {states} at least",
            cost.snapshots
        );
        println!(
            "{context}: {folded} hours of organizations folded ({changed} at least), {} archive files read, \
             {:?} of tables ({tables} at least), {:?} of snapshots ({states} at least)",
            cost.archive_files, cost.tables, cost.snapshots,
        );
    }
}

#[tokio::test]
async fn a_late_event_of_one_among_a_thousand_costs_its_own_hours() {
    let hours = 49;
    let mut closed = Closed::of(&history(THOUSAND, hours), hours).await;
    for (n, lateness) in [(7, 1), (8, 6), (9, 48)] {
        closed.check_late(&organization(n), lateness).await;
    }
    // A pod that came and went leaves the state unchanged, so that no later hour is folded.
    let over = [pod("org-010", 20 * 60 + 1, "late", 1), pod_stop("org-010", 20 * 60 + 31, "late")];
    let cost = closed.cost(&over).await;
    assert!(cost.organization_hours <= 3, "{} hours of organizations folded", cost.organization_hours);
    assert!(cost.restated <= 2, "{} hours restated", cost.restated);
}

/// A thousand organizations come and go. Few exist at the same time, so a test can fold the hours of a month.
#[tokio::test]
async fn a_late_event_of_a_month_ago_costs_its_own_hours() {
    let hours = 24 * 32;
    let mut closed = Closed::of(&visits(THOUSAND, hours), hours).await;
    closed.check_late("org-000", 24 * 30).await;
}

/// Throughout the test, one in 100 events is late by hours.
#[tokio::test]
async fn a_trickle_of_late_events_costs_no_more_than_the_stream() {
    let mut costs = Vec::new();
    for trickles in [false, true] {
        let world = World::on(FakeBroker::default(), 1);
        world.set_minutes(21);
        world.produce(&(0..ORGANIZATIONS).map(|n| node(&organization(n), 0, 10)).collect::<Vec<_>>());
        let store = WatchedStore::of(&world);
        let (mut worker, status) = worker(&world, &store, "a", |options| {
            options.checkpoint_interval = Duration::from_secs(60);
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
        // Once no more late events come, all waiting hours are written.
        settle(&world, &mut worker, 120).await;
        assert!(latest(&world).await.dirty.is_empty());
        let asked = store.take();
        let counts = status.lock().counts.clone();
        assert_eq!(counts.full_restatements, 0);
        println!(
            "trickle {trickles}: {} hours of organizations, {:?} of tables, {:?} of snapshots, {} late",
            counts.folded_organization_hours,
            bytes(&asked, ".parquet"),
            bytes(&asked, ".snapshot"),
            counts.late_events,
        );
        let written = [bytes(&asked, ".snapshot").1, bytes(&asked, ".parquet").1];
        costs.push((counts.folded_organization_hours, written));
    }
    let [(folded, [snapshots, tables]), (folded_late, [snapshots_late, tables_late])] = costs[..] else {
        panic!("two runs")
    };
    assert!(folded_late <= 2 * folded, "{folded_late} hours of organizations folded, {folded} without");
    assert!(snapshots_late <= 2 * snapshots, "{snapshots_late} bytes of snapshots, {snapshots} without");
    assert!(tables_late <= 2 * tables, "{tables_late} bytes of tables, {tables} without");
}

/// If the other rows cannot be taken from the old file, they are folded again, and the file is fixed.
#[tokio::test]
async fn a_damaged_file_of_a_late_hour_is_made_again_from_all_organizations() {
    for damage in ["damaged", "acme 1 a row that nobody wrote"] {
        let world = World::default();
        world.produce(&trace());
        let mut member = world.member("a");
        member.settle(&world).await.unwrap();
        let shard = world.shard_of("acme");
        let hour = Hour(START + 3);
        let entry = world.audit.latest()[&shard].hours[&hour].clone();
        let file = &entry.files_of(Table::CostAllocation)[0].path;
        world.lake.store.overwrite(&format!("{}/{file}", Table::CostAllocation.name()), damage.into());
        // If the shard has another organization, its rows must be read back.
        let late = pod("acme", 190, "late", 1);
        world.produce(std::slice::from_ref(&late));
        for _ in 0..4 {
            member.settle(&world).await.unwrap();
        }
        assert_eq!(member.status.lock().counts.full_restatements, 1);
        let all = [trace(), vec![late]].concat();
        assert_content(&world.lake, &expected(&all, TRACE_END, shard_of, rules), damage);
    }
}
