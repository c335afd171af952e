//! Counts of the objects of a root over months of claims, late events and maintenance. After the horizon,
//! only the archive and the tables grow. The archive grows with the number of closed hours, and the tables
//! grow with the number of days. The memory of a worker does not grow either.
//!
//! `PRORATA_GROWTH_DAYS` and `PRORATA_GROWTH_SHARDS` set the size of the run: 730 and 16 simulate two years.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use prorata_samples::trace::{pod, pod_stop};
use prorata_schemas::tables::Table;
use prorata_schemas::time::Date;
use prorata_testkit::fakes::{FakeBroker, FakeTables};
use prorata_worker::checkpoint::log;
use prorata_worker::checkpoint::retention::Retention;
use prorata_worker::names::{self, ArchivePath};
use prorata_worker::ports::{CommitOutcome, LiveTable, TableCommit, TableCommitter, TableError};

use super::maintain;
use super::watched::WatchedStore;
use crate::harness::five_weeks;
use crate::world::{TOPICS, World};

/// The step of the clock, in hours.
const HOURS_AT_ONCE: i64 = 6;

/// Number of days after the horizon until nothing is young any more. Hours take two days to leave.
/// Checkpoints and the files that compaction has replaced take a week.
const YOUNG: i64 = 11;

const ORGANIZATIONS: [&str; 3] = ["acme", "hooli", "initech"];

/// The counts at the end of a day.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// Size of the largest latest checkpoint, in bytes, without its parts.
    checkpoint_bytes: usize,
    parts: usize,
    snapshots: usize,
    checkpoints: usize,
    archive_files: usize,
    live_files: usize,
    dead_files: usize,
    /// Number of folders listed in a day. `puts` is the number of objects written.
    lists: usize,
    puts: usize,
    /// Maximum number of live files of one table that a worker saw at a time, in a day. `state_bytes` is the
    /// maximum size of the worker's state in bytes.
    viewed_files: usize,
    state_bytes: u64,
}

/// Tables that record the maximum number of files of one table that a worker sees at a time.
#[derive(Clone)]
struct WatchedTables {
    inner: FakeTables,
    viewed: Arc<AtomicUsize>,
}

impl WatchedTables {
    fn of(world: &World) -> Self {
        Self { inner: world.lake.tables.clone(), viewed: Arc::default() }
    }

    fn note(&self, live: LiveTable) -> LiveTable {
        self.viewed.fetch_max(live.files.len(), Ordering::Relaxed);
        live
    }
}

#[async_trait]
impl TableCommitter for WatchedTables {
    async fn load(&self, table: Table) -> Result<LiveTable, TableError> {
        Ok(self.note(self.inner.load(table).await?))
    }

    async fn load_dates(&self, table: Table, dates: &BTreeSet<Date>) -> Result<LiveTable, TableError> {
        Ok(self.note(self.inner.load_dates(table, dates).await?))
    }

    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError> {
        self.inner.transactions(table, base, names).await
    }

    async fn commit(
        &self,
        table: Table,
        base: u64,
        commit: &TableCommit,
    ) -> Result<CommitOutcome, TableError> {
        self.inner.commit(table, base, commit).await
    }
}

impl Figures {
    async fn of(world: &World, store: &WatchedStore, (viewed_files, state_bytes): (usize, u64)) -> Self {
        let asked = store.take();
        let objects = world.lake.store.objects();
        let count = |is: &dyn Fn(&str) -> bool| objects.keys().filter(|path| is(path)).count();
        let table_files = count(&|path| Table::HOURLY.iter().any(|table| path.starts_with(table.name())));
        let live_files = world.lake.files().values().map(Vec::len).sum();
        let mut checkpoint_bytes = 0;
        for shard in 0..world.shards {
            let latest = log::latest(&world.lake.store, shard).await.unwrap();
            let object = names::checkpoint(shard, latest.seq);
            checkpoint_bytes = checkpoint_bytes.max(objects.get(&object).map_or(0, |bytes| bytes.len()));
        }
        Self {
            checkpoint_bytes,
            parts: count(&|path| names::parse_part(path).is_some()),
            snapshots: count(&|path| names::parse_snapshot(path).is_some()),
            checkpoints: count(&|path| names::parse_checkpoint(path).is_some()),
            archive_files: count(&|path| ArchivePath::parse(path).is_some()),
            live_files,
            dead_files: table_files - live_files,
            lists: asked.lists.len(),
            puts: asked.puts.len(),
            viewed_files,
            state_bytes,
        }
    }
}

/// Runs a day under a separate owner. Pods come and go, some events are late, and maintenance runs at the
/// end. Returns the maximum number of files of one table that the worker saw, and the size of its state in
/// bytes.
async fn live_a_day(world: &World, store: &WatchedStore, retention: Retention, day: i64) -> (usize, u64) {
    let (name, watched) = (format!("day{day}"), WatchedTables::of(world));
    let source = world.broker.source(&name, &TOPICS);
    let (objects, tables) = (Arc::new(store.clone()), Arc::new(watched.clone()));
    let (mut worker, status) =
        world.worker_with(source, objects, tables, &name, |options| options.retention = retention).await;
    for hour in (0..24).step_by(HOURS_AT_ONCE as usize) {
        let now = (day * 24 + hour + HOURS_AT_ONCE) * 60;
        world.set_minutes(now + 10);
        for (number, organization) in ORGANIZATIONS.into_iter().enumerate() {
            let name = format!("{day}-{hour}-{number}");
            let began = now - 60 * HOURS_AT_ONCE + 7;
            world.produce(&[pod(organization, began, &name, 1), pod_stop(organization, now - 5, &name)]);
        }
        if hour == 0 && day > 2 {
            world.produce(&[pod_stop("acme", now - 30 * 60, &format!("late {day}"))]);
        }
        for _ in 0..8 {
            worker.step(Duration::ZERO).await.unwrap();
            world.pass(Duration::from_secs(61));
        }
    }
    let state_bytes = status.lock().shards.values().map(|shard| shard.state_bytes).sum();
    worker.drain().await;
    let tables = Arc::new(world.lake.tables.clone());
    let ports = maintain::ports(world, Arc::new(store.clone()), tables);
    prorata_worker::root::maintain::maintain(&ports, &name).await.unwrap();
    (watched.viewed.load(Ordering::Relaxed), state_bytes)
}

fn number(name: &str, default: i64) -> i64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test]
async fn nothing_but_the_history_grows_after_the_horizon() {
    let horizon = number("PRORATA_GROWTH_HORIZON", five_weeks().hours() / 24);
    let retention = Retention::new(Duration::from_secs(horizon as u64 * 86_400)).unwrap();
    let grown_up = horizon + YOUNG;
    let days = number("PRORATA_GROWTH_DAYS", grown_up + 8).max(grown_up + 2);
    let shards = number("PRORATA_GROWTH_SHARDS", 2) as u16;
    let world = World::on(FakeBroker::default(), shards);
    let store = WatchedStore::of(&world);
    let mut first = None;
    for day in 0..days {
        let kept = live_a_day(&world, &store, retention, day).await;
        if day == grown_up || (day > grown_up && day % 100 == 0) {
            let figures = Figures::of(&world, &store, kept).await;
            println!("day {day}: {figures:?}");
            first.get_or_insert(figures);
        }
        store.take();
    }
    let kept = live_a_day(&world, &store, retention, days).await;
    let (first, last) = (first.unwrap(), Figures::of(&world, &store, kept).await);
    println!("day {days}: {last:?}");
    let used = ORGANIZATIONS.map(|name| world.shard_of(name)).into_iter().collect::<BTreeSet<_>>();
    // Limits that do not depend on the number of days.
    assert!(last.checkpoint_bytes < 100_000, "{last:?}");
    for (what, before, after) in [
        ("bytes of a checkpoint", first.checkpoint_bytes, last.checkpoint_bytes),
        ("parts", first.parts, last.parts),
        ("snapshots", first.snapshots, last.snapshots),
        ("checkpoints", first.checkpoints, last.checkpoints),
        ("files that are not live", first.dead_files, last.dead_files),
        ("lists a day", first.lists, last.lists),
        ("objects written a day", first.puts, last.puts),
        ("files of a table in memory", first.viewed_files, last.viewed_files),
        ("bytes of state in memory", first.state_bytes as usize, last.state_bytes as usize),
    ] {
        // Owners and quarters add a few bytes and parts per year.
        let line = before + before / 10 + 4 + usize::try_from(days / 30).unwrap() * usize::from(shards);
        let line = if what.starts_with("bytes") { line + 90 * usize::try_from(days).unwrap() } else { line };
        assert!(after <= line, "{what}: {before} on day {grown_up}, {after} on day {days}");
    }
    // Limits that depend on the number of days.
    let hours = usize::try_from((days + 1) * 24).unwrap();
    let (horizon, dates) = (usize::try_from((horizon + 2) * 24).unwrap(), usize::try_from(days + 2).unwrap());
    assert!(
        last.live_files <= 2 * used.len() * (horizon + dates),
        "two tables have rows, and beyond the horizon one file a shard and day: {last:?}"
    );
    let late = usize::try_from(days).unwrap();
    assert!(
        last.archive_files <= used.len() * hours + late,
        "one a shard and hour, and what is late: {last:?}"
    );
}
