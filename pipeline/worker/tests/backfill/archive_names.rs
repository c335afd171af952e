//! The names of archive files and dead letters. The checkpoint itself holds few of these names. Parts hold
//! the others, and are read only when needed.

use std::collections::BTreeSet;

use prorata_schemas::time::{Hour, HourRange, WallTime};
use prorata_testkit::fakes::FakeStore;
use prorata_worker::checkpoint::log::{self, Appended, Log};
use prorata_worker::checkpoint::{ArchivedFile, Decided, Draft, OwnerKind};
use prorata_worker::names::{self, ObjectId};
use prorata_worker::ports::ObjectStore;
use prorata_worker::{ArchiveIndex, WorkerError};

use crate::harness::named;

/// 2026-11-01T00.
const FIRST: i64 = 498_624;

async fn append(store: &FakeStore, decided: &Decided, draft: Draft) -> Decided {
    let mut log = Log::new(decided.clone());
    log.seal(draft, WallTime(0));
    assert_eq!(log.append(store).await.unwrap(), Appended::Ours);
    log::latest(store, 7).await.unwrap()
}

fn file(hour: i64, seq: u64) -> ArchivedFile {
    ArchivedFile { hour: Hour(hour), object_id: ObjectId { seq, owner: "a".into(), n: 0 }, bytes: 9 }
}

/// Appends a checkpoint for each of 100 days, which names an archive file for each hour and four files of
/// dead letters. Returns the last checkpoint and all names.
async fn a_hundred_days(store: &FakeStore) -> (Decided, BTreeSet<String>) {
    let (mut decided, mut expected) = (Decided::unowned(7), BTreeSet::new());
    for day in 0..100 {
        let mut draft = decided.next_draft();
        draft.set_owner("a".into(), OwnerKind::Backfill);
        for hour in 0..24 {
            let file = file(FIRST + day * 24 + hour, draft.seq);
            expected.insert(file.path(7));
            draft.name_archive_file(file);
        }
        for n in 0..4 {
            let object_id = ObjectId { seq: draft.seq, owner: "a".into(), n };
            let path = names::dead_letters(7, &object_id, "0123456789abcdef0123456789abcdef");
            expected.insert(path.clone());
            draft.name_dead_letters(path, false);
        }
        decided = append(store, &decided, draft).await;
    }
    (decided, expected)
}

#[tokio::test]
async fn a_checkpoint_stays_small_and_names_everything() {
    let store = FakeStore::default();
    let (decided, expected) = a_hundred_days(&store).await;
    assert_eq!(named(&store, &decided).await.unwrap(), expected);
    let bytes = store.objects()[&names::checkpoint(7, decided.seq)].len();
    assert!(bytes < 40_000, "{bytes} bytes for {} names", expected.len());
    let months: Vec<&str> = decided.archive.packed().map(|(month, _)| month.as_str()).collect();
    assert_eq!(months, ["2026-11", "2026-12", "2027-01", "2027-02"]);
}

#[tokio::test]
async fn only_the_months_that_are_asked_for_are_read() {
    let store = FakeStore::default();
    let (decided, _) = a_hundred_days(&store).await;
    let december = Hour(FIRST + 30 * 24);
    let mut archive = ArchiveIndex::of(&decided);
    let recent = archive.hours();
    assert!(!recent.contains(&december));
    archive.ensure(&store, HourRange::new(december, december)).await.unwrap();
    assert_eq!(archive.files(december).map(|file| file.hour).collect::<Vec<_>>(), [december]);
    assert_eq!(archive.hours().len(), recent.len() + 31 * 24);
    // A part that is not needed again may be gone.
    store.delete(decided.archive.part_of("2026-11").unwrap()).await.unwrap();
    archive.ensure(&store, HourRange::new(december, Hour(december.0 + 24 * 40))).await.unwrap();
    archive.forget_before(Hour(december.0 + 24 * 40));
    assert_eq!(archive.files(december).count(), 0);
    let lost = archive.ensure_all(&store).await.unwrap_err();
    assert!(matches!(lost, WorkerError::Damaged { .. }), "{lost}");
}

#[tokio::test]
async fn files_that_were_merged_leave_the_part_that_names_them() {
    let store = FakeStore::default();
    let (decided, mut expected) = a_hundred_days(&store).await;
    let hour = Hour(FIRST + 5);
    let old = file(hour.0, 1);
    let mut draft = decided.next_draft();
    let merged = ObjectId { seq: draft.seq, owner: "a".into(), n: 1 };
    draft.merge_archive_files(hour, merged.clone(), vec![1].into(), [old.clone()]);
    let mut archive = ArchiveIndex::of(&decided);
    archive.ensure(&store, HourRange::new(hour, hour)).await.unwrap();
    assert_eq!(archive.files(hour).collect::<Vec<_>>(), [&old], "nothing changes before the decision");
    let decided = append(&store, &decided, draft).await;
    archive.follow(&decided);
    archive.ensure(&store, HourRange::new(hour, hour)).await.unwrap();
    let files: Vec<ObjectId> = archive.files(hour).map(|file| file.object_id.clone()).collect();
    assert_eq!(files, [merged]);
    expected.remove(&old.path(7));
    expected.insert(archive.files(hour).next().unwrap().path(7));
    assert_eq!(named(&store, &decided).await.unwrap(), expected);
}
