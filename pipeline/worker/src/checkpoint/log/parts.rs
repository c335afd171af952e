//! Parts of a checkpoint: content that rarely changes is stored separately.
//!
//! A checkpoint is decided every minute, and repeats its whole content. It must stay small for years, even if
//! many events are late. So the content below moves into immutable objects. Later checkpoints name these
//! objects again as long as the content is the same:
//!
//! | content | moves | one part holds |
//! |---|---|---|
//! | hours | once they are [`INLINE_HOURS`] old, or take more than [`INLINE_BYTES`] | the hours of a day |
//! | revisions of hours that have left | at once | the revisions of a quarter |
//! | dead letters that wait for a topic | all but the last [`LETTER_SEQS`] checkpoints at most | as many |
//! | names of archive files, dead letters | all, once there are more than [`NAMES_MAX`] | a group of names |
//!
//! A part is written before the first checkpoint that names it. The name of the part contains the
//! checkpoint's sequence number and owner, and the digest of the part's content. No process ever sees a
//! checkpoint without its parts: [`super`] splits and joins. Only parts with names stay separate, because
//! they grow forever. A reader that needs a name reads the part of the name's group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::time::{Date, Hour};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::known::KnownDays;
use crate::checkpoint::hours::hour_map;
use crate::checkpoint::snapshot::hex;
use crate::checkpoint::{ArchivedFile, Checkpoint, HourEntry, Name, Named, Sealed};
use crate::error::{Result, WorkerError};
use crate::names::{self, ObjectId};
use crate::objects::{self, StoredObject};
use crate::ports::{FormatError, ObjectStore};

/// The number of hours up to the last closed hour that stay in the checkpoint itself.
const INLINE_HOURS: i64 = 24;

/// Maximum number of bytes that one hour may take in the checkpoint itself: enough for its files and a few
/// late events.
const INLINE_BYTES: usize = 1_600;

/// Maximum number of names of one kind in the checkpoint itself: at most 20 kB.
const NAMES_MAX: usize = 192;

/// The number of sequence numbers whose dead letters are in one part.
const LETTER_SEQS: u64 = 128;

/// Content of one part.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointPart {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default, with = "hour_map")]
    hours: BTreeMap<Hour, Arc<HourEntry>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default, with = "hour_map")]
    revisions: BTreeMap<Hour, i64>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    unsent_dead_letters: Vec<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    archive: BTreeSet<ArchivedFile>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    dead_letters: BTreeSet<String>,
}

/// Names that a part can hold.
pub(super) trait PartOf: Name {
    /// Returns a part with these names.
    fn into_part(names: BTreeSet<Self>) -> CheckpointPart;

    /// Returns the names in a part.
    fn from_part(part: CheckpointPart) -> BTreeSet<Self>;
}

impl PartOf for ArchivedFile {
    fn into_part(archive: BTreeSet<Self>) -> CheckpointPart {
        CheckpointPart { archive, ..CheckpointPart::default() }
    }

    fn from_part(part: CheckpointPart) -> BTreeSet<Self> {
        part.archive
    }
}

impl PartOf for String {
    fn into_part(dead_letters: BTreeSet<Self>) -> CheckpointPart {
        CheckpointPart { dead_letters, ..CheckpointPart::default() }
    }

    fn from_part(part: CheckpointPart) -> BTreeSet<Self> {
        part.dead_letters
    }
}

/// A checkpoint as it is stored.
pub(super) struct Split {
    /// Content of the checkpoint's own object, which names the parts.
    pub stored: Checkpoint,
    /// Parts that are new in this checkpoint, by path.
    pub new_parts: Vec<(String, Bytes)>,
}

/// The new parts of one checkpoint.
struct NewParts<'a> {
    checkpoint: &'a Checkpoint,
    parts: Vec<(String, Bytes)>,
}

impl NewParts<'_> {
    /// Adds a part of this content and digest, and returns its path.
    fn add(&mut self, bytes: Vec<u8>, digest: &str) -> String {
        let owner = self.checkpoint.owner.as_ref().map(|owner| owner.id.clone()).unwrap_or_default();
        let object_id = ObjectId { seq: self.checkpoint.seq, owner, n: self.parts.len() as u64 };
        let path = names::part(self.checkpoint.shard, &object_id, digest);
        self.parts.push((path.clone(), bytes.into()));
        path
    }
}

/// Splits a sealed checkpoint.
///
/// # Errors
/// If a part cannot be encoded, a part with names cannot be read, or storage is unavailable.
pub(super) async fn split(
    store: &dyn ObjectStore,
    sealed: &Sealed,
    known_days: &mut KnownDays,
) -> Result<Split> {
    let checkpoint = &*sealed.checkpoint;
    let mut new = NewParts { checkpoint, parts: Vec::new() };
    let (mut archive, mut dead_letters) = (checkpoint.archive.clone(), checkpoint.dead_letters.clone());
    pack(store, &mut archive, &sealed.unarchived, &mut new).await?;
    pack(store, &mut dead_letters, &BTreeSet::new(), &mut new).await?;
    let stored = Checkpoint { archive, dead_letters, ..checkpoint.clone() };
    let stored = split_content(stored, &mut new, known_days)?;
    Ok(Split { stored, new_parts: new.parts })
}

/// Moves all names into the parts of their groups if there are more than [`NAMES_MAX`]. Removes the names in
/// `left` from the parts that hold them.
async fn pack<T: PartOf>(
    store: &dyn ObjectStore,
    named: &mut Named<T>,
    left: &BTreeSet<T>,
    new: &mut NewParts<'_>,
) -> Result<()> {
    let mut groups: BTreeMap<String, BTreeSet<T>> = BTreeMap::new();
    if named.recent.len() > NAMES_MAX {
        for name in std::mem::take(&mut named.recent) {
            groups.entry(name.group()).or_default().insert(name);
        }
    }
    for name in left {
        groups.entry(name.group()).or_default();
    }
    for (group, added) in groups {
        let mut names = match named.packed.get(&group) {
            Some(path) => read_names(store, path).await?,
            None => BTreeSet::new(),
        };
        names.retain(|name| !left.contains(name));
        names.extend(added);
        if names.is_empty() {
            named.packed.remove(&group);
            continue;
        }
        let bytes = encode(&T::into_part(names))?;
        let digest = digest(&bytes);
        named.packed.insert(group, new.add(bytes, &digest));
    }
    Ok(())
}

/// Reads a part that holds names.
///
/// # Errors
/// If the part is missing or does not match its name, or storage is unavailable.
pub(super) async fn read_names<T: PartOf>(store: &dyn ObjectStore, path: &str) -> Result<BTreeSet<T>> {
    let objects = objects::get_all(store, vec![path.to_owned()]).await?;
    let part = objects.iter().map(decode).next().transpose()?;
    Ok(part.map(T::from_part).unwrap_or_default())
}

/// Moves content that every reader needs into parts. If the content of a part is the same as before, the
/// checkpoint names the existing part again.
fn split_content(
    mut stored: Checkpoint,
    new: &mut NewParts<'_>,
    known_days: &mut KnownDays,
) -> Result<Checkpoint, FormatError> {
    let (parts, before) = (std::mem::take(&mut stored.parts), std::mem::take(known_days));
    let known: BTreeMap<String, &String> =
        parts.iter().filter_map(|path| Some((names::parse_part(path)?.1, path))).collect();
    for part in take_apart(&mut stored)? {
        let same = before.path_of(&part.hours);
        let path = match same.filter(|path| parts.contains(path)) {
            Some(path) => path.clone(),
            None => {
                let bytes = encode(&part)?;
                let digest = digest(&bytes);
                known.get(&digest).map_or_else(|| new.add(bytes, &digest), |path| (*path).clone())
            }
        };
        known_days.note(part.hours, &path);
        stored.parts.push(path);
    }
    Ok(stored)
}

/// Takes the content that belongs in parts out of the checkpoint, and returns the parts.
fn take_apart(stored: &mut Checkpoint) -> Result<Vec<CheckpointPart>, FormatError> {
    let mut parts = Vec::new();
    let mut days: BTreeMap<Date, CheckpointPart> = BTreeMap::new();
    let oldest_inline = stored.closed_through.map(|closed| Hour(closed.0 - INLINE_HOURS));
    for (hour, entry) in std::mem::take(&mut stored.hours) {
        let is_recent = oldest_inline.is_none_or(|oldest| hour > oldest);
        if is_recent && encode(&entry)?.len() <= INLINE_BYTES {
            stored.hours.insert(hour, entry);
        } else {
            days.entry(hour.date()).or_default().hours.insert(hour, entry);
        }
    }
    let mut quarters: BTreeMap<Date, CheckpointPart> = BTreeMap::new();
    for (hour, revision) in std::mem::take(&mut stored.revisions) {
        quarters.entry(hour.date().quarter_start()).or_default().revisions.insert(hour, revision);
    }
    let last = stored.seq / LETTER_SEQS;
    let mut dead_letters: BTreeMap<u64, CheckpointPart> = BTreeMap::new();
    for path in std::mem::take(&mut stored.unsent_dead_letters) {
        match names::parse_dead_letters(&path).map(|(object_id, _)| object_id.seq / LETTER_SEQS) {
            Some(group) if group < last => {
                dead_letters.entry(group).or_default().unsent_dead_letters.push(path);
            }
            _ => stored.unsent_dead_letters.push(path),
        }
    }
    parts.extend(days.into_values().chain(quarters.into_values()).chain(dead_letters.into_values()));
    Ok(parts)
}

/// Joins a checkpoint and its parts.
///
/// # Errors
/// If a part is missing or does not match its name, or storage is unavailable.
pub(super) async fn join(store: &dyn ObjectStore, stored: Checkpoint) -> Result<Checkpoint> {
    let parts = objects::get_all(store, stored.parts.clone()).await?;
    put_together(stored, parts)
}

fn put_together(mut stored: Checkpoint, parts: Vec<StoredObject>) -> Result<Checkpoint> {
    let mut unsent = Vec::new();
    for object in parts {
        let part = decode(&object)?;
        stored.hours.extend(part.hours);
        stored.revisions.extend(part.revisions);
        unsent.extend(part.unsent_dead_letters);
    }
    unsent.append(&mut stored.unsent_dead_letters);
    stored.unsent_dead_letters = unsent;
    Ok(stored)
}

fn decode(object: &StoredObject) -> Result<CheckpointPart> {
    let damaged = |cause: String| WorkerError::Damaged { object: object.path.clone(), cause };
    let named = names::parse_part(&object.path).map(|(_, digest)| digest);
    if named != Some(digest(&object.bytes)) {
        return Err(damaged("its content does not match its name".to_owned()));
    }
    serde_json::from_slice(&object.bytes).map_err(|error| damaged(error.to_string()))
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, FormatError> {
    serde_json::to_vec(value).map_err(|error| FormatError::new("encode a part of a checkpoint", error))
}

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)[..16])
}

#[cfg(test)]
mod tests {
    use prorata_schemas::tables::Table;

    use super::*;
    use crate::checkpoint::retention::Retention;
    use crate::checkpoint::{Owner, OwnerKind, RulesFrom};
    use crate::ports::FileEntry;

    /// The last closed hour.
    const NOW: Hour = Hour(499_000);

    const OWNER: &str = "0123456789abcdefc1";

    /// The size to which a shard has grown.
    struct Grown {
        /// Number of late organizations in each hour: 625 on each of 16 shards are 10,000.
        late_organizations: usize,
        /// Number of years with archive files, and with one file of dead letters in each checkpoint.
        years: u64,
        /// Number of hours before the horizon that were restated once.
        restated_hours: i64,
        /// Number of hours for which nothing could be published.
        unpublished: i64,
        /// Number of files of dead letters that wait for their topic.
        dead_letters: u64,
    }

    const SMALL: Grown =
        Grown { late_organizations: 0, years: 0, restated_hours: 0, unpublished: 0, dead_letters: 0 };

    /// Returns the number of hours inside the default horizon.
    fn horizon() -> i64 {
        Retention::default().hours()
    }

    /// Returns the checkpoint of a shard that is older than the horizon.
    fn grown(grown: &Grown) -> Checkpoint {
        let mut checkpoint = Checkpoint::unowned(7);
        checkpoint.seq = 1_000_000;
        checkpoint.closed_through = Some(NOW);
        checkpoint.owner = Some(Owner { id: OWNER.into(), kind: OwnerKind::Worker, released: false });
        checkpoint.rules = vec![RulesFrom { from: Hour(1), version: "1".into() }];
        let late = (0..grown.late_organizations)
            .map(|n| (format!("organization-{n:06}").as_str().into(), 12))
            .collect::<BTreeMap<_, _>>();
        for back in 0..=horizon() {
            let hour = Hour(NOW.0 - back);
            let digest = format!("0123456789abcdef0123456789{:06x}", hour.0);
            let file = |table: Table| {
                let stamp = format!("0001000000-{OWNER}0000-123456");
                let path =
                    format!("{}{:02}-0007-{stamp}-{digest}.parquet", names::partition(hour), hour.of_day());
                let stats = (back < grown.unpublished).then(|| "s".repeat(1_100));
                let last_organization = None;
                let digest = digest.clone();
                (table, FileEntry { path, bytes: 1_234_567, digest, stats, last_organization }.into())
            };
            let snapshot = (back < 48 || hour.of_day() == 23)
                .then(|| format!("state/shard=0007/{hour}-0001000000-{OWNER}0000-123456.snapshot"));
            let entry = HourEntry {
                revision: 3,
                state_digest: digest.clone(),
                snapshot,
                patches: Vec::new(),
                tables: Table::HOURLY.into_iter().map(file).collect(),
                late_events: late.clone(),
                published: false,
            };
            checkpoint.hours.insert(hour, Arc::new(entry));
        }
        let left = (1..=grown.restated_hours).map(|back| (Hour(NOW.0 - horizon() - back), 2));
        checkpoint.revisions = left.collect();
        let dead_letters = (0..grown.dead_letters).map(|n| {
            let object_id = ObjectId { seq: 1_000_001 - grown.dead_letters + n, owner: OWNER.into(), n };
            names::dead_letters(7, &object_id, "0123456789abcdef0123456789abcdef")
        });
        checkpoint.unsent_dead_letters = dead_letters.collect();
        name_objects(&mut checkpoint, grown.years);
        checkpoint
    }

    /// Adds as many names of archive files and dead letters as fit into the checkpoint itself, and parts for
    /// all other names.
    fn name_objects(checkpoint: &mut Checkpoint, years: u64) {
        for n in 0..NAMES_MAX as u64 {
            let object_id = ObjectId { seq: 1_000_000 - n, owner: OWNER.into(), n };
            checkpoint.dead_letters.insert(names::dead_letters(
                7,
                &object_id,
                "0123456789abcdef0123456789abcdef",
            ));
            let hour = Hour(NOW.0 - n as i64);
            checkpoint.archive.insert(ArchivedFile { hour, object_id, bytes: 12_345_678 });
        }
        let part = |n: u64| {
            let object_id = ObjectId { seq: 1_000_000 - n, owner: OWNER.into(), n };
            names::part(7, &object_id, "0123456789abcdef0123456789abcdef")
        };
        for month in 0..years * 12 {
            checkpoint.archive.packed.insert(format!("{:04}-{:02}", month / 12, month % 12), part(month));
        }
        for group in 0..years * 525_600 / 65_536 {
            checkpoint.dead_letters.packed.insert(format!("{group:06}"), part(group));
        }
    }

    fn split(checkpoint: &Checkpoint) -> Result<Split> {
        split_again(checkpoint, &mut KnownDays::default())
    }

    fn split_again(checkpoint: &Checkpoint, known_days: &mut KnownDays) -> Result<Split> {
        let mut new = NewParts { checkpoint, parts: Vec::new() };
        let stored = split_content(checkpoint.clone(), &mut new, known_days)?;
        Ok(Split { stored, new_parts: new.parts })
    }

    fn objects(split: &Split) -> Vec<StoredObject> {
        let object =
            |(path, bytes): &(String, Bytes)| StoredObject { path: path.clone(), bytes: bytes.clone() };
        split.new_parts.iter().map(object).collect()
    }

    #[test]
    fn a_checkpoint_stays_below_100_kb_whatever_was_late_for_years() {
        let cases = [
            ("nothing late", SMALL),
            ("1 of 20 organizations late in each hour", Grown { late_organizations: 31, ..SMALL }),
            ("all late in each hour", Grown { late_organizations: 625, ..SMALL }),
            ("ten years of archive files and dead letters", Grown { years: 10, ..SMALL }),
            ("3 years of hours restated once", Grown { restated_hours: 3 * 8_760, ..SMALL }),
            ("nothing published since the horizon", Grown { unpublished: horizon(), ..SMALL }),
            ("dead letters wait for their topic for two weeks", Grown { dead_letters: 14 * 1_440, ..SMALL }),
            (
                "all of it, for ten years",
                Grown {
                    late_organizations: 625,
                    years: 10,
                    restated_hours: 10 * 8_760,
                    unpublished: horizon(),
                    dead_letters: 14 * 1_440,
                },
            ),
        ];
        for (what, case) in cases {
            let whole = grown(&case);
            let split = split(&whole).unwrap();
            let bytes = encode(&split.stored).unwrap().len();
            println!("{bytes:>7} bytes in {} parts: {what}", split.stored.parts.len());
            assert!(bytes < 100_000, "{what}: {bytes} bytes");
            let joined = put_together(split.stored.clone(), objects(&split)).unwrap();
            assert_eq!(joined, Checkpoint { parts: split.stored.parts, ..whole }, "{what}");
        }
    }

    #[test]
    fn parts_that_stay_the_same_are_named_again() {
        let first = grown(&Grown { years: 3, restated_hours: 100, ..SMALL });
        let mut known_days = KnownDays::default();
        let before = split_again(&first, &mut known_days).unwrap();
        for mut known_days in [KnownDays::default(), known_days] {
            let (parts, seq) = (before.stored.parts.clone(), first.seq + 1);
            let mut next = Checkpoint { parts, seq, ..first.clone() };
            let same = split_again(&next, &mut known_days).unwrap();
            assert_eq!((same.stored.parts, same.new_parts), (before.stored.parts.clone(), Vec::new()));
            // One late event of one hour causes one new part: the part of its day.
            let hour = Hour(NOW.0 - 500);
            Arc::make_mut(next.hours.get_mut(&hour).unwrap()).late_events.insert("acme".into(), 1);
            let changed = split_again(&next, &mut known_days).unwrap();
            assert_eq!(changed.new_parts.len(), 1);
            let (path, _) = &changed.new_parts[0];
            assert_eq!(names::parse_part(path).unwrap().0.seq, next.seq);
            let stays = |path: &&String| before.stored.parts.contains(path);
            assert_eq!(changed.stored.parts.iter().filter(stays).count(), before.stored.parts.len() - 1);
            // A known part counts only while the checkpoint names it.
            let unnamed = Checkpoint { parts: Vec::new(), ..next };
            assert_eq!(
                split_again(&unnamed, &mut known_days).unwrap().new_parts.len(),
                before.stored.parts.len()
            );
        }
    }

    #[test]
    fn damage_is_seen() {
        let split = split(&grown(&SMALL)).unwrap();
        let mut objects = objects(&split);
        let mut bytes = objects[3].bytes.to_vec();
        bytes[40] ^= 1;
        objects[3].bytes = bytes.into();
        let error = put_together(split.stored, objects).unwrap_err();
        assert!(matches!(error, WorkerError::Damaged { .. }), "{error}");
    }
}
