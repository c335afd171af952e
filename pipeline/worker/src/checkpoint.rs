//! A shard's checkpoint: who owned the shard, how far it is closed, and which files every hour consists of.
//!
//! Creating `checkpoint-<seq>` is the only decision of the protocol; what it does not admit does not exist.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::names::{self, Shard, Stamp};

/// Version of the checkpoint's form.
pub const FORMAT: u32 = 1;

/// Everything a shard's next owner needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Version of this form.
    pub format: u32,
    /// The shard.
    pub shard: Shard,
    /// Its sequence number; each is decided once.
    pub seq: u64,
    /// When it was written; decides nothing.
    pub written_at: Timestamp,
    /// All owners so far, each with the first sequence number that is its own.
    pub owners: Vec<Owner>,
    /// Progress by topic partition, in the form of the stream worker, who alone reads it.
    pub offsets: BTreeMap<String, serde_json::Value>,
    /// The last hour closed.
    #[serde(with = "hour_option")]
    pub closed_through: Option<Hour>,
    /// Closed hours whose events have changed since they were folded.
    pub dirty: HourSet,
    /// Which rules hold from which hour on; the first also before it.
    pub rules: Vec<RulesFrom>,
    /// Hours inside the horizon, and those that a table may not hold yet.
    #[serde(with = "hour_map")]
    pub hours: BTreeMap<Hour, HourEntry>,
    /// Files of dead letters that the dead-letter topic may not have yet.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub dead_letters: Vec<String>,
    /// Revisions above 0 of hours that have left `hours`.
    #[serde(with = "hour_map")]
    pub revisions: BTreeMap<Hour, i64>,
}

/// One owner of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// Its random id.
    pub owner: Text,
    /// The sequence number of its claim.
    pub seq: u64,
    /// What it is.
    pub kind: OwnerKind,
    /// Whether it has let go by a clean stop.
    pub released: bool,
}

/// What owns a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnerKind {
    /// A stream worker, which holds the shard until it releases it.
    Worker,
    /// A backfill, which any other owner may follow at once.
    Backfill,
}

/// Rules from an hour on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesFrom {
    /// The first hour.
    #[serde(with = "hour_text")]
    pub from: Hour,
    /// The version, as in `rules/<version>.yaml`.
    pub version: Text,
}

/// What a closed hour consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HourEntry {
    /// How often its rows have changed since they were first published.
    pub revision: i64,
    /// Digest of the state at its end.
    pub state: String,
    /// Object with the state at its end, where kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub snapshot: Option<String>,
    /// Files by table; a table that is missing has no rows in the hour.
    pub tables: BTreeMap<Table, FileEntry>,
    /// Events that came after the hour had closed, by organization, where any did: a clock column of `hours`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub late_events: BTreeMap<OrganizationId, i64>,
    /// Whether all tables are known to hold the hour as it stands here. Known by this process only.
    #[serde(skip)]
    pub held: bool,
}

/// A table file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Path under the table's folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Digest of what of its content depends on events and rules alone.
    pub digest: String,
    /// Statistics for the table's log, until the table holds the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stats: Option<String>,
}

impl Checkpoint {
    /// A shard that nobody has owned: sequence number 0, which is never written.
    pub fn unowned(shard: Shard) -> Self {
        Self {
            format: FORMAT,
            shard,
            seq: 0,
            written_at: Timestamp(0),
            owners: Vec::new(),
            offsets: BTreeMap::new(),
            closed_through: None,
            dirty: HourSet::default(),
            rules: Vec::new(),
            hours: BTreeMap::new(),
            dead_letters: Vec::new(),
            revisions: BTreeMap::new(),
        }
    }

    /// Whether a file with this stamp counts: its sequence number is decided and was its owner's.
    pub fn admits(&self, stamp: &Stamp) -> bool {
        let of_seq = self.owners.iter().rev().find(|owner| owner.seq <= stamp.seq);
        stamp.seq <= self.seq && of_seq.is_some_and(|owner| owner.owner == stamp.owner)
    }

    /// The owner that holds the shard.
    pub fn owner(&self) -> Option<&Owner> {
        self.owners.last()
    }

    /// Version of the rules of an hour; none while there is no list.
    pub fn rules_of(&self, hour: Hour) -> Option<&Text> {
        let listed = self.rules.iter().rev().find(|rules| rules.from <= hour);
        listed.or(self.rules.first()).map(|rules| &rules.version)
    }

    /// The newest snapshot that may be a base for folding `hour`: before it, and before every dirty hour.
    pub fn snapshots_before(&self, hour: Hour) -> impl Iterator<Item = (Hour, &String)> {
        let bound = self.dirty.first().map_or(hour, |dirty| dirty.min(hour));
        let before = self.hours.range(..bound).rev();
        before.filter_map(|(hour, entry)| entry.snapshot.as_ref().map(|snapshot| (*hour, snapshot)))
    }

    /// Notes that it is published: every table holds its hours, and needs no statistics of their files any more.
    pub fn hours_are_held(&mut self) {
        for entry in self.hours.values_mut() {
            entry.held = true;
            entry.tables.values_mut().for_each(|file| file.stats = None);
        }
    }

    /// Revision of an hour that is or was closed.
    pub fn revision_of(&self, hour: Hour) -> i64 {
        let entry = self.hours.get(&hour).map(|entry| entry.revision);
        entry.or(self.revisions.get(&hour).copied()).unwrap_or(0)
    }
}

/// A set of hours, written as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HourSet(BTreeSet<Hour>);

impl HourSet {
    /// Adds an hour.
    pub fn insert(&mut self, hour: Hour) {
        self.0.insert(hour);
    }

    /// Adds all hours from the first to the last, inclusive.
    pub fn insert_range(&mut self, first: Hour, last: Hour) {
        self.0.extend((first.0..=last.0).map(Hour));
    }

    /// The earliest.
    pub fn first(&self) -> Option<Hour> {
        self.0.first().copied()
    }

    /// The earliest after `hour`.
    pub fn first_after(&self, hour: Hour) -> Option<Hour> {
        self.0.range(hour.next()..).next().copied()
    }

    /// Drops every hour up to and with `hour`.
    pub fn clear_through(&mut self, hour: Hour) {
        self.0 = self.0.split_off(&hour.next());
    }

    /// Drops the hours from `first` to `last`, both inclusive.
    pub fn clear(&mut self, first: Hour, last: Hour) {
        self.0.retain(|hour| !(first..=last).contains(hour));
    }

    /// Whether it has the hour.
    pub fn contains(&self, hour: Hour) -> bool {
        self.0.contains(&hour)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Hour> for HourSet {
    fn from_iter<I: IntoIterator<Item = Hour>>(hours: I) -> Self {
        Self(hours.into_iter().collect())
    }
}

impl Serialize for HourSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut ranges: Vec<(Hour, Hour)> = Vec::new();
        for hour in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if last.next() == *hour => *last = *hour,
                _ => ranges.push((*hour, *hour)),
            }
        }
        serializer.collect_seq(ranges.iter().map(|(first, last)| [first.to_string(), last.to_string()]))
    }
}

impl<'de> Deserialize<'de> for HourSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut hours = Self::default();
        for [first, last] in Vec::<[String; 2]>::deserialize(deserializer)? {
            hours.insert_range(hour_text::parse(&first)?, hour_text::parse(&last)?);
        }
        Ok(hours)
    }
}

/// Hours as text such as `2026-11-20T13`.
mod hour_text {
    use super::{Deserialize, Deserializer, Hour, Serializer, names};

    pub fn parse<E: serde::de::Error>(text: &str) -> Result<Hour, E> {
        names::parse_hour(text)
            .ok_or_else(|| E::custom(format!("'{text}' is not an hour such as 2026-11-20T13")))
    }

    pub fn serialize<S: Serializer>(hour: &Hour, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(hour)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hour, D::Error> {
        parse(&String::deserialize(deserializer)?)
    }
}

/// An hour or null.
mod hour_option {
    use super::{Deserialize, Deserializer, Hour, Serialize, Serializer, hour_text};

    pub fn serialize<S: Serializer>(hour: &Option<Hour>, serializer: S) -> Result<S::Ok, S::Error> {
        hour.map(|hour| hour.to_string()).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Hour>, D::Error> {
        Option::<String>::deserialize(deserializer)?.map(|text| hour_text::parse(&text)).transpose()
    }
}

/// A map by hour.
mod hour_map {
    use super::{BTreeMap, Deserialize, Deserializer, Hour, Serialize, Serializer, hour_text};

    pub fn serialize<S: Serializer, T: Serialize>(
        map: &BTreeMap<Hour, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(map.iter().map(|(hour, value)| (hour.to_string(), value)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Hour, T>, D::Error> {
        let named = BTreeMap::<String, T>::deserialize(deserializer)?;
        named.into_iter().map(|(hour, value)| Ok((hour_text::parse(&hour)?, value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        let owner =
            |owner: &str, seq| Owner { owner: owner.into(), seq, kind: OwnerKind::Backfill, released: false };
        let mut checkpoint = Checkpoint::unowned(7);
        checkpoint.seq = 9;
        checkpoint.owners = vec![owner("aa", 1), owner("bb", 5)];
        checkpoint
    }

    #[test]
    fn a_file_counts_only_for_the_owner_of_its_sequence_number() {
        let admits = |seq, owner: &str| checkpoint().admits(&Stamp { seq, owner: owner.into(), n: 0 });
        assert!(admits(1, "aa") && admits(4, "aa") && admits(5, "bb") && admits(9, "bb"));
        assert!(!admits(5, "aa"), "a zombie's file");
        assert!(!admits(4, "bb"), "a claim before its time");
        assert!(!admits(10, "bb"), "not decided yet");
        assert!(!admits(0, "aa"), "nobody's");
    }

    #[test]
    fn it_is_read_back_as_written() {
        let mut checkpoint = checkpoint();
        checkpoint.closed_through = Some(Hour(490_000));
        checkpoint.dirty = [Hour(1), Hour(2), Hour(3), Hour(9)].into_iter().collect();
        checkpoint.rules = vec![RulesFrom { from: Hour(5), version: "1".into() }];
        checkpoint.revisions.insert(Hour(3), 2);
        let file = FileEntry { path: "p".into(), bytes: 3, digest: "d".into(), stats: None };
        let entry = HourEntry { tables: [(Table::Hours, file)].into(), ..HourEntry::default() };
        checkpoint.hours.insert(Hour(7), entry);
        let text = serde_json::to_string(&checkpoint).unwrap();
        assert!(
            text.contains(r#""dirty":[["1970-01-01T01","1970-01-01T03"],["1970-01-01T09","1970-01-01T09"]]"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Checkpoint>(&text).unwrap(), checkpoint);
    }

    #[test]
    fn no_snapshot_after_the_first_dirty_hour_is_a_base() {
        let mut checkpoint = checkpoint();
        for hour in 0..10 {
            let snapshot = Some(format!("s{hour}"));
            checkpoint.hours.insert(Hour(hour), HourEntry { snapshot, ..HourEntry::default() });
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
