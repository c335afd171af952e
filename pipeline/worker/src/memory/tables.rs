//! Table logs in memory: one list of live files and transactions per version.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use prorata_schemas::tables::Table;

use super::faults::{Fate, Faults};
use crate::ports::{LiveFile, LiveTable, TableCommit, TableCommitter, TableError};

/// Table logs in memory. Clones share the logs; each process has its own faults.
#[derive(Clone, Debug, Default)]
pub struct MemoryTables {
    logs: Arc<Mutex<BTreeMap<Table, LiveTable>>>,
    faults: Faults,
}

impl MemoryTables {
    /// The same logs, seen by a process with these faults.
    pub fn with_faults(&self, faults: Faults) -> Self {
        Self { logs: Arc::clone(&self.logs), faults }
    }

    /// All tables as they are now.
    pub fn tables(&self) -> BTreeMap<Table, LiveTable> {
        self.lock().clone()
    }

    /// Replaces all logs.
    pub fn restore(&self, tables: BTreeMap<Table, LiveTable>) {
        *self.lock() = tables;
    }

    /// Adds a file that is none of ours.
    pub fn add_foreign(&self, table: Table, path: &str) {
        let mut logs = self.lock();
        let log = logs.entry(table).or_default();
        log.files.push(LiveFile { path: path.to_owned(), bytes: 1 });
        log.version += 1;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Table, LiveTable>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, table: Table, base: u64, commit: &TableCommit) -> Result<(), String> {
        let mut logs = self.lock();
        let log = logs.entry(table).or_default();
        if log.version != base {
            return Err(format!("version {} exists", base + 1));
        }
        let mut files = log.files.clone();
        for path in &commit.removes {
            let at = files.iter().position(|file| file.path == *path);
            files.remove(at.ok_or_else(|| format!("'{path}' is not live"))?);
        }
        for add in &commit.adds {
            if files.iter().any(|file| file.path == add.path) {
                return Err(format!("'{}' is live already", add.path));
            }
            files.push(LiveFile { path: add.path.clone(), bytes: add.bytes });
        }
        files.sort();
        log.files = files;
        log.version += 1;
        log.transactions.extend(commit.transactions.clone());
        Ok(())
    }
}

#[async_trait]
impl TableCommitter for MemoryTables {
    async fn load(&self, table: Table, transactions: &[String]) -> Result<LiveTable, TableError> {
        self.faults.alive().map_err(|cause| TableError { table, cause: cause.to_owned() })?;
        let mut live = self.lock().entry(table).or_default().clone();
        live.transactions.retain(|name, _| transactions.contains(name));
        Ok(live)
    }

    async fn commit(&self, table: Table, base: u64, commit: &TableCommit) -> Result<(), TableError> {
        let error = |cause: &str| TableError { table, cause: cause.to_owned() };
        match self.faults.effect() {
            Fate::Happens => self.append(table, base, commit).map_err(|cause| error(&cause)),
            Fate::HappensUnanswered(cause) => {
                self.append(table, base, commit).map_err(|cause| error(&cause))?;
                Err(error(cause))
            }
            Fate::Fails(cause) => Err(error(cause)),
        }
    }
}
