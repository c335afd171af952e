//! Drafts: the files of a manifest, or pending corrections, of one organization. Drafts of one shard are
//! filled together, date by date, so that the ledger's files of a date are fetched once. Memory holds these
//! files, and the rows of one organization and date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::{ClosedFile, ClosedTotals, CorrectedRows, Table};
use prorata_schemas::time::Date;
use sha2::{Digest, Sha256};

use super::ledger::Ledger;
use super::manifest::{Chain, FORMAT, Manifest, ManifestFile, ManifestTotals};
use super::{ClosePorts, is_of_organization};
use crate::error::{Result, WorkerError};
use crate::names::closed::{ClosedPath, Month};
use crate::names::{self, Shard};
use crate::objects;
use crate::ports::{FileEntry, FormatError};

/// The origin of the rows of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DateRows {
    /// The date is of the month that closes: its rows are copied.
    Copied,
    /// The date is of a closed month: its rows are corrected.
    Corrected,
}

/// The files of one organization under construction.
#[derive(Debug)]
pub(super) struct MonthDraft {
    pub(super) organization_id: OrganizationId,
    /// Billing period of the rows: the month that closes, or the open month.
    pub(super) period: Month,
    dates: BTreeMap<Date, DateRows>,
    /// Entries for the table's log, by path.
    pub(super) files: BTreeMap<String, (FileEntry, u64)>,
    /// Sums by currency.
    pub(super) totals: BTreeMap<Text, ClosedTotals>,
    invoices: BTreeSet<Text>,
    /// The first problem, with which the draft is given up.
    pub(super) error: Option<WorkerError>,
}

impl MonthDraft {
    /// Starts the draft of a month that closes, with the corrections of the chain's months.
    pub(super) fn of_month(
        organization_id: &OrganizationId,
        period: Month,
        chain: &Chain,
        ledger: &Ledger,
        shard: Shard,
    ) -> Self {
        let mut draft = Self::of_corrections(organization_id, period, chain, ledger, shard);
        draft.dates.extend(period.dates().map(|date| (date, DateRows::Copied)));
        draft
    }

    /// Starts the draft of corrections. A date is left out if the ledger has the files with which the chain
    /// compared it last.
    pub(super) fn of_corrections(
        organization_id: &OrganizationId,
        period: Month,
        chain: &Chain,
        ledger: &Ledger,
        shard: Shard,
    ) -> Self {
        let differs = |date: &Date| chain.recorded(*date) != Some(ledger.fingerprint(shard, *date));
        Self {
            organization_id: organization_id.clone(),
            period,
            dates: chain.dates().filter(differs).map(|date| (date, DateRows::Corrected)).collect(),
            files: BTreeMap::new(),
            totals: BTreeMap::new(),
            invoices: BTreeSet::new(),
            error: None,
        }
    }

    /// Returns the number of rows.
    pub(super) fn rows(&self) -> u64 {
        self.totals.values().map(|sums| sums.rows).sum()
    }

    /// Returns the manifest.
    pub(super) fn manifest(&self, chain: &Chain, ledger: &Ledger, shard: Shard) -> Manifest {
        let fingerprint = |date: &Date| (date.to_string(), ledger.fingerprint(shard, *date).to_owned());
        let file = |(entry, rows): &(FileEntry, u64)| ManifestFile {
            path: entry.path.clone(),
            bytes: entry.bytes,
            sha256: entry.digest.clone(),
            rows: *rows,
        };
        Manifest {
            format: FORMAT,
            organization_id: self.organization_id.clone(),
            period: self.period,
            previous: chain.previous(),
            invoices: self.invoices.clone(),
            totals: ManifestTotals::list(&self.totals),
            files: self.files.values().map(file).collect(),
            ledger: self.dates.keys().map(fingerprint).collect(),
        }
    }

    /// Adds a file. Returns its path under the root, and its bytes.
    fn add(&mut self, date: Date, rows: DateRows, file: ClosedFile) -> Result<(String, Bytes)> {
        let ClosedFile { bytes, stats, sha256, totals, mut invoices, .. } = file;
        for (currency, sums) in totals {
            let sum = self.totals.entry(currency).or_default();
            let added = sum.checked_add(sums);
            *sum = added.ok_or_else(|| FormatError::new("add up a month", "a sum is out of range"))?;
        }
        if rows == DateRows::Copied {
            self.invoices.append(&mut invoices);
        }
        let path = ClosedPath::new(date, self.period, &sha256).path();
        let object = format!("{}/{path}", names::table(Table::ClosedAllocation));
        let entry = FileEntry {
            path: path.clone(),
            bytes: bytes.len() as u64,
            digest: sha256,
            stats: Some(stats),
            last_organization: None,
        };
        self.files.insert(path, (entry, file.rows));
        Ok((object, bytes.into()))
    }
}

/// Fills the drafts of a shard, and stores their files unless `dry_run`. A draft that fails because of its
/// organization gets an error, and does not hold up the others.
///
/// # Errors
/// If storage is unavailable.
pub(super) async fn fill(
    ports: &ClosePorts,
    ledger: &Ledger,
    shard: Shard,
    chains: &BTreeMap<OrganizationId, Chain>,
    drafts: &mut [MonthDraft],
    dry_run: bool,
) -> Result<()> {
    let dates: BTreeSet<Date> = drafts.iter().flat_map(|draft| draft.dates.keys().copied()).collect();
    for date in dates {
        let fetched = match ledger.fetch(ports, shard, date).await {
            Ok(fetched) => Ok(fetched),
            Err(WorkerError::Damaged { object, cause }) => Err((object, cause)),
            Err(error) => return Err(error),
        };
        for draft in drafts.iter_mut().filter(|draft| draft.error.is_none()) {
            let Some(rows) = draft.dates.get(&date).copied() else { continue };
            let filled = match &fetched {
                Ok(files) => fill_date(ports, files, chains, draft, (date, rows), dry_run).await,
                Err((object, cause)) => {
                    Err(WorkerError::Damaged { object: object.clone(), cause: cause.clone() })
                }
            };
            match filled {
                Ok(()) => {}
                Err(error) if is_of_organization(&error) => draft.error = Some(error),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Fills one date of a draft.
async fn fill_date(
    ports: &ClosePorts,
    ledger: &[Bytes],
    chains: &BTreeMap<OrganizationId, Chain>,
    draft: &mut MonthDraft,
    (date, rows): (Date, DateRows),
    dry_run: bool,
) -> Result<()> {
    let closed = match (rows, chains.get(&draft.organization_id)) {
        (DateRows::Corrected, Some(chain)) => fetch_closed(ports, chain, date).await?,
        _ => Vec::new(),
    };
    let (encoder, ledger) = (Arc::clone(&ports.encoder), ledger.to_vec());
    let (organization_id, period) = (draft.organization_id.clone(), draft.period.bounds());
    let encoded = tokio::task::spawn_blocking(move || match rows {
        DateRows::Copied => encoder.copy_closed(&ledger, &organization_id, encoder.file_rows()),
        DateRows::Corrected => {
            let (organization_id, ledger, closed) = (&organization_id, &*ledger, &*closed);
            let rows = CorrectedRows { organization_id, ledger, closed, period };
            encoder.correct_closed(&rows, encoder.file_rows())
        }
    });
    let object = format!("{}/date={date}/", names::table(Table::CostAllocation));
    let encoded = encoded.await?.map_err(|error| WorkerError::Damaged { object, cause: error.to_string() });
    let mut objects = Vec::new();
    for file in encoded? {
        objects.push(draft.add(date, rows, file)?);
    }
    if dry_run { Ok(()) } else { Ok(objects::put_all(&*ports.store, objects).await?) }
}

/// Fetches the closed files of a date that manifests name.
async fn fetch_closed(ports: &ClosePorts, chain: &Chain, date: Date) -> Result<Vec<Bytes>> {
    let is_of_date = |file: &&ManifestFile| names::partition_date(&file.path) == Some(date);
    let files: Vec<&ManifestFile> = chain.files().filter(is_of_date).collect();
    let mut fetched = Vec::new();
    for file in files {
        fetched.push(fetch(ports, file).await?);
    }
    Ok(fetched)
}

/// Fetches a file that a manifest names.
///
/// # Errors
/// If it does not exist, differs from the manifest, or storage is unavailable.
pub(super) async fn fetch(ports: &ClosePorts, file: &ManifestFile) -> Result<Bytes> {
    let object = format!("{}/{}", names::table(Table::ClosedAllocation), file.path);
    let damaged = |cause: &str| WorkerError::Damaged { object: object.clone(), cause: cause.to_owned() };
    let bytes = ports.store.get(&object).await?;
    let bytes = bytes.ok_or_else(|| damaged("a manifest names it, but it does not exist"))?;
    if format!("{:x}", Sha256::digest(&bytes)) == file.sha256 {
        Ok(bytes)
    } else {
        Err(damaged("its digest differs from the manifest"))
    }
}
