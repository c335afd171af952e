//! Checks that a lake is complete and that its money adds up, without folding events again.
//!
//! Reading order: [`finding`] defines every possible finding; `files` compares logs, objects and checkpoints;
//! `archive` compares the archive with both; `money` adds up the rows of every hour again; `agreements` finds
//! agreements that match nothing; `bills` compares rows with the provider's bill; `closed` checks closed
//! months; `report` writes the result.

mod agreements;
mod archive;
mod bills;
mod closed;
mod files;
pub mod finding;
mod money;
mod report;

use std::collections::BTreeMap;

use bytes::Bytes;
use prorata_schemas::time::HourRange;
use prorata_worker::WorkerError;

use crate::Sum;
use crate::lake::{FoundFile, LakeTables};

pub use bills::{BillChecked, BillSums, ExpectedLine, InvoiceSums, check_bill};
pub use closed::{ClosedChecked, check_closed};
pub use files::Checkpoints;

use agreements::MatchedAgreements;
use archive::{Archives, WithTotals};
use files::Unpublished;
use finding::{Findings, Problem};
use money::Day;

/// The result of a check of a lake.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// First and last hour with a row in `hours`.
    pub hours: Option<HourRange>,
    /// Number of hours of organizations whose rows were added up.
    pub organization_hours: u64,
    /// Number of live files that were read.
    pub files: u64,
    /// Total size of these files in bytes.
    pub bytes: u64,
    /// Number of rows of `cost_allocation`.
    pub rows: u64,
    /// Supplied and allocated money, by currency.
    pub money: BTreeMap<String, Money>,
    /// Number and total size in bytes of the objects in the tables' folders that no log names. These are
    /// replaced files, which VACUUM removes after a week.
    pub replaced: (u64, u64),
    /// The problems.
    pub findings: Findings,
}

/// Money of one currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Money {
    /// Cost of nodes, serverless pods, unused reservations, commitments, pools and lines of bills.
    pub supply: Sum,
    /// Allocated cost.
    pub allocated: Sum,
}

/// Checks a lake hour by hour against checkpoints that were read after its tables.
///
/// # Errors
/// If storage is unavailable. A problem of the lake is a finding, not an error.
pub async fn check(
    lake: &LakeTables<'_>,
    checkpoints: &Checkpoints,
    range: HourRange,
) -> Result<Checked, WorkerError> {
    let mut checked = Checked::default();
    files::check_logs(lake, &mut checked.findings);
    let unpublished = files::check_checkpoints(lake, checkpoints, range, &mut checked.findings);
    checked.replaced = files::replaced(lake).await?;
    let days = lake.days(range);
    let mut agreements = MatchedAgreements::default();
    let mut archives = Archives::new(lake.store(), &checkpoints.shards);
    for (date, files) in &days {
        let with_totals = check_day(lake, range, &unpublished, files, &mut checked, &mut agreements).await?;
        archives.check_date(*date, range, &unpublished, &with_totals, &mut checked.findings).await?;
    }
    agreements.finish(&mut checked.findings);
    Ok(checked)
}

/// Reads the files of a date, and adds up its hours. Returns the hours that have totals, by shard.
async fn check_day(
    lake: &LakeTables<'_>,
    range: HourRange,
    unpublished: &Unpublished,
    files: &[FoundFile],
    checked: &mut Checked,
    agreements: &mut MatchedAgreements,
) -> Result<WithTotals, WorkerError> {
    let mut day = Day::default();
    lake.read_each(files, |file, bytes| {
        let Some(bytes) = bytes else {
            checked.findings.add(
                Problem::FileMissing,
                file,
                "the table's log names it, but the store lacks it",
            );
            return;
        };
        checked.files += 1;
        checked.bytes += bytes.len() as u64;
        if bytes.len() as u64 != file.bytes {
            let what = format!("it has {} bytes, but the table's log says {}", bytes.len(), file.bytes);
            checked.findings.add(Problem::FileSizeMismatch, file, what);
        }
        match crate::columns::drift(file.table, bytes.clone()) {
            Ok(None) => {}
            Ok(Some(drift)) => checked.findings.add(Problem::SchemaDrift, file, drift),
            Err(error) => {
                checked.findings.add(Problem::FileDamaged, file, error);
                return;
            }
        }
        if let Some(wrong) = other_hours(file, &bytes) {
            checked.findings.add(Problem::FileDamaged, file, wrong);
        }
        if let Err(error) = day.add(file, bytes, range, agreements) {
            checked.findings.add(Problem::FileDamaged, file, error);
        }
    })
    .await?;
    day.finish(range, unpublished, checked);
    Ok(day.with_totals())
}

/// Compares the hours in a file of a day with the hours in its name. Returns a message if they differ or
/// cannot be read, and otherwise `None`.
fn other_hours(file: &FoundFile, bytes: &Bytes) -> Option<String> {
    let named = file.day()?;
    let parts = match prorata_tables::day_parts(file.table, bytes) {
        Ok(parts) => parts,
        Err(error) => return Some(error.to_string()),
    };
    let same = named.has_hours(parts.iter().map(|part| part.hour));
    (!same).then(|| "its hours differ from those in its name".to_owned())
}
