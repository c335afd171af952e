//! Which files a table's hour consists of: new ones, and those that stay because their rows are the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use prorata_schemas::tables::{CutFile, EncodedFile, Table};
use prorata_schemas::time::Hour;
use sha2::{Digest, Sha256};

use crate::checkpoint::{Checkpoint, HourEntry, ObjectNamer, TableFiles, snapshot};
use crate::names::{Shard, TableFile};
use crate::ports::{FileEntry, TableEncoder};

/// How table files of a shard are cut and named.
#[derive(Clone, Copy, Debug)]
pub struct FileForm {
    /// Rows with which a file ends after an organization.
    pub rows: u64,
    /// Whether a name has the digest of the rows, or else of the bytes.
    by_rows: bool,
}

impl FileForm {
    /// As the format of a checkpoint says: releases before format 2 know one file of an hour, and compare the
    /// digests of bytes.
    pub fn of(encoder: &dyn TableEncoder, checkpoint: &Checkpoint) -> Self {
        let by_rows = checkpoint.format >= 2;
        Self { rows: if by_rows { encoder.file_rows() } else { u64::MAX }, by_rows }
    }
}

/// A file of an hour as it becomes.
pub(in crate::shard) enum FileNow {
    /// It stays: it has no rows of what was folded.
    Kept(FileEntry),
    /// It was encoded.
    New(CutFile),
}

/// Files of a table as they are cut; or all rows in one file where the only file of before has just these
/// rows. It was written before hours were cut, and equal rows are not written again.
pub(in crate::shard) fn uncut<E>(
    files: Vec<CutFile>,
    old: &[FileEntry],
    whole: impl FnOnce() -> Result<Vec<CutFile>, E>,
) -> Result<Vec<CutFile>, E> {
    if files.len() < 2 || old.len() != 1 {
        return Ok(files);
    }
    let whole = whole()?;
    let is_old = whole.iter().all(|whole| same_rows(&whole.file, old).is_some());
    Ok(if is_old { whole } else { files })
}

/// The table files of an hour as they become, taken in the order of [`Table::ALL`].
pub(in crate::shard) struct HourFiles<'a> {
    of: (Shard, Hour),
    before: Option<&'a HourEntry>,
    form: FileForm,
    /// Files by table; a table that is missing has no rows.
    pub entries: BTreeMap<Table, TableFiles>,
    /// New files by path.
    pub objects: Vec<(String, Bytes)>,
    /// Whether any rows differ from before.
    pub changed: bool,
}

impl<'a> HourFiles<'a> {
    /// Of an hour that was so before; of a new one all is changed.
    pub fn new(of: (Shard, Hour), before: Option<&'a HourEntry>, form: FileForm) -> Self {
        Self { of, before, form, entries: BTreeMap::new(), objects: Vec::new(), changed: before.is_none() }
    }

    /// Takes the files of a table, in their order. One with the rows of before stays the old one; that of
    /// `hours` carries the revision, so it stays only where all others do.
    pub fn take(&mut self, table: Table, files: Vec<FileNow>, namer: &ObjectNamer) {
        let old = self.before.map_or(&[][..], |before| before.files_of(table));
        let found: Vec<(FileNow, Option<&FileEntry>)> = files
            .into_iter()
            .map(|file| match file {
                FileNow::New(file) => {
                    let same = same_rows(&file.file, old);
                    (FileNow::New(file), same)
                }
                kept @ FileNow::Kept(_) => (kept, None),
            })
            .collect();
        let is_new = |(file, same): &(FileNow, Option<_>)| matches!(file, FileNow::New(_)) && same.is_none();
        self.changed |= found.len() != old.len() || found.iter().any(is_new);
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
        let is_of_rows = self.form.by_rows || table == Table::Hours;
        let digest = if is_of_rows { digest } else { digest_of_bytes(&bytes) };
        let (shard, hour) = self.of;
        let path = TableFile { hour, shard, object_id: namer.next(), digest: digest.clone() }.path();
        let size = bytes.len() as u64;
        self.objects.push((format!("{}/{path}", table.name()), bytes.into()));
        FileEntry { path, bytes: size, digest, stats: Some(stats), last_organization: None }
    }
}

/// The file of before that has the rows of this one.
fn same_rows<'a>(file: &EncodedFile, old: &'a [FileEntry]) -> Option<&'a FileEntry> {
    if let Some(same) = old.iter().find(|old| old.digest == file.digest) {
        return Some(same);
    }
    let of_bytes = if old.is_empty() { String::new() } else { digest_of_bytes(&file.bytes) };
    old.iter().find(|old| old.digest == of_bytes)
}

/// The digest that files of every table but `hours` were named by before digests were of rows.
pub(in crate::shard) fn digest_of_bytes(bytes: &[u8]) -> String {
    snapshot::hex(&Sha256::digest(bytes)[..16])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::checkpoint::Decided;

    const FORM: FileForm = FileForm { rows: 10, by_rows: true };

    fn new(rows: &str, bytes: &str) -> FileNow {
        let (bytes, digest, stats) = (bytes.as_bytes().to_vec(), rows.to_owned(), "{}".to_owned());
        let file = EncodedFile { bytes, rows: 10, stats, digest };
        FileNow::New(CutFile { file, last_organization: rows.into() })
    }

    /// An hour that becomes these files of a table.
    fn hour(before: Option<&HourEntry>, form: FileForm, files: Vec<FileNow>) -> (HourEntry, bool, usize) {
        let draft = Decided::unowned(0).next_draft();
        let namer = draft.namer(&"owner".into(), &Arc::new(AtomicU64::new(0)));
        let mut becoming = HourFiles::new((0, Hour(3)), before, form);
        becoming.take(Table::CostAllocation, files, &namer);
        becoming.take(Table::Hours, vec![new("hours", "hours")], &namer);
        let (changed, new) = (becoming.changed, becoming.objects.len());
        (HourEntry { tables: becoming.entries, ..HourEntry::default() }, changed, new)
    }

    #[test]
    fn another_release_of_the_writer_changes_no_hour() {
        let (before, ..) = hour(None, FORM, vec![new("a", "bytes of a"), new("b", "bytes of b")]);
        let again = hour(Some(&before), FORM, vec![new("a", "other bytes"), new("b", "bytes of b")]);
        assert_eq!(again, (before.clone(), false, 0));
        let (after, changed, objects) = hour(Some(&before), FORM, vec![new("a", ""), new("c", "")]);
        assert_eq!((changed, objects), (true, 2), "the file that has changed, and hours");
        let table = Table::CostAllocation;
        assert_eq!(after.files_of(table)[0], before.files_of(table)[0]);
        assert_ne!(after.files_of(table)[1].path, before.files_of(table)[1].path);
        let (_, changed, objects) = hour(Some(&before), FORM, vec![new("a", "")]);
        assert_eq!((changed, objects), (true, 1), "a file less");
    }

    #[test]
    fn files_that_are_named_by_their_bytes_stay_where_their_rows_do() {
        let format_1 = FileForm { rows: u64::MAX, by_rows: false };
        let (before, ..) = hour(None, format_1, vec![new("a", "bytes of a")]);
        assert_eq!(before.files_of(Table::CostAllocation)[0].digest, digest_of_bytes(b"bytes of a"));
        for form in [format_1, FORM] {
            let again = hour(Some(&before), form, vec![new("a", "bytes of a")]);
            assert_eq!(again, (before.clone(), false, 0));
            let (_, changed, objects) = hour(Some(&before), form, vec![new("b", "bytes of b")]);
            assert_eq!((changed, objects), (true, 2));
        }
    }

    #[test]
    fn rows_that_were_in_one_file_before_hours_were_cut_stay_in_it() {
        let (before, ..) = hour(None, FORM, vec![new("all", "all")]);
        let old = before.files_of(Table::CostAllocation);
        let cut = |files: &[&str]| -> Vec<CutFile> {
            let files = files.iter().map(|rows| match new(rows, rows) {
                FileNow::New(file) => file,
                FileNow::Kept(_) => unreachable!("it is new"),
            });
            files.collect()
        };
        let uncut = |whole: &str| uncut(cut(&["a", "b"]), old, || Ok::<_, ()>(cut(&[whole]))).unwrap();
        assert_eq!(uncut("all"), cut(&["all"]));
        assert_eq!(uncut("other"), cut(&["a", "b"]));
    }
}
