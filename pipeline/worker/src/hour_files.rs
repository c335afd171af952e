//! A folded hour as objects: its snapshot and table files, and the entry that names them in a checkpoint.
//!
//! A table whose content is what it was keeps its file. Only when some table's content has changed does the hour's
//! revision rise, and `hours` with it: its clock columns alone change nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{HourClock, Table};
use prorata_schemas::time::{Hour, Timestamp};

use crate::checkpoint::{FileEntry, HourEntry};
use crate::error::{Result, WorkerError};
use crate::fold::{self, FoldedHour};
use crate::names::{self, Shard, Stamp, TableFile};
use crate::ports::{FormatError, TableCommitter, TableEncoder};
use crate::snapshot;

/// Gives names to new objects of one shard, until its next checkpoint.
#[derive(Clone, Debug)]
pub struct Stamper {
    /// Sequence number of the checkpoint that the objects wait for.
    pub seq: u64,
    /// The owner.
    pub owner: Text,
    /// Counts the owner's objects, over all its shards.
    pub counter: Arc<AtomicU64>,
}

impl Stamper {
    /// The next name.
    pub fn next(&self) -> Stamp {
        let n = self.counter.fetch_add(1, Ordering::Relaxed);
        Stamp { seq: self.seq, owner: Arc::clone(&self.owner), n }
    }
}

/// An hour about to be encoded.
pub struct Job {
    /// The shard.
    pub shard: Shard,
    /// The hour.
    pub hour: Hour,
    /// Its organizations, ascending.
    pub organizations: Vec<FoldedHour>,
    /// As it was published before; none when it never was.
    pub before: Option<HourEntry>,
    /// Whether to write the state at its end.
    pub snapshot: bool,
    /// Gives names.
    pub stamper: Stamper,
    /// The wall clock, for `last_updated`.
    pub now: Timestamp,
}

/// An encoded hour with the objects that are yet to be stored.
pub struct EncodedHour {
    /// What the checkpoint says of it.
    pub entry: HourEntry,
    /// Whether its rows had been published before, and have changed.
    pub restated: bool,
    /// Table files among the objects.
    pub files: u64,
    /// Bytes of its state.
    pub state_bytes: u64,
    /// New objects by path.
    pub objects: Vec<(String, Bytes)>,
    /// Its rows.
    pub tables: Vec<HourTables>,
}

/// Files of hours as the tables have them.
pub type LiveHours = BTreeMap<(Shard, Hour), BTreeMap<Table, FileEntry>>;

/// Reads from the tables which files every hour has: for hours that have left the checkpoints.
///
/// # Errors
/// When a table's log is unavailable.
pub async fn live(tables: &dyn TableCommitter) -> Result<LiveHours> {
    let mut live = LiveHours::new();
    for table in Table::ALL {
        for file in tables.load(table).await?.files {
            if let Some(name) = TableFile::parse(&file.path) {
                let entry =
                    FileEntry { path: file.path, bytes: file.bytes, digest: name.digest, stats: None };
                live.entry((name.shard, name.hour)).or_default().insert(table, entry);
            }
        }
    }
    Ok(live)
}

/// Encodes an hour.
///
/// # Errors
/// When rows or state cannot be encoded.
pub fn encode(encoder: &dyn TableEncoder, job: Job) -> Result<EncodedHour> {
    let Job { shard, hour, organizations, before, snapshot: keep, stamper, now } = job;
    let state = fold::state_digest(&organizations);
    let state_bytes = organizations.iter().map(|folded| folded.packed.state.len() as u64).sum();
    let revision = before.as_ref().map_or(0, |before| before.revision + 1);
    let late_events = before.as_ref().map(|before| before.late_events.clone()).unwrap_or_default();
    let mut objects = Vec::new();
    let old_snapshot =
        before.as_ref().filter(|before| before.state == state).and_then(|before| before.snapshot.clone());
    let snapshot = match old_snapshot {
        Some(snapshot) => Some(snapshot),
        None if keep => {
            let packed: Vec<_> = organizations.iter().map(|folded| &folded.packed).collect();
            let bytes =
                snapshot::encode(&packed).map_err(|error| FormatError::new("encode a snapshot", error))?;
            let path = names::snapshot(shard, hour, &stamper.next());
            objects.push((path.clone(), bytes.into()));
            Some(path)
        }
        None => None,
    };
    let clock = |folded: &FoldedHour| HourClock {
        late_events: late_events.get(&folded.packed.organization_id).copied().unwrap_or(0),
        max_event_time_seen: folded.packed.max_event_time,
        complete: true,
        revision,
        last_updated: now,
    };
    let clocks: Vec<HourClock> = organizations.iter().map(clock).collect();
    let tables: Vec<HourTables> = organizations.into_iter().map(|folded| folded.tables).collect();
    let mut files = BTreeMap::new();
    let mut changed = before.is_none();
    for table in Table::ALL {
        let encoded = encoder.encode(table, &tables, &clocks);
        let encoded = encoded.map_err(|source| WorkerError::Encode { table, shard, hour, source })?;
        let old = before.as_ref().and_then(|before| before.tables.get(&table));
        let same = encoded.as_ref().map(|file| &file.digest) == old.map(|file| &file.digest);
        changed |= !same;
        let keep_old = if table == Table::Hours { !changed } else { same };
        match (encoded, old) {
            (_, Some(old)) if keep_old => {
                files.insert(table, old.clone());
            }
            (Some(file), _) => {
                let name = TableFile { hour, shard, stamp: stamper.next(), digest: file.digest.clone() };
                let path = name.path();
                let bytes = file.bytes.len() as u64;
                objects.push((format!("{}/{path}", table.name()), file.bytes.into()));
                files.insert(table, FileEntry { path, bytes, digest: file.digest, stats: Some(file.stats) });
            }
            (None, _) => {}
        }
    }
    let (revision, restated) = match &before {
        Some(before) if !changed => (before.revision, false),
        before => (revision, before.is_some()),
    };
    let held = !changed && before.is_some_and(|before| before.held);
    let new_files = objects.iter().filter(|(path, _)| !path.starts_with(names::STATE)).count() as u64;
    let entry = HourEntry { revision, state, snapshot, tables: files, late_events, held };
    Ok(EncodedHour { entry, restated, files: new_files, state_bytes, objects, tables })
}
