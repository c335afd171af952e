//! The files of a table's hour: new files, and files that stay because their rows are the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use prorata_schemas::tables::{CutFile, EncodedFile, Table};

use crate::checkpoint::{HourEntry, ObjectNamer, TableFiles};
use crate::names::{ShardHour, TableFile};
use crate::ports::FileEntry;

/// A file of an hour's new set of files.
pub(in crate::shard) enum FileNow {
    /// A file that stays, because it holds no rows of the folded organizations.
    Kept(FileEntry),
    /// A file that was encoded.
    New(CutFile),
}

/// The new set of table files of an hour, filled in the order of [`Table::HOURLY`].
pub(in crate::shard) struct HourFiles<'a> {
    of: ShardHour,
    before: Option<&'a HourEntry>,
    /// Files by table; a table that is missing has no rows.
    pub entries: BTreeMap<Table, TableFiles>,
    /// New files by path.
    pub objects: Vec<(String, Bytes)>,
    /// Whether any rows differ from before.
    pub changed: bool,
    /// Whether any rows outside table `hours` differ.
    pub costs_changed: bool,
}

impl<'a> HourFiles<'a> {
    /// Returns an empty set for an hour with this previous entry. In a new hour, everything counts as
    /// changed.
    pub fn new(of: ShardHour, before: Option<&'a HourEntry>) -> Self {
        let (entries, objects, is_new) = (BTreeMap::new(), Vec::new(), before.is_none());
        Self { of, before, entries, objects, changed: is_new, costs_changed: is_new }
    }

    /// Takes the files of a table, in order. If a file has the same rows as before, the old file stays. The
    /// file of `hours` carries the revision, so it stays only if all other files stay.
    pub fn take(&mut self, table: Table, files: Vec<FileNow>, namer: &ObjectNamer) {
        let old = self.before.map_or(&[][..], |before| before.files_of(table));
        let found: Vec<(FileNow, Option<&FileEntry>)> = files
            .into_iter()
            .map(|file| match file {
                FileNow::New(file) => {
                    let same = old.iter().find(|old| old.digest == file.file.digest);
                    (FileNow::New(file), same)
                }
                kept @ FileNow::Kept(_) => (kept, None),
            })
            .collect();
        let is_new = |(file, same): &(FileNow, Option<_>)| matches!(file, FileNow::New(_)) && same.is_none();
        let differs = found.len() != old.len() || found.iter().any(is_new);
        self.changed |= differs;
        self.costs_changed |= differs && table != Table::Hours;
        let is_kept = table != Table::Hours || !self.changed;
        let mut entries = Vec::new();
        for (file, same) in found {
            entries.push(match (file, same.filter(|_| is_kept)) {
                (FileNow::Kept(entry), _) => (entry.clone(), entry.last_organization),
                (FileNow::New(file), Some(old)) => (old.clone(), Some(file.last_organization)),
                (FileNow::New(file), None) => {
                    (self.add(table, file.file, namer), Some(file.last_organization))
                }
            });
        }
        if !entries.is_empty() {
            self.entries.insert(table, TableFiles::new(entries));
        }
    }

    fn add(&mut self, table: Table, file: EncodedFile, namer: &ObjectNamer) -> FileEntry {
        let EncodedFile { bytes, stats, digest, .. } = file;
        let ShardHour { shard, hour } = self.of;
        let path = TableFile { hour, shard, object_id: namer.next(), digest: digest.clone() }.path();
        let size = bytes.len() as u64;
        self.objects.push((format!("{}/{path}", table.name()), bytes.into()));
        FileEntry { path, bytes: size, digest, stats: Some(stats), last_organization: None }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use prorata_schemas::time::Hour;

    use super::*;
    use crate::checkpoint::Decided;

    fn new(rows: &str, bytes: &str) -> FileNow {
        let (bytes, digest, stats) = (bytes.as_bytes().to_vec(), rows.to_owned(), "{}".to_owned());
        let file = EncodedFile { bytes, rows: 10, stats, digest };
        FileNow::New(CutFile { file, last_organization: rows.into() })
    }

    /// Returns the entry of an hour with these files of a table, whether it has changed, and the number of
    /// new objects.
    fn hour(before: Option<&HourEntry>, files: Vec<FileNow>) -> (HourEntry, bool, usize) {
        let draft = Decided::unowned(0).next_draft();
        let namer = draft.namer(&"owner".into(), &Arc::new(AtomicU64::new(0)));
        let mut becoming = HourFiles::new(ShardHour { shard: 0, hour: Hour(3) }, before);
        becoming.take(Table::CostAllocation, files, &namer);
        becoming.take(Table::Hours, vec![new("hours", "hours")], &namer);
        let (changed, new) = (becoming.changed, becoming.objects.len());
        (HourEntry { tables: becoming.entries, ..HourEntry::default() }, changed, new)
    }

    #[test]
    fn another_release_of_the_writer_changes_no_hour() {
        let (before, ..) = hour(None, vec![new("a", "bytes of a"), new("b", "bytes of b")]);
        let again = hour(Some(&before), vec![new("a", "other bytes"), new("b", "bytes of b")]);
        assert_eq!(again, (before.clone(), false, 0));
        let (after, changed, objects) = hour(Some(&before), vec![new("a", ""), new("c", "")]);
        assert_eq!((changed, objects), (true, 2), "the file that has changed, and hours");
        let table = Table::CostAllocation;
        assert_eq!(after.files_of(table)[0], before.files_of(table)[0]);
        assert_ne!(after.files_of(table)[1].path, before.files_of(table)[1].path);
        let (_, changed, objects) = hour(Some(&before), vec![new("a", "")]);
        assert_eq!((changed, objects), (true, 1), "a file less");
    }
}
