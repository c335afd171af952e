//! A lake to look at: nothing is created and nothing is written.

use std::collections::BTreeMap;

use prorata_connectors::DeltaTables;
use prorata_connectors::store::Store;
use prorata_inspect::{LakeTables, TableLog};
use prorata_schemas::tables::Table;
use prorata_schemas::time::Timestamp;
use prorata_worker::WorkerError;
use prorata_worker::names;
use prorata_worker::ports::ObjectStore;

use crate::config::Config;
use crate::failure::Failure;

/// The lake that an argument names, or else the configuration.
///
/// # Errors
/// When neither does.
pub fn named<'a>(argument: Option<&'a String>, config: &'a Config) -> Result<&'a str, Failure> {
    let lake = argument.unwrap_or(&config.root.url);
    if lake.is_empty() {
        let message = "no lake is named: give --lake, or root.url in the file that --config names";
        return Err(Failure::usage(message));
    }
    Ok(lake)
}

/// The store of a lake that is there.
///
/// # Errors
/// When the name is wrong, the folder is no lake, or storage is unavailable.
pub async fn store(lake: &str) -> anyhow::Result<Store> {
    let store = super::store(lake)?;
    if store.get(names::ROOT).await.map_err(WorkerError::Store)?.is_none() {
        let message =
            format!("'{lake}' holds no {}: it is no lake of prorata; name the folder that is", names::ROOT);
        return Err(Failure::usage(message).into());
    }
    Ok(store)
}

/// The tables of a lake, as of an instant or now.
///
/// # Errors
/// When storage is unavailable, or a table's log cannot be read.
pub async fn tables(store: &Store, as_of: Option<Timestamp>) -> Result<LakeTables<'_>, WorkerError> {
    let delta = DeltaTables::new(store.clone());
    let mut logs = BTreeMap::new();
    for table in Table::ALL {
        if let Some(look) = delta.look(table, as_of).await.map_err(WorkerError::Tables)? {
            logs.insert(table, TableLog { files: look.files, drift: look.drift });
        }
    }
    Ok(LakeTables::new(store, logs))
}
