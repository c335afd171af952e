//! Delta logs in a local folder.

mod cut_hours;
mod days;
mod upkeep;
mod view;

use std::sync::Arc;

use prorata_connectors::DeltaTables;
use prorata_connectors::store::Store;
use prorata_schemas::tables::Table;
use prorata_testkit::conformance;
use prorata_worker::names;
use prorata_worker::ports::FileEntry;
use prorata_worker::ports::{CommitOutcome, ErrorKind, ObjectStore, TableCommit, TableCommitter, TableError};

fn open(folder: &tempfile::TempDir) -> (Store, DeltaTables) {
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    (store.clone(), DeltaTables::new(store))
}

fn commit(number: u64) -> TableCommit {
    let file = FileEntry {
        path: format!("date=2026-11-20/file-{number}.parquet"),
        bytes: 10,
        digest: String::new(),
        stats: Some(r#"{"numRecords":1}"#.into()),
        last_organization: None,
    };
    let transactions = [(names::transaction(0), number)].into();
    TableCommit { adds: vec![file], transactions, id: "test".into(), ..TableCommit::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_keep_the_promises_of_a_table_committer() {
    let folder = tempfile::tempdir().unwrap();
    conformance::store::table_committer(&open(&folder).1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_can_be_made_and_is_partitioned_by_date() {
    let folder = tempfile::tempdir().unwrap();
    let (store, tables) = open(&folder);
    for table in Table::HOURLY {
        tables.load(table).await.unwrap();
        let first = format!("{}/_delta_log/00000000000000000000.json", table.name());
        let log = String::from_utf8(store.get(&first).await.unwrap().unwrap().to_vec()).unwrap();
        let metadata = log.lines().find(|line| line.contains("\"metaData\"")).unwrap();
        let metadata: serde_json::Value = serde_json::from_str(metadata).unwrap();
        let metadata = &metadata["metaData"];
        assert_eq!(metadata["partitionColumns"], serde_json::json!(["date"]));
        assert_eq!(metadata["configuration"]["delta.enableExpiredLogCleanup"], "false");
        let schema: serde_json::Value =
            serde_json::from_str(metadata["schemaString"].as_str().unwrap()).unwrap();
        let fields = schema["fields"].as_array().unwrap();
        assert_eq!(fields.last().unwrap()["name"], "date");
        assert_eq!(fields.last().unwrap()["type"], "date");
        assert!(fields.iter().any(|field| field["type"] == "decimal(38,12)"), "{table:?}");
        assert!(log.contains("\"minReaderVersion\":1"), "any reader can read it: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_makers_of_a_table_all_find_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = Arc::new(folder);
    let makers = (0..6).map(|_| {
        let folder = Arc::clone(&folder);
        tokio::spawn(async move { open(&folder).1.load(Table::Hours).await.unwrap().version })
    });
    for maker in makers {
        assert_eq!(maker.await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_commits_after_one_version_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let folder = Arc::new(folder);
    open(&folder).1.load(Table::Hours).await.unwrap();
    let writers = (1..7).map(|number| {
        let folder = Arc::clone(&folder);
        tokio::spawn(async move {
            let tables = open(&folder).1;
            let base = tables.load(Table::Hours).await.unwrap().version;
            let outcome = tables.commit(Table::Hours, base, &commit(number)).await.unwrap();
            outcome == CommitOutcome::Committed && base == 0
        })
    });
    let mut landed = 0;
    for writer in writers {
        landed += u32::from(writer.await.unwrap());
    }
    assert!(landed <= 1, "{landed} commits landed after version 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_transactions_survive_log_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let (store, tables) = open(&folder);
    for number in 1..=105 {
        let base = tables.load(Table::Hours).await.unwrap().version;
        let outcome = tables.commit(Table::Hours, base, &commit(number)).await.unwrap();
        assert_eq!(outcome, CommitOutcome::Committed);
    }
    let log = store.list("hours/_delta_log/").await.unwrap();
    assert!(log.iter().any(|file| file.path.contains("checkpoint")), "a checkpoint every hundred commits");
    let fresh = open(&folder).1.load(Table::Hours).await.unwrap();
    assert_eq!(fresh.files.len(), 105);
    let (name, base) = (names::transaction(0), fresh.version);
    for tables in [tables, open(&folder).1] {
        let known = tables.transactions(Table::Hours, base, std::slice::from_ref(&name)).await.unwrap();
        assert_eq!(known[&name], 105);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_read_is_an_error_that_names_the_table() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("hours/_delta_log")).unwrap();
    std::fs::write(folder.path().join("hours/_delta_log/00000000000000000000.json"), "{\"nothing\":1}")
        .unwrap();
    let error = open(&folder).1.load(Table::Hours).await.unwrap_err();
    assert!(error.to_string().starts_with("table hours: "), "{error}");
}

/// Changes a log file of a table with two versions. Returns the error of opening the table again.
async fn load_with(file: &str, change: impl FnOnce(Option<String>) -> Option<String>) -> TableError {
    let folder = tempfile::tempdir().unwrap();
    let (_, tables) = open(&folder);
    for number in 1..=2 {
        let base = tables.load(Table::Hours).await.unwrap().version;
        let outcome = tables.commit(Table::Hours, base, &commit(number)).await.unwrap();
        assert_eq!(outcome, CommitOutcome::Committed);
    }
    let path = folder.path().join("hours/_delta_log").join(file);
    match change(std::fs::read_to_string(&path).ok()) {
        Some(text) => std::fs::write(&path, text).unwrap(),
        None => std::fs::remove_file(&path).unwrap(),
    }
    open(&folder).1.load(Table::Hours).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_log_is_distinguished_from_an_outage() {
    let (first, second) = ("00000000000000000000.json", "00000000000000000001.json");
    let protocol = r#"{"protocol":{"minReaderVersion":99,"minWriterVersion":99}}"#;
    let feature = serde_json::json!({"protocol": {
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["unheardOf"], "writerFeatures": ["unheardOf"],
    }})
    .to_string();
    let cases = [
        ("no JSON", load_with(second, |_| Some("{\"add".into())).await),
        ("a protocol ahead", load_with(second, |_| Some(protocol.into())).await),
        ("an unknown feature", load_with(second, |_| Some(feature)).await),
        ("no first version", load_with(first, |_| None).await),
        ("no second version", load_with(second, |_| None).await),
    ];
    let failures = cases.map(|(what, error)| {
        assert!(error.source.source().is_some(), "{what}: the library's own error is kept");
        assert!(!error.to_string().contains("backtrace"), "{what}: {error}");
        (what, error.kind, error.to_string())
    });
    assert!(failures.iter().all(|(_, kind, _)| !kind.is_retryable()), "{failures:#?}");
    assert_eq!(failures[4].1, ErrorKind::Missing, "{failures:#?}");
}

/// Creates the table `hours` as another release would have: `change` edits its columns.
async fn created_by_another_release(store: &Store, change: impl FnOnce(&mut Vec<serde_json::Value>)) {
    let path = "hours/_delta_log/00000000000000000000.json";
    DeltaTables::new(store.clone()).load(Table::Hours).await.unwrap();
    let log = String::from_utf8(store.get(path).await.unwrap().unwrap().to_vec()).unwrap();
    let mut change = Some(change);
    let lines = log.lines().map(|line| {
        let mut action: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(metadata) = action.get_mut("metaData") {
            let mut schema: serde_json::Value =
                serde_json::from_str(metadata["schemaString"].as_str().unwrap()).unwrap();
            change.take().unwrap()(schema["fields"].as_array_mut().unwrap());
            metadata["schemaString"] = schema.to_string().into();
            metadata["configuration"]["delta.dataSkippingStatsColumns"] = "hour".into();
        }
        action.to_string() + "\n"
    });
    let log: String = lines.collect();
    store.delete(path).await.unwrap();
    store.put_if_absent(path, log.into()).await.unwrap();
}

/// Returns the newest metadata of the table `hours`: its columns and its properties.
async fn metadata_of_hours(store: &Store) -> (Vec<String>, serde_json::Value) {
    let mut newest = None;
    for object in store.list("hours/_delta_log/").await.unwrap() {
        let log = String::from_utf8(store.get(&object.path).await.unwrap().unwrap().to_vec()).unwrap();
        let actions = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        newest = actions.filter_map(|action| action.get("metaData").cloned()).next_back().or(newest);
    }
    let metadata = newest.unwrap();
    let schema: serde_json::Value = serde_json::from_str(metadata["schemaString"].as_str().unwrap()).unwrap();
    let fields = schema["fields"].as_array().unwrap().iter();
    let names = fields.map(|field| field["name"].as_str().unwrap().to_owned()).collect();
    (names, metadata["configuration"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_column_is_added_to_the_table_once() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(&folder);
    let added = "max_event_time_seen";
    created_by_another_release(&store, |fields| fields.retain(|field| field["name"] != added)).await;
    let before = metadata_of_hours(&store).await.0;
    assert!(!before.contains(&added.to_owned()), "{before:?}");
    let first = DeltaTables::new(store.clone()).load(Table::Hours).await.unwrap();
    assert_eq!(first.version, 1, "the column is a commit");
    let (after, properties) = metadata_of_hours(&store).await;
    assert_eq!(after, [before, vec![added.to_owned()]].concat(), "after the others");
    assert_ne!(properties["delta.dataSkippingStatsColumns"], "hour", "statistics are this release's, too");
    // Later workers find nothing to do, and more files can be added.
    let tables = DeltaTables::new(store.clone());
    assert_eq!(tables.load(Table::Hours).await.unwrap().version, 1);
    let committed = tables.commit(Table::Hours, 1, &commit(1)).await.unwrap();
    assert_eq!(committed, CommitOutcome::Committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_workers_one_adds_a_new_column() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(&folder);
    created_by_another_release(&store, |fields| fields.retain(|field| field["name"] != "revision")).await;
    let loads = (0..6).map(|_| {
        let tables = DeltaTables::new(store.clone());
        tokio::spawn(async move { tables.load(Table::Hours).await.unwrap().version })
    });
    for load in loads.collect::<Vec<_>>() {
        assert_eq!(load.await.unwrap(), 1, "nobody adds it twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_of_a_newer_release_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(&folder);
    let newer = serde_json::json!({"name": "newer", "type": "string", "nullable": true, "metadata": {}});
    created_by_another_release(&store, |fields| fields.push(newer)).await;
    let tables = DeltaTables::new(store.clone());
    assert_eq!(tables.load(Table::Hours).await.unwrap().version, 0, "there is nothing to add");
    assert!(metadata_of_hours(&store).await.0.contains(&"newer".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_of_another_type_stops_its_table_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(&folder);
    created_by_another_release(&store, |fields| {
        let revision = fields.iter_mut().find(|field| field["name"] == "revision").unwrap();
        revision["type"] = "string".into();
    })
    .await;
    let tables = DeltaTables::new(store.clone());
    let error = tables.load(Table::Hours).await.unwrap_err();
    assert_eq!((error.table, error.kind), (Table::Hours, ErrorKind::Invalid), "{error}");
    assert!(error.to_string().contains("'revision' is string, not long"), "{error}");
    tables.load(Table::CostAllocation).await.unwrap();
}
