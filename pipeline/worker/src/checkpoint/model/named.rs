//! Objects that a checkpoint names one by one: archive files and files of dead letters.
//!
//! An object that no checkpoint names does not count: it is left over from a dead attempt, was replaced, or
//! was stored by somebody else. If an object that the latest checkpoint names is missing, the root is
//! damaged.
//!
//! The archive and the dead letters grow forever, and a checkpoint must not. So only the latest names are in
//! the checkpoint itself. All other names are in parts, one part for each group: a month of the archive, or
//! 65,536 sequence numbers of dead letters. A part is read only if a name of its group is needed.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::time::Hour;
use serde::{Deserialize, Serialize};

use crate::names::{self, ArchivePath, ObjectId, Shard};

/// A name by which a checkpoint lists objects of one kind.
pub trait Name: Clone + Ord {
    /// Returns the group whose part holds the name, once the checkpoint itself no longer does.
    fn group(&self) -> String;
}

/// An archive file of one shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "(String, String, u64)", try_from = "(String, String, u64)")]
pub struct ArchivedFile {
    /// The hour of the file's events.
    pub hour: Hour,
    /// The object id, which says who wrote the file.
    pub object_id: ObjectId,
    /// Size in bytes, compressed.
    pub bytes: u64,
}

impl ArchivedFile {
    /// Returns the group of all files of an hour: the month of the hour, such as `2026-11`.
    pub fn group_of(hour: Hour) -> String {
        let date = hour.date().to_string();
        date.rsplit_once('-').map_or(date.clone(), |(month, _)| month.to_owned())
    }

    /// Returns the files of one hour.
    pub fn of_hour(files: &BTreeSet<Self>, hour: Hour) -> impl Iterator<Item = &Self> {
        let first = ObjectId { seq: 0, owner: "".into(), n: 0 };
        files.range(Self { hour, object_id: first, bytes: 0 }..).take_while(move |file| file.hour == hour)
    }

    /// Returns the file's path under the root.
    pub fn path(&self, shard: Shard) -> String {
        ArchivePath { shard, hour: self.hour, object_id: self.object_id.clone() }.path()
    }
}

impl Name for ArchivedFile {
    fn group(&self) -> String {
        Self::group_of(self.hour)
    }
}

impl From<ArchivedFile> for (String, String, u64) {
    fn from(file: ArchivedFile) -> Self {
        (file.hour.to_string(), file.object_id.to_string(), file.bytes)
    }
}

impl TryFrom<(String, String, u64)> for ArchivedFile {
    type Error = String;

    fn try_from((hour, object_id, bytes): (String, String, u64)) -> Result<Self, String> {
        let parsed = names::parse_hour(&hour).zip(ObjectId::parse(&object_id));
        let (hour, object_id) =
            parsed.ok_or_else(|| format!("'{hour}/{object_id}' names no archive file"))?;
        Ok(Self { hour, object_id, bytes })
    }
}

/// Number of sequence numbers in one group of dead letters: 45 days at one checkpoint a minute.
const GROUP_SEQS: u64 = 65_536;

/// The path of a file of dead letters.
impl Name for String {
    fn group(&self) -> String {
        let seq = names::parse_dead_letters(self).map_or(0, |(object_id, _)| object_id.seq);
        format!("{:06}", seq / GROUP_SEQS)
    }
}

/// The objects of one kind that count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named<T: Ord> {
    /// Names in the checkpoint itself.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default = "BTreeSet::new")]
    pub(in crate::checkpoint) recent: BTreeSet<T>,
    /// Parts with the other names, by group.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(in crate::checkpoint) packed: BTreeMap<String, String>,
}

impl<T: Ord> Default for Named<T> {
    fn default() -> Self {
        Self { recent: BTreeSet::new(), packed: BTreeMap::new() }
    }
}

impl<T: Ord> Named<T> {
    /// Returns whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.recent.is_empty() && self.packed.is_empty()
    }

    /// Returns the names in the checkpoint itself, in ascending order.
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.recent.iter()
    }

    /// Returns the parts that hold all other names, by group.
    pub fn packed(&self) -> impl Iterator<Item = (&String, &String)> {
        self.packed.iter()
    }

    /// Returns the part of a group; `None` if the group has no part.
    pub fn part_of(&self, group: &str) -> Option<&String> {
        self.packed.get(group)
    }

    /// Returns the parts with the other names.
    pub fn parts(&self) -> impl Iterator<Item = &String> {
        self.packed.values()
    }

    /// Names an object.
    pub fn insert(&mut self, name: T) {
        self.recent.insert(name);
    }

    /// Removes a name from the checkpoint itself. Returns `false` if the checkpoint does not hold it; then a
    /// part may.
    pub fn remove(&mut self, name: &T) -> bool {
        self.recent.remove(name)
    }
}
