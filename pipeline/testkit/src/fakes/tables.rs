//! Table logs in memory: one list of live files and transactions per version.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use prorata_schemas::tables::Table;
use prorata_worker::ports::{
    CommitOutcome, ErrorKind, LiveFile, LiveTable, TableCommit, TableCommitter, TableError,
};

use super::faults::Effect;
use super::faults::{Failed, Faults};

/// Table logs in memory. Clones share the logs; each process has its own faults.
#[derive(Clone, Debug, Default)]
pub struct FakeTables {
    logs: Logs,
    faults: Faults,
}

/// One table's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableLog {
    /// Its newest version.
    pub live: LiveTable,
    /// Latest version of every transaction.
    pub transactions: BTreeMap<String, u64>,
}

impl FakeTables {
    /// The same logs, seen by a process with these faults.
    pub fn with_faults(&self, faults: Faults) -> Self {
        Self { logs: Arc::clone(&self.logs), faults }
    }

    /// All tables as they are now.
    pub fn tables(&self) -> BTreeMap<Table, TableLog> {
        self.lock().clone()
    }

    /// Replaces all logs.
    pub fn restore(&self, tables: BTreeMap<Table, TableLog>) {
        *self.lock() = tables;
    }

    /// Adds a file that is none of ours.
    pub fn add_foreign(&self, table: Table, path: &str) {
        let mut logs = self.lock();
        let log = logs.entry(table).or_default();
        log.live.files.push(LiveFile { path: path.to_owned(), bytes: 1 });
        log.live.version += 1;
    }

    /// Removes such a file again.
    pub fn remove_foreign(&self, table: Table, path: &str) {
        let mut logs = self.lock();
        let log = logs.entry(table).or_default();
        log.live.files.retain(|file| file.path != path);
        log.live.version += 1;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Table, TableLog>> {
        lock(&self.logs)
    }
}

type Logs = Arc<Mutex<BTreeMap<Table, TableLog>>>;

fn lock(logs: &Logs) -> MutexGuard<'_, BTreeMap<Table, TableLog>> {
    logs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TableLog {
    fn append(&mut self, base: u64, commit: &TableCommit) -> Result<CommitOutcome, String> {
        if self.live.version != base {
            return Ok(CommitOutcome::Conflict);
        }
        let mut files = self.live.files.clone();
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
        self.live.files = files;
        self.live.version += 1;
        self.transactions.extend(commit.transactions.clone());
        Ok(CommitOutcome::Committed)
    }
}

fn failed(operation: &'static str, table: Table, failed: Failed) -> TableError {
    TableError::new(failed.kind, operation, table, failed.cause)
}

#[async_trait]
impl TableCommitter for FakeTables {
    async fn load(&self, table: Table) -> Result<LiveTable, TableError> {
        self.faults.look().map_err(|cause| failed("load", table, cause))?;
        Ok(self.lock().entry(table).or_default().live.clone())
    }

    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError> {
        self.faults.look().map_err(|cause| failed("read transactions", table, cause))?;
        let mut logs = self.lock();
        let log = logs.entry(table).or_default();
        if log.live.version != base {
            let cause = format!("version {base} is not the newest");
            return Err(TableError::new(ErrorKind::Transient, "read transactions", table, cause));
        }
        let known = names.iter().filter_map(|name| Some((name.clone(), *log.transactions.get(name)?)));
        Ok(known.collect())
    }

    async fn commit(
        &self,
        table: Table,
        base: u64,
        commit: &TableCommit,
    ) -> Result<CommitOutcome, TableError> {
        let (logs, commit) = (Arc::clone(&self.logs), commit.clone());
        let append = move || lock(&logs).entry(table).or_default().append(base, &commit);
        let appended = self.faults.effect(Effect::Commit, table.name(), append).await;
        let appended = appended.map_err(|cause| failed("commit", table, cause))?;
        appended.map_err(|cause| TableError::new(ErrorKind::Invalid, "commit", table, cause))
    }
}
