//! Closes months: copies the rows of final months of organizations into `closed_allocation`, whose rows never
//! change, and writes corrections of what changes in the ledger afterwards.
//!
//! `manifest` has the decisions, `hours` the months that can close, `ledger` the files of `cost_allocation`,
//! `draft` the files of a manifest, and `commit` the table's log.
//!
//! A run owns no shard. It stores data files, then the manifest, then makes the table equal to the manifests
//! in one commit. So it may be killed at any point and run twice at once: the next run repairs the rest. A
//! manifest is created if absent. If it exists with other bytes, another run has closed the month, and its
//! manifest counts.

mod commit;
mod draft;
mod hours;
mod ledger;
pub mod manifest;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::ClosedTotals;
use prorata_schemas::time::Date;

use crate::error::{Result, WorkerError};
use crate::names::closed::Month;
use crate::names::{self, Shard};
use crate::objects;
use crate::ports::{Clock, ObjectStore, TableCommitter, TableEncoder};
use crate::root::Root;

use commit::WantedFiles;
use draft::MonthDraft;
use hours::ReadHours;
use ledger::Ledger;
use manifest::{Chain, Chains};

/// The ports of closing.
#[derive(Clone)]
pub struct ClosePorts {
    /// The root.
    pub store: Arc<dyn ObjectStore>,
    /// The tables of the root.
    pub tables: Arc<dyn TableCommitter>,
    /// The encoder of their files.
    pub encoder: Arc<dyn TableEncoder>,
    /// The clock for waits between attempts.
    pub clock: Arc<dyn Clock>,
}

/// The organizations and months to close.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseOptions {
    /// The organizations; `None` for all.
    pub organizations: Option<BTreeSet<OrganizationId>>,
    /// A date of the first month whose hours are read; `None` for four months before the newest hour.
    pub from: Option<Date>,
    /// Whether nothing is written.
    pub dry_run: bool,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct CloseReport {
    /// The months that were closed, or that would be in a dry run, in order of organizations and months.
    pub months: Vec<ClosedMonth>,
    /// Organizations with pending corrections.
    pub pending: Vec<PendingCorrections>,
    /// Months that are over and did not close.
    pub open: Vec<OpenMonth>,
    /// Number of files that were added to the table.
    pub files_added: u64,
    /// Number of pending files that were removed from the table.
    pub files_removed: u64,
    /// Problems of one organization, shard or file, each with its place. They did not hold up the rest.
    pub failed: Vec<(String, WorkerError)>,
}

/// A month that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedMonth {
    /// The organization.
    pub organization_id: OrganizationId,
    /// The month.
    pub period: Month,
    /// Sums by currency, including the corrections of earlier months.
    pub totals: BTreeMap<Text, ClosedTotals>,
}

/// Corrections that the manifest of the open month will list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCorrections {
    /// The organization.
    pub organization_id: OrganizationId,
    /// The open month.
    pub period: Month,
    /// Sums by currency.
    pub totals: BTreeMap<Text, ClosedTotals>,
}

/// A month that is over and did not close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenMonth {
    /// The organization.
    pub organization_id: OrganizationId,
    /// The month.
    pub period: Month,
    /// The reason.
    pub reason: OpenReason,
}

/// The reason for which a month did not close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenReason {
    /// Hours are not final.
    NotFinal {
        /// Number of hours with a row.
        hours: u64,
        /// Number of these that are not final.
        not_final: u64,
    },
    /// The month after the last closed one is earlier than the hours that were read.
    NotRead,
}

/// Closes every month that can close, writes the corrections of closed months, and makes the table equal.
/// `id` is a random id of the run.
///
/// # Errors
/// If there is no root, or storage is unavailable. [`CloseReport::failed`] has the problems of single
/// organizations.
pub async fn close(ports: &ClosePorts, options: &CloseOptions, id: &str) -> Result<CloseReport> {
    let store = &*ports.store;
    let Some(root) = Root::find(store, None).await? else {
        let message = format!("there is no {}: name the folder of a prorata lake", names::ROOT);
        return Err(WorkerError::Configuration(message));
    };
    // The worker publishes `hours` last, so the rows that are read afterwards are at least as new.
    let hours = ReadHours::read(ports, options.from).await?;
    let ledger = Ledger::read(ports).await?;
    let Chains { chains, broken } = Chains::read(store).await?;
    let (done, wanted) = (CloseReport::default(), WantedFiles::default());
    let mut run = CloseRun { ports, options, hours, ledger, chains, done, wanted };
    let organizations = run.organizations(&root, broken);
    for (shard, organizations) in organizations {
        run.close_months(shard, organizations.clone()).await?;
        run.correct(shard, organizations).await?;
    }
    let CloseRun { mut done, wanted, chains, .. } = run;
    // Without a closed month, the table is not created.
    if !options.dry_run && chains.values().any(|chain| chain.last().is_some()) {
        let mut committed = commit::publish(ports, wanted, id).await?;
        (done.files_added, done.files_removed) = (committed.added, committed.removed);
        done.failed.append(&mut committed.failed);
    }
    Ok(done)
}

/// Returns whether an error concerns one organization, so that the others continue.
fn is_of_organization(error: &WorkerError) -> bool {
    matches!(error, WorkerError::Damaged { .. } | WorkerError::Format(_) | WorkerError::Configuration(_))
}

/// A run with everything that it has read and done.
struct CloseRun<'a> {
    ports: &'a ClosePorts,
    options: &'a CloseOptions,
    hours: ReadHours,
    ledger: Ledger,
    chains: BTreeMap<OrganizationId, Chain>,
    done: CloseReport,
    wanted: WantedFiles,
}

impl CloseRun<'_> {
    /// Returns the organizations to handle, by shard. Reports shards and chains that cannot be read, and
    /// leaves them out.
    fn organizations(
        &mut self,
        root: &Root,
        broken: BTreeMap<OrganizationId, WorkerError>,
    ) -> BTreeMap<Shard, BTreeSet<OrganizationId>> {
        let is_chosen = |organization_id: &&OrganizationId| {
            self.options.organizations.as_ref().is_none_or(|chosen| chosen.contains(*organization_id))
        };
        let with_hours = self.hours.shards.values().flat_map(BTreeMap::keys);
        let chosen = with_hours.chain(self.chains.keys()).filter(is_chosen);
        let mut organizations: BTreeMap<Shard, BTreeSet<OrganizationId>> = BTreeMap::new();
        for organization_id in chosen.filter(|organization_id| !broken.contains_key(*organization_id)) {
            let shard = root.shard_of(organization_id);
            if !self.hours.broken.contains_key(&shard) {
                organizations.entry(shard).or_default().insert(organization_id.clone());
            }
        }
        let chosen = broken.into_iter().filter(|(organization_id, _)| is_chosen(&organization_id));
        let mut failed: Vec<(String, WorkerError)> =
            chosen.map(|(organization_id, error)| (of_organization(&organization_id), error)).collect();
        let shards = std::mem::take(&mut self.hours.broken).into_iter();
        failed.extend(shards.map(|(shard, error)| (format!("shard {shard}"), error)));
        self.done.failed = failed;
        organizations
    }

    /// Closes one month of each organization after another, until none can close.
    async fn close_months(
        &mut self,
        shard: Shard,
        mut organizations: BTreeSet<OrganizationId>,
    ) -> Result<()> {
        let none = Chain::default();
        while !organizations.is_empty() {
            let mut drafts = Vec::new();
            for organization_id in &organizations {
                let chain = self.chains.get(organization_id).unwrap_or(&none);
                let of = self.hours.shards.get(&shard).and_then(|of_shard| of_shard.get(organization_id));
                let open = &mut self.done.open;
                let next = of.and_then(|of| self.hours.next(organization_id, of, chain.last(), open));
                let ledger = &self.ledger;
                drafts.extend(
                    next.map(|period| MonthDraft::of_month(organization_id, period, chain, ledger, shard)),
                );
            }
            self.fill(shard, &mut drafts).await?;
            organizations.clear();
            for draft in drafts {
                let organization_id = draft.organization_id.clone();
                match self.decide(shard, draft).await {
                    Ok(()) => {
                        organizations.insert(organization_id);
                    }
                    Err(error) if is_of_organization(&error) => {
                        self.done.failed.push((of_organization(&organization_id), error));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn fill(&self, shard: Shard, drafts: &mut [MonthDraft]) -> Result<()> {
        draft::fill(self.ports, &self.ledger, shard, &self.chains, drafts, self.options.dry_run).await
    }

    /// Stores the manifest of a draft, unless another run has closed the month.
    async fn decide(&mut self, shard: Shard, mut draft: MonthDraft) -> Result<()> {
        if let Some(error) = draft.error.take() {
            return Err(error);
        }
        let (organization_id, period) = (draft.organization_id.clone(), draft.period);
        let chain = self.chains.entry(organization_id.clone()).or_default();
        let bytes = draft.manifest(chain, &self.ledger, shard).to_bytes()?;
        let decided = if self.options.dry_run {
            bytes.clone()
        } else {
            let path = names::closed::manifest(&organization_id, period);
            objects::create(&*self.ports.store, &path, &bytes).await?
        };
        chain.add(&organization_id, period, &decided)?;
        if decided == bytes {
            let entries = draft.files.into_iter().map(|(path, (entry, _))| (path, entry));
            self.wanted.encoded.extend(entries);
            self.done.months.push(ClosedMonth { organization_id, period, totals: draft.totals });
        } else {
            tracing::info!(organization = &*organization_id, %period, "another run has closed the month");
        }
        Ok(())
    }

    /// Writes the corrections of closed months so far.
    async fn correct(&mut self, shard: Shard, organizations: BTreeSet<OrganizationId>) -> Result<()> {
        let draft = |organization_id: &OrganizationId| {
            let chain = self.chains.get(organization_id)?;
            let open = chain.last()?.next();
            Some(MonthDraft::of_corrections(organization_id, open, chain, &self.ledger, shard))
        };
        let mut drafts: Vec<MonthDraft> = organizations.iter().filter_map(draft).collect();
        self.fill(shard, &mut drafts).await?;
        for draft in drafts {
            let rows = draft.rows();
            let MonthDraft { organization_id, period, files, totals, error, .. } = draft;
            if let Some(error) = error {
                self.done.failed.push((of_organization(&organization_id), error));
                continue;
            }
            let paths = files.keys().cloned().collect();
            self.wanted.pending.insert(organization_id.clone(), (period, paths));
            self.wanted.encoded.extend(files.into_iter().map(|(path, (entry, _))| (path, entry)));
            if rows > 0 {
                self.done.pending.push(PendingCorrections { organization_id, period, totals });
            }
        }
        Ok(())
    }
}

fn of_organization(organization_id: &OrganizationId) -> String {
    format!("organization '{organization_id}'")
}
