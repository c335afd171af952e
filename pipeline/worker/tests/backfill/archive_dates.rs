//! The index of a shard's archive, listed date by date.

use prorata_schemas::time::Hour;
use prorata_testkit::fakes::FakeStore;
use prorata_worker::ArchiveIndex;
use prorata_worker::checkpoint::{ArchivedFile, Checkpoint, Owner, OwnerKind};
use prorata_worker::names::{ArchivePath, ObjectId};
use prorata_worker::ports::ObjectStore;

fn owner() -> Owner {
    Owner { id: "a".into(), seq: 1, kind: OwnerKind::Worker, released: false, has_objects: true }
}

#[tokio::test]
async fn a_forgotten_date_is_listed_again_if_it_is_needed() {
    let (store, mut checkpoint) = (FakeStore::default(), Checkpoint::unowned(0));
    (checkpoint.seq, checkpoint.archive_from) = (1, Some(Hour(30)));
    checkpoint.owners.push(owner());
    let object_id = ObjectId { seq: 1, owner: "a".into(), n: 0 };
    let hours = [Hour(30), Hour(50)];
    for hour in hours {
        let path = ArchivePath { shard: 0, hour, object_id: object_id.clone() }.path();
        store.put_if_absent(&path, vec![0; 7].into()).await.unwrap();
    }
    let mut archive = ArchiveIndex::default();
    archive.ensure_all(&store, &checkpoint).await.unwrap();
    archive.add(ArchivedFile { hour: Hour(51), object_id, bytes: 7 });
    assert_eq!(archive.hours().collect::<Vec<_>>(), [Hour(30), Hour(50), Hour(51)]);
    archive.forget_before(Hour(60));
    assert_eq!(archive.hours().collect::<Vec<_>>(), [Hour(50), Hour(51)]);
    archive.ensure(&store, &checkpoint, (Hour(30), Hour(50))).await.unwrap();
    assert_eq!(archive.hours().collect::<Vec<_>>(), [Hour(30), Hour(50), Hour(51)]);
    assert!(hours.iter().all(|hour| archive.files(*hour).len() == 1), "each file once");
}

/// A date that was listed with all others stays listed. A merged file that waits to be deleted does not count
/// when it is listed again.
#[tokio::test]
async fn a_merged_file_that_is_still_there_is_not_taken_again() {
    let (store, mut checkpoint) = (FakeStore::default(), Checkpoint::unowned(0));
    (checkpoint.seq, checkpoint.archive_from) = (2, Some(Hour(30)));
    checkpoint.owners.push(owner());
    let id = |n| ObjectId { seq: 1, owner: "a".into(), n };
    let path = |n| ArchivePath { shard: 0, hour: Hour(50), object_id: id(n) }.path();
    for n in 0..2 {
        store.put_if_absent(&path(n), vec![0; 7].into()).await.unwrap();
    }
    let mut archive = ArchiveIndex::default();
    archive.ensure_all(&store, &checkpoint).await.unwrap();
    archive.remove(Hour(50), &id(0));
    archive.forget_before(Hour(49));
    archive.ensure(&store, &checkpoint, (Hour(50), Hour(80))).await.unwrap();
    let known =
        |archive: &ArchiveIndex| archive.files(Hour(50)).iter().map(|file| file.object_id.n).collect();
    let counting: Vec<u64> = known(&archive);
    assert_eq!(counting, [1]);
    archive.forget_all();
    archive.ensure(&store, &checkpoint, (Hour(50), Hour(50))).await.unwrap();
    let counting: Vec<u64> = known(&archive);
    assert_eq!(counting, [1]);
    archive.ensure_all(&store, &checkpoint).await.unwrap();
    let counting: Vec<u64> = known(&archive);
    assert_eq!(counting, [1]);
}
