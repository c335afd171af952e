//! Maintain: removes objects that accumulate under a root and that no owner of a shard removes.
//! - Live table files: the files of a date and shard become one once all hours of the date have left the
//!   shard's checkpoint; see `compact`.
//! - Table files: once they are 7 days old and not live, no checkpoint names them, and no commit of the last
//!   7 days removed them.
//! - Files of `closed_allocation`: once they are 7 days old and not live, no manifest names them, and no
//!   commit of the last 7 days removed them.
//! - Logs of tables: versions more than 7 days old, once a checkpoint of the log holds their contents.
//! - Snapshots and parts of checkpoints: once the latest checkpoint of their shard has passed them.
//! - Archive files and dead letters that no checkpoint names: once the latest checkpoint of their shard has
//!   passed them and they are more than 7 days old.
//! - Checkpoints: once they are more than 7 days older than the latest checkpoint of their shard.
//!
//! A run owns no shard and decides nothing. So it may run at the same time as workers, backfills and other
//! runs, and may be killed at any point. Every step is a delete that the next run repeats, the checkpoint of
//! a log, or a commit that changes no rows. Ages are differences between times of the store, up to the time
//! of an object that the run has just stored. So a clock that was ahead when a file was written does not
//! matter. Files that prorata did not write are left alone.

mod closed;
mod compact;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prorata_schemas::tables::Table;
use prorata_schemas::time::WallTime;

use crate::checkpoint::{Decided, log, sweep};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::objects::CONCURRENCY;
use crate::ports::{
    Clock, ErrorKind, Kept, ObjectMeta, ObjectStore, StoreError, TableCommitter, TableEncoder, TableLogs,
};
use crate::root::Root;
use crate::shard::archive::ArchiveIndex;

/// The time for which replaced files stay. Until then, a reader can finish with its version of a table, and
/// can return to earlier versions.
pub const KEPT: Duration = Duration::from_secs(7 * 86_400);

/// Number of objects that are deleted in one batch.
const DELETED_AT_ONCE: usize = 16 * CONCURRENCY;

/// The ports of maintenance.
#[derive(Clone)]
pub struct MaintainPorts {
    /// The root.
    pub store: Arc<dyn ObjectStore>,
    /// The tables of the root.
    pub tables: Arc<dyn TableCommitter>,
    /// The logs of the tables.
    pub logs: Arc<dyn TableLogs>,
    /// The encoder of their files.
    pub encoder: Arc<dyn TableEncoder>,
    /// The clock for waits between attempts.
    pub clock: Arc<dyn Clock>,
}

/// The result of maintenance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    /// The result by table.
    pub tables: BTreeMap<Table, MaintainedTable>,
    /// Number of deleted snapshots, checkpoints, parts of checkpoints, archive files and dead letters.
    pub state_objects: u64,
}

/// The result for one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintainedTable {
    /// Number of live files that day files replaced.
    pub compacted: u64,
    /// Number of day files that replaced them.
    pub day_files: u64,
    /// Number of deleted table files.
    pub files: u64,
    /// Bytes of the deleted table files.
    pub bytes: u64,
    /// Number of deleted files of the table's log.
    pub log_files: u64,
    /// Whether the table's log got a checkpoint.
    pub log_checkpoint: bool,
}

/// Compacts and trims all tables, and deletes objects of all shards that nothing needs. A table that fails,
/// or a shard whose checkpoint cannot be read, does not hold up the others. `id` is a random id of the run.
///
/// # Errors
/// If there is no root, storage is unavailable, or a shard was left out; completed work stays.
pub async fn maintain(ports: &MaintainPorts, id: &str) -> Result<Maintained> {
    let store = &*ports.store;
    if Root::find(store, None).await?.is_none() {
        let message = format!("there is no {}: name the folder of a prorata lake", names::ROOT);
        return Err(WorkerError::Configuration(message));
    }
    let kept = Kept { age: KEPT, now: store_time(store, id).await? };
    let mut done = Maintained::default();
    let mut failure = None;
    let (decided, broken) = log::latest_of_all(store).await?;
    for table in Table::HOURLY {
        let trimmed = done.tables.entry(table).or_default();
        if let Err(error) = compact::compact(ports, &decided, table, id, trimmed).await {
            tracing::warn!(table = table.name(), %error, "table not compacted");
            failure.get_or_insert(error);
        }
        if let Err(error) = maintain_table(ports, &decided, table, kept, trimmed).await {
            tracing::warn!(table = table.name(), %error, "log of a table not trimmed");
            failure.get_or_insert(error);
        }
    }
    match closed::maintain(ports, kept).await {
        Ok(trimmed) => done.tables.extend(trimmed.map(|trimmed| (Table::ClosedAllocation, trimmed))),
        Err(error) => {
            tracing::warn!(table = Table::ClosedAllocation.name(), %error, "closed months not trimmed");
            failure.get_or_insert(error);
        }
    }
    for shard in decided.into_keys() {
        match sweep_shard(store, shard, kept.now).await {
            Ok(objects) => done.state_objects += objects,
            Err(error) => {
                tracing::warn!(shard, %error, "state of a shard not trimmed");
                failure.get_or_insert(error);
            }
        }
    }
    failure.or(broken.into_values().next()).map_or(Ok(done), Err)
}

async fn maintain_table(
    ports: &MaintainPorts,
    decided: &BTreeMap<Shard, Decided>,
    table: Table,
    kept: Kept,
    done: &mut MaintainedTable,
) -> Result<()> {
    let store = &*ports.store;
    // The order matters. Files that are stored after the listing are not in it, and files that leave the
    // table after it was loaded were live. Files of checkpoints later than the decided ones are left alone:
    // they have a later sequence number.
    let folder = format!("{}/", table.name());
    let listed = store.list(&folder).await?;
    if listed.is_empty() {
        return Ok(());
    }
    let mut needed: BTreeSet<String> =
        ports.tables.load(table).await?.files.into_iter().map(|file| file.path).collect();
    needed.extend(ports.logs.removed_within(table, kept).await?);
    for checkpoint in decided.values() {
        let named = checkpoint.hours.values().flat_map(|entry| entry.files_of(table));
        needed.extend(named.map(|file| file.path.clone()));
    }
    let unneeded: Vec<&ObjectMeta> = unneeded_files(&folder, &listed, &needed, kept, decided);
    for batch in unneeded.chunks(DELETED_AT_ONCE) {
        delete_all(store, batch.iter().map(|object| object.path.clone()).collect()).await?;
        done.files += batch.len() as u64;
        done.bytes += batch.iter().map(|object| object.bytes).sum::<u64>();
    }
    let trimmed = ports.logs.trim(table, kept).await?;
    (done.log_files, done.log_checkpoint) = (trimmed.files, trimmed.checkpoint);
    Ok(())
}

/// Stores an object of this run, returns the time at which the store stored it, and deletes the object again.
async fn store_time(store: &dyn ObjectStore, id: &str) -> Result<WallTime> {
    let own = names::maintain(id);
    store.put_if_absent(&own, Bytes::new()).await?;
    let mut listed = store.list(names::MAINTAIN).await?;
    let found = listed.iter().find(|object| object.path == own).map(|object| object.modified);
    let lost = || StoreError::new(ErrorKind::Transient, "list", &own, "it was stored, and is not listed");
    let now = found.ok_or_else(lost)?;
    // This run's object, and the objects of earlier runs that were killed here.
    listed.retain(|object| object.path == own || now.since(object.modified) > KEPT);
    delete_all(store, listed.into_iter().map(|object| object.path).collect()).await?;
    Ok(now)
}

/// Returns table files written by prorata that nothing needs, and that no later checkpoint can name.
fn unneeded_files<'l>(
    folder: &str,
    listed: &'l [ObjectMeta],
    needed: &BTreeSet<String>,
    kept: Kept,
    decided: &BTreeMap<Shard, Decided>,
) -> Vec<&'l ObjectMeta> {
    let cutoff = kept.cutoff(listed.iter().map(|object| object.modified).max().unwrap_or_default());
    let is_unneeded = |object: &&ObjectMeta| {
        let Some(path) = object.path.strip_prefix(folder) else { return false };
        let Some((shard, object_id)) = names::parse_table_file(path) else { return false };
        let passed = decided.get(&shard).is_some_and(|latest| object_id.seq <= latest.seq);
        passed && object.modified < cutoff && !needed.contains(path)
    };
    listed.iter().filter(is_unneeded).collect()
}

/// Deletes objects that the latest checkpoint of a shard has passed, and returns their number. The shard may
/// have an owner.
async fn sweep_shard(store: &dyn ObjectStore, shard: Shard, now: WallTime) -> Result<u64> {
    // The checkpoints were read before the tables were compacted, and their parts may have been replaced.
    let decided = &log::latest(store, shard).await?;
    let mut unneeded = sweep::unneeded_state(&store.list(&names::state_folder(shard)).await?, decided, now);
    let mut records = store.list(&names::archive_folder(shard)).await?;
    records.extend(store.list(&names::dead_letter_folder(shard)).await?);
    let mut named = log::read_dead_letter_names(store, &decided.dead_letters).await?;
    let mut archive = ArchiveIndex::of(decided);
    archive.ensure_all(store).await?;
    named.extend(archive.all().map(|file| file.path(shard)));
    unneeded.extend(sweep::unneeded_records(&records, decided, &named, now));
    let objects = unneeded.len() as u64;
    delete_all(store, unneeded).await?;
    Ok(objects)
}

async fn delete_all(store: &dyn ObjectStore, paths: Vec<String>) -> Result<()> {
    sweep::delete_all(store, paths).await.map_err(|(_, error)| error.into())
}
