//! S3, on a real server: the ports keep their promises there, and a lake in a bucket is the lake in a folder.
//!
//! The server is started by `tests/python/with_s3.py`, so these tests stand behind the feature `servers`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use prorata_connectors::delta::DeltaTables;
use prorata_connectors::store::Store;
use prorata_schemas::tables::Table;
use prorata_worker::contract;
use prorata_worker::ports::ObjectStore;
use serde_json::Value;

fn bucket() -> String {
    std::env::var("PRORATA_TEST_BUCKET").expect("no S3 server: run tests/python/with_s3.py cargo test ..")
}

fn store(folder: &str) -> Store {
    Store::open(&format!("s3://{}/{folder}", bucket())).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs the program: the one that `PRORATA_BINARY` names, else built from what is in the working tree.
fn prorata(arguments: &[&str]) -> Output {
    let program = std::env::var_os("PRORATA_BINARY").map_or_else(build, PathBuf::from);
    Command::new(program).args(arguments).output().unwrap()
}

fn build() -> PathBuf {
    let build = ["build", "--quiet", "-p", "prorata"];
    assert!(Command::new(env!("CARGO")).args(build).current_dir(root()).status().unwrap().success());
    let profile = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    profile.with_file_name("debug").join("prorata")
}

fn backfill(lake: &str) -> Value {
    let events = root().join("testdata/sample-day/events");
    let output = prorata(&["backfill", "--events", events.to_str().unwrap(), "--lake", lake, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Digests of a lake's table files, by table and hour: names hold them, behind what differs from run to run.
async fn digests(store: &Store) -> BTreeMap<(String, String), String> {
    let mut digests = BTreeMap::new();
    for table in Table::ALL.iter().filter(|table| **table != Table::Hours) {
        let objects = store.list(&format!("{}/", table.name())).await.unwrap();
        for object in objects.iter().filter(|object| object.path.contains("/date=")) {
            let (folder, name) = object.path.rsplit_once('/').unwrap();
            let stem = name.strip_suffix(".parquet").unwrap();
            let (hour, digest) = (stem.split('-').next().unwrap(), stem.rsplit('-').next().unwrap());
            let shard = stem.split('-').nth(1).unwrap();
            digests.insert((folder.to_owned(), format!("{hour}-{shard}")), digest.to_owned());
        }
    }
    digests
}

#[tokio::test]
async fn a_bucket_keeps_the_promises_of_an_object_store() {
    let store = store("contract");
    store.probe().await.unwrap();
    contract::object_store(&store).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_in_a_bucket_keep_the_promises_of_a_table_committer() {
    contract::table_committer(&DeltaTables::new(store("tables"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lake_in_a_bucket_is_the_lake_in_a_folder_and_a_rerun_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("lake");
    backfill(local.to_str().unwrap());
    let url = format!("s3://{}/lake", bucket());
    assert_ne!(backfill(&url)["table_files"], 0);
    let again = backfill(&url);
    assert_eq!((&again["table_files"], &again["table_commits"]), (&Value::from(0), &Value::from(0)));

    let remote = digests(&store("lake")).await;
    assert!(remote.len() > 24, "{} files", remote.len());
    assert_eq!(remote, digests(&Store::open(local.to_str().unwrap()).unwrap()).await);
}

#[test]
fn a_bucket_that_is_not_there_is_storage_unavailable() {
    let events = root().join("testdata/sample-day/events");
    let output =
        prorata(&["backfill", "--events", events.to_str().unwrap(), "--lake", "s3://no-such-bucket/lake"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains("no-such-bucket") && !told.contains("panicked"), "{told}");
}
