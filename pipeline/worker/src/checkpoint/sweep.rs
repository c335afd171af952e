//! Sweep: after a decision, the owner of a shard deletes the objects that no checkpoint of the shard needs.
//!
//! An object that waits for a checkpoint carries the checkpoint's sequence number. If that checkpoint or a
//! later one is decided without naming the object, no checkpoint ever will. The object is left over from a
//! dead attempt, or it was replaced. So state can be deleted at once, without regard to any clock.
//! Checkpoints are deleted by age. So are archive files and dead letters that no checkpoint names. If the log
//! has lost its last checkpoints, these files are the only copy of their events. Ages are differences between
//! times of the store; a time ahead of the clock does not count.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use prorata_schemas::time::WallTime;

use super::model::Checkpoint;
use crate::names::{self, ArchivePath};
use crate::objects::CONCURRENCY;
use crate::ports::{ObjectMeta, ObjectStore, StoreError};

/// The time for which checkpoints are kept: 7 days, as the protocol promises to readers and late owners.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

/// Returns the objects that an owner does not need in its shard's state folder. These are snapshots and parts
/// that the decided checkpoint does not name, and old checkpoints. Ages count up to the decided checkpoint,
/// but at most up to `latest`. In a local folder, the clock that stamps a checkpoint may have been ahead.
pub fn unneeded_state(listed: &[ObjectMeta], decided: &Checkpoint, latest: WallTime) -> Vec<String> {
    let snapshots = decided.hours.values().flat_map(|entry| entry.snapshot_objects());
    let named: BTreeSet<&String> = snapshots.chain(decided.part_paths()).collect();
    let own = names::checkpoint(decided.shard, decided.seq);
    let Some(stored) = listed.iter().find(|object| object.path == own).map(|object| object.modified) else {
        return Vec::new();
    };
    let now = stored.min(latest);
    let unneeded = listed.iter().filter(|object| {
        if let Some((shard, seq)) = names::parse_checkpoint(&object.path) {
            let old = now.since(object.modified) > KEPT;
            return shard == decided.shard && seq < decided.seq && old;
        }
        let snapshot = names::parse_snapshot(&object.path).map(|(_, object_id)| object_id);
        let object_id = snapshot.or_else(|| Some(names::parse_part(&object.path)?.0));
        object_id.is_some_and(|object_id| object_id.seq <= decided.seq && !named.contains(&object.path))
    });
    unneeded.map(|object| object.path.clone()).collect()
}

/// Returns the archive files and the dead letters of a shard that the decided checkpoint has passed without
/// naming them. Files that are at most as old as the checkpoints that are kept are left out. `named` holds
/// all paths that the checkpoint names; `now` is the time of the store.
pub fn unneeded_records(
    listed: &[ObjectMeta],
    decided: &Checkpoint,
    named: &BTreeSet<String>,
    now: WallTime,
) -> Vec<String> {
    let unneeded = listed.iter().filter(|object| {
        let archived = ArchivePath::parse(&object.path).map(|file| (file.shard, file.object_id));
        let dead_letters =
            names::parse_dead_letter_shard(&object.path).zip(names::parse_dead_letters(&object.path));
        let own = archived.or(dead_letters.map(|(shard, (object_id, _))| (shard, object_id)));
        let old = now.since(object.modified) > KEPT;
        own.is_some_and(|(shard, object_id)| shard == decided.shard && object_id.seq <= decided.seq)
            && old
            && !named.contains(&object.path)
    });
    unneeded.map(|object| object.path.clone()).collect()
}

/// Deletes objects. The error holds the paths of the objects that could not be deleted, and the last cause.
pub async fn delete_all(
    store: &dyn ObjectStore,
    paths: Vec<String>,
) -> Result<(), (Vec<String>, StoreError)> {
    let deletes = paths.into_iter().map(|path| async move {
        let deleted = store.delete(&path).await;
        deleted.map_err(|error| (path, error))
    });
    let mut deletes = stream::iter(deletes.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY);
    let (mut left, mut failure) = (Vec::new(), None);
    while let Some(deleted) = deletes.next().await {
        if let Err((path, error)) = deleted {
            left.push(path);
            failure = Some(error);
        }
    }
    failure.map_or(Ok(()), |error| Err((left, error)))
}

#[cfg(test)]
mod tests {
    use prorata_schemas::time::Hour;

    use super::*;
    use crate::checkpoint::HourEntry;
    use crate::names::ObjectId;

    const DAY: i64 = 86_400_000_000;
    const LATEST: WallTime = WallTime(i64::MAX);

    fn checkpoint() -> Checkpoint {
        let mut checkpoint = Checkpoint::unowned(7);
        checkpoint.seq = 9;
        checkpoint
    }

    fn listed(path: String, age_days: i64) -> ObjectMeta {
        ObjectMeta { path, bytes: 1, modified: WallTime((100 - age_days) * DAY) }
    }

    fn id(seq: u64, owner: &str) -> ObjectId {
        ObjectId { seq, owner: owner.into(), n: 0 }
    }

    #[test]
    fn a_snapshot_that_is_not_named_goes_and_one_that_waits_for_a_decision_stays() {
        let mut checkpoint = checkpoint();
        let snapshot = |seq, owner| names::snapshot(7, Hour(3), &id(seq, owner));
        let entry = HourEntry { snapshot: Some(snapshot(4, "aa")), ..HourEntry::default() };
        checkpoint.hours.insert(Hour(3), entry.into());
        let all = [(4, "aa"), (5, "aa"), (8, "bb"), (10, "bb")];
        let mut objects: Vec<ObjectMeta> =
            all.into_iter().map(|(seq, owner)| listed(snapshot(seq, owner), 0)).collect();
        assert_eq!(
            unneeded_state(&objects, &checkpoint, LATEST),
            [""; 0],
            "its own checkpoint is not listed yet"
        );
        objects.push(listed(names::checkpoint(7, 9), 0));
        assert_eq!(unneeded_state(&objects, &checkpoint, LATEST), [snapshot(5, "aa"), snapshot(8, "bb")]);
    }

    #[test]
    fn a_part_that_is_not_named_goes_and_one_that_waits_for_a_decision_stays() {
        let part = |seq, owner| names::part(7, &id(seq, owner), "ff");
        let mut checkpoint = Checkpoint { parts: vec![part(4, "aa")], ..checkpoint() };
        checkpoint.archive.packed.insert("2026-11".into(), part(3, "aa"));
        checkpoint.dead_letters.packed.insert("000000".into(), part(3, "bb"));
        let all = [(4, "aa"), (5, "aa"), (8, "bb"), (10, "bb")];
        let mut objects: Vec<ObjectMeta> =
            all.into_iter().map(|(seq, owner)| listed(part(seq, owner), 0)).collect();
        objects.extend([listed(part(3, "aa"), 0), listed(part(3, "bb"), 0)]);
        objects.push(listed(names::checkpoint(7, 9), 0));
        assert_eq!(unneeded_state(&objects, &checkpoint, LATEST), [part(5, "aa"), part(8, "bb")]);
    }

    #[test]
    fn checkpoints_are_deleted_by_their_age_relative_to_the_last_one() {
        let ages = [(6, 20), (7, 8), (8, 6), (9, 0), (10, 0)];
        // The store's clock differs by years from all others.
        let objects: Vec<ObjectMeta> =
            ages.into_iter().map(|(seq, age)| listed(names::checkpoint(7, seq), age)).collect();
        let expected = [names::checkpoint(7, 6), names::checkpoint(7, 7)];
        assert_eq!(unneeded_state(&objects, &checkpoint(), LATEST), expected);
        // The clock that stamped the last checkpoint was two days ahead.
        let latest = WallTime((100 - 2) * DAY);
        assert_eq!(unneeded_state(&objects, &checkpoint(), latest), [names::checkpoint(7, 6)]);
    }

    #[test]
    fn records_that_no_checkpoint_names_go_after_a_week() {
        let dead_letters = |seq, shard| names::dead_letters(shard, &id(seq, "aa"), "ff");
        let archived = |seq| ArchivePath { shard: 7, hour: Hour(3), object_id: id(seq, "aa") }.path();
        let named = BTreeSet::from([dead_letters(4, 7), archived(4)]);
        let objects = [
            (dead_letters(4, 7), 20),
            (dead_letters(5, 7), 20),
            (dead_letters(5, 8), 20),
            (dead_letters(6, 7), 6),
            (dead_letters(10, 7), 20),
            (archived(4), 20),
            (archived(5), 8),
            (archived(6), 6),
            (archived(10), 20),
            ("events/shard=0007/date=1970-01-01/hour=03/of-somebody-else.txt".to_owned(), 20),
        ];
        let objects: Vec<ObjectMeta> = objects.into_iter().map(|(path, age)| listed(path, age)).collect();
        let now = WallTime(100 * DAY);
        let expected = [dead_letters(5, 7), archived(5)];
        assert_eq!(unneeded_records(&objects, &checkpoint(), &named, now), expected);
    }
}
