//! Publish: makes the tables equal to the checkpoints of the shards, whatever the tables held before.
//!
//! It starts from a fresh view of a table's log, limited to the dates that the checkpoints name. For each
//! shard, it adds the files that the checkpoint names and the table lacks. For the same hours, it removes the
//! shard's live files that the checkpoint does not name. If nothing differs, there is no commit. A commit
//! carries the shards' sequence numbers as transactions. After any error, the log is read again, because the
//! commit may have landed.
//!
//! A checkpoint may again name hours that are in a file of a day, for example after a backfill has folded
//! them again. If it names all hours of the file, the commit removes the file. Otherwise the file is split
//! first; see [`crate::objects::days`].

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::tables::Table;
use prorata_schemas::time::{Date, Hour};

use super::draft::Decided;
use super::model::Checkpoint;
use crate::backoff;
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard, TableFile};
use crate::objects::days::{LiveDay, LostDay, Rearranger};
use crate::ports::{CommitOutcome, ErrorKind, LiveTable, Ports, TableCommit, TableCommitter, TableError};

/// The result of publishing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Shards for which a table knows a later checkpoint: their owner has lost them.
    pub fenced: BTreeMap<Shard, Fence>,
    /// The number of commits.
    pub commits: u64,
}

/// A table that is ahead of a shard's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The table.
    pub table: Table,
    /// The sequence number that the table knows.
    pub seq: u64,
}

/// The options of one publishing.
#[derive(Clone, Copy)]
struct Publishing<'a> {
    /// The owner of the commits.
    id: &'a str,
    /// Whether to ask each table for the transactions of all shards, even if nothing differs.
    asks_all: bool,
}

/// Publishes the latest checkpoint of a shard that is to be claimed. Every table is asked for the shard's
/// transaction, because a log that has lost its last checkpoints may name the same hours as the tables.
///
/// # Errors
/// See [`publish`].
pub async fn publish_at_claim(ports: &Ports, latest: &Decided, id: &str) -> Result<Published> {
    publish_all(ports, std::slice::from_ref(latest), Publishing { id, asks_all: true }).await
}

/// Publishes checkpoints, with one commit per table for all shards. Table `hours` comes last. `id` identifies
/// the owner of the commits. If a table fails, the others are still published, except `hours`, which
/// describes the rows of all other tables.
///
/// # Errors
/// If storage is unavailable, a touched partition holds a file that is not ours, or a file of a day to split
/// cannot be read.
pub async fn publish(ports: &Ports, checkpoints: &[Decided], id: &str) -> Result<Published> {
    publish_all(ports, checkpoints, Publishing { id, asks_all: false }).await
}

async fn publish_all(ports: &Ports, checkpoints: &[Decided], how: Publishing<'_>) -> Result<Published> {
    let mut published = Published::default();
    let mut failure = None;
    for table in Table::HOURLY.into_iter().filter(|table| *table != Table::Hours) {
        if let Err(error) = publish_table(ports, table, checkpoints, how, &mut published).await {
            tracing::debug!(table = table.name(), %error, "table not published; the others continue");
            failure.get_or_insert(error);
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    publish_table(ports, Table::Hours, checkpoints, how, &mut published).await?;
    Ok(published)
}

async fn publish_table(
    ports: &Ports,
    table: Table,
    checkpoints: &[Decided],
    Publishing { id, asks_all }: Publishing<'_>,
    published: &mut Published,
) -> Result<()> {
    let (tables, clock) = (&*ports.tables, &*ports.clock);
    // Files of days that cannot be read, and whose other hours are to be folded again.
    let (mut failure, mut given_up) = (None, BTreeSet::new());
    for attempt in backoff::COMMIT.attempts() {
        if attempt > 0 {
            clock.pause(backoff::COMMIT.delay_jittered(attempt, id)).await;
        }
        let (live, known) = match load(tables, table, checkpoints, asks_all).await {
            Ok(loaded) => loaded,
            Err(error) if error.kind.is_retryable() => {
                failure = Some(error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let (commit, days) = difference(table, &live, &known, checkpoints, &given_up, published)?;
        if !days.is_empty() {
            match tell_apart(ports, table, live.version, days, checkpoints, id).await {
                Ok(lost) => given_up.extend(lost),
                Err(WorkerError::Tables(error)) if error.kind.is_retryable() => failure = Some(error),
                Err(error) => return Err(error),
            }
            continue;
        }
        let commit = TableCommit { id: id.to_owned(), ..commit };
        if commit.adds.is_empty() && commit.removes.is_empty() {
            return Ok(());
        }
        match tables.commit(table, live.version, &commit).await {
            Ok(CommitOutcome::Committed) => {
                published.commits += 1;
                return Ok(());
            }
            Ok(CommitOutcome::Conflict) => {
                tracing::debug!(
                    table = table.name(),
                    attempt,
                    "another commit came first; loading the table again"
                );
                let cause = "every attempt lost to another commit";
                failure = Some(TableError::new(ErrorKind::Conflict, "commit", table, cause));
            }
            Err(error) if !error.kind.is_retryable() => return Err(error.into()),
            Err(error) => {
                tracing::debug!(table = table.name(), %error, attempt, "commit failed; loading the table \
                                                                        again");
                failure = Some(error);
            }
        }
    }
    let nothing = || TableError::new(ErrorKind::Transient, "commit", table, "no answer");
    Err(WorkerError::Tables(failure.unwrap_or_else(nothing)))
}

/// Replaces files of days by the files of their hours. Returns the lost files that may be removed, because
/// the checkpoint names each of their hours or marks it dirty. Any other lost file is an error.
async fn tell_apart(
    ports: &Ports,
    table: Table,
    base: u64,
    days: Vec<LiveDay>,
    checkpoints: &[Decided],
    id: &str,
) -> Result<Vec<String>> {
    let (store, tables, encoder) = (&*ports.store, &*ports.tables, &ports.encoder);
    let rearranger = Rearranger { store, tables, encoder, id };
    let of = |shard: Shard| checkpoints.iter().find(|checkpoint| checkpoint.shard == shard);
    let seq = |shard| of(shard).map_or(0, |checkpoint| checkpoint.seq);
    let mut given_up = Vec::new();
    for LostDay { day, cause } in rearranger.expand(table, base, days, seq).await? {
        let comes_back = |checkpoint: &Decided, hour| {
            checkpoint.hours.contains_key(&hour) || checkpoint.dirty.of_all().contains(hour)
        };
        if !of(day.name.shard).is_some_and(|of| day.name.hours().all(|hour| comes_back(of, hour))) {
            let object = format!("{}/{}", table.name(), day.path);
            return Err(WorkerError::Damaged { object, cause });
        }
        given_up.push(day.path);
    }
    Ok(given_up)
}

/// Loads a table and its transactions, either for all shards or only for shards whose checkpoints differ from
/// the table.
async fn load(
    tables: &dyn TableCommitter,
    table: Table,
    checkpoints: &[Decided],
    asks_all: bool,
) -> Result<(LiveTable, BTreeMap<String, u64>), TableError> {
    let hours = checkpoints.iter().flat_map(|checkpoint| checkpoint.hours.keys());
    let dates: BTreeSet<Date> = hours.map(|hour| hour.date()).collect();
    let live = tables.load_dates(table, &dates).await?;
    let (ours, _) = sort_out(&live);
    let differ = checkpoints.iter().filter(|checkpoint| {
        let mut commit = TableCommit::default();
        let there = ours.get(&checkpoint.shard);
        add_and_remove(table, checkpoint, there, &mut commit);
        let comes_back = |day: &LiveDay| day.name.hours().any(|hour| checkpoint.hours.contains_key(&hour));
        if there.is_some_and(|there| there.days.iter().any(comes_back)) {
            return true;
        }
        asks_all || !commit.adds.is_empty() || !commit.removes.is_empty()
    });
    let names: Vec<String> = differ.map(|checkpoint| names::transaction(checkpoint.shard)).collect();
    let known = if names.is_empty() {
        BTreeMap::new()
    } else {
        tables.transactions(table, live.version, &names).await?
    };
    Ok((live, known))
}

/// Returns the commit that makes the table equal to the checkpoints, and the files of days to split before
/// that commit. Adds fenced shards to `published`.
fn difference(
    table: Table,
    live: &LiveTable,
    known: &BTreeMap<String, u64>,
    checkpoints: &[Decided],
    given_up: &BTreeSet<String>,
    published: &mut Published,
) -> Result<(TableCommit, Vec<LiveDay>)> {
    let (mut commit, mut days) = (TableCommit::default(), Vec::new());
    let (ours, foreign) = sort_out(live);
    for checkpoint in checkpoints {
        let shard = checkpoint.shard;
        let name = names::transaction(shard);
        match known.get(&name) {
            Some(seq) if *seq > checkpoint.seq => {
                published.fenced.insert(shard, Fence { table, seq: *seq });
            }
            Some(seq) if *seq == checkpoint.seq => {}
            _ if published.fenced.contains_key(&shard) => {}
            _ => {
                let before = commit.adds.len() + commit.removes.len();
                add_and_remove(table, checkpoint, ours.get(&shard), &mut commit);
                for day in ours.get(&shard).into_iter().flat_map(|ours| &ours.days) {
                    let named = |hour: &Hour| checkpoint.hours.contains_key(hour);
                    if day.name.hours().all(|hour| named(&hour)) || given_up.contains(&day.path) {
                        commit.removes.push(day.path.clone());
                    } else if day.name.hours().any(|hour| named(&hour)) {
                        days.push(day.clone());
                    }
                }
                if commit.adds.len() + commit.removes.len() > before {
                    commit.transactions.insert(name, checkpoint.seq);
                }
            }
        }
    }
    refuse_foreign(table, &commit, &foreign)?;
    Ok((commit, days))
}

/// Live files of a shard.
#[derive(Default)]
struct LivePaths {
    hours: BTreeMap<Hour, Vec<String>>,
    days: Vec<LiveDay>,
}

/// Returns our live files by shard, and the paths of all other live files.
fn sort_out(live: &LiveTable) -> (BTreeMap<Shard, LivePaths>, Vec<&str>) {
    let mut ours: BTreeMap<Shard, LivePaths> = BTreeMap::new();
    let mut foreign = Vec::new();
    for file in &live.files {
        if let Some(name) = TableFile::parse(&file.path) {
            let of_shard = ours.entry(name.shard).or_default();
            of_shard.hours.entry(name.hour).or_default().push(file.path.clone());
        } else if let Some(day) = LiveDay::parse(&file.path) {
            ours.entry(day.name.shard).or_default().days.push(day);
        } else {
            foreign.push(file.path.as_str());
        }
    }
    (ours, foreign)
}

fn add_and_remove(table: Table, checkpoint: &Checkpoint, live: Option<&LivePaths>, commit: &mut TableCommit) {
    for (hour, entry) in &checkpoint.hours {
        let there = live.and_then(|live| live.hours.get(hour)).map(Vec::as_slice).unwrap_or_default();
        let wanted = entry.files_of(table);
        commit.adds.extend(wanted.iter().filter(|file| !there.contains(&file.path)).cloned());
        let is_wanted = |path: &&String| wanted.iter().any(|file| file.path == **path);
        commit.removes.extend(there.iter().filter(|path| !is_wanted(path)).cloned());
    }
}

/// Returns an error if a partition that the commit touches has a live file that is not ours.
fn refuse_foreign(table: Table, commit: &TableCommit, foreign: &[&str]) -> Result<()> {
    let folder = |path: &str| path.split_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
    let added = commit.adds.iter().map(|add| folder(&add.path));
    let touched: BTreeSet<String> = added.chain(commit.removes.iter().map(|path| folder(path))).collect();
    match foreign.iter().find(|path| touched.contains(&folder(path))) {
        Some(path) => Err(WorkerError::ForeignFile { table, path: (*path).to_owned() }),
        None => Ok(()),
    }
}
