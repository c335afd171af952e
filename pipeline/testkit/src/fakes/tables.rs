//! Table logs in memory: one list of live files and transactions per version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Date, WallTime};
use prorata_worker::ports::{
    Clock, CommitOutcome, ErrorKind, Kept, LiveFile, LiveTable, TableCommit, TableCommitter, TableError,
    TableLogs, TrimmedLog,
};

use super::clock::SteppedClock;
use super::faults::Effect;
use super::faults::{Failed, Faults};

/// Table logs in memory. Clones share the logs; each process has its own faults.
#[derive(Clone, Debug, Default)]
pub struct FakeTables {
    logs: Logs,
    commits: Arc<Mutex<Removed>>,
    faults: Faults,
    clock: Option<SteppedClock>,
}

/// Files that each commit of a table removed, and the time of the commit.
type Removed = BTreeMap<Table, Vec<(WallTime, Vec<String>)>>;

/// One table's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableLog {
    /// Newest version of the table.
    pub live: LiveTable,
    /// Latest version of every transaction.
    pub transactions: BTreeMap<String, u64>,
}

impl FakeTables {
    /// Returns these logs for a process with these faults.
    pub fn with_faults(&self, faults: Faults) -> Self {
        Self { faults, ..self.clone() }
    }

    /// Returns these logs with a clock, which gives the time of new commits. Without a clock, the time is 0.
    pub fn with_clock(&self, clock: SteppedClock) -> Self {
        Self { clock: Some(clock), ..self.clone() }
    }

    fn commits(&self) -> MutexGuard<'_, Removed> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all tables as they are now.
    pub fn tables(&self) -> BTreeMap<Table, TableLog> {
        self.lock().clone()
    }

    /// Replaces all logs.
    pub fn restore(&self, tables: BTreeMap<Table, TableLog>) {
        *self.lock() = tables;
    }

    /// Adds a file that prorata did not write.
    pub fn add_foreign(&self, table: Table, path: &str) {
        let mut logs = self.lock();
        let log = logs.entry(table).or_default();
        log.live.files.push(LiveFile { path: path.to_owned(), bytes: 1 });
        log.live.files.sort();
        log.live.version += 1;
    }

    /// Removes a file that prorata did not write.
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
        let place = |path: &str| self.live.files.binary_search_by(|file| file.path.as_str().cmp(path));
        let places: Result<BTreeSet<usize>, String> = (commit.removes.iter())
            .map(|path| place(path).map_err(|_| format!("'{path}' is not live")))
            .collect();
        let places = places?;
        if let Some(add) = commit.adds.iter().find(|add| place(&add.path).is_ok()) {
            return Err(format!("'{}' is live already", add.path));
        }
        let files = &mut self.live.files;
        places.into_iter().rev().for_each(|at| drop(files.remove(at)));
        for add in &commit.adds {
            let at = files.partition_point(|file| file.path < add.path);
            files.insert(at, LiveFile { path: add.path.clone(), bytes: add.bytes });
        }
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

    async fn load_dates(&self, table: Table, dates: &BTreeSet<Date>) -> Result<LiveTable, TableError> {
        self.faults.look().map_err(|cause| failed("load", table, cause))?;
        let mut logs = self.lock();
        let LiveTable { version, files } = &logs.entry(table).or_default().live;
        let of_date = |date: &Date| {
            let folder = format!("date={date}/");
            let first = files.partition_point(|file| file.path < folder);
            let same = files.iter().skip(first).take_while(move |file| file.path.starts_with(&folder));
            same.cloned().collect::<Vec<_>>()
        };
        Ok(LiveTable { version: *version, files: dates.iter().flat_map(of_date).collect() })
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
        let (commits, now) = (Arc::clone(&self.commits), self.clock.as_ref().map_or(WallTime(0), Clock::now));
        let append = move || {
            let appended = lock(&logs).entry(table).or_default().append(base, &commit);
            if appended == Ok(CommitOutcome::Committed) {
                let mut commits = commits.lock().unwrap_or_else(PoisonError::into_inner);
                commits.entry(table).or_default().push((now, commit.removes.clone()));
            }
            appended
        };
        let appended = self.faults.effect(Effect::Commit, table.name(), append).await;
        let appended = appended.map_err(|cause| failed("commit", table, cause))?;
        appended.map_err(|cause| TableError::new(ErrorKind::Invalid, "commit", table, cause))
    }
}

#[async_trait]
impl TableLogs for FakeTables {
    async fn removed_within(&self, table: Table, kept: Kept) -> Result<BTreeSet<String>, TableError> {
        self.faults.look().map_err(|cause| failed("read the log", table, cause))?;
        let commits = self.commits();
        let commits = commits.get(&table).map(Vec::as_slice).unwrap_or_default();
        let Some((newest, _)) = commits.last() else { return Ok(BTreeSet::new()) };
        let cutoff = kept.cutoff(*newest);
        let recent = commits.iter().filter(|(at, _)| *at >= cutoff);
        Ok(recent.flat_map(|(_, removed)| removed.iter().cloned()).collect())
    }

    async fn trim(&self, table: Table, kept: Kept) -> Result<TrimmedLog, TableError> {
        let commits = Arc::clone(&self.commits);
        let trim = move || {
            let mut commits = commits.lock().unwrap_or_else(PoisonError::into_inner);
            let commits = commits.entry(table).or_default();
            let before = commits.len();
            let newest = commits.last().map_or(WallTime(0), |(at, _)| *at);
            let cutoff = kept.cutoff(newest);
            commits.retain(|(at, _)| *at >= cutoff);
            TrimmedLog { files: (before - commits.len()) as u64, checkpoint: false }
        };
        let trimmed = self.faults.effect(Effect::Delete, table.name(), trim).await;
        trimmed.map_err(|cause| failed("trim the log", table, cause))
    }
}
