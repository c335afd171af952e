//! Compaction of a Delta table in a local folder: the same rows in fewer files, and a log that records the
//! compaction.

use std::path::Path;
use std::sync::Arc;

use prorata_connectors::store::Store;
use prorata_connectors::{DeltaTables, ParquetEncoder, SystemClock};
use prorata_samples::hour::full_hour;
use prorata_schemas::tables::{EncodedFile, HourClock, Table};
use prorata_schemas::time::{Hour, WallTime};
use prorata_worker::checkpoint::log::{Appended, Log};
use prorata_worker::checkpoint::{Decided, OwnerKind};
use prorata_worker::names::{DayFile, ObjectId, TableFile};
use prorata_worker::ports::{CommitOutcome, FileEntry, ObjectStore, PutOutcome, TableCommit, TableCommitter};
use prorata_worker::root::Root;
use prorata_worker::root::maintain::{MaintainPorts, Maintained, maintain};
use serde_json::Value;

const TABLE: Table = Table::CostAllocation;

/// The first hour of a date.
const FIRST: Hour = Hour(20_000 * 24);

fn open(folder: &Path) -> (Store, DeltaTables) {
    let store = Store::open(folder.to_str().unwrap()).unwrap();
    (store.clone(), DeltaTables::new(store))
}

fn hour_file(hour: Hour) -> EncodedFile {
    let clock = HourClock {
        late_events: 0,
        max_event_time_seen: None,
        complete: true,
        revision: 0,
        last_updated: WallTime(0),
    };
    prorata_tables::encode(TABLE, &[full_hour("acme", hour)], &[clock]).unwrap().unwrap()
}

/// Creates a root with hours of two dates, and a shard that is closed through 60 days after the first hour.
async fn root(folder: &Path) -> Vec<Hour> {
    let (store, tables) = open(folder);
    Root::new(1).create(&store).await.unwrap();
    let mut log = Log::new(Decided::unowned(0));
    let mut draft = log.decided().next_draft();
    draft.set_owner("aa".into(), OwnerKind::Backfill);
    draft.close_through(Hour(FIRST.0 + 60 * 24));
    log.seal(draft, WallTime(0));
    assert_eq!(log.append(&store).await.unwrap(), Appended::Ours);
    let hours: Vec<Hour> = [0, 3, 4, 23, 30].into_iter().map(|hour| Hour(FIRST.0 + hour)).collect();
    for (n, hour) in (0..).zip(&hours) {
        let EncodedFile { bytes, stats, digest, .. } = hour_file(*hour);
        let object_id = ObjectId { seq: 1, owner: "aa".into(), n };
        let path = TableFile { hour: *hour, shard: 0, object_id, digest: digest.clone() }.path();
        let size = bytes.len() as u64;
        let put = store.put_if_absent(&format!("{}/{path}", TABLE.name()), bytes.into()).await.unwrap();
        assert_eq!(put, PutOutcome::Created);
        let file = FileEntry { path, bytes: size, digest, stats: Some(stats), last_organization: None };
        let commit = TableCommit { adds: vec![file], id: "test".into(), ..TableCommit::default() };
        let base = tables.load(TABLE).await.unwrap().version;
        assert_eq!(tables.commit(TABLE, base, &commit).await.unwrap(), CommitOutcome::Committed);
    }
    hours
}

async fn compact(folder: &Path) -> Maintained {
    let (store, tables) = open(folder);
    let tables = Arc::new(tables);
    let ports = MaintainPorts {
        store: Arc::new(store),
        tables: tables.clone(),
        logs: tables,
        encoder: Arc::new(ParquetEncoder),
        clock: Arc::new(SystemClock),
    };
    maintain(&ports, "keeper").await.unwrap()
}

/// Returns the lines of a version of the log.
async fn version(store: &Store, version: u64) -> Vec<Value> {
    let path = format!("{}/_delta_log/{version:020}.json", TABLE.name());
    let text = String::from_utf8(store.get(&path).await.unwrap().unwrap().to_vec()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the winning bound or count of a column over all these statistics.
fn together(stats: &[Value], bound: &str, wins: fn(&Value, &Value) -> bool, column: &str) -> Value {
    let mut all = stats.iter().map(|stats| stats[bound][column].clone());
    let first = all.next().unwrap();
    all.fold(first, |best, next| if wins(&next, &best) { next } else { best })
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_date_become_one_with_the_same_rows_and_statistics() {
    let folder = tempfile::tempdir().unwrap();
    let hours = root(folder.path()).await;
    let (store, tables) = open(folder.path());
    let before = tables.load(TABLE).await.unwrap();
    let done = compact(folder.path()).await.tables[&TABLE];
    assert_eq!((done.compacted, done.day_files), (4, 1));
    let after = open(folder.path()).1.load(TABLE).await.unwrap();
    assert_eq!((after.version, after.files.len()), (before.version + 1, 2), "the other date has one file");
    let day = after.files.iter().find(|file| DayFile::parse(&file.path).is_some()).unwrap();
    assert_eq!(DayFile::parse(&day.path).unwrap().hours().collect::<Vec<_>>(), &hours[..4]);
    let bytes = store.get(&format!("{}/{}", TABLE.name(), day.path)).await.unwrap().unwrap();
    assert_eq!(day.bytes, bytes.len() as u64);
    let files = prorata_tables::split(TABLE, &bytes).unwrap();
    assert_eq!(files.len(), 4);
    for (file, hour) in files.iter().zip(&hours) {
        assert_eq!((file.hour, &file.file), (*hour, &hour_file(*hour)), "byte for byte");
    }

    let log = version(&store, after.version).await;
    let adds: Vec<&Value> = log.iter().filter_map(|line| line.get("add")).collect();
    let removes: Vec<&Value> = log.iter().filter_map(|line| line.get("remove")).collect();
    assert_eq!((adds.len(), removes.len()), (1, 4));
    for action in adds.iter().chain(&removes) {
        assert_eq!(action["dataChange"], false, "{action}");
        assert_eq!(action["partitionValues"]["date"], FIRST.date().to_string());
    }
    assert!(log.iter().all(|line| line.get("txn").is_none()), "no shard has published anything");
    let info = log.iter().find_map(|line| line.get("commitInfo")).unwrap();
    assert_eq!(info["operation"], "OPTIMIZE");
    let parse = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    let found = parse(adds[0]["stats"].as_str().unwrap());
    let parts: Vec<Value> = files.iter().map(|file| parse(&file.file.stats)).collect();
    assert_eq!(found["numRecords"].as_u64(), Some(files.iter().map(|file| file.file.rows).sum()));
    for column in ["ChargePeriodStart", "BillingAccountId"] {
        let less = |left: &Value, right: &Value| left.as_str() < right.as_str();
        let more = |left: &Value, right: &Value| left.as_str() > right.as_str();
        assert_eq!(found["minValues"][column], together(&parts, "minValues", less, column));
        assert_eq!(found["maxValues"][column], together(&parts, "maxValues", more, column));
    }
    let nulls = parts.iter().map(|stats| stats["nullCount"]["x_PodUid"].as_u64().unwrap());
    assert_eq!(found["nullCount"]["x_PodUid"].as_u64(), Some(nulls.sum()));
    let again = compact(folder.path()).await.tables[&TABLE];
    assert_eq!((again.compacted, again.day_files), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_date_with_a_damaged_file_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    root(folder.path()).await;
    let before = open(folder.path()).1.load(TABLE).await.unwrap();
    let damaged = folder.path().join(TABLE.name()).join(&before.files[1].path);
    std::fs::write(damaged, b"damaged").unwrap();
    assert_eq!(compact(folder.path()).await.tables[&TABLE].compacted, 0);
    assert_eq!(open(folder.path()).1.load(TABLE).await.unwrap(), before);
}
