//! Upkeep of the Delta logs: recently removed files, log checkpoints, and expired versions.

use std::collections::BTreeSet;

use async_trait::async_trait;
use deltalake_core::checkpoints;
use prorata_schemas::tables::Table;
use prorata_schemas::time::WallTime;
use prorata_worker::ports::{
    ErrorKind, Kept, ObjectMeta, ObjectStore, StoreError, TableError, TableLogs, TrimmedLog,
};

use super::failure::failure;
use super::{DeltaTables, view};

/// Minimum number of commits since a log's last checkpoint for which upkeep writes another checkpoint.
/// Workers write one every [`super::CHECKPOINT_INTERVAL`] commits.
const CHECKPOINT_AFTER: u64 = 10;

/// Number of commits that are read concurrently.
const READ_AT_ONCE: usize = 16;

/// A log with its listed objects.
struct Listed {
    folder: String,
    objects: Vec<ObjectMeta>,
}

impl Listed {
    /// Returns the time before which an object was modified too long ago to be kept.
    fn cutoff(&self, kept: Kept) -> WallTime {
        kept.cutoff(self.objects.iter().map(|object| object.modified).max().unwrap_or_default())
    }

    /// Returns the versions of commits or of checkpoints, each with the object that holds it.
    fn versions(&self, checkpoints: bool) -> impl Iterator<Item = (u64, &ObjectMeta)> {
        self.objects.iter().filter_map(move |object| {
            let (version, rest) = object.path.strip_prefix(&self.folder)?.split_once('.')?;
            let wanted = if checkpoints { rest.starts_with("checkpoint.") } else { rest == "json" };
            if wanted { Some((version.parse().ok()?, object)) } else { None }
        })
    }
}

impl DeltaTables {
    async fn list_log(&self, table: Table) -> Result<Listed, TableError> {
        let folder = format!("{}/_delta_log/", table.name());
        let objects = self.store.list(&folder).await.map_err(|error| read_failure(table, error))?;
        Ok(Listed { folder, objects })
    }
}

fn read_failure(table: Table, error: StoreError) -> TableError {
    TableError::new(error.kind, "read the log", table, error)
}

#[async_trait]
impl TableLogs for DeltaTables {
    async fn removed_within(&self, table: Table, kept: Kept) -> Result<BTreeSet<String>, TableError> {
        let listed = self.list_log(table).await?;
        let cutoff = listed.cutoff(kept);
        let recent = listed.versions(false).filter(|(_, object)| object.modified >= cutoff);
        let paths: Vec<&str> = recent.map(|(_, object)| object.path.as_str()).collect();
        let mut removed = BTreeSet::new();
        for batch in paths.chunks(READ_AT_ONCE) {
            let commits = futures::future::try_join_all(batch.iter().map(|path| self.store.get(path)));
            for (path, commit) in batch.iter().zip(commits.await.map_err(|error| read_failure(table, error))?)
            {
                let invalid =
                    |cause: String| TableError::new(ErrorKind::Invalid, "read the log", table, cause);
                let commit = commit.ok_or_else(|| {
                    TableError::new(ErrorKind::Missing, "read the log", table, format!("'{path}' is gone"))
                })?;
                let lines = view::lines_of(&commit).map_err(|error| invalid(format!("'{path}': {error}")))?;
                removed.extend(lines.into_iter().filter_map(|line| Some(line.remove?.path)));
            }
        }
        Ok(removed)
    }

    async fn trim(&self, table: Table, kept: Kept) -> Result<TrimmedLog, TableError> {
        let failed = |error| failure("trim the log", table, error);
        let listed = self.list_log(table).await?;
        let newest = listed.versions(false).map(|(version, _)| version).max().unwrap_or_default();
        let checkpoint = listed.versions(true).map(|(version, _)| version).max().unwrap_or_default();
        let due = newest >= checkpoint + CHECKPOINT_AFTER;
        if due {
            self.open(table).await?.checkpoint().await.map_err(failed)?;
        }
        let log_store = self.log_store(table)?;
        let cutoff_millis = listed.cutoff(kept).0 / 1_000;
        let files = checkpoints::cleanup_expired_logs_for(newest, log_store.as_ref(), cutoff_millis, None)
            .await
            .map_err(failed)?;
        Ok(TrimmedLog { files: files as u64, checkpoint: due })
    }
}
