//! Checks closed months: chains of manifests, their files, and that the issued rows with their corrections
//! equal the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::{ClosedFile, ClosedTotals, CorrectedRows, Table};
use prorata_schemas::time::{Date, HourRange};
use prorata_worker::WorkerError;
use prorata_worker::names;
use prorata_worker::names::closed::{self, ClosedPath, Month};
use prorata_worker::root::Root;
use prorata_worker::root::close::manifest::{Chain, Chains, Link, ManifestFile, ManifestTotals};
use serde_json::{Value, json};

use super::finding::{Findings, Problem, Severity};
use crate::lake::{FoundFile, LakeTables, TableLog};
use crate::text::PlainText;

const TABLE: Table = Table::ClosedAllocation;

/// The result of a check of closed months.
#[derive(Clone, Debug, Default)]
pub struct ClosedChecked {
    /// Number of organizations with a closed month.
    pub organizations: u64,
    /// Number of closed months.
    pub months: u64,
    /// Number of files that were read, of manifests and of pending corrections.
    pub files: u64,
    /// Number of their rows.
    pub rows: u64,
    /// The problems.
    pub findings: Findings,
}

/// Paths of pending corrections, by organization.
type Pending = BTreeMap<OrganizationId, BTreeSet<String>>;

/// Checks closed months. `log` is the log of `closed_allocation`, read before this call. Reads the files of
/// one organization and date at a time.
///
/// # Errors
/// If there is no root, or storage is unavailable. A problem of the lake is a finding, not an error.
pub async fn check_closed(
    lake: &LakeTables<'_>,
    log: Option<&TableLog>,
) -> Result<ClosedChecked, WorkerError> {
    let Some(root) = Root::find(lake.store(), None).await? else {
        let message = format!("there is no {}: name the folder of a prorata lake", names::ROOT);
        return Err(WorkerError::Configuration(message));
    };
    let ledger = lake.days(HourRange::between(None, None));
    let (live, checked) = (BTreeMap::new(), ClosedChecked::default());
    let mut check = ClosedCheck { lake, root, ledger, live, checked };
    let Chains { chains, broken } = Chains::read(lake.store()).await?;
    for (organization_id, error) in &broken {
        let location = format!("organization '{organization_id}'");
        check.checked.findings.add(Problem::ManifestDamaged, location, error);
    }
    let files = log.map(|log| log.files.as_slice()).unwrap_or_default();
    check.live = files.iter().map(|file| (file.path.clone(), file.bytes)).collect();
    if let Some(drift) = log.and_then(|log| log.drift.as_ref()) {
        check.checked.findings.add(Problem::SchemaDrift, TABLE.name(), drift);
    }
    let pending = check.pending(&chains, &broken).await?;
    for (organization_id, chain) in &chains {
        check.checked.organizations += 1;
        for link in chain.links() {
            check.check_month(link).await?;
        }
        let none = BTreeSet::new();
        let pending = pending.get(organization_id).unwrap_or(&none);
        check.check_law(organization_id, chain, pending).await?;
    }
    Ok(check.checked)
}

struct ClosedCheck<'a> {
    lake: &'a LakeTables<'a>,
    root: Root,
    /// Live files of the hourly tables, by date.
    ledger: BTreeMap<Date, Vec<FoundFile>>,
    /// Live files of the table, with their size in the log.
    live: BTreeMap<String, u64>,
    checked: ClosedChecked,
}

impl ClosedCheck<'_> {
    /// Reads the live files that no manifest names, and returns the pending corrections of each
    /// organization. If a chain cannot be read, a file of its organization may be of a manifest.
    async fn pending(
        &mut self,
        chains: &BTreeMap<OrganizationId, Chain>,
        broken: &BTreeMap<OrganizationId, WorkerError>,
    ) -> Result<Pending, WorkerError> {
        let named: BTreeSet<&str> = chains.values().flat_map(Chain::files).map(|file| &*file.path).collect();
        let others = self.live.keys().filter(|path| !named.contains(path.as_str()));
        let others: Vec<String> = others.cloned().collect();
        let mut pending = Pending::new();
        for path in others {
            let location = object(&path);
            let Some(bytes) = self.lake.store().get(&location).await? else {
                let what = "the table holds it, but the store lacks it";
                self.checked.findings.add(Problem::ClosedFileDamaged, location, what);
                continue;
            };
            let file = match prorata_tables::closed::describe(&bytes) {
                Ok(file) => file,
                Err(error) => {
                    self.checked.findings.add(Problem::ClosedFileDamaged, location, error);
                    continue;
                }
            };
            if broken.contains_key(&file.organization_id) {
                continue;
            }
            self.checked.files += 1;
            self.checked.rows += file.rows;
            let open = chains.get(&file.organization_id).and_then(Chain::last).map(|last| last.next());
            let name = ClosedPath::parse(&path);
            let expected = name.as_ref().map(|name| ClosedPath::new(name.date, name.period, &file.sha256));
            if name.is_none() || expected != name || name.map(|name| name.period) != open {
                let what = "no manifest names it, and it is not a pending correction of the open month";
                self.checked.findings.add(Problem::ForeignFile, location, what);
            } else if file.corrections != file.rows {
                let what = "no manifest names it, and it has rows that are not corrections";
                self.checked.findings.add(Problem::ForeignFile, location, what);
            } else {
                pending.entry(file.organization_id).or_default().insert(path);
            }
        }
        Ok(pending)
    }

    /// Compares the files of a manifest with the objects, the table's log, and the manifest's totals and
    /// invoices.
    async fn check_month(&mut self, link: &Link) -> Result<(), WorkerError> {
        self.checked.months += 1;
        let manifest = &link.manifest;
        let mut totals: Option<BTreeMap<Text, ClosedTotals>> = Some(BTreeMap::new());
        let mut invoices = BTreeSet::new();
        for file in &manifest.files {
            let location = object(&file.path);
            if self.live.get(&file.path) != Some(&file.bytes) {
                let what = "its manifest names it, but the table lacks it, or has another size of it";
                self.checked.findings.add(Problem::ClosedFileNotLive, &location, what);
            }
            let bytes = self.lake.store().get(&location).await?;
            match bytes.map_or(Err("it does not exist".to_owned()), |bytes| compared(file, &bytes)) {
                Ok(mut found) => {
                    self.checked.files += 1;
                    self.checked.rows += file.rows;
                    totals = totals.and_then(|totals| sum(totals, &found.totals));
                    let date = names::partition_date(&file.path);
                    if date.is_some_and(|date| Month::of(date) == manifest.period) {
                        invoices.append(&mut found.invoices);
                    }
                }
                Err(what) => {
                    self.checked.findings.add(Problem::ClosedFileDamaged, location, what);
                    totals = None;
                }
            }
        }
        let Some(totals) = totals else { return Ok(()) };
        let location = closed::manifest(&manifest.organization_id, manifest.period);
        if ManifestTotals::list(&totals) != manifest.totals {
            let what = "its totals differ from the sums of its files";
            self.checked.findings.add(Problem::ManifestDamaged, &location, what);
        }
        if invoices != manifest.invoices {
            let what = "its invoices differ from the invoices of its files";
            self.checked.findings.add(Problem::ManifestDamaged, location, what);
        }
        Ok(())
    }

    /// Compares the closed rows of an organization with the ledger, date by date.
    async fn check_law(
        &mut self,
        organization_id: &OrganizationId,
        chain: &Chain,
        pending: &BTreeSet<String>,
    ) -> Result<(), WorkerError> {
        let shard = self.root.shard_of(organization_id);
        for date in chain.dates() {
            let of_date = self
                .ledger
                .get(&date)
                .into_iter()
                .flatten()
                .filter(|file| file.table == Table::CostAllocation && file.shard() == Some(shard));
            let ledger = self.fetch(of_date.map(ToString::to_string)).await?;
            let issued = chain.files().map(|file| &file.path).chain(pending);
            let issued = issued.filter(|path| names::partition_date(path) == Some(date));
            let closed = self.fetch(issued.map(|path| object(path))).await?;
            // A file that is gone has a finding of its own.
            let (Some(ledger), Some(closed)) = (ledger, closed) else { continue };
            self.compare(organization_id, date, &ledger, &closed);
        }
        Ok(())
    }

    /// Fetches objects; `None` if one of them does not exist.
    async fn fetch(&self, paths: impl Iterator<Item = String>) -> Result<Option<Vec<Bytes>>, WorkerError> {
        let mut fetched = Vec::new();
        for path in paths.collect::<Vec<_>>() {
            let Some(bytes) = self.lake.store().get(&path).await? else { return Ok(None) };
            fetched.push(bytes);
        }
        Ok(Some(fetched))
    }

    fn compare(&mut self, organization_id: &OrganizationId, date: Date, ledger: &[Bytes], closed: &[Bytes]) {
        let period = (date.start(), date.start());
        let location = format!("organization '{organization_id}', date {date}");
        match prorata_tables::closed::correct(
            &CorrectedRows { organization_id, ledger, closed, period },
            u64::MAX,
        ) {
            Ok(files) => {
                let rows: u64 = files.iter().map(|file| file.rows).sum();
                if rows > 0 {
                    let what = format!("{rows} groups of rows differ from the ledger");
                    self.checked.findings.add(Problem::NotCorrected, location, what);
                }
            }
            Err(error) => self.checked.findings.add(Problem::FileDamaged, location, error),
        }
    }
}

/// Returns the path of a file of the table under the root.
fn object(path: &str) -> String {
    format!("{}/{path}", TABLE.name())
}

/// Compares a file with its manifest, and returns its description.
fn compared(file: &ManifestFile, bytes: &Bytes) -> Result<ClosedFile, String> {
    if bytes.len() as u64 != file.bytes {
        return Err(format!("it has {} bytes, but its manifest says {}", bytes.len(), file.bytes));
    }
    let found = prorata_tables::closed::describe(bytes).map_err(|error| error.to_string())?;
    if found.sha256 != file.sha256 {
        return Err("its SHA-256 differs from its manifest".to_owned());
    }
    if found.rows != file.rows {
        return Err(format!("it has {} rows, but its manifest says {}", found.rows, file.rows));
    }
    Ok(found)
}

/// Adds sums; `None` if a sum is out of range.
fn sum(
    mut totals: BTreeMap<Text, ClosedTotals>,
    others: &BTreeMap<Text, ClosedTotals>,
) -> Option<BTreeMap<Text, ClosedTotals>> {
    for (currency, other) in others {
        let sums = totals.entry(currency.clone()).or_default();
        *sums = sums.checked_add(*other)?;
    }
    Some(totals)
}

impl ClosedChecked {
    /// Returns one JSON document.
    pub fn json(&self) -> Value {
        let (findings, counts) = self.findings.json();
        json!({
            "organizations": self.organizations,
            "months": self.months,
            "files": self.files,
            "rows": self.rows,
            "counts": counts,
            "findings": findings,
        })
    }

    fn write_text(&self, out: &mut PlainText) -> fmt::Result {
        let Self { organizations, months, files, rows, .. } = self;
        writeln!(
            out,
            "Checked {months} closed months of {organizations} organizations: {rows} rows, {files} files."
        )?;
        self.findings.write_text(out)?;
        match self.findings.worst() {
            None => writeln!(out, "Nothing is wrong."),
            Some(Severity::Warning) => writeln!(out, "The closed months are intact; see the warnings."),
            Some(Severity::Error) => writeln!(out, "The closed months have errors."),
        }
    }
}

impl fmt::Display for ClosedChecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = PlainText::default();
        self.write_text(&mut out)?;
        f.write_str(out.as_str())
    }
}
