//! Compares the archive files that checkpoints name with the objects and with the rows of `hours`.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::time::{Date, Hour, HourRange};
use prorata_worker::checkpoint::{ArchivedFile, Checkpoint, log};
use prorata_worker::names::{self, Shard, ShardHour};
use prorata_worker::ports::ObjectStore;
use prorata_worker::{ArchiveIndex, WorkerError};

use super::files::{Shards, Unpublished};
use super::finding::{Findings, Problem};

/// Hours with a row in `hours`. The shard is `None` if the file's name does not contain it. Such a row counts
/// for every shard.
pub type WithTotals = BTreeSet<(Option<Shard>, Hour)>;

/// The archives of all shards whose checkpoint can be read.
pub struct Archives<'a> {
    store: &'a dyn ObjectStore,
    shards: BTreeMap<Shard, (&'a Checkpoint, ArchiveIndex)>,
}

impl<'a> Archives<'a> {
    /// Returns the archives that these checkpoints name.
    pub fn new(store: &'a dyn ObjectStore, shards: &'a Shards) -> Self {
        let shards = shards.iter().map(|(shard, decided)| {
            let checkpoint: &Checkpoint = decided;
            (*shard, (checkpoint, ArchiveIndex::of(checkpoint)))
        });
        Self { store, shards: shards.collect() }
    }

    /// Checks that all archive files of a date exist, and that every closed and published hour with events
    /// has a row in `hours`.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn check_date(
        &mut self,
        date: Date,
        range: HourRange,
        unpublished: &Unpublished,
        with_totals: &WithTotals,
        findings: &mut Findings,
    ) -> Result<(), WorkerError> {
        let HourRange { first, last } = date.hours();
        let mut broken = Vec::new();
        for (shard, (checkpoint, archive)) in &mut self.shards {
            match archive.ensure(self.store, date.hours()).await {
                Ok(()) => {}
                Err(WorkerError::Damaged { object, cause }) => {
                    findings.add(Problem::CheckpointDamaged, object, cause);
                    broken.push(*shard);
                    continue;
                }
                Err(error) => return Err(error),
            }
            let hours = archive.hours();
            let hours: Vec<Hour> =
                hours.range(first..=last).copied().filter(|hour| range.contains(*hour)).collect();
            check_files(self.store, *shard, &hours, archive, findings).await?;
            for hour in hours {
                let closed = checkpoint.closed_through >= Some(hour);
                let totals =
                    with_totals.contains(&(Some(*shard), hour)) || with_totals.contains(&(None, hour));
                let place = ShardHour { shard: *shard, hour };
                if closed && !unpublished.contains(&place) && !totals {
                    findings.add(Problem::HourMissing, place, "its archive has events, but hours has no row");
                }
            }
        }
        broken.iter().for_each(|shard| drop(self.shards.remove(shard)));
        Ok(())
    }
}

/// Checks that the archive files of some hours of one date exist.
async fn check_files(
    store: &dyn ObjectStore,
    shard: Shard,
    hours: &[Hour],
    archive: &ArchiveIndex,
    findings: &mut Findings,
) -> Result<(), WorkerError> {
    let Some(first) = hours.first() else { return Ok(()) };
    let listed = store.list(&names::archive_date(shard, *first)).await?;
    let listed: BTreeSet<&String> = listed.iter().map(|object| &object.path).collect();
    let files = hours.iter().flat_map(|hour| archive.files(*hour));
    let missing: Vec<&ArchivedFile> = files.filter(|file| !listed.contains(&file.path(shard))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // A worker may have merged files since the checkpoint was read.
    let latest = log::latest(store, shard).await?;
    let mut latest = ArchiveIndex::of(&latest);
    latest.ensure(store, HourRange::new(*first, *hours.last().unwrap_or(first))).await?;
    for file in missing {
        if latest.files(file.hour).any(|named| named == file) {
            let what = "the checkpoint names it, but the store lacks it";
            findings.add(Problem::ArchiveFileMissing, file.path(shard), what);
        }
    }
    Ok(())
}
