//! Compaction: joins the table files of a date and shard into one, once all their hours have left the shard's
//! checkpoint. The new file holds everything that is needed to restore the old files; see
//! [`crate::objects::days`].
//!
//! A run begins with the oldest dates and ends after a number of dates, so that successive runs complete a
//! lake that was never compacted. A large day becomes several files, so that each file fits in memory when it
//! is read or written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prorata_schemas::tables::{RowSource, Table};
use prorata_schemas::time::{Date, Hour};

use super::{MaintainPorts, MaintainedTable};
use crate::backoff;
use crate::checkpoint::{Checkpoint, Decided};
use crate::error::{Result, WorkerError};
use crate::names::{DayFile, HoursOfDay, Shard, TableFile};
use crate::objects::days::{LiveDay, Rearranged, Rearranger};
use crate::objects::{self, StoredObject};
use crate::ports::{CommitOutcome, ErrorKind, LiveFile, TableError};

/// Maximum number of dates of a table that one run compacts.
const DATES_AT_ONCE: usize = 32;

/// Maximum number of dates of a table that one run tries, including dates that cannot be compacted.
const DATES_TRIED: usize = 128;

/// Maximum total size of the files that become one, in bytes. A join takes about three times as much memory.
const DAY_BYTES: u64 = 64 * 1_024 * 1_024;

/// Maximum age of a new file at its commit. Files that are not live are deleted after a few days.
const COMMIT_WITHIN: Duration = Duration::from_secs(3_600);

/// A live file of one hour or of a day.
struct OldFile {
    file: LiveFile,
    hours: HoursOfDay,
    /// The hour and the digest of the file; `None` for a file of a day.
    of_hour: Option<(Hour, String)>,
}

/// Files of a date that can be joined, by shard and group.
type OldFiles = BTreeMap<Shard, Vec<Vec<OldFile>>>;

/// Compacts a table.
///
/// # Errors
/// If storage is unavailable; completed compactions stay.
pub(super) async fn compact(
    ports: &MaintainPorts,
    decided: &BTreeMap<Shard, Decided>,
    table: Table,
    id: &str,
    done: &mut MaintainedTable,
) -> Result<()> {
    let live = ports.tables.load(table).await?;
    let rearranger = Rearranger { store: &*ports.store, tables: &*ports.tables, encoder: &ports.encoder, id };
    let compaction = Compaction { ports, decided, table, rearranger };
    let mut compacted = 0;
    for (date, sources) in compaction.candidates(live.files).into_iter().take(DATES_TRIED) {
        compacted += usize::from(compaction.compact_date(date, live.version, sources, done).await?);
        if compacted >= DATES_AT_ONCE {
            break;
        }
    }
    Ok(())
}

struct Compaction<'a> {
    ports: &'a MaintainPorts,
    decided: &'a BTreeMap<Shard, Decided>,
    table: Table,
    rearranger: Rearranger<'a>,
}

impl Compaction<'_> {
    fn candidates(&self, files: Vec<LiveFile>) -> BTreeMap<Date, OldFiles> {
        let mut found: BTreeMap<(Date, Shard), Vec<OldFile>> = BTreeMap::new();
        for file in files {
            if let Some((date, shard, source)) = source(file)
                && self.decided.get(&shard).is_some_and(|latest| has_left(latest, date))
            {
                found.entry((date, shard)).or_default().push(source);
            }
        }
        let mut candidates: BTreeMap<Date, OldFiles> = BTreeMap::new();
        for ((date, shard), sources) in found {
            let groups = groups(sources);
            if !groups.is_empty() {
                candidates.entry(date).or_default().insert(shard, groups);
            }
        }
        candidates
    }

    /// Compacts the files of a date as far as possible, with one commit for all shards. Returns whether any
    /// files were compacted.
    async fn compact_date(
        &self,
        date: Date,
        base: u64,
        sources: OldFiles,
        done: &mut MaintainedTable,
    ) -> Result<bool> {
        let began = self.ports.clock.monotonic();
        let mut joined = Vec::new();
        for (shard, groups) in sources {
            for (n, group) in groups.into_iter().enumerate() {
                match self.join(date, shard, base, n, group).await {
                    Ok(rearranged) => joined.push(rearranged),
                    Err(error @ (WorkerError::Damaged { .. } | WorkerError::Encode { .. })) => {
                        let table = self.table.name();
                        tracing::warn!(table, shard, %date, %error, "files of a day left as they are");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let landed = self.commit(date, joined, began).await?;
        done.compacted += landed.removes.len() as u64;
        done.day_files += landed.adds.len() as u64;
        Ok(!landed.adds.is_empty())
    }

    /// Joins files into one, stores it, and returns the replacement to commit.
    async fn join(
        &self,
        date: Date,
        shard: Shard,
        base: u64,
        n: usize,
        sources: Vec<OldFile>,
    ) -> Result<Rearranged> {
        let table = self.table;
        let hours = HoursOfDay(sources.iter().fold(0, |hours, source| hours | source.hours.0));
        let removes: Vec<String> = sources.iter().map(|source| source.file.path.clone()).collect();
        let objects = removes.iter().map(|path| format!("{}/{path}", table.name())).collect();
        let read = objects::get_all(&*self.ports.store, objects).await?;
        let rows =
            sources.into_iter().zip(read).map(|(source, StoredObject { bytes, .. })| match source.of_hour {
                Some((hour, digest)) => RowSource::Hour { hour, digest, bytes },
                None => RowSource::Day(bytes),
            });
        let (rows, encoder): (Vec<RowSource<Bytes>>, _) = (rows.collect(), Arc::clone(&self.ports.encoder));
        let encoded = tokio::task::spawn_blocking(move || encoder.join(table, &rows)).await?;
        let first = Hour(date.days() * 24);
        let encoded = encoded.map_err(|source| WorkerError::Encode { table, shard, hour: first, source })?;
        let seq = self.decided.get(&shard).map_or(0, |latest| latest.seq);
        let (object_id, digest) = (self.rearranger.name(seq, base, n), encoded.digest);
        let path = DayFile { date, shard, hours, object_id, digest: digest.clone() }.path();
        let (entry, (path, bytes)) =
            self.rearranger.entry(table, path, digest, encoded.bytes.into(), encoded.stats);
        objects::put(&*self.ports.store, path, bytes).await?;
        Ok(Rearranged { adds: vec![entry], removes })
    }

    /// Commits the joined files whose old files are all still live. If another writer has replaced an old
    /// file meanwhile, that writer's file stays. Returns the committed changes, which may be empty.
    async fn commit(&self, date: Date, mut joined: Vec<Rearranged>, began: Duration) -> Result<Rearranged> {
        let (table, clock) = (self.table, &*self.ports.clock);
        let mut failure = None;
        for attempt in backoff::COMMIT.attempts() {
            if attempt > 0 {
                clock.pause(backoff::COMMIT.delay_jittered(attempt, self.rearranger.id)).await;
            }
            let live = match self.ports.tables.load_dates(table, &BTreeSet::from([date])).await {
                Ok(live) => live,
                Err(error) if error.kind.is_retryable() => {
                    failure = Some(error.into());
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let is_live = |path: &String| live.files.iter().any(|file| file.path == *path);
            joined.retain(|files| files.removes.iter().all(is_live));
            if joined.is_empty() || clock.monotonic().saturating_sub(began) > COMMIT_WITHIN {
                return Ok(Rearranged::default());
            }
            let all = Rearranged {
                adds: joined.iter().flat_map(|files| files.adds.clone()).collect(),
                removes: joined.iter().flat_map(|files| files.removes.clone()).collect(),
            };
            match self.rearranger.commit(table, live.version, all.clone()).await {
                Ok(CommitOutcome::Committed) => return Ok(all),
                Ok(CommitOutcome::Conflict) => {
                    let cause = "every attempt lost to another commit";
                    failure = Some(TableError::new(ErrorKind::Conflict, "commit", table, cause).into());
                }
                Err(WorkerError::Tables(error)) if error.kind.is_retryable() => failure = Some(error.into()),
                Err(error) => return Err(error),
            }
        }
        failure.map_or(Ok(Rearranged::default()), Err)
    }
}

/// Returns whether all hours of a date have left a checkpoint.
fn has_left(checkpoint: &Checkpoint, date: Date) -> bool {
    let (first, last) = (Hour(date.days() * 24), Hour(date.days() * 24 + 23));
    checkpoint.closed_through.is_some_and(|closed| last < closed)
        && checkpoint.hours.range(first..=last).next().is_none()
        && checkpoint.dirty.first().is_none_or(|dirty| last < dirty)
}

fn source(file: LiveFile) -> Option<(Date, Shard, OldFile)> {
    if let Some(LiveDay { name, .. }) = LiveDay::parse(&file.path) {
        return Some((name.date, name.shard, OldFile { file, hours: name.hours, of_hour: None }));
    }
    let name = TableFile::parse(&file.path)?;
    let hours = HoursOfDay::of([name.hour]);
    Some((name.hour.date(), name.shard, OldFile { file, hours, of_hour: Some((name.hour, name.digest)) }))
}

/// Returns the groups of files to be joined. A group consists of files of neighbouring hours that together
/// have at most [`DAY_BYTES`]. Files without a neighbour in their group are left out.
fn groups(mut sources: Vec<OldFile>) -> Vec<Vec<OldFile>> {
    sources.sort_by_key(|source| source.hours.0.trailing_zeros());
    let mut groups: Vec<Vec<OldFile>> = Vec::new();
    let mut bytes = 0;
    for source in sources {
        bytes += source.file.bytes;
        match groups.last_mut() {
            Some(group) if bytes <= DAY_BYTES => group.push(source),
            _ => {
                bytes = source.file.bytes;
                groups.push(vec![source]);
            }
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}
