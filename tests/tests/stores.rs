//! One suite over every kind of store: a local folder, S3, Azure. Each store keeps the promises of the ports,
//! and a lake is the same in each store. A message says what is wrong with a store.
//! `tests/python/servers.py --s3 --azure` starts the servers, so these tests need the feature `servers`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bytes::Bytes;
use prorata_connectors::DeltaTables;
use prorata_connectors::store::{Store, open_input};
use prorata_schemas::tables::Table;
use prorata_testkit::conformance;
use prorata_tests::program;
use prorata_worker::ports::ObjectStore;
use serde_json::Value;

/// An existing store that is empty below `root`, and the location of a store that does not exist.
struct Place {
    root: String,
    /// A location that does not exist and cannot be created, and a word that the message must contain.
    missing: (String, &'static str),
    /// The environment variable of a credential, and a value that does not belong to the store. `None` if the
    /// store has no credentials.
    stranger: Option<(&'static str, &'static str)>,
    /// Keeps a local folder until the test ends.
    _folder: Option<tempfile::TempDir>,
}

fn folder() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no-such-folder");
    std::fs::write(&file, "a file, in which nothing can be stored").unwrap();
    Place {
        root: folder.path().join("store").to_str().unwrap().to_owned(),
        missing: (file.join("lake").to_str().unwrap().to_owned(), "no-such-folder"),
        stranger: None,
        _folder: Some(folder),
    }
}

fn s3() -> Place {
    Place {
        root: format!("s3://{}/store", server("PRORATA_TEST_BUCKET")),
        missing: ("s3://no-such-bucket/lake".to_owned(), "no-such-bucket"),
        stranger: Some(("AWS_SECRET_ACCESS_KEY", "c29tZWJvZHkgZWxzZSdzIGtleSwgd2hpY2ggaXMgbm90")),
        _folder: None,
    }
}

fn azure() -> Place {
    Place {
        root: format!("az://{}/store", server("PRORATA_TEST_AZURE")),
        missing: ("az://no-such-container/lake".to_owned(), "no-such-container"),
        stranger: Some(("AZURE_STORAGE_ACCOUNT_KEY", "c29tZWJvZHkgZWxzZSdzIGtleSwgd2hpY2ggaXMgbm90")),
        _folder: None,
    }
}

fn server(variable: &str) -> String {
    std::env::var(variable).expect("no servers: run tests/python/servers.py --s3 --azure cargo test ..")
}

impl Place {
    fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    fn store(&self, name: &str) -> Store {
        Store::open(&self.url(name)).unwrap()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the command of a backfill of the sample day. It runs the binary that `PRORATA_BINARY` names, or
/// else a binary that is built from the working tree.
fn backfill(lake: &str) -> Command {
    backfill_of(&root().join("testdata/sample-day/events"), lake)
}

fn backfill_of(events: &Path, lake: &str) -> Command {
    let mut command = program::prorata();
    command.args(["backfill", "--json", "--lake", lake, "--events"]).arg(events);
    command
}

fn succeed(mut command: Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks that the command reports unusable storage, not an outage, in a message that contains `word`.
fn refuse(mut command: Command, word: &str) {
    let Output { status, stderr, .. } = command.output().unwrap();
    let printed = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("storage cannot be used") && printed.contains("once this is corrected"),
        "{printed}"
    );
    assert!(printed.contains(word) && !printed.contains("panicked") && !printed.contains('<'), "{printed}");
}

/// Returns the digests of a lake's table files, by table and hour. File names end with the digests, after the
/// parts that differ between runs.
async fn digests(store: &Store) -> BTreeMap<(String, String), String> {
    let mut digests = BTreeMap::new();
    for table in Table::HOURLY.iter().filter(|table| **table != Table::Hours) {
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

async fn keep_the_promises_of_an_object_store(place: &Place) {
    let store = place.store("contract");
    store.probe().await.unwrap();
    conformance::store::object_store(&store).await.unwrap();
}

async fn keep_the_promises_of_a_table_committer(place: &Place) {
    conformance::store::table_committer(&DeltaTables::new(place.store("tables"))).await.unwrap();
}

async fn hold_the_lake_of_the_events_and_a_rerun_changes_nothing(place: &Place) {
    let elsewhere = tempfile::tempdir().unwrap();
    let local = elsewhere.path().join("lake");
    succeed(backfill(local.to_str().unwrap()));
    let url = place.url("lake");
    assert_ne!(succeed(backfill(&url))["table_files"], 0);
    let again = succeed(backfill(&url));
    assert_eq!((&again["table_files"], &again["table_commits"]), (&Value::from(0), &Value::from(0)));

    let held = digests(&place.store("lake")).await;
    assert!(held.len() > 24, "{} files", held.len());
    assert_eq!(held, digests(&Store::open(local.to_str().unwrap()).unwrap()).await);
}

async fn give_objects_under_whatever_keys_other_writers_chose(place: &Place) {
    // This is the key `hour=00%3A00~[1]` in a URL, and the name itself in a local path.
    let folder = place.store("input/hour=00%253A00~[1]");
    folder.put_if_absent("x.avro", Bytes::from_static(b"whole")).await.unwrap();
    let input = open_input(&place.url("input")).unwrap();
    let files = input.list().await.unwrap();
    assert!(files.len() == 1 && files[0].path.contains("3A00~[1]/x.avro"), "{files:?}");
    let mut opened = input.open(&files[0]).await.unwrap();
    let mut text = String::new();
    let read = move || opened.read_to_string(&mut text).map(|_| text);
    assert_eq!(tokio::task::spawn_blocking(read).await.unwrap().unwrap(), "whole");
}

async fn cannot_be_used_where_they_are_not(place: &Place) {
    let (location, word) = &place.missing;
    refuse(backfill(location), word);
}

async fn cannot_be_used_by_a_stranger(place: &Place) {
    if let Some((variable, other)) = place.stranger {
        let mut command = backfill(&place.url("refused"));
        command.env(variable, other);
        refuse(command, "refused");
        // The store is also refused as input.
        let lake = tempfile::tempdir().unwrap();
        let mut command = backfill_of(Path::new(&place.url("refused")), lake.path().to_str().unwrap());
        command.env(variable, other);
        refuse(command, "--events");
        assert_eq!(place.store("refused").list("").await.unwrap(), Vec::new());
    }
}

/// Defines a test for each store and each check of the suite, such as
/// `s3::keep_the_promises_of_an_object_store`.
macro_rules! suite {
    ($facts:tt: $($store:ident)+) => { $(mod $store { suite!(@ $store $facts); })+ };
    (@ $store:ident { $($fact:ident)+ }) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $fact() {
                super::$fact(&super::$store()).await;
            }
        )+
    };
}

suite! {
    {
        keep_the_promises_of_an_object_store
        keep_the_promises_of_a_table_committer
        hold_the_lake_of_the_events_and_a_rerun_changes_nothing
        give_objects_under_whatever_keys_other_writers_chose
        cannot_be_used_where_they_are_not
        cannot_be_used_by_a_stranger
    }: folder s3 azure
}
