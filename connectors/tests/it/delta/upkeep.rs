//! Upkeep of Delta logs in a local folder whose files are aged by hand.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use prorata_connectors::DeltaTables;
use prorata_connectors::store::Store;
use prorata_schemas::tables::Table;
use prorata_schemas::time::WallTime;
use prorata_worker::ports::{
    CommitOutcome, FileEntry, Kept, LiveFile, TableCommit, TableCommitter, TableLogs, TrimmedLog,
};

const TABLE: Table = Table::Hours;
const DAY: Duration = Duration::from_secs(86_400);

fn tables(folder: &Path) -> DeltaTables {
    DeltaTables::new(Store::open(folder.to_str().unwrap()).unwrap())
}

/// Returns the bound for objects that are kept for a week.
fn a_week() -> Kept {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Kept { age: 7 * DAY, now: WallTime(since_1970.as_micros().try_into().unwrap()) }
}

fn path(number: u64) -> String {
    format!("date=2026-11-20/13-0000-0000000001-aa-{number}-ff.parquet")
}

/// Commits replacements of a file, one after the other, like a worker that stays open.
async fn replace(tables: &DeltaTables, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let file = FileEntry {
            path: path(number),
            bytes: 10,
            digest: String::new(),
            stats: Some(r#"{"numRecords":1}"#.into()),
            last_organization: None,
        };
        let live = tables.load(TABLE).await.unwrap();
        let commit = TableCommit {
            adds: vec![file],
            removes: live.files.iter().map(|file| file.path.clone()).collect(),
            transactions: [("prorata/0000".to_owned(), number)].into(),
            id: "test".into(),
            same_rows: false,
        };
        assert_eq!(tables.commit(TABLE, live.version, &commit).await.unwrap(), CommitOutcome::Committed);
    }
}

/// Makes all files of the log a month older.
fn age(folder: &Path) {
    for entry in std::fs::read_dir(folder.join(TABLE.name()).join("_delta_log")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let month_ago = SystemTime::now() - Duration::from_secs(30 * 86_400);
            File::options().write(true).open(path).unwrap().set_modified(month_ago).unwrap();
        }
    }
}

fn log_files(folder: &Path) -> usize {
    std::fs::read_dir(folder.join(TABLE.name()).join("_delta_log")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_versions_go_and_the_table_reads_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let worker = tables(folder.path());
    replace(&worker, 1..40).await;
    let maintain = tables(folder.path());
    // Everything is young: a checkpoint is written, and nothing is removed.
    assert_eq!(maintain.removed_within(TABLE, a_week()).await.unwrap().len(), 38);
    let trimmed = maintain.trim(TABLE, a_week()).await.unwrap();
    assert_eq!(trimmed, TrimmedLog { files: 0, checkpoint: true });
    assert_eq!(maintain.trim(TABLE, a_week()).await.unwrap(), TrimmedLog::default(), "once is enough");
    age(folder.path());
    replace(&worker, 40..60).await;
    let before = (log_files(folder.path()), worker.load(TABLE).await.unwrap());
    let removed = maintain.removed_within(TABLE, a_week()).await.unwrap();
    assert_eq!(removed, (39..59).map(path).collect(), "what commits of this week removed");
    let trimmed = maintain.trim(TABLE, a_week()).await.unwrap();
    assert!(trimmed.files >= 38 && trimmed.checkpoint, "{trimmed:?}");
    assert!(log_files(folder.path()) < before.0, "{} files of {}", log_files(folder.path()), before.0);
    // A fresh reader, a reader that stayed open, and the writer agree, and the log continues.
    let file = LiveFile { path: path(59), bytes: 10 };
    for reader in [&tables(folder.path()), &maintain, &worker] {
        let live = reader.load(TABLE).await.unwrap();
        assert_eq!((live.version, &live.files), (before.1.version, &vec![file.clone()]));
        let names = ["prorata/0000".to_owned()];
        let known = reader.transactions(TABLE, live.version, &names).await.unwrap();
        assert_eq!(known["prorata/0000"], 59);
    }
    replace(&worker, 60..62).await;
    assert_eq!(tables(folder.path()).load(TABLE).await.unwrap().files[0].path, path(61));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_by_a_clock_that_was_ahead_makes_no_other_old() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    replace(&tables, 1..20).await;
    let last = folder.path().join(TABLE.name()).join("_delta_log/00000000000000000019.json");
    File::options().write(true).open(last).unwrap().set_modified(SystemTime::now() + 9 * DAY).unwrap();
    assert_eq!(tables.removed_within(TABLE, a_week()).await.unwrap().len(), 18);
    assert_eq!(tables.trim(TABLE, a_week()).await.unwrap().files, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_trimmed_each_week_stays_as_large_as_a_week() {
    let folder = tempfile::tempdir().unwrap();
    let worker = tables(folder.path());
    let mut bytes = Vec::new();
    for week in 0..6 {
        replace(&worker, week * 60 + 1..week * 60 + 61).await;
        tables(folder.path()).trim(TABLE, a_week()).await.unwrap();
        let log = std::fs::read_dir(folder.path().join(TABLE.name()).join("_delta_log")).unwrap();
        bytes.push(log.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>());
        age(folder.path());
    }
    println!("bytes of the log at the end of each week: {bytes:?}");
    let (first, last) = (bytes[1], bytes[5]);
    assert!(last <= first + first / 4, "{bytes:?}");
}
