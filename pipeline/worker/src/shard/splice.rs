//! Replaces the rows of some organizations in table files, while all other rows stay as they are. The
//! resulting files are the same, byte for byte, as after a fold of all organizations.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{CutFile, HourClock, Table, TableSplice};
use prorata_schemas::time::{Hour, WallTime};
use rayon::prelude::{IntoParallelIterator, ParallelIterator};

use super::emit::{self, EncodedHour, FileNow, HourFiles};
use super::fold::OrganizationHour;
use super::patch::PatchedSnapshot;
use crate::checkpoint::{HourEntry, ObjectNamer, TableFiles};
use crate::error::{Result, WorkerError};
use crate::names::{Shard, ShardHour};
use crate::ports::TableEncoder;

/// An hour with some organizations that were folded again.
pub struct RestatedHour {
    /// The shard.
    pub shard: Shard,
    /// The hour.
    pub hour: Hour,
    /// The hour's previous entry.
    pub before: Arc<HourEntry>,
    /// The table files that are needed, as they were before, by table and place; `None` if the file is gone.
    pub files: BTreeMap<(Table, usize), Option<Bytes>>,
    /// Files that are needed but not read yet.
    pub wanted: BTreeSet<(Table, usize)>,
    /// Organizations that were folded.
    pub organizations: BTreeSet<OrganizationId>,
    /// New rows of the organizations; an organization that is missing has no rows.
    pub rows: RestatedRows,
    /// The hour's new snapshot.
    pub snapshot: PatchedSnapshot,
    /// The number of rows at which a table file ends, after the current organization.
    pub file_rows: u64,
    /// A source of object names.
    pub namer: ObjectNamer,
    /// The wall clock, for `last_updated`.
    pub now: WallTime,
}

/// Rows of organizations that were folded again.
pub struct RestatedRows {
    /// Rows by organization, in ascending order.
    tables: Vec<HourTables>,
    /// Clock columns, one entry for each organization.
    clocks: Vec<HourClock>,
    /// Organizations that are held.
    held: Vec<OrganizationId>,
}

impl RestatedRows {
    /// Returns the rows of an hour whose previous entry is `before`.
    pub fn new(folded: Vec<OrganizationHour>, before: &HourEntry, now: WallTime) -> Self {
        let clock = |one| emit::clock(one, &before.late_events, before.revision + 1, now);
        let (clocks, held) = (folded.iter().map(clock).collect(), emit::held(&folded));
        Self { tables: folded.into_iter().map(|folded| folded.tables).collect(), clocks, held }
    }
}

/// Returns the places of the table files that hold rows of these organizations, or that must receive them.
pub fn files_with(before: &HourEntry, organizations: &BTreeSet<OrganizationId>) -> BTreeSet<(Table, usize)> {
    let places = before.tables.iter().flat_map(|(table, files)| {
        organizations.iter().map(move |organization_id| (*table, files.index_of(organization_id)))
    });
    places.collect()
}

/// A table file from which no rows can be kept.
#[derive(Debug)]
pub struct UnusableFile {
    /// The file's hour.
    pub hour: Hour,
    /// The file's table.
    pub table: Table,
    /// The reason.
    pub cause: String,
}

/// The result of splicing hours.
pub enum Spliced<T> {
    /// The hours have new files.
    Done(Vec<EncodedHour<T>>),
    /// The hours as they were passed in: files now end at other organizations, so more files are wanted.
    Wants(Vec<RestatedHour>),
    /// The first file that cannot be used.
    Unusable(UnusableFile),
}

/// Replaces rows in the files of hours, on all cores, off the async threads. `summarize` summarizes the new
/// rows of an hour.
///
/// # Errors
/// If rows cannot be encoded.
pub async fn splice_all<T: Send + 'static>(
    encoder: Arc<dyn TableEncoder>,
    mut hours: Vec<RestatedHour>,
    summarize: fn(&[HourTables]) -> T,
) -> Result<Spliced<T>> {
    let splice = move || -> Result<Spliced<T>> {
        let spliced = (&hours).into_par_iter().map(|hour| splice(&*encoder, hour, summarize));
        let spliced: Vec<Result<EncodedHour<T>, Stop>> = spliced.collect();
        let (mut done, mut wants) = (Vec::new(), false);
        for (spliced, hour) in spliced.into_iter().zip(&mut hours) {
            match spliced {
                Ok(encoded) => done.push(encoded),
                Err(Stop::Wants(table, place)) => {
                    hour.wanted.insert((table, place));
                    wants = true;
                }
                Err(Stop::Unusable(unusable)) => return Ok(Spliced::Unusable(unusable)),
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        Ok(if wants { Spliced::Wants(hours) } else { Spliced::Done(done) })
    };
    tokio::task::spawn_blocking(splice).await?
}

/// The reason that an hour has no new files yet.
enum Stop {
    /// A file that is not read yet.
    Wants(Table, usize),
    /// A file that cannot be used.
    Unusable(UnusableFile),
    /// An error.
    Failed(WorkerError),
}

fn splice<T>(
    encoder: &dyn TableEncoder,
    of: &RestatedHour,
    summarize: fn(&[HourTables]) -> T,
) -> Result<EncodedHour<T>, Stop> {
    let RestatedHour { shard, hour, before, rows, namer, .. } = of;
    let (shard, hour) = (*shard, *hour);
    let mut becoming = HourFiles::new(ShardHour { shard, hour }, Some(before));
    for table in Table::HOURLY {
        becoming.take(table, splice_table(encoder, of, table)?, namer);
    }
    let PatchedSnapshot { state_digest, snapshot, patches, mut objects } = of.snapshot.clone();
    let HourFiles { entries, objects: table_files, changed, costs_changed, .. } = becoming;
    let (files, file_bytes) = emit::sizes(&table_files);
    objects.extend(table_files);
    let entry = HourEntry {
        revision: if changed { before.revision + 1 } else { before.revision },
        state_digest,
        snapshot,
        patches,
        tables: entries,
        late_events: before.late_events.clone(),
        published: !changed && before.published,
    };
    let (restated, state_bytes, summary) = (costs_changed, 0, summarize(&rows.tables));
    Ok(EncodedHour { shard, hour, entry, restated, files, file_bytes, state_bytes, objects, summary })
}

/// Returns the files of a table with the new rows. Files without rows of the organizations stay. If a file no
/// longer ends at the same organization, the next file is also written again, until an old boundary is met.
fn splice_table(encoder: &dyn TableEncoder, of: &RestatedHour, table: Table) -> Result<Vec<FileNow>, Stop> {
    let RestatedHour { shard, hour, before, rows, file_rows, .. } = of;
    let (shard, hour) = (*shard, *hour);
    let Some(old) = before.tables.get(&table) else {
        let encoded = emit::encode_table(encoder, table, &rows.tables, &rows.clocks, *file_rows, &rows.held);
        let failed = |source| Stop::Failed(WorkerError::Encode { table, shard, hour, source });
        return Ok(encoded.map_err(failed)?.into_iter().map(FileNow::New).collect());
    };
    let touched: BTreeSet<usize> = of.organizations.iter().map(|id| old.index_of(id)).collect();
    let (mut now, mut first) = (Vec::new(), 0);
    while let Some(entry) = old.get(first) {
        if !touched.contains(&first) {
            now.push(FileNow::Kept(entry.clone()));
            first += 1;
            continue;
        }
        let mut end = first + 1;
        let files = loop {
            let files = splice_files(encoder, of, table, old, first..end)?;
            let is_full = files.last().is_none_or(|last| last.file.rows >= *file_rows);
            if is_full || end == old.len() {
                break files;
            }
            end += 1;
        };
        now.extend(files.into_iter().map(FileNow::New));
        first = end;
    }
    Ok(now)
}

/// Returns the files that replace consecutive files of a table, with the new rows of the organizations that
/// belong in them.
fn splice_files(
    encoder: &dyn TableEncoder,
    of: &RestatedHour,
    table: Table,
    old: &TableFiles,
    places: Range<usize>,
) -> Result<Vec<CutFile>, Stop> {
    let RestatedHour { hour, before, rows, .. } = of;
    let unusable = |cause: String| Stop::Unusable(UnusableFile { hour: *hour, table, cause });
    let mut bytes = Vec::new();
    for place in places.clone() {
        match of.files.get(&(table, place)) {
            Some(Some(file)) => bytes.push(&**file),
            Some(None) => return Err(unusable("it does not exist".to_owned())),
            None => return Err(Stop::Wants(table, place)),
        }
    }
    let belongs = |id: &OrganizationId| places.contains(&old.index_of(id));
    let organizations = of.organizations.iter().filter(|id| belongs(id)).cloned().collect();
    let first = rows.tables.partition_point(|hour| old.index_of(&hour.organization_id) < places.start);
    let end = rows.tables.partition_point(|hour| old.index_of(&hour.organization_id) < places.end);
    let splice = TableSplice {
        old: &bytes,
        organizations: &organizations,
        hours: rows.tables.get(first..end).unwrap_or_default(),
        clocks: rows.clocks.get(first..end).unwrap_or_default(),
        revision: before.revision + 1,
        last_updated: of.now,
        file_rows: of.file_rows,
    };
    let entries = old.get(places).unwrap_or_default();
    let digests: Vec<&str> = entries.iter().map(|entry| &*entry.digest).collect();
    spliced_files(encoder, table, &splice, &digests).map_err(unusable)
}

/// Returns the reason that a table file cannot be used; `None` if it can be used.
pub fn look_at(encoder: &dyn TableEncoder, table: Table, bytes: &[u8], digest: &str) -> Option<String> {
    let splice = TableSplice {
        old: &[bytes],
        organizations: &BTreeSet::new(),
        hours: &[],
        clocks: &[],
        revision: 0,
        last_updated: WallTime(0),
        file_rows: u64::MAX,
    };
    spliced_files(encoder, table, &splice, &[digest]).err()
}

/// Returns files with new rows of some organizations, or the reason that the old files cannot be used. One
/// reason is a digest that does not match the rows.
fn spliced_files(
    encoder: &dyn TableEncoder,
    table: Table,
    splice: &TableSplice<'_>,
    digests: &[&str],
) -> Result<Vec<CutFile>, String> {
    let spliced = encoder.splice(table, splice).map_err(|error| error.to_string())?;
    for (found, digest) in spliced.old_digests.into_iter().zip(digests) {
        if emit::with_held(found, spliced.old_incomplete.iter()) != *digest {
            return Err("its content does not match its name".to_owned());
        }
    }
    let mut files = spliced.files;
    emit::name_held(&mut files, &spliced.incomplete);
    Ok(files)
}
