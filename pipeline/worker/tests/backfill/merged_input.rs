//! The archive of a live root as the input of another root. The owner of the live root merges files while
//! they are read.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use prorata_samples::trace::{TRACE_END, trace};
use prorata_worker::backfill::input::InMemoryFiles;
use prorata_worker::ports::{Input, InputFile, StoreError};

use crate::harness::*;

/// An input whose first listing differs from the files that exist afterwards.
struct Merging {
    listed: InMemoryFiles,
    there: InMemoryFiles,
    lists: AtomicU64,
}

#[async_trait]
impl Input for Merging {
    async fn list(&self) -> Result<Vec<InputFile>, StoreError> {
        let first = self.lists.fetch_add(1, Ordering::Relaxed) == 0;
        if first { self.listed.list().await } else { self.there.list().await }
    }

    async fn open(&self, file: &InputFile) -> Result<Box<dyn Read + Send>, StoreError> {
        self.there.open(file).await
    }
}

const FOLDER: &str = "shard=0001/date=2026-11-01/hour=07";

async fn run(listed: Files, there: Files) -> (Lake, Result<prorata_worker::backfill::Outcome, String>) {
    let lake = Lake::default();
    let [listed, there] = [listed, there].map(InMemoryFiles::of);
    let input = Arc::new(Merging { listed, there, lists: AtomicU64::new(0) });
    let (store, tables) = (Arc::new(lake.store.clone()), Arc::new(lake.tables.clone()));
    let outcome = lake.run_with(store, tables, input, Run::new("aa")).await;
    (lake, outcome.map_err(|error| error.to_string()))
}

fn parts() -> (Files, Files) {
    let events = trace();
    let (first, rest) = events.split_at(4);
    let (second, third) = rest.split_at(3);
    let named = |name: &str| format!("{FOLDER}/{name}.avro");
    let listed = [
        (named("0000000002-aa-0"), file(first)),
        (named("0000000003-aa-1"), file(second)),
        ("other.avro".to_owned(), file(third)),
    ];
    let merged = [(named("0000000009-aa-7"), file(&[first, second].concat())), listed[2].clone()];
    (listed.into(), merged.into())
}

#[tokio::test]
async fn files_that_were_merged_meanwhile_are_read_from_the_merged_one() {
    let (listed, there) = parts();
    let (lake, outcome) = run(listed, there).await;
    let outcome = outcome.unwrap();
    assert_eq!((outcome.files, outcome.dead_letters_all()), (2, 0));
    assert_content(&lake, &expected(&trace(), TRACE_END, shard_of, rules), "merged meanwhile");
}

#[tokio::test]
async fn a_file_that_is_gone_and_that_nothing_replaces_is_an_error() {
    let (listed, mut there) = parts();
    there.retain(|path, _| path == "other.avro");
    let (_, outcome) = run(listed, there).await;
    let error = outcome.unwrap_err();
    assert!(error.contains(FOLDER) && error.contains("it was listed but does not exist"), "{error}");
}
