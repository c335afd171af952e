//! The commit that makes `closed_allocation` equal to the manifests and the pending corrections.
//!
//! Each attempt loads the table, then lists the manifests, then commits directly after the loaded version. So
//! a commit never removes a file that a manifest names: a run that closes a month at the same time loads the
//! table after it has stored its manifest, and adds what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::Table;

use super::manifest::{Chain, Chains, ManifestFile};
use super::{ClosePorts, draft, is_of_organization};
use crate::backoff;
use crate::error::{Result, WorkerError};
use crate::names;
use crate::names::closed::{ClosedPath, Month};
use crate::ports::{CommitOutcome, ErrorKind, FileEntry, LiveTable, TableCommit, TableError};

const TABLE: Table = Table::ClosedAllocation;

/// The files that the table should have.
#[derive(Debug, Default)]
pub(super) struct WantedFiles {
    /// Files that this run has encoded, by path.
    pub(super) encoded: BTreeMap<String, FileEntry>,
    /// The open month of every organization that this run has handled, and the paths of its pending
    /// corrections.
    pub(super) pending: BTreeMap<OrganizationId, (Month, BTreeSet<String>)>,
}

/// The result of the commit.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// Number of files that the commit added.
    pub(super) added: u64,
    /// Number of pending files that the commit removed.
    pub(super) removed: u64,
    /// Problems of organizations, whose files were left as they are.
    pub(super) failed: Vec<(String, WorkerError)>,
}

/// Makes the table equal to the manifests and the pending corrections. Nothing is committed if nothing
/// differs.
///
/// # Errors
/// If storage is unavailable, or every attempt lost to another commit.
pub(super) async fn publish(ports: &ClosePorts, mut wanted: WantedFiles, id: &str) -> Result<Committed> {
    let mut failure = None;
    for attempt in backoff::COMMIT.attempts() {
        if attempt > 0 {
            ports.clock.pause(backoff::COMMIT.delay_jittered(attempt, id)).await;
        }
        match try_publish(ports, &mut wanted, id).await {
            Ok(Some(committed)) => return Ok(committed),
            Ok(None) => {
                let cause = "every attempt lost to another commit";
                failure = Some(TableError::new(ErrorKind::Conflict, "commit", TABLE, cause).into());
            }
            Err(error) if error.storage_kind().is_some_and(ErrorKind::is_retryable) => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    failure.map_or_else(|| Ok(Committed::default()), Err)
}

/// Makes one attempt. Returns `None` if another commit came first.
async fn try_publish(ports: &ClosePorts, wanted: &mut WantedFiles, id: &str) -> Result<Option<Committed>> {
    let live = ports.tables.load(TABLE).await?;
    let chains = Chains::read(&*ports.store).await?;
    wanted.leave_to_others(&chains);
    let files = chains.chains.values().flat_map(Chain::files);
    let listed: BTreeMap<&str, &ManifestFile> = files.map(|file| (file.path.as_str(), file)).collect();
    let mut committed = Committed::default();
    let adds = wanted.adds(ports, &live, &listed, &mut committed).await?;
    let removes = wanted.removes(ports, &live, &listed, &mut committed).await?;
    (committed.added, committed.removed) = (adds.len() as u64, removes.len() as u64);
    if adds.is_empty() && removes.is_empty() {
        return Ok(Some(committed));
    }
    let commit = TableCommit { adds, removes, id: id.to_owned(), ..TableCommit::default() };
    Ok(match ports.tables.commit(TABLE, live.version, &commit).await? {
        CommitOutcome::Committed => Some(committed),
        CommitOutcome::Conflict => None,
    })
}

impl WantedFiles {
    /// Leaves out organizations of which another run has closed a month since: their pending corrections are
    /// of a month that is no longer open.
    fn leave_to_others(&mut self, chains: &Chains) {
        self.pending.retain(|organization_id, (open, _)| {
            let last = chains.chains.get(organization_id).and_then(Chain::last);
            last.map(Month::next) == Some(*open)
        });
    }

    /// Returns the files that the table lacks.
    async fn adds(
        &self,
        ports: &ClosePorts,
        live: &LiveTable,
        listed: &BTreeMap<&str, &ManifestFile>,
        committed: &mut Committed,
    ) -> Result<Vec<FileEntry>> {
        let live: BTreeSet<&str> = live.files.iter().map(|file| file.path.as_str()).collect();
        let mut adds = Vec::new();
        for (path, file) in listed.iter().filter(|(path, _)| !live.contains(*path)) {
            match self.encoded.get(*path) {
                Some(entry) => adds.push(entry.clone()),
                None => match stored_entry(ports, file).await {
                    Ok(entry) => adds.push(entry),
                    Err(error) if is_of_organization(&error) => {
                        committed.failed.push((format!("file '{path}'"), error));
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        let pending = self.pending.values().flat_map(|(_, paths)| paths).map(String::as_str);
        let missing = pending.filter(|path| !live.contains(path) && !listed.contains_key(path));
        adds.extend(missing.filter_map(|path| self.encoded.get(path).cloned()));
        Ok(adds)
    }

    /// Returns the pending files that are no longer right. A file whose organization was not handled stays.
    async fn removes(
        &self,
        ports: &ClosePorts,
        live: &LiveTable,
        listed: &BTreeMap<&str, &ManifestFile>,
        committed: &mut Committed,
    ) -> Result<Vec<String>> {
        let pending: BTreeSet<&String> = self.pending.values().flat_map(|(_, paths)| paths).collect();
        let mut removes = Vec::new();
        for file in &live.files {
            let path = &file.path;
            let is_wanted = listed.contains_key(path.as_str()) || pending.contains(path);
            if is_wanted || ClosedPath::parse(path).is_none() {
                continue;
            }
            match owner(ports, path).await {
                Ok(owner) if self.pending.contains_key(&owner) => removes.push(path.clone()),
                Ok(_) => {}
                Err(error) if is_of_organization(&error) => {
                    committed.failed.push((format!("file '{path}'"), error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(removes)
    }
}

/// Returns the entry of a stored file that a manifest names, as after a run that was killed.
async fn stored_entry(ports: &ClosePorts, file: &ManifestFile) -> Result<FileEntry> {
    let bytes = draft::fetch(ports, file).await?;
    let (encoder, size) = (Arc::clone(&ports.encoder), bytes.len() as u64);
    let described = tokio::task::spawn_blocking(move || encoder.describe_closed(&bytes)).await??;
    Ok(FileEntry {
        path: file.path.clone(),
        bytes: size,
        digest: file.sha256.clone(),
        stats: Some(described.stats),
        last_organization: None,
    })
}

/// Returns the organization of a live file.
async fn owner(ports: &ClosePorts, path: &str) -> Result<OrganizationId> {
    let object = format!("{}/{path}", names::table(TABLE));
    let damaged = |cause: String| WorkerError::Damaged { object: object.clone(), cause };
    let bytes = ports.store.get(&object).await?.ok_or_else(|| damaged("it does not exist".to_owned()))?;
    let encoder = Arc::clone(&ports.encoder);
    let described = tokio::task::spawn_blocking(move || encoder.describe_closed(&bytes)).await?;
    Ok(described.map_err(|error| damaged(error.to_string()))?.organization_id)
}
