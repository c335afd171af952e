//! Read-only access to a lake: nothing is created and nothing is written.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use prorata_connectors::DeltaTables;
use prorata_connectors::SystemClock;
use prorata_connectors::store::Store;
use prorata_inspect::check::Checkpoints;
use prorata_inspect::{LakeTables, TableLog};
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange, Timestamp};
use prorata_worker::WorkerError;
use prorata_worker::names;
use prorata_worker::ports::{Clock, ObjectStore};

use crate::config::Config;
use crate::failure::Failure;

/// Number of attempts after which an unchanged lake counts as a lake that no worker is writing.
const RESTS_AFTER: usize = 3;

/// Returns the lake that an argument names, or else the configured lake.
///
/// # Errors
/// If neither the argument nor the configuration names a lake.
pub fn named<'a>(argument: Option<&'a String>, config: &'a Config) -> Result<&'a str, Failure> {
    let lake = argument.unwrap_or(&config.root.url);
    if lake.is_empty() {
        let message = "no lake is named: give --lake, or root.url in the file that --config names";
        return Err(Failure::usage(message));
    }
    Ok(lake)
}

/// Opens the store of an existing lake.
///
/// # Errors
/// If the name is wrong, the folder is not a lake, or storage is unavailable.
pub async fn store(lake: &str) -> anyhow::Result<Store> {
    let store = super::store(lake)?;
    if store.get(names::ROOT).await.map_err(WorkerError::Store)?.is_none() {
        let message =
            format!("'{lake}' has no {}: it is not a prorata lake; name the folder of the lake", names::ROOT);
        return Err(Failure::usage(message).into());
    }
    Ok(store)
}

/// Opens a folder or URL that a command fills, which must be empty.
///
/// # Errors
/// If the name is wrong, the location is not empty, or storage is unavailable.
pub async fn empty(flag: &str, name: &str) -> anyhow::Result<Store> {
    let output = super::store(name)?;
    if !output.list("").await.map_err(WorkerError::Store)?.is_empty() {
        // It may hold rows of another organization, or rows that were replaced since.
        let message = format!("{flag} '{name}' is not empty; name an empty folder");
        return Err(Failure::usage(message).into());
    }
    Ok(output)
}

/// Message that is printed before a lake is read again.
const READ_AGAIN: &str = "the tables do not match the checkpoints yet; reading the lake again";

/// Pauses before a lake is read again while a worker writes it.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Maximum time after the decision on a checkpoint for which a worker may be committing it to tables. Clocks
/// differ by less than this time.
const COMMITTED_WITHIN: Duration = Duration::from_secs(15 * 60);

/// Returns whether a worker may be committing the newest of these checkpoints to tables. If the checkpoint is
/// old, the files that tables lack will not arrive within seconds.
pub fn may_be_under_way(checkpoints: &Checkpoints) -> bool {
    checkpoints.newest().is_some_and(|newest| SystemClock.now().since(newest) < COMMITTED_WITHIN)
}

/// Prints a message, and waits before the lake is read again after this many `attempts`. Returns `false`
/// without waiting if there were too many attempts.
pub async fn try_again(attempts: usize) -> bool {
    let Some(pause) = PAUSES.get(attempts) else { return false };
    // If the message cannot be written, the command still prints its result.
    let _ = writeln!(std::io::stderr(), "prorata: {READ_AGAIN}");
    tokio::time::sleep(*pause).await;
    true
}

/// Returns the hours that `--from` and `--to` select.
///
/// # Errors
/// If the end is before the beginning.
pub fn hours(from: Option<Hour>, to: Option<Hour>) -> Result<HourRange, Failure> {
    let range = HourRange::between(from, to);
    let HourRange { first, last } = range;
    if last < first {
        return Err(Failure::usage(format!("--to {last} is before --from {first}; swap them")));
    }
    Ok(range)
}

/// Reads the tables of a lake and the checkpoints that name their files. A worker decides a checkpoint first,
/// and then commits to one table after another. If a worker is running, this function reads the lake again
/// until tables and checkpoints agree. If a worker died between these steps, this function returns the tables
/// as the worker left them.
///
/// # Errors
/// If the lake changes faster than it is read, or storage is unavailable.
pub async fn settled(store: &Store, range: HourRange) -> anyhow::Result<(LakeTables<'_>, Checkpoints)> {
    let mut attempts = 0;
    let mut before = None;
    loop {
        let lake = tables(store, None).await?;
        let checkpoints = Checkpoints::read(store).await?;
        let rests = before.as_ref().is_some_and(|(logs, then)| logs == lake.logs() && *then == checkpoints);
        let is_over = rests && (attempts >= RESTS_AFTER || !may_be_under_way(&checkpoints));
        if is_over || checkpoints.are_published(&lake, range) {
            return Ok((lake, checkpoints));
        }
        before = Some((lake.logs().clone(), checkpoints));
        if !try_again(attempts).await {
            let message = "a worker writes the lake faster than its tables and checkpoints can be compared; \
                           try again later, or choose only past hours";
            return Err(Failure::storage(message).into());
        }
        attempts += 1;
    }
}

/// Reads the log of `closed_allocation`. Returns `None` if no month was ever closed.
///
/// # Errors
/// If storage is unavailable, or the log cannot be read.
pub async fn closed(store: &Store) -> Result<Option<TableLog>, WorkerError> {
    let delta = DeltaTables::new(store.clone());
    let look = delta.look(Table::ClosedAllocation, None).await.map_err(WorkerError::Tables)?;
    Ok(look.map(|look| TableLog { files: look.files, drift: look.drift }))
}

/// Reads the hourly tables of a lake, as of an instant or now.
///
/// # Errors
/// If storage is unavailable, or a table's log cannot be read.
pub async fn tables(store: &Store, as_of: Option<Timestamp>) -> Result<LakeTables<'_>, WorkerError> {
    let delta = DeltaTables::new(store.clone());
    let mut logs = BTreeMap::new();
    for table in Table::HOURLY {
        if let Some(look) = delta.look(table, as_of).await.map_err(WorkerError::Tables)? {
            logs.insert(table, TableLog { files: look.files, drift: look.drift });
        }
    }
    Ok(LakeTables::new(store, logs))
}
