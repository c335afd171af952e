//! Compares logs, objects, and checkpoints with each other.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange, WallTime};
use prorata_worker::WorkerError;
use prorata_worker::checkpoint::{Decided, log};
use prorata_worker::names::{self, Shard, ShardHour};
use prorata_worker::ports::ObjectStore;

use super::finding::{Findings, Problem};
use crate::lake::LakeTables;

/// The folder of a table's log, under the table's folder.
const DELTA_LOG: &str = "_delta_log/";

/// Latest checkpoints by shard.
pub type Shards = BTreeMap<Shard, Decided>;

/// The latest checkpoint of every shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// Checkpoints that can be read.
    pub shards: Shards,
    /// Damaged checkpoints: the object and the error.
    damaged: Vec<(String, String)>,
}

impl Checkpoints {
    /// Reads the checkpoints.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn read(store: &dyn ObjectStore) -> Result<Self, WorkerError> {
        let mut checkpoints = Self::default();
        for shard in log::latest_seqs(store).await?.into_keys() {
            match log::latest(store, shard).await {
                Ok(decided) => {
                    checkpoints.shards.insert(shard, decided);
                }
                Err(WorkerError::Damaged { object, cause }) => checkpoints.damaged.push((object, cause)),
                Err(error @ WorkerError::Configuration(_)) => {
                    checkpoints.damaged.push((format!("shard {shard}"), error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(checkpoints)
    }

    /// Returns the time at which the newest readable checkpoint was decided, by the clock of its worker;
    /// `None` if no checkpoint can be read.
    pub fn newest(&self) -> Option<WallTime> {
        self.shards.values().map(|decided| decided.written_at).max()
    }

    /// Returns whether the tables hold exactly the files that these checkpoints name. If the tables were read
    /// before the checkpoints, they do, unless a worker was publishing, or died before it could publish.
    pub fn are_published(&self, lake: &LakeTables<'_>, range: HourRange) -> bool {
        let mut findings = Findings::default();
        let unpublished = compare(lake, &self.shards, range, &mut findings);
        unpublished.is_empty() && !findings.counts().contains_key(&Problem::UnreferencedFile)
    }
}

/// Checks that every table has a log with the expected columns. Checks that every live file has a valid name,
/// and shares no hour with another file.
pub fn check_logs(lake: &LakeTables<'_>, findings: &mut Findings) {
    for table in Table::HOURLY {
        match lake.logs().get(&table) {
            None => findings.add(Problem::TableMissing, table.name(), "it has no log"),
            Some(log) => {
                if let Some(drift) = &log.drift {
                    findings.add(Problem::SchemaDrift, table.name(), drift);
                }
            }
        }
    }
    for file in lake.undated() {
        findings.add(Problem::ForeignFile, &file, "it is not in a partition");
    }
    let mut first = BTreeMap::new();
    for file in lake.files().filter(|file| file.date().is_some()) {
        let Some(shard) = file.shard() else {
            findings.add(Problem::ForeignFile, &file, "its name is not one of ours");
            continue;
        };
        let before = file.hours().into_iter().filter_map(|hour| {
            let key = (file.table, shard, hour);
            first.insert(key, file.clone())
        });
        if let Some(first) = before.last() {
            findings.add(
                Problem::DuplicateHour,
                &file,
                format!("'{first}' holds the same hour of its shard"),
            );
        }
    }
}

/// Hours whose newest revision is not in every table yet. They are reported as unpublished and not compared
/// further, because tables of two revisions never agree.
pub type Unpublished = BTreeSet<ShardHour>;

/// Compares the files that every checkpoint names with the live files. Returns the hours that are not
/// published yet.
pub fn check_checkpoints(
    lake: &LakeTables<'_>,
    checkpoints: &Checkpoints,
    range: HourRange,
    findings: &mut Findings,
) -> Unpublished {
    for (object, cause) in &checkpoints.damaged {
        findings.add(Problem::CheckpointDamaged, object, cause);
    }
    compare(lake, &checkpoints.shards, range, findings)
}

fn compare(lake: &LakeTables<'_>, shards: &Shards, range: HourRange, findings: &mut Findings) -> Unpublished {
    let mut unpublished = Unpublished::new();
    let mut live: BTreeMap<ShardHour, BTreeSet<String>> = BTreeMap::new();
    for file in lake.files() {
        if let Some(name) = file.name().filter(|name| range.contains(name.hour)) {
            live.entry(ShardHour { shard: name.shard, hour: name.hour })
                .or_default()
                .insert(file.to_string());
        }
    }
    for file in lake.files() {
        let Some(day) = file.day() else { continue };
        let named = shards.get(&day.shard).map(|checkpoint| &checkpoint.hours);
        let comes_back =
            |hour: &Hour| range.contains(*hour) && named.is_some_and(|named| named.contains_key(hour));
        if let Some(hour) = day.hours().find(comes_back) {
            let what = format!("hour {hour} is still in '{file}', but the shard's checkpoint has it");
            findings.add(Problem::NotPublished, format!("shard {}", day.shard), what);
            unpublished
                .extend(day.hours().filter(comes_back).map(|hour| ShardHour { shard: day.shard, hour }));
        }
    }
    for (shard, checkpoint) in shards {
        for (hour, entry) in checkpoint.hours.iter().filter(|(hour, _)| range.contains(**hour)) {
            let named: BTreeSet<String> =
                entry.files().map(|(table, file)| format!("{}/{}", names::table(table), file.path)).collect();
            let place = ShardHour { shard: *shard, hour: *hour };
            let found = live.remove(&place).unwrap_or_default();
            for path in named.difference(&found) {
                findings.add(Problem::NotPublished, place, format!("the table does not hold '{path}' yet"));
            }
            // The table still holds the previous revision instead.
            if !named.is_subset(&found) {
                unpublished.insert(place);
                continue;
            }
            for path in found.difference(&named) {
                findings.add(Problem::UnreferencedFile, path, "the shard's checkpoint names no such file");
            }
        }
        if let Some(first) = checkpoint.dirty.first().filter(|first| *first <= range.last) {
            let what = format!("hours from {first} on are waiting to be recomputed");
            findings.add(Problem::Dirty, format!("shard {shard}"), what);
        }
    }
    unpublished
}

/// Returns the number of objects in the tables' folders that no log names, and their total size in bytes.
///
/// # Errors
/// If storage is unavailable.
pub async fn replaced(lake: &LakeTables<'_>) -> Result<(u64, u64), WorkerError> {
    let live: BTreeSet<String> = lake.files().map(|file| file.to_string()).collect();
    let (mut objects, mut bytes) = (0, 0);
    for table in Table::HOURLY {
        let folder = format!("{}/", table.name());
        for object in lake.store().list(&folder).await? {
            let ours = object.path.strip_prefix(&folder).is_some_and(|path| !path.starts_with(DELTA_LOG));
            if ours && !live.contains(&object.path) {
                objects += 1;
                bytes += object.bytes;
            }
        }
    }
    Ok((objects, bytes))
}
