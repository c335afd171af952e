//! The part of a large table that a process keeps: the files of the dates that it requests.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use prorata_connectors::DeltaTables;
use prorata_connectors::store::Store;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Date;
use prorata_worker::names;
use prorata_worker::ports::{CommitOutcome, FileEntry, TableCommit, TableCommitter};

const TABLE: Table = Table::CostAllocation;

/// Number of days in the table, which is chosen so that the log does not end in a checkpoint.
const DAYS: i64 = 230;

/// Number of files of a day, from four shards.
const FILES: usize = 96;

/// Number of dates that a worker asks for.
const HORIZON: i64 = 36;

fn tables(folder: &Path) -> DeltaTables {
    DeltaTables::new(Store::open(folder.to_str().unwrap()).unwrap())
}

fn file(day: i64, hour: usize, seq: u64) -> FileEntry {
    let (shard, hour, date) = (hour / 24, hour % 24, Date::from_days(20_000 + day));
    let object_id = format!("{seq:010}-aa-1");
    let path = format!("date={date}/{hour:02}-{shard:04}-{object_id}-0123456789abcdef.parquet");
    let stats = format!(r#"{{"numRecords":1,"minValues":{{"namespace":"{}"}}}}"#, "x".repeat(600));
    FileEntry { path, bytes: 1_234, digest: String::new(), stats: Some(stats), last_organization: None }
}

fn dates(first: i64) -> BTreeSet<Date> {
    (first..first + HORIZON).map(|day| Date::from_days(20_000 + day)).collect()
}

fn commit(adds: Vec<FileEntry>, removes: Vec<String>, seq: u64) -> TableCommit {
    let transactions = [(names::transaction(0), seq)].into();
    TableCommit { adds, removes, transactions, id: "test".into(), same_rows: false }
}

async fn grow(folder: &Path) {
    let tables = tables(folder);
    for day in 0..DAYS {
        let files = (0..FILES).map(|hour| file(day, hour, 1)).collect();
        let base = tables.load_dates(TABLE, &BTreeSet::new()).await.unwrap().version;
        let landed = tables.commit(TABLE, base, &commit(files, vec![], day as u64)).await.unwrap();
        assert_eq!(landed, CommitOutcome::Committed);
    }
    assert_eq!(tables.files_kept(TABLE).await, 0, "nobody asked for any");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_keeps_the_horizon_of_a_table_and_commits_as_before() {
    let folder = tempfile::tempdir().unwrap();
    grow(folder.path()).await;
    let (worker, other) = (tables(folder.path()), tables(folder.path()));
    let first = DAYS - HORIZON;
    let kept = HORIZON as usize * FILES;
    let started = Instant::now();
    let live = worker.load_dates(TABLE, &dates(first)).await.unwrap();
    println!("{} of {} files in {:?}", live.files.len(), DAYS as usize * FILES, started.elapsed());
    assert_eq!((live.files.len(), worker.files_kept(TABLE).await), (kept, kept));
    assert!(live.files.is_sorted(), "by path");

    // Another worker replaces a file of these dates and an earlier one, and a foreign writer adds two.
    let base = other.load_dates(TABLE, &dates(first)).await.unwrap().version;
    let old = |day| file(day, 3, 1).path;
    let replace = commit(vec![file(first, 3, 2), file(2, 3, 2)], vec![old(first), old(2)], 1_000);
    assert_eq!(other.commit(TABLE, base, &replace).await.unwrap(), CommitOutcome::Committed);
    let stranger = |day: i64| FileEntry {
        path: format!("date={}/part-1.parquet", Date::from_days(20_000 + day)),
        ..file(day, 0, 1)
    };
    let foreign = commit(vec![stranger(first), stranger(2)], vec![], 1_001);
    assert_eq!(
        tables(folder.path()).commit(TABLE, base + 1, &foreign).await.unwrap(),
        CommitOutcome::Committed
    );

    // A commit from an old version is refused, and the next load reads all changes.
    let adds = commit(vec![file(DAYS, 0, 3)], vec![file(first, 4, 1).path], 1_002);
    assert_eq!(worker.commit(TABLE, live.version, &adds).await.unwrap(), CommitOutcome::Conflict);
    let live = worker.load_dates(TABLE, &dates(first)).await.unwrap();
    let paths: BTreeSet<&str> = live.files.iter().map(|file| file.path.as_str()).collect();
    assert!(paths.contains(file(first, 3, 2).path.as_str()) && !paths.contains(old(first).as_str()));
    assert!(paths.contains(stranger(first).path.as_str()), "a foreign file inside the horizon is seen");
    assert_eq!((live.files.len(), worker.files_kept(TABLE).await), (kept + 1, kept + 1));
    let name = names::transaction(0);
    let known = worker.transactions(TABLE, live.version, std::slice::from_ref(&name)).await.unwrap();
    assert_eq!(known[&name], 1_001);
    assert_eq!(worker.commit(TABLE, live.version, &adds).await.unwrap(), CommitOutcome::Committed);

    // Everything equals what a fresh reader finds.
    let whole = tables(folder.path()).load(TABLE).await.unwrap();
    assert_eq!(whole.files.len(), DAYS as usize * FILES + 2);
    let within = |file: &&_| -> bool {
        let file: &prorata_worker::ports::LiveFile = file;
        names::partition_date(&file.path).is_some_and(|date| dates(first).contains(&date))
    };
    let expected: Vec<_> = whole.files.iter().filter(within).cloned().collect();
    assert_eq!(worker.load_dates(TABLE, &dates(first)).await.unwrap().files, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_dates_are_forgotten_and_older_dates_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let worker = tables(folder.path());
    for day in 0..6 {
        let base = worker.load_dates(TABLE, &BTreeSet::new()).await.unwrap().version;
        let adds = commit(vec![file(day, 0, 1)], vec![], day as u64);
        assert_eq!(worker.commit(TABLE, base, &adds).await.unwrap(), CommitOutcome::Committed);
    }
    let of = |day: i64| BTreeSet::from([Date::from_days(20_000 + day)]);
    for day in 0..6 {
        assert_eq!(worker.load_dates(TABLE, &of(day)).await.unwrap().files.len(), 1, "day {day}");
    }
    assert_eq!(worker.files_kept(TABLE).await, 6);
    for _ in 0..1_024 {
        assert_eq!(worker.load_dates(TABLE, &of(5)).await.unwrap().files.len(), 1);
    }
    assert_eq!(worker.files_kept(TABLE).await, 1);
    assert_eq!(worker.load_dates(TABLE, &of(0)).await.unwrap().files.len(), 1, "as a backfill does");
}
