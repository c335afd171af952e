//! Several owners of one root. One owner wins. The other owners report this, and leave no trace in any table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use prorata_samples::trace::{TRACE_END, node, pod, pod_stop, trace};
use prorata_schemas::tables::Table;
use prorata_worker::WorkerError;
use prorata_worker::checkpoint::checksum;
use prorata_worker::checkpoint::{Checkpoint, Owner, OwnerKind, TopicOffsets};
use prorata_worker::names;
use prorata_worker::ports::{
    CommitOutcome, LiveTable, ObjectMeta, ObjectStore, PutOutcome, StoreError, TableCommit, TableCommitter,
    TableError,
};

use crate::harness::*;

/// Ports that run another complete backfill right before one effect.
struct Interloper {
    lake: Lake,
    files: Files,
    at: u64,
    effects: AtomicU64,
}

impl Interloper {
    async fn effect(&self) {
        if self.effects.fetch_add(1, Ordering::Relaxed) == self.at {
            Box::pin(self.lake.run(&self.files, Run::new("cc"))).await.unwrap();
        }
    }
}

#[async_trait]
impl ObjectStore for Interloper {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        self.lake.store.get(path).await
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError> {
        self.effect().await;
        self.lake.store.put_if_absent(path, bytes).await
    }

    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.lake.store.list(folder).await
    }

    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.lake.store.stat(path).await
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.effect().await;
        self.lake.store.delete(path).await
    }
}

#[async_trait]
impl TableCommitter for Interloper {
    async fn load(&self, table: Table) -> Result<LiveTable, TableError> {
        self.lake.tables.load(table).await
    }

    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError> {
        self.lake.tables.transactions(table, base, names).await
    }

    async fn commit(
        &self,
        table: Table,
        base: u64,
        commit: &TableCommit,
    ) -> Result<CommitOutcome, TableError> {
        self.effect().await;
        self.lake.tables.commit(table, base, commit).await
    }
}

#[tokio::test]
async fn a_backfill_that_runs_inside_another_at_any_effect_loses_nothing() {
    let late = [pod("acme", 70, "late", 1), pod_stop("acme", 170, "late"), node("hooli", 20, 2)];
    let (one, other) = (files(&[&trace(), &late[..1]]), files(&[&trace(), &late[1..]]));
    let all = [trace(), late.to_vec()].concat();
    let expected = expected(&all, TRACE_END, shard_of, rules);
    let (mut taken, mut untouched) = (0, 0);
    for prepared in [false, true] {
        for at in 0..400 {
            let lake = Lake::default();
            if prepared {
                lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
            }
            let world =
                Interloper { lake: lake.clone(), files: other.clone(), at, effects: AtomicU64::new(0) };
            let world = Arc::new(world);
            let outcome = lake.run_on(world.clone(), world.clone(), &one, Run::new("bb")).await;
            match outcome {
                Ok(_) => untouched += 1,
                Err(WorkerError::Taken { .. }) => taken += 1,
                Err(error) => panic!("at effect {at}: {error}"),
            }
            // The stopped backfill runs again, then the other one.
            lake.run(&one, Run::new("dd")).await.unwrap();
            lake.run(&other, Run::new("ee")).await.unwrap();
            assert_content(&lake, &expected, &format!("at effect {at}"));
            if world.effects.load(Ordering::Relaxed) <= at {
                break;
            }
        }
    }
    assert!(taken > 50 && untouched > 0, "{taken} stopped, {untouched} did not");
}

#[tokio::test]
async fn the_one_that_stops_says_so_with_exit_code_4() {
    let lake = Lake::default();
    let world =
        Interloper { lake: lake.clone(), files: files(&[&trace()]), at: 10, effects: AtomicU64::new(0) };
    let world = Arc::new(world);
    let error = lake.run_on(world.clone(), world, &files(&[&trace()]), Run::new("bb")).await.unwrap_err();
    assert_eq!(error.exit_code(), 4);
    assert!(
        error.to_string().contains("was taken by another backfill or worker while this one ran"),
        "{error}"
    );
}

/// Makes a worker the owner of shard 0.
async fn claim_for_worker(lake: &Lake, released: bool) {
    let path =
        lake.objects().into_iter().rfind(|path| path.starts_with("state/shard=0000/checkpoint-")).unwrap();
    let bytes = lake.store.get(&path).await.unwrap().unwrap();
    let mut checkpoint: Checkpoint = serde_json::from_slice(&checksum::check_json(&bytes).unwrap()).unwrap();
    checkpoint.seq += 1;
    checkpoint.owner = Some(Owner { id: "ww".into(), kind: OwnerKind::Worker, released });
    checkpoint.had_worker = true;
    checkpoint.offsets.insert("pods/0".into(), TopicOffsets { next: Some(17), ..TopicOffsets::default() });
    let bytes = checksum::add_to_json(&serde_json::to_vec(&checkpoint).unwrap());
    lake.store.overwrite(&names::checkpoint(0, checkpoint.seq), bytes.into());
}

#[tokio::test]
async fn a_workers_shard_is_taken_only_if_released_or_with_take_over() {
    for (released, take_over) in [(false, false), (true, false), (false, true)] {
        let lake = Lake::default();
        lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
        claim_for_worker(&lake, released).await;
        let run = Run::new("bb").with(|options| options.take_over = take_over);
        let outcome = lake.run(&files(&[&trace(), &[node("acme", 100, 5)]]), run).await;
        if released || take_over {
            outcome.unwrap();
            let newest =
                lake.objects().into_iter().rfind(|path| path.starts_with("state/shard=0000/checkpoint-"));
            let bytes = lake.store.get(&newest.unwrap()).await.unwrap().unwrap();
            let checkpoint: Checkpoint =
                serde_json::from_slice(&checksum::check_json(&bytes).unwrap()).unwrap();
            let carried = TopicOffsets { next: Some(17), ..TopicOffsets::default() };
            assert_eq!(checkpoint.offsets["pods/0"], carried, "offsets are carried over");
        } else {
            let error = outcome.unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("shard 0 is held by worker 'ww'"), "{error}");
            assert!(error.to_string().contains("--take-over"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_table_that_somebody_else_wrote_into_is_a_loud_stop() {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    lake.tables.add_foreign(Table::CostAllocation, "date=2026-11-01/part-00000.parquet");
    lake.run(&files(&[&trace()]), Run::new("bb")).await.unwrap();
    let error = lake.run(&files(&[&[pod("acme", 30, "x", 1)]]), Run::new("cc")).await.unwrap_err();
    assert!(error.to_string().starts_with("foreign_file: date=2026-11-01/part-00000.parquet"), "{error}");
    assert_eq!(error.exit_code(), 1);
}

#[tokio::test]
async fn tables_ahead_of_the_checkpoint_log_are_a_loud_stop() {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    for path in lake.objects().into_iter().filter(|path| path.contains("/checkpoint-")) {
        lake.store.delete(&path).await.unwrap();
    }
    let error = lake.run(&files(&[&trace()]), Run::new("bb")).await.unwrap_err();
    assert!(error.to_string().starts_with("state_behind_tables: "), "{error}");
    assert_eq!(error.exit_code(), 1);
}
