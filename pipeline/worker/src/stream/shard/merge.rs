//! Merges the archive: a closed hour has as many files as checkpoints took events of it, and is merged into
//! one.
//!
//! The merged file waits for the checkpoint like any other object. Once the checkpoint is decided, the files
//! that the merged file replaces leave the index and are deleted, some at a time. A crash in between leaves
//! events in the archive twice. That changes nothing, because folding takes equal events once; and a later
//! owner merges the files again. Nothing is deleted that a decided checkpoint does not have in another file.

use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::time::Hour;

use super::LiveShard;
use crate::checkpoint::log;
use crate::error::{Result, WorkerError};
use crate::names::{self, ArchivePath};
use crate::objects::{self, StoredObject};
use crate::ports::{Archive, ObjectStore};
use crate::shard::archive::ArchiveFile;
use crate::shard::fold::Body;
use crate::shard::reading::read_archive;
use crate::stream::StreamPorts;

/// The number of files that must come after an hour was merged before it is merged again, because each merge
/// writes the hour's events again.
const LATE_FILES: usize = 16;

/// Bytes of files that become one, compressed: about 64 MiB of events in memory.
const MERGED_BYTES: u64 = 8 << 20;

/// The most hours that one checkpoint merges. Their files also have at most [`MERGED_BYTES`] together, unless
/// there is only one hour. Merging takes a moment, and a worker that catches up merges later.
const HOURS_AT_ONCE: usize = 16;

/// Hours before the last closed hour that a new owner checks: the earlier owner may have ended in between.
const LOOKED_BACK_HOURS: i64 = 24;

/// Hours whose files are checked for one checkpoint: a date or two are listed for them.
const LOOKED_AT_HOURS: i64 = 24;

/// The most repeated listings because of files that an earlier owner deleted, until a checkpoint is decided.
const LISTED_AGAIN_MAX: usize = 64;

/// The progress of merging.
#[derive(Debug, Default)]
pub(super) struct Merging {
    /// The last closed hour that was checked.
    through: Option<Hour>,
    /// The number of repeated listings of the archive since the last checkpoint.
    listed_again: usize,
}

impl Merging {
    /// Notes that a checkpoint is decided.
    pub fn note_decided(&mut self) {
        self.listed_again = 0;
    }
}

impl LiveShard {
    /// Merges archive files of some hours that are closed in the last decided checkpoint. A failed merge is
    /// retried at a later checkpoint: no hour waits for it.
    pub async fn merge_archive(&mut self, ports: &StreamPorts) {
        if let Err(error) = self.try_merge(ports).await {
            tracing::debug!(shard = self.shard(), %error, "archive files not merged yet; trying again later");
        }
    }

    /// Forgets the listing of the archive if it names a file that no longer exists. An earlier owner may have
    /// merged and deleted the file after this owner listed it, and may continue to do so for a while. Returns
    /// `false` if that cannot be the cause, or has happened too often since the last checkpoint.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn list_archive_again(&mut self, store: &dyn ObjectStore, object: &str) -> Result<bool> {
        let Some(ArchivePath { hour, object_id, .. }) = ArchivePath::parse(object) else { return Ok(false) };
        let merged = |file: &ArchiveFile| file.object_id.seq > object_id.seq && self.claim.is_earlier(file);
        let may_be_merged =
            self.merging.listed_again < LISTED_AGAIN_MAX && self.archive.files(hour).iter().any(merged);
        if !may_be_merged || store.stat(object).await?.is_some() {
            return Ok(false);
        }
        self.archive.forget_all();
        self.merging.listed_again += 1;
        Ok(true)
    }

    /// Returns whether another owner has decided since the last checkpoint of this one.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn is_overtaken(&self, store: &dyn ObjectStore) -> Result<bool> {
        let next = names::checkpoint(self.shard(), self.decided.next_seq());
        if store.stat(&next).await?.is_none() {
            return Ok(false);
        }
        if !self.is_sealed() {
            return Ok(true);
        }
        // A checkpoint of this owner is sealed, and may be the one that exists.
        match log::latest(store, self.shard()).await {
            Ok(latest) => Ok(latest.owner().is_some_and(|owner| owner.id != self.claim.owner)),
            Err(error) if error.storage_kind().is_some() => Err(error),
            // The next owner will report it.
            Err(_) => Ok(false),
        }
    }

    async fn try_merge(&mut self, ports: &StreamPorts) -> Result<()> {
        let Some(closed) = self.decided.closed_through else { return Ok(()) };
        let first = self.merging.through.map_or(Hour(closed.0 - LOOKED_BACK_HOURS), Hour::next);
        let last = Hour(closed.0.min(first.0 + LOOKED_AT_HOURS - 1));
        if first <= last {
            self.archive.ensure(&*ports.shared.store, &self.decided, (first, last)).await?;
        }
        let most_files = |hour: Hour| if hour >= first { 1 } else { LATE_FILES };
        let hours = self.archive.hours().filter(|hour| *hour <= last);
        let due = hours.filter(|hour| small(self.archive.files(*hour)).count() > most_files(*hour));
        let due: Vec<Hour> = due.take(HOURS_AT_ONCE + 1).collect();
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

    async fn merge_hour(&mut self, ports: &StreamPorts, hour: Hour, files: Vec<ArchiveFile>) -> Result<()> {
        let paths = files.iter().map(|file| file.path(self.shard(), hour)).collect();
        let objects = objects::get_all(&*ports.shared.store, paths).await?;
        let archive = Arc::clone(&ports.shared.archive);
        let bytes = tokio::task::spawn_blocking(move || merged(&*archive, &objects)).await??;
        if let (Some(namer), Some(draft)) = (self.namer(), self.draft()) {
            let files = files.into_iter().map(|file| file.object_id);
            draft.merge_archive_files(hour, namer.next(), bytes, files);
        }
        Ok(())
    }
}

/// Returns the files that are worth merging.
fn small(files: &[ArchiveFile]) -> impl Iterator<Item = &ArchiveFile> {
    files.iter().filter(|file| file.bytes < MERGED_BYTES)
}

/// Returns the smallest files, as many as make one of at most [`MERGED_BYTES`]; at least two.
fn group(mut files: Vec<ArchiveFile>) -> Vec<ArchiveFile> {
    files.sort_by_key(|file| file.bytes);
    let mut bytes = 0;
    let fits = |file: &&ArchiveFile| {
        bytes += file.bytes;
        bytes <= MERGED_BYTES
    };
    let count = files.iter().take_while(fits).count().max(2);
    files.truncate(count);
    files
}

/// Merges the events of several files into one, each once, in the order of an archive file. The files will be
/// deleted, so each must be whole.
fn merged(archive: &dyn Archive, files: &[StoredObject]) -> Result<Bytes> {
    let mut events: Vec<Body> = Vec::new();
    for file in files {
        let before = events.len();
        read_archive(archive, file, |record| events.push((record.event.kind(), record.body)))?;
        let bodies = events.iter().skip(before).map(|(kind, body)| (*kind, &**body));
        if !archive.is_whole(&file.bytes, &bodies.collect::<Vec<_>>()) {
            let cause = "it lacks events that it was written with".to_owned();
            return Err(WorkerError::Damaged { object: file.path.clone(), cause });
        }
    }
    super::flush::write_sorted(archive, &events).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use prorata_schemas::body::{EventRecordRef, EventRef};
    use prorata_schemas::event::{Event, EventKind, NodeStopped, Payload};
    use prorata_schemas::time::Timestamp;

    use super::*;
    use crate::names::ObjectId;
    use crate::ports::{DeadLetter, EachRecord, FormatError};

    /// An archive in which every file reads as one event. All files are whole, or all are cut off after the
    /// event.
    struct OneEvent {
        whole: bool,
    }

    impl Archive for OneEvent {
        fn read(&self, _: &mut dyn Read, each: EachRecord<'_>) -> std::io::Result<()> {
            let stop = NodeStopped { cluster_id: "c".into(), node_id: "n".into() };
            let payload = Payload::NodeStopped(stop);
            let event = Event::new("acme".into(), Timestamp(0), payload);
            each(None, Ok(EventRecordRef::new(EventRef::Event(event))));
            Ok(())
        }

        fn write(&self, events: &[(EventKind, &[u8])]) -> Result<Vec<u8>, FormatError> {
            Ok(vec![events.len() as u8])
        }

        fn is_whole(&self, _: &[u8], events: &[(EventKind, &[u8])]) -> bool {
            self.whole && events.len() == 1
        }

        fn write_dead_letters(&self, _: &[DeadLetter]) -> Result<Vec<u8>, FormatError> {
            unreachable!("dead letters are not merged")
        }

        fn read_dead_letters(&self, _: &[u8]) -> Result<Vec<DeadLetter>, FormatError> {
            unreachable!("dead letters are not merged")
        }
    }

    #[test]
    fn files_that_are_not_whole_are_not_merged() {
        let object = |path: &str| StoredObject { path: path.into(), bytes: Bytes::new() };
        let files = [object("a.avro"), object("b.avro")];
        assert_eq!(merged(&OneEvent { whole: true }, &files).unwrap(), [1][..], "equal events once");
        let damaged = merged(&OneEvent { whole: false }, &files).unwrap_err();
        assert!(matches!(damaged, WorkerError::Damaged { object, .. } if object == "a.avro"));
    }

    fn files(bytes: &[u64]) -> Vec<ArchiveFile> {
        let file = |(n, bytes): (usize, &u64)| ArchiveFile {
            object_id: ObjectId { seq: 1, owner: "aa".into(), n: n as u64 },
            bytes: *bytes,
        };
        bytes.iter().enumerate().map(file).collect()
    }

    #[test]
    fn a_merged_file_is_bounded_and_large_files_stay() {
        let bytes = |files: Vec<ArchiveFile>| files.iter().map(|file| file.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(small(&files(&[5, MERGED_BYTES, 7])).cloned().collect()), [5, 7]);
        assert_eq!(
            bytes(group(files(&[MERGED_BYTES / 2, 3, MERGED_BYTES / 2, 1]))),
            [1, 3, MERGED_BYTES / 2]
        );
        assert_eq!(bytes(group(files(&[MERGED_BYTES - 1, MERGED_BYTES - 2]))).len(), 2);
    }
}
