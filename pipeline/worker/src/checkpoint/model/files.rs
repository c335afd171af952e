//! The files of one table's hour, and their stored form.

use std::ops::Deref;

use prorata_schemas::ids::OrganizationId;
use serde::{Deserialize, Serialize};

use crate::ports::FileEntry;

/// The files of one table that hold an hour: one file, or several files that are cut between organizations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableFiles(Vec<FileEntry>);

impl TableFiles {
    /// Creates the list from files in the order of their organizations, each with the last organization whose
    /// rows it holds.
    pub fn new(files: impl IntoIterator<Item = (FileEntry, Option<OrganizationId>)>) -> Self {
        let with_last =
            files.into_iter().map(|(file, last_organization)| FileEntry { last_organization, ..file });
        let mut files: Vec<FileEntry> = with_last.collect();
        if let [file] = files.as_mut_slice() {
            file.last_organization = None;
        }
        Self(files)
    }

    /// Adds a file whose organizations are not known.
    pub fn push(&mut self, file: FileEntry) {
        self.0.push(file);
    }

    /// Drops the statistics, because the table holds these files.
    pub(in crate::checkpoint) fn forget_stats(&mut self) {
        self.0.iter_mut().for_each(|file| file.stats = None);
    }

    /// Returns the index of the file that holds the rows of an organization, or that must receive them.
    pub fn index_of(&self, organization_id: &OrganizationId) -> usize {
        let ends_before =
            |file: &FileEntry| file.last_organization.as_ref().is_some_and(|last| last < organization_id);
        self.partition_point(ends_before).min(self.len().saturating_sub(1))
    }
}

impl Deref for TableFiles {
    type Target = [FileEntry];

    fn deref(&self) -> &[FileEntry] {
        &self.0
    }
}

impl From<FileEntry> for TableFiles {
    fn from(file: FileEntry) -> Self {
        Self::new([(file, None)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> FileEntry {
        FileEntry { path: path.into(), bytes: 3, digest: "d".into(), stats: None, last_organization: None }
    }

    fn several() -> TableFiles {
        TableFiles::new([(file("p"), Some("bird".into())), (file("q"), Some("lion".into()))])
    }

    #[test]
    fn the_last_organization_is_stored_only_if_there_are_several_files() {
        let one = TableFiles::new([(file("p"), Some("acme".into()))]);
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(text, r#"[{"path":"p","bytes":3,"digest":"d"}]"#);
        assert_eq!(serde_json::from_str::<TableFiles>(&text).unwrap(), one);
        let text = serde_json::to_string(&several()).unwrap();
        assert!(text.contains(r#""last_organization":"bird""#), "{text}");
        assert_eq!(serde_json::from_str::<TableFiles>(&text).unwrap(), several());
    }

    #[test]
    fn an_organization_is_in_the_first_file_that_does_not_end_before_it() {
        let index = |organization_id: &str| several().index_of(&organization_id.into());
        assert_eq!(["acme", "bird", "cat", "lion", "zebra"].map(index), [0, 0, 1, 1, 1]);
        assert_eq!(TableFiles::from(file("p")).index_of(&"zebra".into()), 0);
    }
}
