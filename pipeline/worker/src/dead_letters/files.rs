//! The files of dead letters in a root, and the records of the dead letters that were replayed.
//!
//! A file counts only if the latest checkpoint of its shard names it. Records under `dead-letter/replayed/`
//! list the replayed dead letters; each record is created once after a replay and never changed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::checkpoint::snapshot::hex;
use crate::checkpoint::{Checkpoint, Decided, log};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::objects::{self, StoredObject};
use crate::ports::{Archive, DeadLetter, FormatError, ObjectStore};

/// Version of the records of replayed dead letters.
const FORMAT: u32 = 1;

/// An object with dead letters that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterObject {
    /// The shard whose owner wrote the object. For dead letters from files, this is the lead shard of the
    /// backfill.
    pub shard: Shard,
    /// The object's path under the root.
    pub path: String,
}

/// A dead letter, its place, and whether it was replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDeadLetter {
    /// The letter's place in its file, from 0.
    pub index: u64,
    /// The letter.
    pub letter: DeadLetter,
    /// Whether it was replayed before.
    pub replayed: bool,
}

/// The files of dead letters in a root, without their content.
#[derive(Debug)]
pub struct DeadLetters {
    /// The objects that count, in ascending order of path.
    pub files: Vec<DeadLetterObject>,
    /// The latest checkpoint of every shard, without its hours.
    pub checkpoints: BTreeMap<Shard, Checkpoint>,
    /// Shards whose checkpoint cannot be read, each with the reason; their files are left out.
    pub left_out: BTreeMap<Shard, WorkerError>,
    replayed: BTreeMap<String, BTreeSet<u64>>,
}

/// A record of dead letters of one file that were replayed together.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    format: u32,
    /// Path of the file of dead letters.
    file: String,
    /// The replayed ranges, each as its first and last place in the file.
    replayed: Vec<(u64, u64)>,
}

impl DeadLetters {
    /// Lists the dead-letter files of a root.
    ///
    /// # Errors
    /// If storage is unavailable, or an object under the root cannot be read.
    pub async fn load(store: &dyn ObjectStore) -> Result<Self> {
        let (decided, left_out) = log::latest_of_all(store).await?;
        let mut files = Vec::new();
        for (shard, decided) in &decided {
            let paths = log::read_dead_letter_names(store, &decided.dead_letters).await?;
            files.extend(paths.into_iter().map(|path| DeadLetterObject { shard: *shard, path }));
        }
        let checkpoints: BTreeMap<Shard, Checkpoint> =
            decided.into_iter().map(|(shard, decided)| (shard, without_hours(&decided))).collect();
        let records = store.list(names::REPLAYED).await?.into_iter().map(|object| object.path).collect();
        let replayed = replayed(store, records).await?;
        Ok(Self { files, checkpoints, left_out, replayed })
    }

    /// Reads the dead letters of a file.
    ///
    /// # Errors
    /// If storage is unavailable, or the object cannot be read.
    pub async fn read(
        &self,
        store: &dyn ObjectStore,
        archive: &dyn Archive,
        file: &DeadLetterObject,
    ) -> Result<Vec<StoredDeadLetter>> {
        let damaged = |cause| WorkerError::Damaged { object: file.path.clone(), cause };
        let bytes = store.get(&file.path).await?;
        let bytes =
            bytes.ok_or_else(|| damaged("its checkpoint names it, but it does not exist".to_owned()))?;
        let dead_letters = archive.read_dead_letters(&bytes).map_err(|error| damaged(error.to_string()))?;
        let replayed = self.replayed.get(&file.path);
        let dead_letters = (0..).zip(dead_letters).map(|(index, letter)| StoredDeadLetter {
            index,
            letter,
            replayed: replayed.is_some_and(|replayed| replayed.contains(&index)),
        });
        Ok(dead_letters.collect())
    }
}

/// Records that the dead letters at these places of a file were replayed. `places` must ascend.
///
/// # Errors
/// If storage is unavailable. Then the dead letters may be replayed again, which changes nothing.
pub(super) async fn note_replayed(store: &dyn ObjectStore, file: &str, places: &[u64]) -> Result<()> {
    let mut replayed: Vec<(u64, u64)> = Vec::new();
    for place in places {
        match replayed.last_mut() {
            Some((_, last)) if *last + 1 == *place => *last = *place,
            _ => replayed.push((*place, *place)),
        }
    }
    let record = Record { format: FORMAT, file: file.to_owned(), replayed };
    let json = serde_json::to_vec(&record).map_err(|error| FormatError::new("encode replay marks", error))?;
    // The name is the digest of the content: the same note twice is one object.
    let digest = Sha256::digest(&json);
    let path = names::replayed(&hex(digest.get(..16).unwrap_or_default()));
    Ok(objects::put(store, path, Bytes::from(json)).await?)
}

/// Returns a checkpoint without its hours, which are most of its content and which a replay does not need.
fn without_hours(decided: &Decided) -> Checkpoint {
    let mut checkpoint = Checkpoint::clone(decided);
    checkpoint.hours.clear();
    checkpoint.revisions.clear();
    checkpoint
}

async fn replayed(store: &dyn ObjectStore, records: Vec<String>) -> Result<BTreeMap<String, BTreeSet<u64>>> {
    let stored = objects::get_all(store, records).await?;
    let mut replayed: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for StoredObject { path: object, bytes } in stored {
        let damaged = |cause| WorkerError::Damaged { object: object.clone(), cause };
        objects::check_format(&object, &bytes, FORMAT)?;
        let record: Record = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        let places = replayed.entry(record.file).or_default();
        record.replayed.iter().for_each(|(first, last)| places.extend(*first..=*last));
    }
    Ok(replayed)
}
