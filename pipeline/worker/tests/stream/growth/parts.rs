//! Parts of checkpoints over the life of a shard, and tables that are published although one table fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use prorata_samples::trace::{node, pod};
use prorata_schemas::tables::Table;
use prorata_testkit::fakes::{FakeBroker, FakeSource, FakeTables};
use prorata_worker::checkpoint::log;
use prorata_worker::names;
use prorata_worker::ports::{CommitOutcome, ErrorKind, LiveTable, TableCommit, TableCommitter, TableError};
use prorata_worker::stream::Worker;

use super::leftovers::days;
use crate::world::{TOPICS, World, greed};

/// Returns the parts in the root, and the parts that the latest checkpoint names.
fn parts(world: &World) -> (Vec<String>, Vec<String>) {
    world.audit.look();
    let named = world.audit.latest()[&0].parts.clone();
    let there = world.lake.objects().into_iter().filter(|path| names::parse_part(path).is_some());
    (there.collect(), named)
}

#[tokio::test]
async fn a_shard_of_40_days_continues_from_its_parts_and_leaves_none_behind() {
    let world = days(40).await;
    let (_, named) = parts(&world);
    assert!(named.len() >= 34, "a part a day: {named:?}");
    let seq = world.audit.latest()[&0].seq;
    let decided = log::read(&world.lake.store, 0, seq).await.unwrap();
    assert!(decided.hours.len() > 35 * 24, "{}", decided.hours.len());
    // A new owner gets late events of old days.
    let mut next = world.member("next");
    for round in 0..6 {
        world.set_minutes((40 * 24 + round) * 60 + 70);
        world.produce(&[
            pod("acme", (20 * 24 + round) * 60, &format!("late {round}"), 1),
            pod("acme", (40 * 24 + round) * 60 + 60, &format!("live {round}"), 1),
        ]);
        next.settle(&world).await.unwrap();
    }
    for _ in 0..8 {
        world.pass(Duration::from_secs(1_801));
        next.settle(&world).await.unwrap();
    }
    let (there, named) = parts(&world);
    // Parts that the last checkpoints replaced wait for the next hourly sweep, and nothing else is left.
    let checkpoints = world.audit.checkpoints().into_values().rev().take(4);
    let replaced: Vec<String> = checkpoints.flat_map(|checkpoint| checkpoint.parts.clone()).collect();
    let left = there.iter().filter(|path| !named.contains(path) && !replaced.contains(path));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
    assert!(named.iter().all(|path| there.contains(path)), "{named:?}");
}

/// Tables, one of which rejects commits.
struct Refusing {
    inner: FakeTables,
    refused: Table,
    refuses: Arc<AtomicBool>,
}

#[async_trait]
impl TableCommitter for Refusing {
    async fn load(&self, table: Table) -> Result<LiveTable, TableError> {
        self.inner.load(table).await
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
        if table == self.refused && self.refuses.load(Ordering::Relaxed) {
            return Err(TableError::new(ErrorKind::Permission, "commit", table, "403 access denied"));
        }
        self.inner.commit(table, base, commit).await
    }
}

#[tokio::test]
async fn a_table_that_fails_keeps_none_but_hours_from_being_published() {
    let world = World::on(FakeBroker::default(), 1);
    let refuses = Arc::new(AtomicBool::new(true));
    let tables = Refusing {
        inner: world.lake.tables.clone(),
        refused: Table::CostAllocation,
        refuses: Arc::clone(&refuses),
    };
    world.produce(&[pod("acme", 10, "a", 1), pod("acme", 400, "b", 1), node("acme", 400, 1)]);
    world.produce(&greed::greedy("acme", 1, 1, 0));
    let source = world.broker.source("a", &TOPICS);
    let store = Arc::new(world.lake.store.clone());
    let (mut worker, _) = world.worker_with(source, store, Arc::new(tables), "a", |_| {}).await;
    let steps = async |worker: &mut Worker<FakeSource>| {
        for _ in 0..60 {
            worker.step(Duration::ZERO).await.unwrap();
            world.pass(Duration::from_secs(5));
        }
    };
    steps(&mut worker).await;
    let files = |table| world.lake.files().get(&table).map_or(0, |files| files.len());
    assert!(files(Table::PoolUsage) > 0, "the others continue");
    assert_eq!((files(Table::CostAllocation), files(Table::Hours)), (0, 0), "`hours` waits for all");
    refuses.store(false, Ordering::Relaxed);
    steps(&mut worker).await;
    assert!(files(Table::CostAllocation) > 0 && files(Table::Hours) > 0);
}
