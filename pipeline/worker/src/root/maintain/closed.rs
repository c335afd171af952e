//! Trims `closed_allocation`: its log, and pending corrections that were replaced. A file that a manifest
//! names stays forever.

use std::collections::BTreeSet;

use prorata_schemas::tables::Table;

use super::{DELETED_AT_ONCE, MaintainPorts, MaintainedTable, delete_all};
use crate::error::Result;
use crate::names::closed::ClosedPath;
use crate::ports::{Kept, ObjectMeta};
use crate::root::close::manifest::Chains;

const TABLE: Table = Table::ClosedAllocation;

/// Trims the table. Returns `None` if no month was ever closed.
///
/// # Errors
/// If storage is unavailable, or a manifest cannot be read. Then no file is deleted.
pub(super) async fn maintain(ports: &MaintainPorts, kept: Kept) -> Result<Option<MaintainedTable>> {
    let store = &*ports.store;
    // The order matters, as in `maintain_table`. A run that closes a month stores the month's files first, so
    // a file that no manifest names yet is younger than a week.
    let folder = format!("{}/", TABLE.name());
    let listed = store.list(&folder).await?;
    if listed.is_empty() {
        return Ok(None);
    }
    let live = ports.tables.load(TABLE).await?.files.into_iter().map(|file| file.path);
    let mut needed: BTreeSet<String> = live.collect();
    needed.extend(ports.logs.removed_within(TABLE, kept).await?);
    let Chains { chains, broken } = Chains::read(store).await?;
    if let Some(error) = broken.into_values().next() {
        return Err(error);
    }
    needed.extend(chains.values().flat_map(|chain| chain.files()).map(|file| file.path.clone()));
    let cutoff = kept.cutoff(listed.iter().map(|object| object.modified).max().unwrap_or_default());
    let is_unneeded = |object: &&ObjectMeta| {
        let Some(path) = object.path.strip_prefix(&folder) else { return false };
        ClosedPath::parse(path).is_some() && object.modified < cutoff && !needed.contains(path)
    };
    let unneeded: Vec<&ObjectMeta> = listed.iter().filter(is_unneeded).collect();
    let mut done = MaintainedTable::default();
    for batch in unneeded.chunks(DELETED_AT_ONCE) {
        delete_all(store, batch.iter().map(|object| object.path.clone()).collect()).await?;
        done.files += batch.len() as u64;
        done.bytes += batch.iter().map(|object| object.bytes).sum::<u64>();
    }
    let trimmed = ports.logs.trim(TABLE, kept).await?;
    (done.log_files, done.log_checkpoint) = (trimmed.files, trimmed.checkpoint);
    Ok(Some(done))
}
