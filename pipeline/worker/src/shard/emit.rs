//! Folded hours as objects: snapshots and table files, and the entries that name them in a checkpoint.
//!
//! A table whose content has not changed keeps its file. The hour's revision rises, and table `hours` changes
//! with it, only if the content of some table has changed. If only clock columns change, the revision stays.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{CutFile, HourClock, Table};
use prorata_schemas::time::{Date, Hour, WallTime};
use rayon::prelude::{IntoParallelIterator, ParallelIterator};
use sha2::{Digest, Sha256};

pub(super) use files::{FileNow, HourFiles};

use super::fold::{OrganizationHour, state_digest};
use crate::backoff;
use crate::checkpoint::snapshot::PackedState;
use crate::checkpoint::{Checkpoint, Draft, HourEntry, ObjectNamer, TableFiles, snapshot};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard, ShardHour, TableFile};
use crate::objects::days::{LiveDay, LostDay, Rearranger};
use crate::ports::{ErrorKind, FileEntry, FormatError, LiveFile, Ports, TableEncoder, TableError};

/// An hour to be encoded.
pub struct Job {
    /// The shard.
    pub shard: Shard,
    /// The hour.
    pub hour: Hour,
    /// Organizations of the hour, in ascending order.
    pub organizations: Vec<OrganizationHour>,
    /// The hour's previous entry; `None` if the hour is closed for the first time.
    pub before: Option<Arc<HourEntry>>,
    /// Whether to write the state at the hour's end.
    pub snapshot: bool,
    /// The number of rows at which a table file is cut, once the current organization is complete.
    pub file_rows: u64,
    /// A source of object names.
    pub namer: ObjectNamer,
    /// The wall clock, for `last_updated`.
    pub now: WallTime,
}

/// An encoded hour with the objects that are yet to be stored.
pub struct EncodedHour<T> {
    /// The shard.
    pub shard: Shard,
    /// The hour.
    pub hour: Hour,
    /// The hour's entry in the checkpoint.
    pub entry: HourEntry,
    /// Whether the hour's costs were published before and have changed.
    pub restated: bool,
    /// The number of table files among the objects.
    pub files: u64,
    /// Bytes of the table files.
    pub file_bytes: u64,
    /// Bytes of the hour's state.
    pub state_bytes: u64,
    /// New objects by path.
    pub objects: Vec<(String, Bytes)>,
    /// The caller's summary of the hour's rows.
    pub summary: T,
}

/// Live files of hours, by table.
pub type LiveHours = BTreeMap<ShardHour, BTreeMap<Table, TableFiles>>;

/// Live table files of hours that have left the checkpoints, limited to the requested dates.
#[derive(Default)]
pub struct LiveTables {
    /// Files by shard and hour.
    pub hours: LiveHours,
    /// Hours and tables whose rows can no longer be read, each with the object that held the rows, and the
    /// cause.
    pub lost: BTreeMap<(Shard, Hour, Table), (String, String)>,
    read: BTreeSet<(Shard, Date)>,
}

impl LiveTables {
    /// Reads the live files of the wanted dates that were not read before. Any file of a day among them is
    /// first replaced by files of one hour each, because hours are written again one by one. `id` identifies
    /// the caller.
    ///
    /// # Errors
    /// If a table's log or storage is unavailable.
    pub async fn ensure<'a>(
        &mut self,
        ports: &Ports,
        id: &str,
        wanted: impl IntoIterator<Item = (&'a Checkpoint, Hour)>,
    ) -> Result<()> {
        let (mut new, mut seqs) = (BTreeSet::new(), BTreeMap::new());
        for (checkpoint, hour) in wanted {
            if has_left(checkpoint, hour) && !self.read.contains(&(checkpoint.shard, hour.date())) {
                new.insert((checkpoint.shard, hour.date()));
                // A draft already has the sequence number after the decided one.
                seqs.insert(checkpoint.shard, checkpoint.seq.saturating_sub(1));
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        for table in Table::HOURLY {
            self.read_table(ports, table, id, &new, &seqs).await?;
        }
        self.read.append(&mut new);
        Ok(())
    }

    async fn read_table(
        &mut self,
        ports: &Ports,
        table: Table,
        id: &str,
        new: &BTreeSet<(Shard, Date)>,
        seqs: &BTreeMap<Shard, u64>,
    ) -> Result<()> {
        let (store, tables, encoder) = (&*ports.store, &*ports.tables, &ports.encoder);
        let rearranger = Rearranger { store, tables, encoder, id };
        let dates: BTreeSet<Date> = new.iter().map(|(_, date)| *date).collect();
        let seq = |shard| seqs.get(&shard).copied().unwrap_or_default();
        let mut failure = None;
        for attempt in backoff::COMMIT.attempts() {
            if attempt > 0 {
                ports.clock.pause(backoff::COMMIT.delay_jittered(attempt, id)).await;
            }
            let loaded = tables.load_dates(table, &dates).await?;
            let days = loaded.files.iter().filter_map(|file| LiveDay::parse(&file.path));
            let days = days.filter(|day| new.contains(&(day.name.shard, day.name.date)));
            let days: Vec<LiveDay> = days.collect();
            let count = days.len();
            match rearranger.expand(table, loaded.version, days, seq).await {
                Ok(lost) if lost.len() == count => {
                    self.take(table, loaded.files, lost, new);
                    return Ok(());
                }
                Ok(_) => {}
                Err(WorkerError::Tables(error)) if error.kind.is_retryable() => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        let cause = "every attempt lost to another commit";
        let conflict = || TableError::new(ErrorKind::Conflict, "commit", table, cause);
        Err(WorkerError::Tables(failure.unwrap_or_else(conflict)))
    }

    fn take(
        &mut self,
        table: Table,
        files: Vec<LiveFile>,
        lost: Vec<LostDay>,
        new: &BTreeSet<(Shard, Date)>,
    ) {
        for file in files {
            if let Some(name) = TableFile::parse(&file.path)
                && new.contains(&(name.shard, name.hour.date()))
            {
                let (path, bytes, digest) = (file.path, file.bytes, name.digest);
                let entry = FileEntry { path, bytes, digest, stats: None, last_organization: None };
                let of_hour = self.hours.entry(ShardHour { shard: name.shard, hour: name.hour }).or_default();
                of_hour.entry(table).or_default().push(entry);
            }
        }
        for LostDay { day, cause } in lost {
            let object = format!("{}/{}", table.name(), day.path);
            for hour in day.name.hours() {
                self.lost.insert((day.name.shard, hour, table), (object.clone(), cause.clone()));
            }
        }
    }

    /// Checks that no rows of an hour are lost, except rows of `unusable` tables, which are written again.
    ///
    /// # Errors
    /// Returns [`WorkerError::Damaged`] if other rows are lost.
    pub fn refuse_lost(
        &self,
        ShardHour { shard, hour }: ShardHour,
        unusable: &BTreeSet<(Hour, Table)>,
    ) -> Result<()> {
        let is_lost = |(of, lost, table): &(Shard, Hour, Table)| {
            (*of, *lost) == (shard, hour) && !unusable.contains(&(*lost, *table))
        };
        match self.lost.iter().find(|(of, _)| is_lost(of)) {
            Some((_, (object, cause))) => {
                Err(WorkerError::Damaged { object: object.clone(), cause: cause.clone() })
            }
            None => Ok(()),
        }
    }
}

/// Returns whether an hour is closed and has left the checkpoint.
pub fn has_left(checkpoint: &Checkpoint, hour: Hour) -> bool {
    checkpoint.closed_through.is_some_and(|closed| hour <= closed) && !checkpoint.hours.contains_key(&hour)
}

/// Returns an hour's previous entry: from the checkpoint, or from the tables if the hour has left the
/// checkpoint. `None` if neither knows the hour.
pub fn entry_before(checkpoint: &Checkpoint, live: Option<&LiveHours>, hour: Hour) -> Option<Arc<HourEntry>> {
    if let Some(entry) = checkpoint.hours.get(&hour) {
        return Some(Arc::clone(entry));
    }
    let live = live.filter(|_| has_left(checkpoint, hour))?;
    let (tables, revision) =
        (live.get(&ShardHour { shard: checkpoint.shard, hour }), checkpoint.revision_of(hour));
    if tables.is_none() && revision == 0 {
        return None;
    }
    // An hour that no table has any more has no files, but keeps its revision.
    let tables = tables.cloned().unwrap_or_default();
    Some(Arc::new(HourEntry { revision, tables, published: true, ..HourEntry::default() }))
}

/// Encodes hours on all cores, off the async threads. `summarize` summarizes the rows of an hour before they
/// are dropped.
///
/// # Errors
/// If rows or state cannot be encoded.
pub async fn encode_all<T: Send + 'static>(
    encoder: Arc<dyn TableEncoder>,
    jobs: Vec<Job>,
    summarize: fn(&[HourTables]) -> T,
) -> Result<Vec<EncodedHour<T>>> {
    let encode = move || -> Result<Vec<EncodedHour<T>>> {
        jobs.into_par_iter().map(|job| encode(&*encoder, job, summarize)).collect()
    };
    tokio::task::spawn_blocking(encode).await?
}

/// Adds an encoded hour to a draft, with its objects.
pub fn take_into<T>(draft: &mut Draft, encoded: EncodedHour<T>) {
    for (path, bytes) in encoded.objects {
        draft.add_object(path, bytes);
    }
    draft.set_hour(encoded.hour, encoded.entry);
}

fn encode<T>(
    encoder: &dyn TableEncoder,
    job: Job,
    summarize: fn(&[HourTables]) -> T,
) -> Result<EncodedHour<T>> {
    let Job { shard, hour, organizations, before, snapshot: keep, file_rows, namer, now } = job;
    let state_digest = state_digest(&organizations);
    let state_bytes = organizations.iter().map(|folded| folded.packed.state.len() as u64).sum();
    let mut objects = Vec::new();
    let same_state = before.as_ref().filter(|before| before.state_digest == state_digest);
    let (snapshot, patches) = match same_state.filter(|before| before.snapshot.is_some()) {
        Some(before) => (before.snapshot.clone(), before.patches.clone()),
        None if keep => {
            let states: Vec<_> = organizations.iter().map(|folded| &folded.packed).collect();
            let (path, bytes) = encode_snapshot(ShardHour { shard, hour }, &states, &namer)?;
            objects.push((path.clone(), bytes));
            (Some(path), Vec::new())
        }
        None => (None, Vec::new()),
    };
    let revision = before.as_ref().map_or(0, |before| before.revision + 1);
    let late_events = before.as_ref().map(|before| before.late_events.clone()).unwrap_or_default();
    let clocks: Vec<HourClock> =
        organizations.iter().map(|folded| clock(folded, &late_events, revision, now)).collect();
    let held = held(&organizations);
    let rows: Vec<HourTables> = organizations.into_iter().map(|folded| folded.tables).collect();
    let mut becoming = HourFiles::new(ShardHour { shard, hour }, before.as_deref());
    for table in Table::HOURLY {
        let encoded = encode_table(encoder, table, &rows, &clocks, file_rows, &held);
        let encoded = encoded.map_err(|source| WorkerError::Encode { table, shard, hour, source })?;
        becoming.take(table, encoded.into_iter().map(FileNow::New).collect(), &namer);
    }
    let HourFiles { entries, objects: table_files, changed, costs_changed, .. } = becoming;
    let (files, file_bytes) = sizes(&table_files);
    objects.extend(table_files);
    let (revision, restated) = match &before {
        Some(before) if !changed => (before.revision, false),
        before => (revision, before.is_some() && costs_changed),
    };
    let published = !changed && before.is_some_and(|before| before.published);
    let entry =
        HourEntry { revision, state_digest, snapshot, patches, tables: entries, late_events, published };
    let summary = summarize(&rows);
    Ok(EncodedHour { shard, hour, entry, restated, files, file_bytes, state_bytes, objects, summary })
}

/// Returns the number of objects, and their total size in bytes.
pub(super) fn sizes(objects: &[(String, Bytes)]) -> (u64, u64) {
    (objects.len() as u64, objects.iter().map(|(_, bytes)| bytes.len() as u64).sum())
}

/// Returns the clock columns of an organization's hour.
pub(super) fn clock(
    folded: &OrganizationHour,
    late_events: &BTreeMap<OrganizationId, i64>,
    revision: i64,
    last_updated: WallTime,
) -> HourClock {
    HourClock {
        late_events: late_events.get(&folded.packed.organization_id).copied().unwrap_or(0),
        max_event_time_seen: folded.packed.max_event_time,
        complete: folded.packed.hold.is_none(),
        revision,
        last_updated,
    }
}

/// Returns the held organizations among these.
pub(super) fn held(organizations: &[OrganizationHour]) -> Vec<OrganizationId> {
    let held = organizations.iter().filter(|folded| folded.packed.hold.is_some());
    held.map(|folded| folded.packed.organization_id.clone()).collect()
}

/// Encodes a table's files. The digest of the file of `hours` includes the held organizations.
pub(super) fn encode_table(
    encoder: &dyn TableEncoder,
    table: Table,
    rows: &[HourTables],
    clocks: &[HourClock],
    file_rows: u64,
    held: &[OrganizationId],
) -> Result<Vec<CutFile>, FormatError> {
    let mut files = encoder.encode(table, rows, clocks, file_rows)?;
    if table == Table::Hours {
        name_held(&mut files, held);
    }
    Ok(files)
}

/// Adds the held organizations to the digest of the file of `hours`.
pub(super) fn name_held(files: &mut [CutFile], held: &[OrganizationId]) {
    for CutFile { file, .. } in files {
        file.digest = with_held(std::mem::take(&mut file.digest), held.iter());
    }
}

/// Combines the digest of a file of `hours` with the held organizations. If these change, the file is written
/// again even if its rows are the same, because `complete` is not part of the rows' digest.
pub(super) fn with_held<'a>(digest: String, held: impl Iterator<Item = &'a OrganizationId>) -> String {
    let held: Vec<&str> = held.map(|organization_id| &**organization_id).collect();
    if held.is_empty() {
        return digest;
    }
    let held = snapshot::hex(&Sha256::digest(held.join("\n")));
    snapshot::hex(&Sha256::digest(format!("{digest}{held}")))
}

/// Returns the path and the content of a snapshot with the states at an hour's end.
///
/// # Errors
/// If a state cannot be encoded.
pub(super) fn encode_snapshot(
    ShardHour { shard, hour }: ShardHour,
    states: &[&PackedState],
    namer: &ObjectNamer,
) -> Result<(String, Bytes)> {
    let bytes = snapshot::encode(states).map_err(|error| FormatError::new("encode a snapshot", error))?;
    let path = names::snapshot(shard, hour, &namer.next());
    Ok((path, bytes.into()))
}
