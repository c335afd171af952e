//! Names of everything under the root, built and read in one place.
//!
//! Every object that is written before its checkpoint is decided carries an [`ObjectId`] (sequence number,
//! owner, counter). So two owners never write the same name. An object counts only if a checkpoint names it.
//! [`closed`] has the names of closed months, which no shard owns.

pub mod closed;

use std::fmt;
use std::sync::Arc;

use prorata_schemas::tables::Table;
use prorata_schemas::time::{Date, Hour};

/// Number of a shard, which is also its partition number in all topics.
pub type Shard = u16;

/// The object with the root's fixed choices.
pub const ROOT: &str = "root.json";

/// Returns the path of the object with the root's choices after the root was raised to a later format; see
/// [`crate::root::Root::find`].
pub fn root_raised(format: u32) -> String {
    format!("root-{format}.json")
}

/// Returns the path of a record of the consumer group, and its Kafka cluster, that reads for the root. The
/// existing record with the highest number counts: each move to another group or cluster adds a record.
pub fn consumer(number: u32) -> String {
    format!("consumer/{number:04}.json")
}

/// Folder of the event archive.
pub const EVENTS: &str = "events/";

/// Folder of checkpoints and snapshots.
pub const STATE: &str = "state/";

/// Folder of dead letters of all shards, and of the records of replayed dead letters.
pub const DEAD_LETTERS: &str = "dead-letter/";

/// Folder of the records of replayed dead letters.
pub const REPLAYED: &str = "dead-letter/replayed/";

/// Folder of the objects that runs of `maintain` store to learn the time of the store.
pub const MAINTAIN: &str = "maintain/";

/// The object of a run of `maintain`.
pub fn maintain(id: &str) -> String {
    format!("{MAINTAIN}{id}")
}

/// The writer of an object, and the object's number among the writer's objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Sequence number of the checkpoint that the object waits for.
    pub seq: u64,
    /// Random id of the owner.
    pub owner: Arc<str>,
    /// The number of the object among the owner's objects.
    pub n: u64,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}-{}-{}", self.seq, self.owner, self.n)
    }
}

impl ObjectId {
    /// Parses the display form of an [`ObjectId`].
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (seq, owner, n) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || owner.is_empty() {
            return None;
        }
        Some(Self { seq: seq.parse().ok()?, owner: owner.into(), n: n.parse().ok()? })
    }
}

/// Parses an hour such as `2026-11-20T13`.
pub fn parse_hour(text: &str) -> Option<Hour> {
    text.parse().ok()
}

/// Parses a date such as `2026-11-20`; `None` if the text is not a date of the calendar.
pub fn parse_date(text: &str) -> Option<Date> {
    text.parse().ok()
}

fn parse_digits(text: &str, length: usize) -> Option<i64> {
    (text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Returns the file of one version of the rules.
pub fn rules(version: &str) -> String {
    format!("rules/{version}.json")
}

/// Returns whether a version of the rules can be a file name on every store.
pub fn is_rules_version(version: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !version.is_empty() && version.len() <= 64 && version.bytes().all(plain) && !version.starts_with('.')
}

/// Returns the folder of a shard's checkpoints and snapshots.
pub fn state_folder(shard: Shard) -> String {
    format!("{STATE}shard={shard:04}/")
}

/// Returns the object of a shard's checkpoint.
pub fn checkpoint(shard: Shard, seq: u64) -> String {
    format!("{}checkpoint-{seq:010}.json", state_folder(shard))
}

/// Parses the shard and the sequence number from a checkpoint's name.
pub fn parse_checkpoint(path: &str) -> Option<(Shard, u64)> {
    let (folder, name) = path.strip_prefix(STATE)?.split_once('/')?;
    let seq = name.strip_prefix("checkpoint-")?.strip_suffix(".json")?;
    Some((parse_shard(folder)?, seq.parse().ok()?))
}

/// Returns the path of the snapshot of a shard's state at the end of an hour.
pub fn snapshot(shard: Shard, hour: Hour, object_id: &ObjectId) -> String {
    format!("{}{hour}-{object_id}.snapshot", state_folder(shard))
}

/// Parses the hour and the object id from a snapshot's name.
pub fn parse_snapshot(path: &str) -> Option<(Hour, ObjectId)> {
    let (folder, name) = path.strip_prefix(STATE)?.split_once('/')?;
    parse_shard(folder)?;
    let name = name.strip_suffix(".snapshot")?;
    // The hour has dashes, too.
    let (at, _) = name.rmatch_indices('-').nth(2)?;
    let (hour, object_id) = (name.get(..at)?, name.get(at + 1..)?);
    Some((parse_hour(hour)?, ObjectId::parse(object_id)?))
}

/// Returns the path of a part of a shard's checkpoints. `digest` is the digest of the part's content.
pub fn part(shard: Shard, object_id: &ObjectId, digest: &str) -> String {
    format!("{}part-{object_id}-{digest}.json", state_folder(shard))
}

/// Parses the object id and the digest from a part's name.
pub fn parse_part(path: &str) -> Option<(ObjectId, String)> {
    let (folder, name) = path.strip_prefix(STATE)?.split_once('/')?;
    parse_shard(folder)?;
    let name = name.strip_prefix("part-")?.strip_suffix(".json")?;
    let (object_id, digest) = name.rsplit_once('-')?;
    Some((ObjectId::parse(object_id)?, digest.to_owned()))
}

/// The path of an archive file, which holds events of one hour and shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivePath {
    /// The file's shard.
    pub shard: Shard,
    /// The file's hour.
    pub hour: Hour,
    /// The file's writer.
    pub object_id: ObjectId,
}

impl ArchivePath {
    /// Returns the path under the root.
    pub fn path(&self) -> String {
        let Self { shard, hour, object_id } = self;
        format!("{}hour={:02}/{object_id}.avro", archive_date(*shard, *hour), hour.of_day())
    }

    /// Parses a path under the root.
    pub fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix(EVENTS)?.split('/').collect();
        let [shard, date, hour, file] = *parts.as_slice() else { return None };
        let date = parse_date(date.strip_prefix("date=")?)?;
        let of_day = parse_digits(hour.strip_prefix("hour=")?, 2).filter(|hour| *hour < 24)?;
        Some(Self {
            shard: parse_shard(shard)?,
            hour: Hour(date.days() * 24 + of_day),
            object_id: ObjectId::parse(file.strip_suffix(".avro")?)?,
        })
    }
}

/// Returns the folder of a shard's archive files.
pub fn archive_folder(shard: Shard) -> String {
    format!("{EVENTS}shard={shard:04}/")
}

/// Returns the folder of a shard's archive files for the date of an hour.
pub fn archive_date(shard: Shard, hour: Hour) -> String {
    format!("{}date={}/", archive_folder(shard), hour.date())
}

/// Returns the folder of a shard's dead letters.
pub fn dead_letter_folder(shard: Shard) -> String {
    format!("dead-letter/shard={shard:04}/")
}

/// Returns the path of a file of dead letters. The path contains the digest of the content, so that input
/// that is rejected twice is written once.
pub fn dead_letters(shard: Shard, object_id: &ObjectId, digest: &str) -> String {
    format!("{}{object_id}-{digest}.avro", dead_letter_folder(shard))
}

/// Parses the object id and the digest from the name of a dead-letter file.
pub fn parse_dead_letters(path: &str) -> Option<(ObjectId, String)> {
    let (_, name) = path.rsplit_once('/')?;
    let (object_id, digest) = name.strip_suffix(".avro")?.rsplit_once('-')?;
    Some((ObjectId::parse(object_id)?, digest.to_owned()))
}

/// Parses the shard from the name of a dead-letter file.
pub fn parse_dead_letter_shard(path: &str) -> Option<Shard> {
    parse_shard(path.strip_prefix(DEAD_LETTERS)?.split_once('/')?.0)
}

/// Returns the path of a record of replayed dead letters, which is named by the digest of its content.
pub fn replayed(digest: &str) -> String {
    format!("{REPLAYED}{digest}.json")
}

/// An hour of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardHour {
    /// The shard.
    pub shard: Shard,
    /// The hour.
    pub hour: Hour,
}

impl fmt::Display for ShardHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}, hour {}", self.shard, self.hour)
    }
}

/// The name of a table file of one hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFile {
    /// The file's hour.
    pub hour: Hour,
    /// The file's shard.
    pub shard: Shard,
    /// The file's writer.
    pub object_id: ObjectId,
    /// The digest of the file's content.
    pub digest: String,
}

impl TableFile {
    /// Returns the path under the table's folder.
    pub fn path(&self) -> String {
        let Self { hour, shard, object_id, digest } = self;
        format!("{}{:02}-{shard:04}-{object_id}-{digest}.parquet", partition(*hour), hour.of_day())
    }

    /// Parses a path under the table's folder.
    pub fn parse(path: &str) -> Option<Self> {
        let (date, name) = path.split_once('/')?;
        let date = parse_date(date.strip_prefix("date=")?)?;
        let (hour, rest) = name.strip_suffix(".parquet")?.split_once('-')?;
        let (shard, rest) = rest.split_once('-')?;
        let (object_id, digest) = rest.rsplit_once('-')?;
        Some(Self {
            hour: Hour(date.days() * 24 + parse_digits(hour, 2).filter(|hour| *hour < 24)?),
            shard: shard.parse().ok()?,
            object_id: ObjectId::parse(object_id)?,
            digest: digest.to_owned(),
        })
    }
}

/// The name of a day's file, which holds rows of several hours of one date and shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayFile {
    /// The file's date.
    pub date: Date,
    /// The file's shard.
    pub shard: Shard,
    /// The file's hours.
    pub hours: HoursOfDay,
    /// The file's writer.
    pub object_id: ObjectId,
    /// The digest of the digests of the file's hours.
    pub digest: String,
}

/// Hours of one date: bit `h` stands for the hour that begins at `h` o'clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoursOfDay(pub u32);

impl HoursOfDay {
    /// Creates the set of these hours, which must all be of one date.
    pub fn of(hours: impl IntoIterator<Item = Hour>) -> Self {
        Self(hours.into_iter().fold(0, |bits, hour| bits | 1 << hour.of_day()))
    }

    /// Returns the hours of a date, ascending.
    pub fn on(self, date: Date) -> impl Iterator<Item = Hour> {
        let first = date.days() * 24;
        (0..24).filter(move |hour| self.0 & 1 << hour != 0).map(move |hour| Hour(first + hour))
    }
}

impl DayFile {
    /// Returns the path under the table's folder.
    pub fn path(&self) -> String {
        let Self { date, shard, hours: HoursOfDay(hours), object_id, digest } = self;
        format!("date={date}/day-{shard:04}-{hours:06x}-{object_id}-{digest}.parquet")
    }

    /// Parses a path under the table's folder.
    pub fn parse(path: &str) -> Option<Self> {
        let (date, name) = path.split_once('/')?;
        let name = name.strip_suffix(".parquet")?.strip_prefix("day-")?;
        let (shard, rest) = name.split_once('-')?;
        let (hours, rest) = rest.split_once('-')?;
        let (object_id, digest) = rest.rsplit_once('-')?;
        let hours = u32::from_str_radix(hours, 16).ok().filter(|hours| (1..1 << 24).contains(hours))?;
        Some(Self {
            date: parse_date(date.strip_prefix("date=")?)?,
            shard: shard.parse().ok()?,
            hours: HoursOfDay(hours),
            object_id: ObjectId::parse(object_id)?,
            digest: digest.to_owned(),
        })
    }

    /// Returns whether these are the file's hours.
    pub fn has_hours(&self, hours: impl Iterator<Item = Hour> + Clone) -> bool {
        hours.clone().all(|hour| hour.date() == self.date) && HoursOfDay::of(hours) == self.hours
    }

    /// Returns the file's hours, ascending.
    pub fn hours(&self) -> impl Iterator<Item = Hour> + use<> {
        self.hours.on(self.date)
    }
}

/// Parses the shard and the object id from the path of a table file of an hour or of a day. Returns `None` if
/// this program did not write the file.
pub fn parse_table_file(path: &str) -> Option<(Shard, ObjectId)> {
    let of_hour = TableFile::parse(path).map(|file| (file.shard, file.object_id));
    of_hour.or_else(|| DayFile::parse(path).map(|file| (file.shard, file.object_id)))
}

/// Returns the folder of an hour's partition under a table's folder.
pub fn partition(hour: Hour) -> String {
    format!("date={}/", hour.date())
}

/// Returns the date of the partition in which a path under a table's folder lies.
pub fn partition_date(path: &str) -> Option<Date> {
    parse_date(path.strip_prefix("date=")?.split_once('/')?.0)
}

/// Returns the folder of a table, without a trailing slash.
pub fn table(table: Table) -> &'static str {
    table.name()
}

/// Returns the name of a shard's transactions in the Delta logs.
pub fn transaction(shard: Shard) -> String {
    format!("prorata/{shard:04}")
}

fn parse_shard(folder: &str) -> Option<Shard> {
    folder.strip_prefix("shard=")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object_id() -> ObjectId {
        ObjectId { seq: 12, owner: "a1b2".into(), n: 3 }
    }

    #[test]
    fn every_name_is_read_back() {
        let hour = parse_hour("2026-11-20T07").unwrap();
        assert_eq!(hour.to_string(), "2026-11-20T07");
        let archive = ArchivePath { shard: 7, hour, object_id: object_id() };
        assert_eq!(archive.path(), "events/shard=0007/date=2026-11-20/hour=07/0000000012-a1b2-3.avro");
        assert!(archive.path().starts_with(&archive_date(7, hour)));
        assert_eq!(ArchivePath::parse(&archive.path()), Some(archive));
        assert_eq!(parse_checkpoint(&checkpoint(7, 12)), Some((7, 12)));
        assert_eq!(parse_snapshot(&snapshot(7, hour, &object_id())), Some((hour, object_id())));
        assert_eq!(parse_part(&part(7, &object_id(), "ff")), Some((object_id(), "ff".to_owned())));
        assert_eq!(parse_part(&checkpoint(7, 12)), None);
        let file = TableFile { hour, shard: 7, object_id: object_id(), digest: "ff00".into() };
        assert_eq!(file.path(), "date=2026-11-20/07-0007-0000000012-a1b2-3-ff00.parquet");
        let file_path = file.path();
        assert_eq!(TableFile::parse(&file_path), Some(file));
        assert_eq!(parse_table_file(&file_path), Some((7, object_id())));
        let hours = HoursOfDay::of([hour, Hour(hour.0 + 16)]);
        let day =
            DayFile { date: hour.date(), shard: 7, hours, object_id: object_id(), digest: "ff00".into() };
        assert_eq!(day.path(), "date=2026-11-20/day-0007-800080-0000000012-a1b2-3-ff00.parquet");
        assert_eq!(day.hours().collect::<Vec<_>>(), [hour, Hour(hour.0 + 16)]);
        assert_eq!(parse_table_file(&day.path()), Some((7, object_id())));
        assert_eq!((DayFile::parse(&file_path), TableFile::parse(&day.path())), (None, None));
        assert_eq!(DayFile::parse(&day.path()), Some(day));
        let path = dead_letters(0, &object_id(), "ff00");
        assert_eq!(parse_dead_letters(&path), Some((object_id(), "ff00".to_owned())));
        assert_eq!(parse_dead_letter_shard(&path), Some(0));
        assert_eq!(parse_dead_letter_shard(&replayed("ff00")), None);
    }

    #[test]
    fn names_that_are_not_ours_are_not_read() {
        for path in [
            "date=2026-11-20/part-00000-abc.snappy.parquet",
            "x.parquet",
            "date=2026-02-30/07-0007-1-a-1-f.parquet",
            "date=2026-02-28/day-0007-000000-1-a-1-f.parquet",
            "date=2026-02-28/day-0007-1000000-1-a-1-f.parquet",
        ] {
            assert_eq!(parse_table_file(path), None, "{path}");
        }
        for path in [
            "events/date=2026-11-20/hour=20/shard=0007/1-a-1.avro",
            "events/shard=0007/date=2026-11-20/hour=24/1-a-1.avro",
            "events/shard=0007/hour=20/date=2026-11-20/1-a-1.avro",
            "events/topic+0+0.avro",
        ] {
            assert_eq!(ArchivePath::parse(path), None, "{path}");
        }
        assert_eq!(parse_checkpoint("state/shard=0007/2026-11-20T07-1-a-1.snapshot"), None);
        assert_eq!(parse_snapshot("state/shard=0007/2026-11-20T07-a-1.snapshot"), None);
        assert_eq!(parse_hour("2026-11-20T24"), None);
        assert_eq!(parse_hour("2026-13-20T07"), None);
        assert!(!is_rules_version("../1") && !is_rules_version("") && is_rules_version("2026-q4"));
    }
}
