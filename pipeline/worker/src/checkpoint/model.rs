//! The content of a checkpoint: the owner of the shard, the last closed hour, and the objects that count.

mod files;
mod named;

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, WallTime};
use serde::{Deserialize, Serialize};

use super::hours::{Dirty, HourSet, hour_map, hour_option, hour_text};
use super::offsets::TopicOffsets;
use crate::names::Shard;
use crate::ports::FileEntry;

pub use files::TableFiles;
pub use named::{ArchivedFile, Name, Named};

/// The format of the checkpoints that this release writes, and the only format that it reads.
pub const FORMAT: u32 = 1;

/// Everything that a shard's next owner needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The version of the stored form.
    pub format: u32,
    /// The shard.
    pub shard: Shard,
    /// The sequence number; each number is decided only once.
    pub seq: u64,
    /// The time at which the checkpoint was written; nothing depends on it.
    pub written_at: WallTime,
    /// The owner of the shard; `None` before the first claim.
    pub owner: Option<Owner>,
    /// Whether a worker has ever owned the shard.
    pub had_worker: bool,
    /// The offsets up to which the shard's partition of each topic is read; a backfill does not change them.
    pub offsets: BTreeMap<Text, TopicOffsets>,
    /// The last closed hour.
    #[serde(with = "hour_option")]
    pub closed_through: Option<Hour>,
    /// Closed hours whose events have changed since the hours were folded.
    pub dirty: Dirty,
    /// Versions of the rules, each in force from an hour on; the first version is also in force before its
    /// hour.
    pub rules: Vec<RulesFrom>,
    /// Hours inside the horizon, and hours that a table may not hold yet.
    #[serde(with = "hour_map")]
    pub hours: BTreeMap<Hour, Arc<HourEntry>>,
    /// The archive files.
    #[serde(skip_serializing_if = "Named::is_empty", default)]
    pub archive: Named<ArchivedFile>,
    /// The paths of the files of dead letters.
    #[serde(skip_serializing_if = "Named::is_empty", default)]
    pub dead_letters: Named<String>,
    /// Files of dead letters that the dead-letter topic may not have yet.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unsent_dead_letters: Vec<String>,
    /// Hours whose exceeded budgets may not have reached their topic yet.
    #[serde(skip_serializing_if = "HourSet::is_empty", default)]
    pub unsent_budgets: HourSet,
    /// Revisions above 0 of hours that have left `hours`.
    #[serde(with = "hour_map")]
    pub revisions: BTreeMap<Hour, i64>,
    /// The first hour with events in the archive; `None` if the archive holds none.
    #[serde(with = "hour_option")]
    pub archive_from: Option<Hour>,
    /// Parts that hold the rest of the content of the stored checkpoint.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub parts: Vec<String>,
}

/// The owner of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// The owner's random id.
    pub id: Text,
    /// The kind of the owner.
    pub kind: OwnerKind,
    /// Whether the owner has released the shard, by a clean stop.
    pub released: bool,
}

/// The kind of program that owns a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnerKind {
    /// A stream worker, which holds the shard until it releases it.
    Worker,
    /// A backfill, which any other owner may follow at once.
    Backfill,
}

/// A version of the rules, in force from an hour on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesFrom {
    /// The first hour.
    #[serde(with = "hour_text")]
    pub from: Hour,
    /// The version, as in `rules/<version>.json`.
    pub version: Text,
}

/// The stored entry of a closed hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HourEntry {
    /// The number of times that the hour's rows have changed since they were first published.
    pub revision: i64,
    /// Digest of the state at the hour's end; empty if the digest is not known.
    pub state_digest: String,
    /// Object with the state at the hour's end; `None` if the state is not kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub snapshot: Option<String>,
    /// Objects with the states of organizations that have changed since the snapshot was written; the latest
    /// object comes last.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub patches: Vec<String>,
    /// Files by table; a table that is missing has no rows in the hour.
    pub tables: BTreeMap<Table, TableFiles>,
    /// Number of events that came after the hour had closed, by organization: a clock column of `hours`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub late_events: BTreeMap<OrganizationId, i64>,
    /// Whether all tables are known to hold the hour with this entry. This is not stored, because only this
    /// process knows it.
    #[serde(skip)]
    pub published: bool,
}

impl HourEntry {
    /// Returns the objects of the snapshot: the whole snapshot, then its patches.
    pub fn snapshot_objects(&self) -> impl Iterator<Item = &String> {
        self.snapshot.iter().chain(&self.patches)
    }

    /// Returns the files of a table; empty if the table has no rows.
    pub fn files_of(&self, table: Table) -> &[FileEntry] {
        self.tables.get(&table).map_or(&[], |files| files)
    }

    /// Returns the files of all tables.
    pub fn files(&self) -> impl Iterator<Item = (Table, &FileEntry)> {
        self.tables.iter().flat_map(|(table, files)| files.iter().map(|file| (*table, file)))
    }

    /// Returns the total size of the hour's table files in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.files().map(|(_, file)| file.bytes).sum()
    }

    /// Removes the snapshot, and returns its objects.
    pub(super) fn take_snapshot(&mut self) -> Vec<String> {
        self.snapshot.take().into_iter().chain(std::mem::take(&mut self.patches)).collect()
    }
}

impl Checkpoint {
    /// Returns the checkpoint of a shard that nobody has owned. It has sequence number 0 and is never
    /// written.
    pub fn unowned(shard: Shard) -> Self {
        Self {
            format: FORMAT,
            shard,
            seq: 0,
            written_at: WallTime(0),
            owner: None,
            had_worker: false,
            offsets: BTreeMap::new(),
            closed_through: None,
            dirty: Dirty::default(),
            rules: Vec::new(),
            hours: BTreeMap::new(),
            archive: Named::default(),
            dead_letters: Named::default(),
            unsent_dead_letters: Vec::new(),
            unsent_budgets: HourSet::default(),
            revisions: BTreeMap::new(),
            archive_from: None,
            parts: Vec::new(),
        }
    }

    /// Returns the paths of all parts: the parts that every reader needs, and the parts that hold names.
    pub fn part_paths(&self) -> impl Iterator<Item = &String> {
        self.parts.iter().chain(self.archive.parts()).chain(self.dead_letters.parts())
    }

    /// Returns the version of the rules of an hour; `None` if no rules are listed.
    pub fn rules_of(&self, hour: Hour) -> Option<&Text> {
        let listed = self.rules.iter().rev().find(|rules| rules.from <= hour);
        listed.or(self.rules.first()).map(|rules| &rules.version)
    }

    /// Returns the hours whose snapshots may be the base of a fold of `hour`, newest first. These hours lie
    /// before `hour` and before every dirty hour.
    pub fn snapshots_before(&self, hour: Hour) -> impl Iterator<Item = (Hour, &HourEntry)> {
        let bound = self.dirty.first().map_or(hour, |dirty| dirty.min(hour));
        self.kept_before(bound)
    }

    /// Returns the hours before `hour` that have a snapshot, newest first.
    pub fn kept_before(&self, hour: Hour) -> impl Iterator<Item = (Hour, &HourEntry)> {
        let before = self.hours.range(..hour).rev();
        before.filter(|(_, entry)| entry.snapshot.is_some()).map(|(hour, entry)| (*hour, &**entry))
    }

    /// Returns the revision of a closed hour; 0 if the checkpoint records none.
    pub fn revision_of(&self, hour: Hour) -> i64 {
        let entry = self.hours.get(&hour).map(|entry| entry.revision);
        entry.or(self.revisions.get(&hour).copied()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ObjectId;

    fn checkpoint() -> Checkpoint {
        let mut checkpoint = Checkpoint::unowned(7);
        checkpoint.seq = 9;
        checkpoint.owner = Some(Owner { id: "bb".into(), kind: OwnerKind::Backfill, released: false });
        checkpoint
    }

    #[test]
    fn it_is_read_back_as_written() {
        let mut checkpoint = checkpoint();
        checkpoint.closed_through = Some(Hour(490_000));
        checkpoint.dirty = [Hour(1), Hour(2), Hour(3), Hour(9)].into_iter().collect();
        checkpoint.rules = vec![RulesFrom { from: Hour(5), version: "1".into() }];
        checkpoint.revisions.insert(Hour(3), 2);
        let file = FileEntry {
            path: "p".into(),
            bytes: 3,
            digest: "d".into(),
            stats: None,
            last_organization: None,
        };
        let entry = HourEntry { tables: [(Table::Hours, file.into())].into(), ..HourEntry::default() };
        checkpoint.hours.insert(Hour(7), entry.into());
        let object_id = ObjectId { seq: 9, owner: "bb".into(), n: 3 };
        checkpoint.archive.insert(ArchivedFile { hour: Hour(7), object_id, bytes: 12 });
        let text = serde_json::to_string(&checkpoint).unwrap();
        assert!(text.contains(r#""archive":{"recent":[["1970-01-01T07","0000000009-bb-3",12]]}"#), "{text}");
        let dirty = r#"{"all":[["1970-01-01T01","1970-01-01T03"],["1970-01-01T09","1970-01-01T09"]]}"#;
        assert!(text.contains(&format!("\"dirty\":{dirty}")), "{text}");
        assert_eq!(serde_json::from_str::<Checkpoint>(&text).unwrap(), checkpoint);
    }

    #[test]
    fn no_snapshot_after_the_first_dirty_hour_is_a_base() {
        let mut checkpoint = checkpoint();
        for hour in 0..10 {
            let snapshot = Some(format!("s{hour}"));
            checkpoint.hours.insert(Hour(hour), HourEntry { snapshot, ..HourEntry::default() }.into());
        }
        let newest = |checkpoint: &Checkpoint, hour| {
            checkpoint.snapshots_before(Hour(hour)).next().map(|found| found.0)
        };
        assert_eq!(newest(&checkpoint, 8), Some(Hour(7)));
        checkpoint.dirty.insert(Hour(4));
        assert_eq!(newest(&checkpoint, 8), Some(Hour(3)));
        assert_eq!(newest(&checkpoint, 0), None);
    }

    #[test]
    fn the_first_rules_hold_before_the_list_begins() {
        let mut checkpoint = checkpoint();
        assert_eq!(checkpoint.rules_of(Hour(1)), None);
        let rules = |from, version: &str| RulesFrom { from: Hour(from), version: version.into() };
        checkpoint.rules = vec![rules(5, "1"), rules(8, "2")];
        let version = |hour| checkpoint.rules_of(Hour(hour)).unwrap().to_string();
        assert_eq!([version(1), version(5), version(7), version(8), version(99)], ["1", "1", "1", "2", "2"]);
    }
}
