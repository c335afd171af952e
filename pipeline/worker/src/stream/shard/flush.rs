//! First part of a checkpoint: new events and rejected messages as objects of the draft.
//!
//! An event of a closed hour is dropped if the archive already holds it; any other late event marks its hour
//! dirty.

use std::sync::Arc;

use prorata_schemas::event::EventKind;
use prorata_schemas::time::{Hour, HourRange, WallTime};

use super::{LateCounts, LiveShard};
use crate::error::Result;
use crate::ports::Archive;
use crate::shard::Body;
use crate::shard::dead_letters::DeadLetterFile;
use crate::shard::reading::order::in_archive_order;
use crate::shard::reading::unknown_events;
use crate::status::Counts;
use crate::stream::StreamPorts;

/// Maximum number of closed hours of one checkpoint whose archive is read to distinguish known events from
/// new events. Events of further hours count as new, which costs a fold but changes nothing.
const KNOWN_HOURS_MAX: usize = 64;

/// Maximum number of bytes that are read for this purpose, so that a burst of late events does not take long.
const KNOWN_BYTES_MAX: u64 = 256 << 20;

impl LiveShard {
    /// Writes new events and dead letters into objects of the draft. After an error it can be called again.
    pub async fn flush(&mut self, ports: &StreamPorts, now: WallTime, counts: &mut Counts) -> Result<()> {
        let late = counts.late_events;
        self.flush_open(ports).await?;
        self.flush_late(ports, counts).await?;
        if counts.late_events > late {
            self.recompute.note_late(now);
        }
        self.flush_dead_letters(ports)
    }

    async fn flush_open(&mut self, ports: &StreamPorts) -> Result<()> {
        for (hour, events, flushed) in self.buffer.unflushed() {
            let all = events.len();
            let archive = Arc::clone(&ports.shared.archive);
            let encode = move || {
                let fresh = events.get(flushed..).unwrap_or_default();
                write_sorted(&*archive, fresh)
            };
            let bytes = tokio::task::spawn_blocking(encode).await??;
            self.add_archive_file(hour, bytes);
            self.buffer.note_flushed(hour, all);
        }
        Ok(())
    }

    async fn flush_late(&mut self, ports: &StreamPorts, counts: &mut Counts) -> Result<()> {
        let store = &*ports.shared.store;
        let archive = &*ports.shared.archive;
        let mut read = 0;
        for (index, hour) in self.buffer.late_hours().into_iter().enumerate() {
            self.archive.ensure(store, HourRange::new(hour, hour)).await?;
            read += self.archive.files(hour).map(|file| file.bytes).sum::<u64>();
            let compared = if index < KNOWN_HOURS_MAX && read <= KNOWN_BYTES_MAX {
                self.archive.to_read(hour)
            } else {
                Vec::new()
            };
            let late = self.buffer.late(hour).to_vec();
            let all = late.len() as u64;
            let events = unknown_events(&ports.shared, compared, late).await?;
            counts.late_events += events.len() as u64;
            counts.late_duplicates += all - events.len() as u64;
            if !events.is_empty() {
                let bytes = write_sorted(archive, &events)?;
                self.add_archive_file(hour, bytes);
                self.mark_late(hour, &events);
            }
            self.buffer.drop_late(hour);
        }
        Ok(())
    }

    fn flush_dead_letters(&mut self, ports: &StreamPorts) -> Result<()> {
        let Some(namer) = self.namer().filter(|_| !self.buffer.dead_letters().is_empty()) else {
            return Ok(());
        };
        let file = DeadLetterFile::encode(&*ports.shared.archive, self.buffer.dead_letters())?;
        let path = file.path(self.shard(), &namer);
        if let Some(draft) = self.draft() {
            draft.name_dead_letters(path.clone(), ports.dead_letters.is_some());
            draft.add_object(path, file.bytes);
        }
        self.buffer.drop_dead_letters();
        Ok(())
    }

    fn add_archive_file(&mut self, hour: Hour, bytes: Vec<u8>) {
        let namer = self.namer();
        if let (Some(namer), Some(draft)) = (namer, self.draft()) {
            draft.add_archive_file(hour, namer.next(), bytes.into());
        }
    }

    /// Marks an hour dirty for the organizations of its late events. The hour is recomputed, and so are the
    /// hours that depend on it.
    fn mark_late(&mut self, hour: Hour, events: &[Body]) {
        let mut late = LateCounts::new();
        for (kind, body) in events {
            if let Ok(event) = prorata_schemas::body::decode(*kind, body) {
                *late.entry(event.organization_id).or_default() += 1;
            }
        }
        if let Some(draft) = self.draft() {
            draft.mark_late(hour, late);
        }
    }
}

/// Encodes these events as an archive file, in archive order and without duplicates.
pub(super) fn write_sorted(archive: &dyn Archive, events: &[Body]) -> Result<Vec<u8>> {
    let sorted = in_archive_order(events.iter().collect()).into_iter();
    let bodies: Vec<(EventKind, &[u8])> = sorted.map(|(kind, body)| (*kind, &**body)).collect();
    Ok(archive.write(&bodies)?)
}
