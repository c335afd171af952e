//! The checkpoint log of a shard: reads the latest checkpoint, and appends the next.

mod known;
mod parts;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prorata_schemas::time::WallTime;

use self::known::KnownDays;
use self::parts::Split;
use super::checksum;
use super::draft::{Decided, Draft, Sealed};
use super::model::{ArchivedFile, Checkpoint, FORMAT, Named};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::objects;
use crate::ports::{Clock, FormatError, ObjectMeta, ObjectStore};

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The checkpoint is in the log.
    Ours,
    /// Another owner has decided this sequence number: the shard is no longer ours.
    Lost,
}

/// The end of a shard's log, to which the owner of the shard appends.
#[derive(Debug)]
pub struct Log {
    decided: Decided,
    /// The sealed next checkpoint, which the log may not hold yet; `None` if nothing is sealed.
    sealed: Option<Sealed>,
    known_days: KnownDays,
}

impl Log {
    /// Returns a log that ends with this checkpoint.
    pub fn new(decided: Decided) -> Self {
        Self { decided, sealed: None, known_days: KnownDays::default() }
    }

    /// Returns the last decided checkpoint.
    pub fn decided(&self) -> &Decided {
        &self.decided
    }

    /// Returns the sealed next checkpoint, which the log may not hold yet; `None` if nothing is sealed.
    pub fn sealed(&self) -> Option<&Sealed> {
        self.sealed.as_ref()
    }

    /// Freezes a draft: its present content is the next checkpoint.
    pub fn seal(&mut self, draft: Draft, now: WallTime) -> &Sealed {
        self.sealed.insert(draft.seal(now))
    }

    /// Appends the sealed checkpoint: stores its objects, then creates the checkpoint if its sequence number
    /// is free. If the store answers "exists" or its answer is lost, the existing object shows the result.
    /// Does nothing if no checkpoint is sealed.
    ///
    /// # Errors
    /// If storage is unavailable. Then the result is not known, and the checkpoint stays sealed: call this
    /// again, or recover the shard.
    pub async fn append(&mut self, store: &dyn ObjectStore) -> Result<Appended> {
        let Some(sealed) = &self.sealed else { return Ok(Appended::Ours) };
        let Some(decided) = decide(store, sealed, &mut self.known_days).await? else {
            return Ok(Appended::Lost);
        };
        (self.decided, self.sealed) = (decided, None);
        Ok(Appended::Ours)
    }

    /// Appends the sealed checkpoint, if any, and then a checkpoint that only releases the shard.
    ///
    /// # Errors
    /// If storage is unavailable: call this again.
    pub async fn release(&mut self, store: &dyn ObjectStore, clock: &dyn Clock) -> Result<Appended> {
        loop {
            if self.append(store).await? == Appended::Lost {
                return Ok(Appended::Lost);
            }
            if self.decided.owner.as_ref().is_none_or(|owner| owner.released) {
                return Ok(Appended::Ours);
            }
            let mut draft = self.decided.next_draft();
            draft.set_released(true);
            self.seal(draft, clock.now());
        }
    }
}

/// Returns the latest sequence number of every shard that has a checkpoint.
///
/// # Errors
/// If storage is unavailable.
pub async fn latest_seqs(store: &dyn ObjectStore) -> Result<BTreeMap<Shard, u64>> {
    let mut latest = BTreeMap::new();
    for object in store.list(names::STATE).await? {
        if let Some((shard, seq)) = names::parse_checkpoint(&object.path) {
            let newest: &mut u64 = latest.entry(shard).or_default();
            *newest = seq.max(*newest);
        }
    }
    Ok(latest)
}

/// Returns a shard's latest checkpoint, or [`Decided::unowned`] if the shard has none.
///
/// # Errors
/// If storage is unavailable, or the object cannot be read.
pub async fn latest(store: &dyn ObjectStore, shard: Shard) -> Result<Decided> {
    let mut unreadable = None;
    loop {
        let listed = store.list(&names::state_folder(shard)).await?;
        let seqs = listed.iter().filter_map(|object| names::parse_checkpoint(&object.path));
        let newest = seqs.map(|(_, seq)| seq).max();
        let found = match (refuse_lost(&listed, shard, newest.unwrap_or_default()), newest) {
            (Err(lost), _) => Err(lost),
            (Ok(()), Some(newest)) => read(store, shard, newest).await,
            (Ok(()), None) => return Ok(Decided::unowned(shard)),
        };
        match found {
            // The owner may have decided a later checkpoint meanwhile, and have deleted parts that only this
            // one names.
            Err(error) if error.is_of_one_shard() && unreadable != Some(newest) => unreadable = Some(newest),
            found => return found,
        }
    }
}

/// Refuses a log that has lost its last checkpoints. Normally, an object belongs to the checkpoint after the
/// newest one, or to an earlier checkpoint. An object of a still later checkpoint was stored only after the
/// checkpoint before that one, which the log has then lost.
fn refuse_lost(listed: &[ObjectMeta], shard: Shard, newest: u64) -> Result<()> {
    for object in listed {
        let snapshot = names::parse_snapshot(&object.path).map(|(_, object_id)| object_id);
        let object_id = snapshot.or_else(|| Some(names::parse_part(&object.path)?.0));
        if let Some(known_seq) =
            object_id.map(|object_id| object_id.seq.saturating_sub(1)).filter(|seq| *seq > newest)
        {
            let known_by = format!("'{}'", object.path);
            return Err(WorkerError::StateBehindTables { known_by, shard, known_seq, state_seq: newest });
        }
    }
    Ok(())
}

/// Returns the latest checkpoint of every shard that has one, and the error of every shard whose checkpoint
/// cannot be read.
///
/// # Errors
/// If storage is unavailable.
pub async fn latest_of_all(
    store: &dyn ObjectStore,
) -> Result<(BTreeMap<Shard, Decided>, BTreeMap<Shard, WorkerError>)> {
    let (mut decided, mut broken) = (BTreeMap::new(), BTreeMap::new());
    for shard in latest_seqs(store).await?.into_keys() {
        match latest(store, shard).await {
            Ok(latest) => drop(decided.insert(shard, latest)),
            Err(error) if error.is_of_one_shard() => {
                tracing::warn!(shard, %error, "shard left out");
                broken.insert(shard, error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok((decided, broken))
}

/// Reads the names of a group of archive files.
///
/// # Errors
/// If storage is unavailable, or the part is missing or damaged.
pub async fn read_archive_names(store: &dyn ObjectStore, part: &str) -> Result<BTreeSet<ArchivedFile>> {
    parts::read_names(store, part).await
}

/// Reads the paths of all files of dead letters that count.
///
/// # Errors
/// If storage is unavailable, or a part is missing or damaged.
pub async fn read_dead_letter_names(
    store: &dyn ObjectStore,
    named: &Named<String>,
) -> Result<BTreeSet<String>> {
    let mut paths: BTreeSet<String> = named.recent().cloned().collect();
    for part in named.parts() {
        paths.append(&mut parts::read_names(store, part).await?);
    }
    Ok(paths)
}

/// Reads one decided checkpoint with its parts. If it is not the latest, its parts may be gone.
///
/// # Errors
/// If storage is unavailable, or the object cannot be read.
pub async fn read(store: &dyn ObjectStore, shard: Shard, seq: u64) -> Result<Decided> {
    let object = names::checkpoint(shard, seq);
    let damaged = |cause: String| WorkerError::Damaged { object: object.clone(), cause };
    let bytes =
        store.get(&object).await?.ok_or_else(|| damaged("it was listed but does not exist".into()))?;
    let json = checksum::check_json(&bytes).map_err(|mismatch| damaged(mismatch.to_string()))?;
    objects::check_format(&object, &json, FORMAT)?;
    let checkpoint: Checkpoint = serde_json::from_slice(&json).map_err(|error| damaged(error.to_string()))?;
    if (checkpoint.shard, checkpoint.seq) != (shard, seq) {
        return Err(damaged(format!("it says shard {} and seq {}", checkpoint.shard, checkpoint.seq)));
    }
    Ok(Decided::new(parts::join(store, checkpoint).await?))
}

/// Stores a sealed checkpoint with its objects, and returns the decided checkpoint. Returns `None` if another
/// owner has decided its sequence number.
async fn decide(
    store: &dyn ObjectStore,
    sealed: &Sealed,
    known_days: &mut KnownDays,
) -> Result<Option<Decided>> {
    let Split { stored, new_parts } = parts::split(store, sealed, known_days).await?;
    let new = sealed.objects.iter().chain(&new_parts);
    objects::put_all(store, new.cloned()).await?;
    let object = names::checkpoint(stored.shard, stored.seq);
    let json = serde_json::to_vec(&stored);
    let json = json.map_err(|error| FormatError::new("encode a checkpoint", error))?;
    let bytes = Bytes::from(checksum::add_to_json(&json));
    let found = objects::create(store, &object, &bytes).await?;
    if found != bytes {
        return Ok(None);
    }
    let decided = Checkpoint {
        parts: stored.parts,
        archive: stored.archive,
        dead_letters: stored.dead_letters,
        ..Checkpoint::clone(&sealed.checkpoint)
    };
    Ok(Some(Decided::new(decided)))
}
