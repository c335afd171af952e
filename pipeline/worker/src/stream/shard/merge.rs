//! Merges archive files: each checkpoint that takes events of an hour writes one file, and these files are
//! merged into one once the hour is closed.
//!
//! The merged file waits for the checkpoint like any other object. The checkpoint names the merged file in
//! place of the files that were merged. Once the checkpoint is decided, these are deleted, a few at a time.

use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::time::{Hour, HourRange};

use super::LiveShard;
use crate::checkpoint::{ArchivedFile, log};
use crate::error::{Result, WorkerError};
use crate::names;
use crate::objects::StoredObject;
use crate::ports::{Archive, ObjectStore};
use crate::shard::Body;
use crate::shard::reading::{FileToRead, fetch_files, read_archive};
use crate::stream::StreamPorts;

/// Number of files that must be added to a merged hour before it is merged again, because each merge writes
/// the hour's events again.
const LATE_FILES: usize = 16;

/// Maximum total size, in compressed bytes, of the files that become one: about 64 MiB of events in memory.
const MERGED_BYTES: u64 = 8 << 20;

/// Maximum number of hours that one checkpoint merges. Their files also have at most [`MERGED_BYTES`]
/// together, unless there is only one hour. A merge takes a moment, and a worker that catches up can merge
/// later.
const HOURS_AT_ONCE: usize = 16;

/// Number of hours before the last closed hour that a new owner checks, because the earlier owner may have
/// ended before it merged their files.
const LOOKED_BACK_HOURS: i64 = 24;

/// Number of hours whose files are checked for one checkpoint.
const LOOKED_AT_HOURS: i64 = 24;

/// The progress of merging.
#[derive(Debug, Default)]
pub(super) struct Merging {
    /// The last closed hour that was checked.
    through: Option<Hour>,
}

impl LiveShard {
    /// Merges archive files of some hours that are closed in the last decided checkpoint. A failed merge is
    /// retried at a later checkpoint; no hour waits for a merge.
    pub async fn merge_archive(&mut self, ports: &StreamPorts) {
        if let Err(error) = self.try_merge(ports).await {
            tracing::debug!(shard = self.shard(), %error, "archive files not merged yet; trying again later");
        }
    }

    /// Returns whether another owner has decided a checkpoint since the last checkpoint of this owner.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn is_overtaken(&self, store: &dyn ObjectStore) -> Result<bool> {
        let next = names::checkpoint(self.shard(), self.decided().next_seq());
        if store.stat(&next).await?.is_none() {
            return Ok(false);
        }
        if !self.is_sealed() {
            return Ok(true);
        }
        // A checkpoint of this owner is sealed, and may be the one that exists.
        match log::latest(store, self.shard()).await {
            Ok(latest) => Ok(latest.owner.as_ref().is_some_and(|owner| owner.id != self.claim.owner)),
            Err(error) if error.storage_kind().is_some() => Err(error),
            // The next owner will report it.
            Err(_) => Ok(false),
        }
    }

    async fn try_merge(&mut self, ports: &StreamPorts) -> Result<()> {
        let Some(closed) = self.decided().closed_through else { return Ok(()) };
        let first = self.merging.through.map_or(Hour(closed.0 - LOOKED_BACK_HOURS), Hour::next);
        let last = Hour(closed.0.min(first.0 + LOOKED_AT_HOURS - 1));
        if first <= last {
            self.archive.ensure(&*ports.shared.store, HourRange::new(first, last)).await?;
        }
        let most_files = |hour: Hour| if hour >= first { 1 } else { LATE_FILES };
        let hours = self.archive.hours();
        let due = hours
            .range(..=last)
            .filter(|hour| small(self.archive.files(**hour)).count() > most_files(**hour));
        let due: Vec<Hour> = due.take(HOURS_AT_ONCE + 1).copied().collect();
        let (mut bytes, mut through) = (0, last);
        for (n, hour) in due.into_iter().enumerate() {
            let files = group(small(self.archive.files(hour)).cloned().collect());
            bytes += files.iter().map(|file| file.bytes).sum::<u64>();
            if n == HOURS_AT_ONCE || (n > 0 && bytes > MERGED_BYTES) {
                through = hour.previous();
                break;
            }
            match self.merge_hour(ports, hour, files).await {
                // No other hour waits for it. A fold of this hour will stop the shard.
                Err(error @ WorkerError::Damaged { .. }) => {
                    tracing::warn!(shard = self.shard(), %hour, %error, "archive files not merged");
                }
                merged => merged?,
            }
        }
        if through >= first {
            self.merging.through = Some(through);
        }
        Ok(())
    }

    async fn merge_hour(&mut self, ports: &StreamPorts, hour: Hour, files: Vec<ArchivedFile>) -> Result<()> {
        let to_read: Vec<FileToRead> = files.iter().map(|file| file.to_read(self.shard())).collect();
        let objects = fetch_files(&*ports.shared.store, to_read.iter()).await?;
        let archive = Arc::clone(&ports.shared.archive);
        let bytes = tokio::task::spawn_blocking(move || merged(&*archive, &objects)).await??;
        if let (Some(namer), Some(draft)) = (self.namer(), self.draft()) {
            draft.merge_archive_files(hour, namer.next(), bytes, files);
        }
        Ok(())
    }
}

/// Returns the files that are worth merging.
fn small<'a>(files: impl Iterator<Item = &'a ArchivedFile>) -> impl Iterator<Item = &'a ArchivedFile> {
    files.filter(|file| file.bytes < MERGED_BYTES)
}

/// Returns the smallest files that together have at most [`MERGED_BYTES`], but at least two files.
fn group(mut files: Vec<ArchivedFile>) -> Vec<ArchivedFile> {
    files.sort_by_key(|file| file.bytes);
    let mut bytes = 0;
    let fits = |file: &&ArchivedFile| {
        bytes += file.bytes;
        bytes <= MERGED_BYTES
    };
    let count = files.iter().take_while(fits).count().max(2);
    files.truncate(count);
    files
}

/// Merges several archive files into one file, which holds each event once and in archive order.
fn merged(archive: &dyn Archive, files: &[StoredObject]) -> Result<Bytes> {
    let mut events: Vec<Body> = Vec::new();
    for file in files {
        read_archive(archive, file, |record| events.push((record.event.kind(), record.body)))?;
    }
    super::flush::write_sorted(archive, &events).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ObjectId;

    fn files(bytes: &[u64]) -> Vec<ArchivedFile> {
        let file = |(n, bytes): (usize, &u64)| ArchivedFile {
            hour: Hour(3),
            object_id: ObjectId { seq: 1, owner: "aa".into(), n: n as u64 },
            bytes: *bytes,
        };
        bytes.iter().enumerate().map(file).collect()
    }

    #[test]
    fn a_merged_file_is_bounded_and_large_files_stay() {
        let bytes = |files: Vec<ArchivedFile>| files.iter().map(|file| file.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(small(files(&[5, MERGED_BYTES, 7]).iter()).cloned().collect()), [5, 7]);
        assert_eq!(
            bytes(group(files(&[MERGED_BYTES / 2, 3, MERGED_BYTES / 2, 1]))),
            [1, 3, MERGED_BYTES / 2]
        );
        assert_eq!(bytes(group(files(&[MERGED_BYTES - 1, MERGED_BYTES - 2]))).len(), 2);
    }
}
