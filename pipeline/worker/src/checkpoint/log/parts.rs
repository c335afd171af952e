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
//! | owners | all but the last [`OWNERS`] at most | [`OWNERS`] of them |
//! | dead letters that wait for a topic | all but the last [`LETTER_SEQS`] checkpoints at most | as many |
//!
//! A part is written before the first checkpoint that names it. Its name has that checkpoint's sequence
//! number and owner, and the digest of its content. No process ever sees a checkpoint without its parts:
//! [`super`] splits and joins.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::time::{Date, Hour};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::known::KnownDays;
use crate::checkpoint::hours::hour_map;
use crate::checkpoint::snapshot::hex;
use crate::checkpoint::{Checkpoint, HourEntry, Owner};
use crate::error::{Result, WorkerError};
use crate::names::{self, ObjectId};
use crate::objects::{self, StoredObject};
use crate::ports::{FormatError, ObjectStore};

/// The number of hours up to the last closed hour that stay in the checkpoint itself.
const INLINE_HOURS: i64 = 24;

/// The most bytes that one hour may take in the checkpoint itself: its files, and few late events.
const INLINE_BYTES: usize = 1_600;

/// Owners in one part.
const OWNERS: usize = 128;

/// The number of sequence numbers whose dead letters are in one part.
const LETTER_SEQS: u64 = 128;

/// Content of one part.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointPart {
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    owners: Vec<Owner>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default, with = "hour_map")]
    hours: BTreeMap<Hour, Arc<HourEntry>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default, with = "hour_map")]
    revisions: BTreeMap<Hour, i64>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    dead_letters: Vec<String>,
}

/// A checkpoint as it is stored.
pub(super) struct Split {
    /// Content of the checkpoint's own object, which names the parts.
    pub stored: Checkpoint,
    /// Parts that are new in this checkpoint, by path.
    pub new_parts: Vec<(String, Bytes)>,
}

/// Splits a checkpoint. A part that it already names is named again if its content is the same.
///
/// # Errors
/// If a part cannot be encoded.
pub(super) fn split(checkpoint: &Checkpoint) -> Result<Split, FormatError> {
    let mut stored = checkpoint.clone();
    (stored.parts, stored.known_days) = (Vec::new(), KnownDays::default());
    let known: BTreeMap<String, &String> =
        checkpoint.parts.iter().filter_map(|path| Some((names::parse_part(path)?.1, path))).collect();
    let owner = checkpoint.owner().map(|owner| owner.id.clone()).unwrap_or_default();
    let mut new_parts = Vec::new();
    for part in take_apart(&mut stored)? {
        let same = checkpoint.known_days.path_of(&part.hours);
        if let Some(path) = same.filter(|path| checkpoint.parts.contains(path)) {
            stored.parts.push(path.clone());
            stored.known_days.note(part.hours, path);
            continue;
        }
        let bytes = encode(&part)?;
        let digest = digest(&bytes);
        if let Some(path) = known.get(&digest) {
            stored.parts.push((*path).clone());
            stored.known_days.note(part.hours, path);
            continue;
        }
        let object_id = ObjectId { seq: checkpoint.seq, owner: owner.clone(), n: new_parts.len() as u64 };
        let path = names::part(checkpoint.shard, &object_id, &digest);
        stored.parts.push(path.clone());
        stored.known_days.note(part.hours, &path);
        new_parts.push((path, bytes.into()));
    }
    Ok(Split { stored, new_parts })
}

/// Moves the content to be stored separately out of the checkpoint.
fn take_apart(stored: &mut Checkpoint) -> Result<Vec<CheckpointPart>, FormatError> {
    let mut parts = Vec::new();
    let inline = stored.owners.len().saturating_sub(1) % OWNERS + 1;
    let newest = stored.owners.split_off(stored.owners.len().saturating_sub(inline));
    for owners in std::mem::replace(&mut stored.owners, newest).chunks(OWNERS) {
        parts.push(CheckpointPart { owners: owners.to_vec(), ..CheckpointPart::default() });
    }
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
    let mut letters: BTreeMap<u64, CheckpointPart> = BTreeMap::new();
    for path in std::mem::take(&mut stored.dead_letters) {
        match names::parse_dead_letters(&path).map(|(object_id, _)| object_id.seq / LETTER_SEQS) {
            Some(group) if group < last => letters.entry(group).or_default().dead_letters.push(path),
            _ => stored.dead_letters.push(path),
        }
    }
    parts.extend(days.into_values().chain(quarters.into_values()).chain(letters.into_values()));
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
    let (mut owners, mut dead_letters) = (Vec::new(), Vec::new());
    for object in parts {
        let damaged = |cause: String| WorkerError::Damaged { object: object.path.clone(), cause };
        let named = names::parse_part(&object.path).map(|(_, digest)| digest);
        if named != Some(digest(&object.bytes)) {
            return Err(damaged("its content does not match its name".to_owned()));
        }
        let part: CheckpointPart =
            serde_json::from_slice(&object.bytes).map_err(|error| damaged(error.to_string()))?;
        owners.extend(part.owners);
        stored.hours.extend(part.hours);
        stored.revisions.extend(part.revisions);
        dead_letters.extend(part.dead_letters);
    }
    owners.append(&mut stored.owners);
    dead_letters.append(&mut stored.dead_letters);
    (stored.owners, stored.dead_letters) = (owners, dead_letters);
    Ok(stored)
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
    use crate::checkpoint::{OwnerKind, RulesFrom};
    use crate::ports::FileEntry;

    /// The last closed hour.
    const NOW: Hour = Hour(499_000);

    const OWNER: &str = "0123456789abcdefc1";

    /// The size to which a shard has grown.
    struct Grown {
        /// Late organizations in each hour: 625 on each of 16 shards are 10,000.
        late_organizations: usize,
        claims: u64,
        /// Hours before the horizon that were restated once.
        restated_hours: i64,
        /// Hours for which nothing could be published.
        unpublished: i64,
        /// Files of dead letters that wait for their topic.
        letters: u64,
    }

    const SMALL: Grown =
        Grown { late_organizations: 0, claims: 1, restated_hours: 0, unpublished: 0, letters: 0 };

    /// The checkpoint of a shard after 35 days and more.
    fn grown(grown: &Grown) -> Checkpoint {
        let mut checkpoint = Checkpoint::unowned(7);
        checkpoint.seq = 1_000_000;
        checkpoint.closed_through = Some(NOW);
        let owner = |n: u64| {
            let kind = OwnerKind::Worker;
            Owner { id: format!("{OWNER}{n:04}").into(), seq: 1 + n, kind, released: true, has_objects: true }
        };
        checkpoint.owners = (0..grown.claims).map(owner).collect();
        checkpoint.rules = vec![RulesFrom { from: Hour(1), version: "1".into() }];
        let late = (0..grown.late_organizations)
            .map(|n| (format!("organization-{n:06}").as_str().into(), 12))
            .collect::<BTreeMap<_, _>>();
        for back in 0..=840 {
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
                tables: Table::ALL.into_iter().map(file).collect(),
                late_events: late.clone(),
                published: false,
            };
            checkpoint.hours.insert(hour, Arc::new(entry));
        }
        let left = (841..841 + grown.restated_hours).map(|back| (Hour(NOW.0 - back), 2));
        checkpoint.revisions = left.collect();
        let letters = (0..grown.letters).map(|n| {
            let object_id = ObjectId { seq: 1_000_001 - grown.letters + n, owner: OWNER.into(), n };
            names::dead_letters(7, &object_id, "0123456789abcdef0123456789abcdef")
        });
        checkpoint.dead_letters = letters.collect();
        checkpoint
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
            ("3,000 claims", Grown { claims: 3_000, ..SMALL }),
            ("3 years of hours restated once", Grown { restated_hours: 3 * 8_760, ..SMALL }),
            ("nothing published for 35 days", Grown { unpublished: 840, ..SMALL }),
            ("dead letters wait for their topic for two weeks", Grown { letters: 14 * 1_440, ..SMALL }),
            (
                "all of it, for ten years",
                Grown {
                    late_organizations: 625,
                    claims: 10_000,
                    restated_hours: 10 * 8_760,
                    unpublished: 840,
                    letters: 14 * 1_440,
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
        let first = grown(&Grown { claims: 300, restated_hours: 100, ..SMALL });
        let before = split(&first).unwrap();
        for known_days in [KnownDays::default(), before.stored.known_days.clone()] {
            let (parts, seq) = (before.stored.parts.clone(), first.seq + 1);
            let mut next = Checkpoint { parts, known_days, seq, ..first.clone() };
            let same = split(&next).unwrap();
            assert_eq!((same.stored.parts, same.new_parts), (before.stored.parts.clone(), Vec::new()));
            // One late event of one hour causes one new part: the part of its day.
            let hour = Hour(NOW.0 - 500);
            Arc::make_mut(next.hours.get_mut(&hour).unwrap()).late_events.insert("acme".into(), 1);
            let changed = split(&next).unwrap();
            assert_eq!(changed.new_parts.len(), 1);
            let (path, _) = &changed.new_parts[0];
            assert_eq!(names::parse_part(path).unwrap().0.seq, next.seq);
            let stays = |path: &&String| before.stored.parts.contains(path);
            assert_eq!(changed.stored.parts.iter().filter(stays).count(), before.stored.parts.len() - 1);
            // A known part counts only while the checkpoint names it.
            let unnamed = Checkpoint { parts: Vec::new(), ..next };
            assert_eq!(split(&unnamed).unwrap().new_parts.len(), before.stored.parts.len());
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
